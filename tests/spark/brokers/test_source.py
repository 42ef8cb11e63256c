"""The source on brokers that only a container has: killed between rename and ACK, every message is counted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.connection.connecting import connect
from tests.spark.receiver.filling import eventually
from tests.spark.work import ENOUGH, PREFETCH, Target, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(240)


@pytest.mark.hard_case("T1", "T2")
def test_killed_between_rename_and_ack_twice_with_a_purge_between(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    work = Work(spark, target, tmp_path)
    work.send(1000)
    for _ in range(2):
        work.strike("SIGKILL")
        query = work.start()
        work.struck()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
        work.finish()
        work.send(500)
    work.finish()
    work.check()
    twice = sum(work.written().values()) - work.sent
    assert twice == 0 if target.stable else 0 < twice <= 2 * PREFETCH


@pytest.mark.parametrize(
    ("kind", "second", "sent_to"),
    [
        ("activemq", "/queue/{}.sub.>", "/queue/{}.sub.b"),
        ("artemis", "/queue/{}.sub", "/queue/{}.sub"),
        ("rabbitmq", "/topic/{}.sub.#", "/topic/{}.sub.b"),
    ],
)
def test_several_destinations_and_patterns_are_taken_and_told_apart(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, kind: str, second: str, sent_to: str
) -> None:
    target: Target = request.getfixturevalue(kind)
    work = Work(spark, target, tmp_path)
    name = work.queue.rpartition("/")[2]
    pattern, other = second.format(name), sent_to.format(name)
    query = work.start(destination=f"{work.queue},{pattern}")
    work.send(300)
    with connect(target.url) as connection:
        # What a topic brings goes to those that are subscribed.
        eventually(lambda: (connection.send(other, "-1", confirm=True), work.written_if_any()[-1])[1], within=ENOUGH)
    eventually(lambda: len(work.written_if_any()) == 301, within=ENOUGH)
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).groupBy("destination").count().collect()
    assert {row.destination: row["count"] for row in rows}[work.queue] == 300
    assert {row.destination for row in rows} == {work.queue, other}


def test_browsing_looks_at_a_queue_of_activemq_and_leaves_it(
    spark: SparkSession, activemq: Target, tmp_path: Path
) -> None:
    work = Work(spark, activemq, tmp_path)
    work.send(150)
    look = work.table(browse="true", readId="look")
    assert sorted(int(row.body) for row in look.select("body").collect()) == list(range(150))
    assert look.count() == 150, "the same rows for every action"
    assert work.table(browse="true", maxMessages="7").count() == 7
    taken = work.table(readId="take")
    assert sorted(int(row.body) for row in taken.select("body").collect()) == list(range(150))
    assert work.table(browse="true").count() == 0


def test_where_a_broker_cannot_browse_it_is_refused_and_nothing_is_taken(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    work = Work(spark, target, tmp_path)
    work.send(20)
    with pytest.raises(Exception, match="browse"):
        work.table(browse="true").count()
    assert work.table().count() == 20
