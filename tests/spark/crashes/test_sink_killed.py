"""The sink's Python worker is killed at each moment of a chunk; what lies at the broker is counted row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from stompy.testing.faults import Delay, FaultPlan
from stompy.testing.proxy import FaultProxy
from tests.spark.kill_orders import Order
from tests.spark.sink_jobs import CHUNK, PART, ROWS, SinkJobs
from tests.spark.streaming_run import ENOUGH, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATTEMPTS = 3
"""Of a task, as the session has it."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def embedded() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def jobs(spark: SparkSession, target: Target, tmp_path: Path) -> SinkJobs:
    return SinkJobs(spark, target.url, tmp_path)


@pytest.mark.hard_case("T20")
def test_of_a_transaction_that_is_cut_off_nothing_arrives_and_the_next_attempt_sends_all(jobs: SinkJobs) -> None:
    jobs.order(0, Order("sent", 1, "exit"))
    jobs.order(1, Order("sent", 1))
    jobs.save()
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times() == {1: ROWS}
    assert sorted(jobs.orders.noted) == ["sent 1 SIGKILL", "sent 1 exit"]


@pytest.mark.hard_case("T20")
def test_what_was_committed_before_the_kill_comes_again_with_the_same_ids(jobs: SinkJobs) -> None:
    jobs.order(0, Order("confirmed", 3))
    jobs.order(1, Order("confirmed", 1), Order("sent", 2))
    jobs.save()
    arrived = jobs.arrived()
    arrived.check()
    # The whole partition and the first transaction of the other, which two attempts had committed.
    assert arrived.times(0) == {2: PART}
    assert arrived.times(1) == {3: CHUNK, 1: PART - CHUNK}


@pytest.mark.hard_case("T20")
def test_a_commit_whose_receipt_nobody_saw_is_done_or_not_as_a_whole(jobs: SinkJobs) -> None:
    jobs.order(0, Order("asked", 1))
    jobs.order(1, Order("asked", 2))
    jobs.save()
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times(0) in ({1: PART}, {2: CHUNK, 1: PART - CHUNK})
    assert arrived.times(1) in ({2: CHUNK, 1: PART - CHUNK}, {2: 2 * CHUNK, 1: PART - 2 * CHUNK})


@pytest.mark.hard_case("T20")
def test_without_a_further_attempt_the_job_is_aborted_and_what_was_committed_stays(
    spark: SparkSession, embedded: Broker, tmp_path: Path
) -> None:
    jobs = SinkJobs(spark, embedded.url, tmp_path)
    jobs.order(1, *[Order("sent", 2)] * ATTEMPTS)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        jobs.save(jobId="nightly")
    assert jobs.orders.noted[-1] == "abort 1 of 2"
    # Done again under the same name, it has the same ids.
    jobs.save(jobId="nightly")
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times(0) == {2: PART}
    assert arrived.times(1) == {ATTEMPTS + 1: CHUNK, 1: PART - CHUNK}


@pytest.mark.hard_case("T20")
def test_a_stream_that_failed_sends_its_batch_again_with_the_same_ids(jobs: SinkJobs) -> None:
    jobs.put()
    jobs.order(1, *[Order("sent", 2)] * ATTEMPTS)
    query = jobs.start()
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        query.awaitTermination(ENOUGH)
    assert jobs.orders.noted[-1] == "abort 1 of 2"
    jobs.put(start=ROWS)
    assert jobs.start().awaitTermination(ENOUGH)
    arrived = jobs.arrived()
    arrived.check(range(2 * ROWS))
    batches = Counter(identity.split("/")[1] for identity in arrived.copies)
    assert batches == {"0": ROWS, "1": ROWS}
    assert arrived.times() == {ATTEMPTS + 1: CHUNK, 2: PART, 1: 2 * ROWS - CHUNK - PART}


@pytest.mark.xdist_group("java")
@pytest.mark.hard_case("T20")
def test_a_batch_that_the_drivers_death_cut_off_is_sent_again_with_the_same_ids(
    spark: SparkSession, embedded: Broker, tmp_path: Path
) -> None:
    jobs = SinkJobs(spark, embedded.url, tmp_path)
    jobs.put()
    jobs.order(0, Order("confirmed", 3, "stay"))
    jobs.order(1, Order("confirmed", 2, "stay"))
    jobs.start_and_kill_the_driver(within=ENOUGH)
    assert jobs.start().awaitTermination(ENOUGH)
    arrived = jobs.arrived()
    arrived.check()
    assert arrived.times(0) == {2: PART}
    assert arrived.times(1) == {2: 2 * CHUNK, 1: PART - 2 * CHUNK}


@pytest.mark.hard_case("T21")
def test_a_broker_that_stops_reading_fails_the_query_with_a_clear_error(spark: SparkSession, tmp_path: Path) -> None:
    faults = FaultPlan(Delay("SEND", nth=CHUNK + 100))
    with Broker() as broker, FaultProxy(broker.url, faults=faults) as proxy:
        jobs = SinkJobs(spark, proxy.url, tmp_path)
        jobs.put()
        query = jobs.start(receiptTimeout="300ms")
        with pytest.raises(Exception, match=r"stopped reading or confirming .* store or memory is full"):
            query.awaitTermination(ENOUGH)
        faults.release()
        # Nobody has touched the rest: the query goes on when there is room again.
        faults.clear()
        assert jobs.start().awaitTermination(ENOUGH)
        jobs.arrived().check()


@pytest.mark.hard_case("T22")
def test_batches_and_partitions_without_rows_open_no_connection(
    spark: SparkSession, embedded: Broker, tmp_path: Path
) -> None:
    jobs = SinkJobs(spark, embedded.url, tmp_path)
    jobs.put()
    assert jobs.start(where="id < 0").awaitTermination(ENOUGH)
    assert (tmp_path / "checkpoint" / "commits" / "0").exists()
    assert embedded.stats().sessions_total == 0
    jobs.put()
    assert jobs.start(where="id = 7").awaitTermination(ENOUGH)
    assert (embedded.stats().sessions_total, embedded.depth(jobs.queue)) == (1, 1)
