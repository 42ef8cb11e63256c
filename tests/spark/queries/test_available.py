"""AvailableNow: a query ends with what is there, whatever the queue and the broker do meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from stompy.testing.proxy import FaultProxy
from tests.spark.dataframes import needs_available_now, run_once, stream, written
from tests.spark.receiver.helpers import QUEUE, eventually, fill
from tests.spark.streaming_run import ENOUGH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    needs_available_now,
    pytest.mark.timeout(150),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.hard_case("T17")
def test_an_empty_queue_ends_without_a_row(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    query = run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5"), tmp_path)
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 0
    assert written(stomp, tmp_path) == []


@pytest.mark.hard_case("T17")
def test_a_broker_that_answers_later_than_the_queue_counts_as_empty_is_waited_for(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    fill(broker.url, range(50))
    with FaultProxy(broker.url) as proxy:
        # CONNECTED and the subscription each take longer than idleTimeout; no row would be a wrong result.
        proxy.upcoming.delay(2.0)
        run_once(stream(stomp, proxy.url, tmp_path, idleTimeout="1.5"), tmp_path)
    assert written(stomp, tmp_path) == list(range(50))


def test_trigger_once_takes_what_is_there_in_one_batch(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    for taken in (50, 80):
        fill(broker.url, range(taken - 30 if taken > 50 else 0, taken))
        query = (
            stream(stomp, broker, tmp_path, idleTimeout="1.5", maxOffsetsPerTrigger="7")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(once=True)
            .start()
        )
        assert query.awaitTermination(ENOUGH)
        assert written(stomp, tmp_path) == list(range(taken))


@pytest.mark.hard_case("T17")
def test_a_producer_that_never_pauses_does_not_keep_the_query(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.wait(0.01):
            fill(broker.url, [number])
            number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        run_once(stream(stomp, broker, tmp_path, idleTimeout="60", availableNowTimeout="0.001"), tmp_path)
    finally:
        stop.set()
        producer.join()
    found = written(stomp, tmp_path)
    assert found == list(range(len(found)))
    assert found
    # What came later is neither lost nor taken twice.
    run_once(stream(stomp, broker, tmp_path, idleTimeout="1.5"), tmp_path)
    eventually(lambda: broker.depth(QUEUE) == 0)
    found = written(stomp, tmp_path)
    assert found == list(range(len(found)))
