"""A broker with a queue, and a query from it into Parquet that is killed, stopped and started again."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompy.connection.connecting import connect
from stompy.spark import register
from stompy.testing.containers import broker_or_skip
from tests.spark.receiver.helpers import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stompy.testing.brokers import RunningBroker

ENOUGH = 90
"""Seconds that a query may take."""
PREFETCH = 300
STABLE = frozenset({"activemq", "artemis", "embedded"})
"""The brokers whose message ids are the messages', so that nothing comes twice."""


@dataclass(frozen=True)
class Target:
    """A broker, and what can be expected of it.

    Attributes:
        name: its kind.
        broker: itself.
        stable: whether its message ids are the messages', so that nothing comes twice.
    """

    name: str
    broker: RunningBroker
    stable: bool

    @property
    def url(self) -> str:
        """Its address, without credentials."""
        return self.broker.url()


def targets(kind: str, **options: object) -> Iterator[Target]:
    """Yield a broker of a kind, for a fixture; where it can, it keeps its messages on disk."""
    options = {} if kind == "embedded" else {"persistent": True, **options}
    with broker_or_skip(kind, **options) as broker:
        yield Target(kind, broker, stable=kind in STABLE)


def begin(writer: Any) -> Any:
    """Start a query; anew where its Python came too late, for which Spark waits ten seconds, whatever is set."""
    for _ in range(3):
        query = writer.start()
        eventually(lambda: not query.isActive or "Initializing" not in query.status["message"], within=ENOUGH)  # noqa: B023
        if "failed to connect back" not in str(query.exception()):
            break
    return query


class StreamingRun:
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

    def send_safely(self, count: int) -> None:
        """Send so that the broker may be killed.

        ActiveMQ confirms a frame before those ahead of it that went without a receipt are on its disk.
        """
        with connect(self.target.url) as connection, connection.transaction() as transaction:
            for number in range(self.sent, self.sent + count):
                transaction.send(self.queue, str(number).encode(), headers={"persistent": "true"})
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
        return begin(writer.trigger(availableNow=True) if available else writer)

    def table(self, **given: str) -> DataFrame:
        """Return the queue as a table."""
        options = {
            "url": self.target.url, "destination": self.queue, "spoolDir": str(self.path / "tables"),
            "idleTimeout": "1", **given,
        }  # fmt: skip
        return self.spark.read.format("stomp").options(**options).load()

    def finish(self) -> None:
        """Take everything that is left: what a broker takes its time to deliver again is left to a further run."""
        for _ in range(6):
            query = self.start(available=True)
            assert query.awaitTermination(ENOUGH)
            if len(self.written()) == self.sent:
                return

    def order_kill(self, word: str, *, at: str = "seg-") -> None:
        """Have the source's process killed when it has given a file its name: by a signal, or by an exception.

        Args:
            word: the name of either.
            at: what the name of the file begins with.
        """
        (self.path / f"spool.kill-{at}").write_text(word)

    def wait_for_kill(self, *, at: str = "seg-") -> None:
        eventually(lambda: not (self.path / f"spool.kill-{at}").exists(), within=ENOUGH)

    def written(self, *names: str) -> Counter[int]:
        found: Counter[int] = Counter()
        for name in names or ("out",):
            rows = self.spark.read.schema("body BINARY").parquet(str(self.path / name)).collect()
            found.update(int(row.body) for row in rows)
        return found

    def written_if_any(self) -> Counter[int]:
        """Return what is written, also before anything is."""
        return self.written() if any((self.path / "out").glob("_spark_metadata/*")) else Counter()

    def flagged(self) -> int:
        return self.spark.read.parquet(str(self.path / "out")).where("possible_duplicate").count()

    def check(self) -> None:
        """Nothing is lost; nothing is twice with stable ids, and what is twice is flagged and bounded without."""
        found = self.written()
        assert set(found) == set(range(self.sent)), f"lost: {sorted(set(range(self.sent)) - set(found))[:10]}"
        twice = sum(found.values()) - self.sent
        assert twice <= (0 if self.target.stable else self.flagged())


def owner(work: StreamingRun) -> int:
    """Return the process that fills the spool, as its claim says."""
    claim = max((work.path / "spool" / "epoch").glob("0*"))
    process: int = json.loads(claim.read_bytes().splitlines()[0])["pid"]
    return process
