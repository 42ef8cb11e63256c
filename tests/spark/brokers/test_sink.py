"""The sink at Artemis, which drops a message whose id it has: each row is there once, whatever was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.testing.proxied import ProxyLink
from stompy.testing.proxy import FaultProxy
from stompy.testing.required import broker_or_skip
from stompy.testing.switches import Direction
from tests.spark.sending import CHUNK, ROWS, Sending
from tests.spark.striking import Order
from tests.spark.work import ENOUGH, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def sending(spark: SparkSession, artemis: Target, tmp_path: Path) -> Sending:
    return Sending(spark, artemis.url, tmp_path)


@pytest.mark.hard_case("T20")
def test_of_tasks_that_are_killed_each_row_is_there_once(sending: Sending) -> None:
    sending.order(0, Order("asked", 2), Order("confirmed", 3))
    sending.order(1, Order("confirmed", 1), Order("asked", 1, "exit"))
    sending.save()
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}
    assert len(sending.orders.noted) == 4


@pytest.mark.hard_case("T20")
def test_of_a_stream_that_failed_and_starts_again_each_row_is_there_once(sending: Sending) -> None:
    sending.put()
    sending.order(1, *[Order("asked", 2)] * 3)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        sending.start().awaitTermination(ENOUGH)
    assert sending.start().awaitTermination(ENOUGH)
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_of_a_batch_that_the_drivers_death_cut_off_each_row_is_there_once(sending: Sending) -> None:
    sending.put()
    sending.order(0, Order("confirmed", 3, "stay"))
    sending.order(1, Order("asked", 2, "stay"))
    sending.start_and_kill_the_driver(within=ENOUGH)
    assert sending.start().awaitTermination(ENOUGH)
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_of_chunks_whose_link_is_cut_each_row_is_there_once(sending: Sending) -> None:
    cuts: list[tuple[Direction, int]] = [("up", 300_000), ("down", 8_000), ("up", 900_000), ("down", 30_000)]

    def cut(link: ProxyLink) -> None:
        if cuts:
            direction, octets = cuts.pop(0)
            link.cut_after(octets, direction=direction)

    direct = sending.url
    with FaultProxy(direct, on_connection=cut) as proxy:
        sending.url = proxy.url
        sending.save()
        assert proxy.stats().accepted == 6
    sending.url = direct
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_the_broker_knows_the_rows_in_another_order_in_other_chunks_and_after_its_own_death(
    sending: Sending, artemis: Target
) -> None:
    sending.save(jobId="nightly")
    artemis.broker.kill()
    artemis.broker.restart()
    sending.save(turned=True, jobId="nightly", transactionSize=CHUNK // 3)
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}


@pytest.mark.hard_case("T20")
def test_in_transactions_the_broker_drops_nothing_and_the_copies_have_equal_ids(sending: Sending) -> None:
    sending.order(0, Order("confirmed", 1))
    sending.save(transactions="true")
    arrived = sending.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS - CHUNK, 2: CHUNK}


@pytest.mark.parametrize("kind", ["activemq", "rabbitmq4"])
@pytest.mark.hard_case("T21")
def test_a_broker_whose_memory_is_full_fails_the_job_in_words(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    with broker_or_skip(kind, memory_limit=1_000_000) as broker:
        sending = Sending(spark, broker.url(), tmp_path)
        with pytest.raises(Exception, match=r"stopped reading or confirming .* store or memory is full"):
            sending.save(sendTimeout="1s", receiptTimeout="1s")
