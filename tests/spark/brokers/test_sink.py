"""The sink at Artemis, which drops a message whose id it has: each row is there once, whatever was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.testing.containers import broker_or_skip
from stompy.testing.proxied import Direction, ProxyLink
from stompy.testing.proxy import FaultProxy
from tests.spark.kill_orders import Order
from tests.spark.sink_jobs import CHUNK, ROWS, SinkJobs
from tests.spark.streaming_run import ENOUGH, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def jobs(spark: SparkSession, artemis: Target, tmp_path: Path) -> SinkJobs:
    return SinkJobs(spark, artemis.url, tmp_path)


@pytest.mark.hard_case("T20")
def test_of_tasks_that_are_killed_each_row_is_there_once(jobs: SinkJobs) -> None:
    jobs.order(0, Order("asked", 2), Order("confirmed", 3))
    jobs.order(1, Order("confirmed", 1), Order("asked", 1, "exit"))
    jobs.save()
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}
    assert len(jobs.orders.noted) == 4


@pytest.mark.hard_case("T20")
def test_of_a_stream_that_failed_and_starts_again_each_row_is_there_once(jobs: SinkJobs) -> None:
    jobs.put()
    jobs.order(1, *[Order("asked", 2)] * 3)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        jobs.start().awaitTermination(ENOUGH)
    assert jobs.start().awaitTermination(ENOUGH)
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_of_a_batch_that_the_drivers_death_cut_off_each_row_is_there_once(jobs: SinkJobs) -> None:
    jobs.put()
    jobs.order(0, Order("confirmed", 3, "stay"))
    jobs.order(1, Order("asked", 2, "stay"))
    jobs.start_and_kill_the_driver(within=ENOUGH)
    assert jobs.start().awaitTermination(ENOUGH)
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_of_chunks_whose_link_is_cut_each_row_is_there_once(jobs: SinkJobs) -> None:
    cuts: list[tuple[Direction, int]] = [("up", 300_000), ("down", 8_000), ("up", 900_000), ("down", 30_000)]

    def cut(link: ProxyLink) -> None:
        if cuts:
            direction, after = cuts.pop(0)
            link.cut_after(after, direction=direction)

    direct = jobs.url
    with FaultProxy(direct, on_connection=cut) as proxy:
        jobs.url = proxy.url
        jobs.save()
        assert proxy.stats().accepted == 6
    jobs.url = direct
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_the_broker_knows_the_rows_in_another_order_in_other_chunks_and_after_its_own_death(
    jobs: SinkJobs, artemis: Target
) -> None:
    jobs.save(jobId="nightly")
    artemis.broker.kill()
    artemis.broker.restart()
    jobs.save(turned=True, jobId="nightly", transactionSize=CHUNK // 3)
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_in_transactions_the_broker_drops_nothing_and_the_copies_have_equal_ids(jobs: SinkJobs) -> None:
    jobs.order(0, Order("confirmed", 1))
    jobs.save(transactions="true")
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS - CHUNK, 2: CHUNK}


@pytest.mark.parametrize("kind", ["activemq", "rabbitmq4"])
@pytest.mark.hard_case("T21")
def test_a_broker_with_full_memory_fails_the_job_with_a_clear_error(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    with broker_or_skip(kind, memory_limit=1_000_000) as broker:
        jobs = SinkJobs(spark, broker.url(), tmp_path)
        with pytest.raises(Exception, match=r"stopped reading or confirming .* store or memory is full"):
            jobs.save(receiptTimeout="1s")
