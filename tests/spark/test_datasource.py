"""`format("stomp")` in a session of Spark, on the embedded broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from stompy.errors import SpoolMismatchError
from stompy.spark.datasource import StompBatchReader
from stompy.spark.option_tables import batch_options
from stompy.spark.schema import COLUMNS
from tests.spark.dataframes import WITH_LIMITS, needs_available_now, run_once, stream, table, until, written
from tests.spark.receiver.helpers import QUEUE, eventually, fill
from tests.spark.source.test_starting import YEAR_2023, stored_at
from tests.spark.streaming_run import ENOUGH, begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.timeout(150),
    # What pyspark itself leaves unclosed is none of the source's business.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.mark.hard_case("T19")
def test_a_table_has_the_columns_of_a_message_and_is_taken_once(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    fill(broker.url, range(1000))
    frame = table(stomp, broker, tmp_path)
    assert frame.columns == [name for name, _ in COLUMNS]
    assert frame.limit(3).count() == 3
    assert frame.count() == frame.count() == 1000
    assert frame.alias("a").join(frame.alias("b"), "sequence").count() == 1000
    assert broker.depth(QUEUE) == 0
    assert table(stomp, broker, tmp_path).count() == 0


def test_a_view_in_sql(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    stomp.sql(
        f"CREATE OR REPLACE TEMP VIEW orders USING stomp OPTIONS (url '{broker.url}', destination '{QUEUE}', "
        f"spoolDir '{tmp_path}/spool', idleTimeout '0.5')"
    )
    assert stomp.sql("SELECT sum(CAST(CAST(body AS STRING) AS INT)) AS total FROM orders").collect()[0].total == 45
    assert stomp.sql("SELECT headers['n'] AS n FROM orders ORDER BY n DESC LIMIT 1").collect()[0].n == "9"
    stomp.catalog.dropTempView("orders")


@pytest.mark.timeout(300)  # ten jobs, each with a Python of its own
def test_a_table_made_in_sql_alone_is_selected_from_and_inserted_into(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    options = f"url '{broker.url}', destination '{QUEUE}', idleTimeout '1', dedup 'none', maxOffsetsPerTrigger '5'"
    stomp.sql(f"CREATE TABLE orders USING stomp OPTIONS ({options}, spoolDir '{tmp_path}/it\\'s')")
    try:
        stomp.sql("INSERT INTO orders (body, headers) VALUES (CAST('a' AS BINARY), map('n', '1')), (X'00', NULL)")
        found = stomp.sql("SELECT body, headers['n'] AS n, destination FROM orders ORDER BY body").collect()
        assert [(bytes(row.body), row.n) for row in found] == [(b"\0", None), (b"a", "1")]
        assert {row.destination for row in found} == {QUEUE}
        assert broker.depth(QUEUE) == 0, "they were taken"
        # Rows of the source as they are.
        fill(broker.url, range(20))
        stomp.sql("INSERT INTO orders SELECT * FROM orders")
        assert stomp.sql("SELECT * FROM orders WITH (maxMessages = 2)").count() == 2
        assert broker.depth(QUEUE) == 18
        # What was read from it goes elsewhere with the options that are given.
        rows = stomp.table("orders").drop("destination")
        rows.write.format("stomp").options(url=broker.url, destination="/queue/x").mode("append").save()
        assert (broker.depth("/queue/x"), broker.depth(QUEUE)) == (18, 0)
        with pytest.raises(Exception, match="cannot be overwritten"):
            stomp.sql("INSERT OVERWRITE orders SELECT * FROM orders")
    finally:
        stomp.sql("DROP TABLE orders")


def test_a_table_made_in_sql_is_read_as_a_stream(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(20))
    stomp.sql(f"CREATE TABLE orders USING stomp OPTIONS (url '{broker.url}', destination '{QUEUE}')")
    rows: list[int] = []
    try:
        query = (
            stomp.readStream.option("spoolDir", str(tmp_path / "spool"))
            .table("orders")
            .writeStream.foreachBatch(lambda batch, _: rows.extend(int(row.body) for row in batch.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            until(query, lambda: len(rows) >= 20)
        finally:
            query.stop()
    finally:
        stomp.sql("DROP TABLE orders")
    assert sorted(rows) == list(range(20))


def test_a_table_with_wrong_options_or_columns_is_refused(stomp: SparkSession, broker: Broker) -> None:
    options = f"url '{broker.url}', destination '/queue/a,/queue/b'"
    with pytest.raises(Exception, match="did you mean"):
        stomp.sql(f"CREATE TABLE orders USING stomp OPTIONS ({options}, jobbId 'x')")
    stomp.sql(f"CREATE TABLE orders USING stomp OPTIONS ({options})")
    with pytest.raises(Exception, match="option spoolDir is missing"):
        stomp.sql("SELECT * FROM orders").collect()
    with pytest.raises(Exception, match="no destination"):
        stomp.sql("INSERT INTO orders (body) VALUES (X'00')")
    stomp.sql("DROP TABLE orders")
    # With columns Spark asks the source only when the table is used.
    stomp.sql(f"CREATE TABLE orders (body BINARY) USING stomp OPTIONS ({options})")
    try:
        for statement in ("SELECT * FROM orders", "INSERT INTO orders SELECT CAST('a' AS BINARY) AS body"):
            with pytest.raises(Exception, match="made without columns"):
                stomp.sql(statement).collect()
    finally:
        stomp.sql("DROP TABLE orders")


@pytest.mark.hard_case("T18")
@needs_available_now
def test_a_query_over_what_is_available_goes_on_where_it_ended(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    fill(broker.url, range(1000))
    limits = {"maxOffsetsPerTrigger": "330"}
    query = run_once(stream(stomp, broker, tmp_path, **limits), tmp_path)
    counts = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    assert counts == [330, 330, 330, 10]
    fill(broker.url, range(1000, 1100))
    query = run_once(stream(stomp, broker, tmp_path), tmp_path)
    assert written(stomp, tmp_path) == list(range(1100))
    assert broker.depth(QUEUE) == 0


@pytest.mark.hard_case("T8")
def test_a_running_query_gets_what_comes_and_tells_its_backlog(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    rows: list[int] = []

    def keep(frame: DataFrame, batch: int) -> None:
        # Read twice, and once against itself: every time the same rows.
        assert frame.union(frame).count() == 2 * frame.count()
        rows.extend(int(row.body) for row in frame.select("body").collect())

    query = (
        stream(stomp, broker, tmp_path)
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for start in (0, 100, 200):
            fill(broker.url, range(start, start + 100))
            until(query, lambda: len(rows) >= start + 100)  # noqa: B023  # it is called at once
        assert query.exception() is None
        assert not WITH_LIMITS or "latestOffset" in query.lastProgress["sources"][0]
    finally:
        query.stop()
    assert sorted(rows) == list(range(300))


@pytest.mark.hard_case("T9")
def test_stop_and_start_at_once(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(200))
    for _ in range(3):
        query = (
            stream(stomp, broker, tmp_path)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        until(query, lambda: query.lastProgress)  # noqa: B023  # it is called at once
        query.stop()


@pytest.mark.hard_case("T14")
def test_the_failure_of_the_receiver_fails_the_query(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    query = (
        stream(stomp, broker, tmp_path, brokerTimeout="1")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    eventually(lambda: broker.stats().sessions == 1, within=ENOUGH)
    broker.close()
    eventually(lambda: not query.isActive, within=ENOUGH)
    assert "had no connection to a broker for more than 1 s (option brokerTimeout)" in str(query.exception())
    with pytest.raises(Exception, match="brokerTimeout"):
        query.processAllAvailable()


@pytest.mark.parametrize("by", ["place", "time"])
def test_a_start_position_counts_until_there_is_a_checkpoint(
    stomp: SparkSession, broker: Broker, tmp_path: Path, by: str
) -> None:
    stored_at(tmp_path, "spool", [[0, 1], [2, 3, 4]])
    place = {"startingOffsets": json.dumps({f"{tmp_path}/spool": 3})}
    for given in (place if by == "place" else {"startingTimestamp": str(YEAR_2023 + 3)}, {"startingOffsets": "latest"}):
        frame = stream(stomp, broker, tmp_path, receivers="0", **given)
        query = begin(
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query.processAllAvailable()
        query.stop()
        assert query.awaitTermination(ENOUGH)
        stored_at(tmp_path, "spool", [[5, 6, 7]])
    assert written(stomp, tmp_path) == [3, 4, 5, 6, 7]


@pytest.mark.hard_case("T23")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxOfsetsPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger?"),
        ({"passcode": "sesame"}, "passcodeEnv"),
        ({"prefetch": "many"}, "option prefetch must be a whole number"),
    ],
)
def test_a_wrong_option_is_reported(
    stomp: SparkSession, broker: Broker, tmp_path: Path, given: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match="stompy") as caught:
        stream(stomp, broker, tmp_path, **given).writeStream.format("noop").start()
    assert words in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_another_schema_is_refused(stomp: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the columns of a message are fixed"):
        stomp.read.format("stomp").schema("id INT").options(
            url=broker.url, destination=QUEUE, spoolDir=str(tmp_path)
        ).load().count()


def test_every_action_reads_the_same_rows_from_pickled_copies(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(20))
    options = batch_options({
        "url": broker.url, "destination": QUEUE, "spooldir": str(tmp_path), "idletimeout": "1",
        "numpartitions": "2", "maxmessages": "20",
    })  # fmt: skip
    reader = StompBatchReader(options, "load")
    parts = reader.partitions()
    assert [(*part.urls.values(), sum(piece.rows for piece in part.pieces)) for part in parts] == [
        (f"{tmp_path}/read-load", 10)
    ] * 2
    for _ in range(2):
        copy: StompBatchReader = pickle.loads(pickle.dumps(reader))
        found: list[int] = []
        for part in parts:
            for batch in copy.read(pickle.loads(pickle.dumps(part))):
                found += map(int, batch.column("body").to_pylist())
        assert sorted(found) == list(range(20))
    parts[0].urls = dict.fromkeys(["another"], *parts[0].urls.values())
    with pytest.raises(SpoolMismatchError):
        list(reader.read(parts[0]))


def test_an_empty_queue_has_a_part_without_rows(broker: Broker, tmp_path: Path) -> None:
    options = batch_options({
        "url": broker.url, "destination": QUEUE, "spooldir": str(tmp_path), "idletimeout": "1",
    })  # fmt: skip
    reader = StompBatchReader(options, "load")
    (part,) = reader.partitions()
    assert list(reader.read(part)) == []
