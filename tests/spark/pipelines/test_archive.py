from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError
from stompy.spark.archiving import Archive, Body, archive, query_id
from stompy.spark.schema import ddl
from tests.spark.pipelines.conftest import Feed


class Session:
    """A session in which every source has the given rows."""

    def __init__(self, rows: DataFrame) -> None:
        self.readStream = self
        self.load = lambda: rows

    def format(self, name: str) -> Session:
        assert name == "stomp"
        return self

    def options(self, **given: str) -> Session:
        return self


def archived(rows: DataFrame, **given: Any) -> Archive:
    return archive(Session(rows), source={}, **given)


def run(feed: Feed, folder: Path, body: Body | None = None, rows: DataFrame | None = None) -> Mapping[str, int]:
    running = archived(
        feed.stream() if rows is None else rows,
        path=str(folder / "archive"),
        checkpoint=str(folder / "checkpoint"),
        body=body,
        available_now=True,
    )
    assert running.query.awaitTermination(120)
    return running.rows()


def bodies(folder: Path) -> Counter[bytes]:
    """Read without Spark: what is there must be right for any reader."""
    return Counter(pq.read_table(str(folder)).column("body").to_pylist())


def test_each_message_is_archived_once_below_its_date(feed: Feed, tmp_path: Path) -> None:
    sent = [b"message %d" % number for number in range(90)]
    feed.deliver(*sent[:30])
    feed.deliver(*sent[30:])
    assert run(feed, tmp_path) == {"messages": 90}
    messages = tmp_path / "archive" / "kind=messages"
    assert bodies(messages) == Counter(sent)
    assert sorted(path.name for path in messages.glob("date=*")) == ["date=2026-01-31", "date=2026-02-01"]
    assert bodies(messages / "date=2026-01-31") == Counter(sent[:60])


def test_a_second_run_goes_on_after_the_first(feed: Feed, tmp_path: Path) -> None:
    feed.deliver(b"1", b"2")
    assert run(feed, tmp_path) == {"messages": 2}
    feed.deliver(b"3")
    assert run(feed, tmp_path) == {"messages": 1}
    assert run(feed, tmp_path) == {}
    assert bodies(tmp_path / "archive" / "kind=messages") == Counter([b"1", b"2", b"3"])


def test_a_micro_batch_that_is_run_again_replaces_what_it_had_written(feed: Feed, tmp_path: Path) -> None:
    feed.deliver(b"1")
    run(feed, tmp_path)
    feed.deliver(b"2", b"3")
    run(feed, tmp_path)
    # As a crash between the files and the end of the micro-batch would leave it.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    assert run(feed, tmp_path) == {"messages": 2}
    assert bodies(tmp_path / "archive" / "kind=messages") == Counter([b"1", b"2", b"3"])


def test_another_checkpoint_never_replaces_what_the_first_wrote(feed: Feed, tmp_path: Path) -> None:
    feed.deliver(b"1", b"2")
    run(feed, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    run(feed, tmp_path)
    assert bodies(tmp_path / "archive" / "kind=messages") == Counter([b"1", b"2"] * 2)


def test_text_that_is_none_is_kept_apart_with_its_reason(feed: Feed, tmp_path: Path) -> None:
    feed.deliver("Grüße".encode(), b"\xff\xfe")
    assert run(feed, tmp_path, Body("text")) == {"messages": 1, "bad": 1}
    assert pq.read_table(str(tmp_path / "archive" / "kind=messages")).column("text").to_pylist() == ["Grüße"]
    bad = pq.read_table(str(tmp_path / "archive" / "kind=bad"))
    assert bad.column("body").to_pylist() == [b"\xff\xfe"]
    assert bad.column("reason").to_pylist() == ["the body is not UTF-8"]


def test_json_is_parsed_and_what_does_not_fit_is_kept_apart(feed: Feed, spark: SparkSession, tmp_path: Path) -> None:
    feed.deliver(b'{"id": 7, "at": "2026-01-31"}', b'{"id": "x"}', b"not json", b"\xff", b"")
    done = run(feed, tmp_path, Body("json", "id BIGINT, at DATE"))
    values = spark.read.parquet(str(tmp_path / "archive" / "kind=messages")).select("value.id", "value.at").collect()
    assert [(row.id, str(row.at)) for row in values] == [(7, "2026-01-31")]
    bad = pq.read_table(str(tmp_path / "archive" / "kind=bad"))
    reasons = dict(zip(bad.column("body").to_pylist(), bad.column("reason").to_pylist(), strict=True))
    assert reasons.pop(b"\xff") == "the body is not UTF-8"
    assert set(reasons.values()) == {"the body is not JSON that fits the schema"}
    assert done == {"messages": 1, "bad": 4}


def test_each_segment_is_read_once_for_good_and_bad_messages(stomp: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "spool.reads").touch()  # for the hook in every Python of Spark
    with Broker() as broker:
        with stompy.connect(broker.url) as connection:
            for body in (b"good", b"\xff", b"too"):
                connection.send("/queue/a", body, confirm=True)
        source = {"url": broker.url, "destination": "/queue/a", "spoolDir": str(tmp_path / "spool"), "idleTimeout": "1"}
        paths = {"path": str(tmp_path / "archive"), "checkpoint": str(tmp_path / "checkpoint")}
        running = archive(stomp, source=source, **paths, body=Body("text"), available_now=True)
        assert running.query.awaitTermination(120)
    assert running.rows() == {"messages": 2, "bad": 1}
    reads = Counter((tmp_path / "spool.reads").read_text().split())
    assert set(reads.values()) == {1}, reads


def test_a_micro_batch_without_bad_messages_is_no_trouble(feed: Feed, tmp_path: Path) -> None:
    feed.deliver(b"good")
    assert run(feed, tmp_path, Body("text")) == {"messages": 1, "bad": 0}


def test_a_file_is_in_the_order_of_receipt_and_tells_its_least_and_greatest_times(feed: Feed, tmp_path: Path) -> None:
    feed.deliver(*(b"%d" % number for number in range(50)))
    shuffled = feed.stream().repartition(7, "message_id").coalesce(1)
    run(feed, tmp_path, rows=shuffled)
    (file,) = (tmp_path / "archive" / "kind=messages" / "date=2026-01-31").rglob("*.parquet")
    found = pq.ParquetFile(file)
    assert found.read(["sequence"])["sequence"].to_pylist() == list(range(50))
    column = found.schema_arrow.get_field_index("received_at")
    assert str(found.schema_arrow.field(column).type) == "timestamp[us, tz=UTC]"
    times = {
        found.metadata.row_group(0).column(place).path_in_schema: found.metadata.row_group(0).column(place).statistics
        for place in range(found.metadata.num_columns)
    }
    assert times["received_at"].max - times["received_at"].min == timedelta(minutes=49)


def test_headers_as_an_array_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.schema(ddl(array=True)).parquet(str(tmp_path))
    with pytest.raises(ConfigurationError, match="headersAs"):
        archived(rows, path=str(tmp_path / "archive"), checkpoint=str(tmp_path / "checkpoint"))


def test_a_folder_that_is_no_checkpoint_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="metadata is not the metadata of a checkpoint"):
        query_id(spark, str(tmp_path))


@pytest.mark.parametrize(("kind", "schema"), [("json", None), ("text", "id BIGINT"), ("xml", None)])
def test_what_a_body_has_to_be_is_checked(kind: str, schema: str | None) -> None:
    with pytest.raises(ConfigurationError):
        Body(kind, schema)  # type: ignore[arg-type]  # on purpose
