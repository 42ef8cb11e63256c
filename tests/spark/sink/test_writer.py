"""The sink as Spark runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import stompy
from stompy.broker import Broker
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.spark import register

QUEUE = "/queue/rows"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def stored(broker: Broker) -> list[stompy.Message]:
    count = broker.depth(QUEUE)
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe(QUEUE)
        return [subscription.receive(timeout=20) for _ in range(count)]


def save(frame: DataFrame, broker: Broker, mode: str = "append", **options: Any) -> None:
    frame.write.format("stomp").options(url=broker.url, destination=QUEUE, **options).mode(mode).save()


def ids(messages: list[stompy.Message]) -> Counter[str]:
    return Counter(message.headers[DEDUPE_HEADER] for message in messages)


def test_every_row_of_every_partition_arrives(session: SparkSession, broker: Broker) -> None:
    frame = session.range(2500, numPartitions=3).selectExpr(
        "cast(id as string) body", "map('n', cast(id as string)) headers"
    )
    save(frame, broker, transactionSize=400)
    messages = stored(broker)
    assert Counter(message.text for message in messages) == Counter(str(number) for number in range(2500))
    assert all(message.headers["n"] == message.text for message in messages)
    assert len(ids(messages)) == 2500


@pytest.mark.hard_case("T22")
def test_empty_partitions_open_no_connection(session: SparkSession, broker: Broker) -> None:
    save(session.range(1, numPartitions=1).repartition(6).selectExpr("cast(cast(id as string) as binary) body"), broker)
    assert (broker.stats().sessions_total, broker.depth(QUEUE)) == (1, 1)


def test_a_second_run_of_the_same_job_has_the_same_ids(session: SparkSession, broker: Broker) -> None:
    frame = session.range(50, numPartitions=2).selectExpr("cast(id % 7 as string) body")
    save(frame, broker, jobId="nightly")
    save(frame, broker, jobId="nightly")
    assert set(ids(stored(broker)).values()) == {2}
    save(frame, broker)
    save(frame, broker)
    assert set(ids(stored(broker)).values()) == {1}


def test_wrong_columns_options_and_modes_are_named(session: SparkSession, broker: Broker) -> None:
    frame = session.range(1).selectExpr("cast(id as string) body")
    with pytest.raises(Exception, match="did you mean destination"):
        save(frame, broker, destinations="x")
    with pytest.raises(Exception, match="unknown column 'id'"):
        save(session.range(1), broker)
    with pytest.raises(Exception, match="cannot be overwritten"):
        save(frame, broker, mode="overwrite")
    assert broker.depth(QUEUE) == 0


def test_a_stream_is_sent_and_goes_on_where_it_stood(session: SparkSession, broker: Broker, tmp_path: Path) -> None:
    def run(upto: int) -> None:
        session.range(upto - 100, upto, numPartitions=2).selectExpr("cast(id as string) value").write.text(
            str(tmp_path / "in" / str(upto))
        )
        query = (
            session.readStream.text(str(tmp_path / "in" / "*"))
            .writeStream.format("stomp")
            .options(url=broker.url, destination=QUEUE, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run(100)
    assert broker.depth(QUEUE) == 100
    run(200)
    messages = stored(broker)
    assert Counter(message.text for message in messages) == Counter(str(number) for number in range(200))
    assert len(ids(messages)) == 200
    jobs = {str(message.headers[DEDUPE_HEADER]).split("/")[0] for message in messages}
    batches = {str(message.headers[DEDUPE_HEADER]).split("/")[1] for message in messages}
    assert (len(jobs), batches) == (1, {"0", "1"})


def test_a_refused_result_mode_is_named(session: SparkSession, broker: Broker, tmp_path: Path) -> None:
    counted = session.readStream.format("rate").load().groupBy("value").count().selectExpr("cast(count as string) body")
    writing = (
        counted.writeStream.format("stomp")
        .outputMode("complete")
        .options(url=broker.url, destination=QUEUE, checkpointLocation=str(tmp_path))
    )
    with pytest.raises(Exception, match=r"use outputMode\('update'\)"):
        writing.start().awaitTermination(60)
