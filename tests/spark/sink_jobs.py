"""Rows on their way from Spark to a broker, and what lies there afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompy.connection.connecting import connect
from stompy.dialects.dialect import DEDUPE_HEADER
from stompy.spark import register
from tests.spark.crashes.test_driver_killed import TOP, family, kill, named
from tests.spark.kill_orders import NAME, KilledDataSource, Order, Orders
from tests.spark.receiver.helpers import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2500
PARTITIONS = 2
CHUNK = 500
"""Rows of a transaction, so that a partition has two whole ones and a half."""
PART = ROWS // PARTITIONS
SOME = 900
"""Different bodies, so that there are equal rows, in one partition and in both."""
BODY = f"lpad(cast(id % {SOME} as string), 1000, '0')"
"""Large enough that most of a chunk has left before its end."""

_END = "the end"


class Arrived:
    """What a queue held.

    Attributes:
        copies: by id, how many messages have it.
        bodies: by id, the different bodies with it.
    """

    def __init__(self, messages: list[tuple[str, int]]) -> None:
        self.copies = Counter(identity for identity, _ in messages)
        bodies: dict[str, set[int]] = defaultdict(set)
        for identity, body in messages:
            bodies[identity].add(body)
        self.bodies = bodies

    def check(self, rows: range = range(ROWS)) -> None:
        """Every copy of a row has its id, and without the copies the rows are these."""
        assert all(len(found) == 1 for found in self.bodies.values()), "two rows have one id"
        once = Counter(body for (body,) in self.bodies.values())
        assert once == Counter(number % SOME for number in rows)

    def times(self, partition: int | None = None) -> Counter[int]:
        """Return how many rows arrived how many times; the third part of an id is the partition."""
        return Counter(
            count
            for identity, count in self.copies.items()
            if partition is None or identity.split("/")[2] == str(partition)
        )


class SinkJobs:
    """A queue, and jobs that write to it and are killed."""

    def __init__(self, spark: SparkSession, url: str, path: Path, *, queue: str | None = None) -> None:
        register(spark)
        spark.dataSource.register(KilledDataSource)
        self.spark = spark
        self.url = url
        self.path = path
        self.queue = queue or f"/queue/{uuid.uuid4().hex}"
        self.orders = Orders(path / "orders")

    def order(self, partition: int, *orders: Order) -> None:
        self.orders.give(partition, *orders)

    def options(self, **more: Any) -> dict[str, str]:
        return {
            "url": self.url, "destination": self.queue, "orders": str(self.orders.folder),
            "transactionSize": str(CHUNK), "brokerTimeout": "20", **{name: str(value) for name, value in more.items()},
        }  # fmt: skip

    def rows(self, *, start: int = 0, partitions: int = PARTITIONS) -> DataFrame:
        return self.spark.range(start, start + ROWS, numPartitions=partitions)

    def save(self, *, turned: bool = False, **options: Any) -> None:
        """Write all rows as a batch job; `turned` in the other order within each partition."""
        rows = self.rows().sortWithinPartitions("id", ascending=False) if turned else self.rows()
        writer = rows.selectExpr(f"{BODY} body").write.format(NAME)
        writer.options(**self.options(**options)).mode("append").save()

    def put(self, *, start: int = 0) -> None:
        """Put rows where a stream finds them, one micro-batch of two tasks."""
        self.rows(start=start).write.mode("append").parquet(str(self.path / "in"))

    def start(self, *, where: str = "true", **options: Any) -> Any:
        """Start a stream of those rows that were put, which ends when all of them are sent."""
        return (
            self.spark.readStream.schema("id LONG")
            .parquet(str(self.path / "in"))
            .where(where)
            .selectExpr(f"{BODY} body")
            .writeStream.format(NAME)
            .options(**self.options(checkpointLocation=self.path / "checkpoint", **options))
            .trigger(availableNow=True)
            .start()
        )

    def start_and_kill_the_driver(self, *, within: float) -> None:
        """Start the stream in a driver of its own, whose JVM is killed when every order was met."""
        environment = {**os.environ, "PYTHONPATH": str(TOP), "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-m", "tests.spark.crashes.sink_driver", self.url, self.queue, str(self.path)]
        wanted = self.orders.waiting
        process = subprocess.Popen(command, env=environment, start_new_session=True, cwd=self.path)
        try:
            eventually(lambda: len(self.orders.noted) == wanted, within=within)
            (jvm,) = named(process.pid, "SparkSubmit")
            below = family(jvm)
            kill(jvm)
            process.wait(within)
            # The workers end with their JVM, also those that stay at their moment.
            eventually(lambda: not any(Path(f"/proc/{one}").exists() for one in below), within=within)
        finally:
            for one in (*family(process.pid), process.pid):
                kill(one)
            process.wait()

    def arrived(self) -> Arrived:
        """Take all that lies in the queue."""
        messages: list[tuple[str, int]] = []
        with connect(self.url) as connection:
            connection.send(self.queue, _END, confirm=True)
            subscription = connection.subscribe(self.queue)
            while (message := subscription.receive(timeout=30)).text != _END:
                messages.append((message.headers[DEDUPE_HEADER], int(message.text)))
        return Arrived(messages)
