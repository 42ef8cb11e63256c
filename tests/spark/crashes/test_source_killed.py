"""The source's process is struck between rename and ACK, frozen, or stopped; what Spark wrote is counted message by "
"message."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stompy.connection.connecting import connect
from stompy.spark import register
from tests.spark.crashes.conftest import Target
from tests.spark.receiver.filling import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENOUGH = 90
"""Seconds that a query may take."""
PREFETCH = 300

pytestmark = pytest.mark.timeout(240)


class Work:
    """A queue, a spool, a checkpoint and what was written."""

    def __init__(self, spark: SparkSession, target: Target, path: Path) -> None:
        register(spark)
        self.spark = spark
        self.target = target
        self.path = path
        self.queue = f"/queue/{uuid.uuid4().hex}"
        self.sent = 0

    def send(self, count: int) -> None:
        with connect(self.target.url) as connection:
            with connection.batch():
                for number in range(self.sent, self.sent + count):
                    connection.send(self.queue, str(number).encode(), headers={"persistent": "true"})
            connection.flush()
        self.sent += count

    def start(self, *, name: str = "out", available: bool = False, **given: str) -> Any:
        """Start the query, or one more on the same spool."""
        options = {
            "url": self.target.url, "destination": self.queue, "spoolDir": str(self.path / "spool"),
            "prefetch": str(PREFETCH), "idleTimeout": "1", **given,
        }  # fmt: skip
        writer = (
            self.spark.readStream.format("stomp")
            .options(**options)
            .load()
            .writeStream.format("parquet")
            .option("path", str(self.path / name))
            .option("checkpointLocation", str(self.path / f"{name}-checkpoint"))
        )
        return (writer.trigger(availableNow=True) if available else writer).start()

    def finish(self) -> None:
        """Take everything that is left: what a broker takes its time to deliver again is left to a further run."""
        for _ in range(6):
            query = self.start(available=True)
            assert query.awaitTermination(ENOUGH)
            if len(self.written()) == self.sent:
                return

    def strike(self, word: str) -> None:
        """Have the source's process struck by a signal behind its next segment."""
        (self.path / "spool.strike").write_text(word)

    def struck(self) -> None:
        eventually(lambda: not (self.path / "spool.strike").exists(), within=ENOUGH)

    def written(self, *names: str) -> Counter[int]:
        found: Counter[int] = Counter()
        for name in names or ("out",):
            rows = self.spark.read.parquet(str(self.path / name)).select("body").collect()
            found.update(int(row.body) for row in rows)
        return found

    def flagged(self) -> int:
        return self.spark.read.parquet(str(self.path / "out")).where("possible_duplicate").count()

    def check(self) -> None:
        """Nothing is lost; nothing is twice with stable ids, and what is twice is flagged and bounded without."""
        found = self.written()
        assert set(found) == set(range(self.sent)), f"lost: {sorted(set(range(self.sent)) - set(found))[:10]}"
        twice = sum(found.values()) - self.sent
        assert twice <= (0 if self.target.stable else self.flagged())


@pytest.fixture
def work(spark: SparkSession, target: Target, tmp_path: Path) -> Work:
    return Work(spark, target, tmp_path)


def owner(work: Work) -> int:
    """Return the process that fills the spool, as its claim says."""
    claim = max((work.path / "spool" / "lane-0" / "epoch").glob("0*"))
    process: int = json.loads(claim.read_bytes().splitlines()[0])["pid"]
    return process


def test_killed_between_rename_and_ack_twice_with_a_purge_between(work: Work) -> None:
    work.send(3000)
    for _ in range(2):
        work.strike("SIGKILL")
        query = work.start()
        work.struck()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
        assert query.exception() is not None
        work.finish()
        work.send(1000)
    work.finish()
    work.check()
    if work.target.stable:
        assert sum(work.written().values()) == 5000


def test_sigterm_between_rename_and_ack(work: Work) -> None:
    work.send(2000)
    for _ in range(2):
        work.strike("SIGTERM")
        query = work.start()
        work.struck()
        eventually(lambda query=query: not query.isActive, within=ENOUGH)  # type: ignore[misc]
    work.finish()
    work.check()


def test_a_frozen_predecessor_acknowledges_nothing_after_the_fence(work: Work) -> None:
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
    assert "another receiver has taken it over" in str(first.exception())
    second.stop()
    work.finish()
    # The second query has a checkpoint of its own and begins with what the first had not removed.
    found = work.written()
    late = {number: count for number, count in found.items() if number >= 1000}
    assert set(late) == set(range(1000, 2000)), "every message after the takeover is the successor's"
    if work.target.stable:
        assert set(late.values()) == {1}
    assert set(found) | set(work.written("first")) == set(range(2000))


def test_stop_and_start_at_once(work: Work) -> None:
    work.send(2000)
    for _ in range(4):
        query = work.start(maxMessagesPerTrigger="300")
        eventually(lambda query=query: query.lastProgress or query.exception(), within=ENOUGH)  # type: ignore[misc]
        assert query.exception() is None
        query.stop()
        work.send(200)
    work.finish()
    work.check()
