"""The source's process is killed between rename and ACK, frozen, or stopped; what Spark wrote is counted message by "
"message."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.crashes.test_driver_killed import kill, named
from tests.spark.receiver.helpers import eventually
from tests.spark.streaming_run import ENOUGH, StreamingRun, Target, owner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def work(spark: SparkSession, target: Target, tmp_path: Path) -> StreamingRun:
    return StreamingRun(spark, target, tmp_path)


@pytest.mark.hard_case("T1", "T2")
def test_killed_between_rename_and_ack_twice_with_a_purge_between(work: StreamingRun) -> None:
    work.send(3000)
    for _ in range(2):
        work.order_kill("SIGKILL")
        query = work.start()
        work.wait_for_kill()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
        assert query.exception() is not None
        work.finish()
        work.send(1000)
    work.finish()
    work.check()
    if work.target.stable:
        assert sum(work.written().values()) == 5000


@pytest.mark.hard_case("T28")
def test_sigterm_between_rename_and_ack(work: StreamingRun) -> None:
    work.send(2000)
    for _ in range(2):
        work.order_kill("SIGTERM")
        query = work.start()
        work.wait_for_kill()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
    work.finish()
    work.check()


@pytest.mark.hard_case("T11")
def test_a_frozen_predecessor_acknowledges_nothing_after_the_fence(work: StreamingRun) -> None:
    work.send(1000)
    first = work.start(name="first")
    eventually(lambda: first.lastProgress and first.lastProgress["sources"][0]["endOffset"], within=ENOUGH)
    eventually(lambda: sum(work.written("first").values()) == 1000, within=ENOUGH)
    zombie = owner(work)
    os.kill(zombie, signal.SIGSTOP)
    try:
        work.send(500)
        second = work.start(takeOverAfter="2")
        eventually(lambda: owner(work) != zombie, within=ENOUGH)
    finally:
        os.kill(zombie, signal.SIGCONT)
    work.send(500)
    eventually(lambda: not first.isActive, within=ENOUGH)
    assert "has taken it over" in str(first.exception())
    # Spark does not start a query again that was stopped in its first batch.
    eventually(lambda: second.lastProgress and second.lastProgress["sources"][0]["endOffset"], within=ENOUGH)
    second.stop()
    work.finish()
    # The second query has a checkpoint of its own and begins with what the first had not removed.
    found = work.written()
    late = {number: count for number, count in found.items() if number >= 1000}
    assert set(late) == set(range(1000, 2000)), "every message after the takeover is the successor's"
    if work.target.stable:
        assert set(late.values()) == {1}
    assert set(found) | set(work.written("first")) == set(range(2000))


@pytest.mark.hard_case("T9")
def test_stop_and_start_at_once(work: StreamingRun) -> None:
    work.send(2000)
    for _ in range(4):
        query = work.start(maxOffsetsPerTrigger="300")
        eventually(lambda query=query: query.lastProgress or query.exception(), within=ENOUGH)  # type: ignore[misc]
        assert query.exception() is None
        query.stop()
        work.send(200)
    work.finish()
    work.check()


@pytest.mark.hard_case("T29")
def test_what_a_receivers_thread_raises_fails_the_query(spark: SparkSession, activemq: Target, tmp_path: Path) -> None:
    work = StreamingRun(spark, activemq, tmp_path)
    work.send(500)
    for word in ("RuntimeError", "SystemExit"):
        work.order_kill(word)
        query = work.start()
        work.wait_for_kill()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
        assert f"the receiver has a bug: {word}('killed')" in str(query.exception())
        work.send(100)
    work.finish()
    work.check()


@pytest.mark.hard_case("T6")
def test_a_python_worker_of_the_driver_is_killed_while_it_plans(work: StreamingRun) -> None:
    work.send(3000)
    query = work.start(maxOffsetsPerTrigger="100")

    def ended() -> bool:
        for planner in named(os.getpid(), "plan_data_source_read"):
            kill(planner)
        return not query.isActive

    eventually(ended, within=ENOUGH)
    assert query.exception() is not None
    work.finish()
    work.check()
