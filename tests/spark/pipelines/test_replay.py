from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stompy
from stompy.broker import Broker
from stompy.connection.dialects.dialect import DEDUPE_HEADER
from stompy.errors import ConfigurationError
from stompy.spark import register
from stompy.spark.pipelines.archive import archive_rows
from stompy.spark.pipelines.replay import Which, replay
from tests.spark.pipelines.conftest import START, Feed

QUEUE = "/queue/again"
BODIES = [b"message %d" % number for number in range(40)]


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def archived(feed: Feed, tmp_path: Path) -> Path:
    """An archive of BODIES in four micro-batches."""
    for start in range(0, 40, 10):
        feed.deliver(*BODIES[start : start + 10])
    running = archive_rows(
        feed.stream(), path=str(tmp_path / "archive"), checkpoint=str(tmp_path / "archiving"), available_now=True
    )
    assert running.query.awaitTermination(120)
    return tmp_path / "archive"


def run(
    spark: SparkSession, archived: Path, broker: Broker, *, sink: dict[str, str] | None = None, **options: Any
) -> int:
    running = replay(
        spark,
        path=str(archived),
        sink={"url": broker.url, "destination": QUEUE} if sink is None else sink,
        checkpoint=options.pop("checkpoint", str(archived.parent / "replaying")),
        **options,
    )
    assert running.query.awaitTermination(120)
    return running.tally.rows().get("sent", 0)


def stored(broker: Broker, queue: str = QUEUE) -> list[stompy.Message]:
    count = broker.depth(queue)
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe(queue)
        return [subscription.receive(timeout=20) for _ in range(count)]


def test_everything_comes_back_in_its_order(spark: SparkSession, archived: Path, broker: Broker) -> None:
    assert run(spark, archived, broker) == 40
    messages = stored(broker)
    assert [message.body for message in messages] == BODIES
    assert [message.headers["kind"] for message in messages] == [str(number % 3) for number in range(40)]
    assert len({message.headers[DEDUPE_HEADER] for message in messages}) == 40


def test_a_finished_replay_sends_nothing_again_and_goes_on_with_what_is_new(
    spark: SparkSession, feed: Feed, archived: Path, broker: Broker, tmp_path: Path
) -> None:
    run(spark, archived, broker)
    assert run(spark, archived, broker) == 0
    feed.deliver(b"new")
    running = archive_rows(
        feed.stream(), path=str(archived), checkpoint=str(tmp_path / "archiving"), available_now=True
    )
    assert running.query.awaitTermination(120)
    assert run(spark, archived, broker) == 1
    assert Counter(message.body for message in stored(broker)) == Counter([*BODIES, b"new"])


def test_what_is_sent_again_has_the_same_id(spark: SparkSession, archived: Path, broker: Broker) -> None:
    run(spark, archived, broker, files_per_batch=2)
    # As a crash between sending and the end of the micro-batch would leave it.
    (archived.parent / "replaying" / "commits" / "1").unlink()
    (archived.parent / "replaying" / "commits" / ".1.crc").unlink(missing_ok=True)
    assert run(spark, archived, broker, files_per_batch=2) == 20
    copies = Counter(message.headers[DEDUPE_HEADER] for message in stored(broker))
    assert Counter(copies.values()) == {1: 20, 2: 20}


def test_another_replay_has_other_ids_unless_they_are_named(
    spark: SparkSession, archived: Path, broker: Broker, tmp_path: Path
) -> None:
    for number in range(2):
        run(spark, archived, broker, checkpoint=str(tmp_path / f"own{number}"))
    assert len({message.headers[DEDUPE_HEADER] for message in stored(broker)}) == 80
    for number in range(2):
        run(spark, archived, broker, checkpoint=str(tmp_path / f"named{number}"), replay_id="nightly")
    assert len({message.headers[DEDUPE_HEADER] for message in stored(broker)}) == 40


def test_only_what_is_meant_is_sent(spark: SparkSession, archived: Path, broker: Broker) -> None:
    which = Which(
        since=START + timedelta(minutes=9),
        until=START + timedelta(minutes=30),
        headers={"kind": "0"},
        where="destination != '/queue/12'",
    )
    assert run(spark, archived, broker, which=which) == 6
    assert [message.body for message in stored(broker)] == [
        b"message %d" % number for number in (9, 15, 18, 21, 24, 27)
    ]


def test_without_a_destination_each_message_goes_to_where_it_came_from(
    spark: SparkSession, archived: Path, broker: Broker
) -> None:
    assert run(spark, archived, broker, sink={"url": broker.url}) == 40
    assert [message.body for message in stored(broker, "/queue/7")] == [b"message 7"]


def test_a_rate_reaches_the_sink(spark: SparkSession, archived: Path, broker: Broker) -> None:
    assert run(spark, archived, broker, rate=1_000, tasks=2, files_per_batch=4) == 40
    assert broker.depth(QUEUE) == 40


@pytest.mark.parametrize("options", [{"tasks": 0}, {"files_per_batch": 0}, {"rate": 0}, {"rate": 1, "tasks": 2}])
def test_what_cannot_be_is_refused(spark: SparkSession, tmp_path: Path, options: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        replay(spark, path=str(tmp_path), sink={}, checkpoint=str(tmp_path / "c"), **options)  # type: ignore[arg-type]


def test_a_folder_that_is_no_archive_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no archive in .*/messages"):
        replay(spark, path=str(tmp_path), sink={}, checkpoint=str(tmp_path / "c"))


def test_a_moment_without_its_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        Which(since=datetime(2026, 1, 1))
    Which(since=datetime(2026, 1, 1, tzinfo=timezone.utc))
