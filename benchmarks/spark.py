"""What the data pipeline costs: ingest, micro-batches, empty triggers, sink, stop; on this machine, now.

    make bench-spark                         # the embedded broker, and ActiveMQ where one can be had
    python -m benchmarks.spark --broker embedded --messages 20000

Each broker has a process of its own, which shares the machine's cores with Spark; the numbers say as much of the
machine as of the pipeline, so they are only good beside others of the same run. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stompy
from benchmarks.spark_latency import floor, latency
from stompy.spark import session
from stompy.spark.option_tables import spool_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.spool.files import Files
from stompy.spark.spool.spool import get_spool, make_spool
from stompy.spark.spool.view import SpoolView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BODY = b"x" * 200
WINDOW = 200
"""Messages between two acknowledgements of a plain client, and in a segment."""
RATE = 400
"""Rows of a measured micro-batch, in two tasks."""
BATCHES = 30
COPIES = 9
"""Times that a table is copied to Parquet."""
_EMBEDDED = (
    "import sys; from stompy.broker import Broker; b = Broker().start(); print(b.url, flush=True); sys.stdin.read()"
)


def fill(url: str, count: int) -> str:
    """Send messages to a queue of their own, and return its name."""
    queue = f"/queue/{uuid.uuid4().hex}"
    with stompy.connect(url) as connection:
        with connection.batch():
            for number in range(count):
                connection.send(queue, BODY, headers={"n": str(number), "persistent": "true"})
        connection.flush()
    return queue


def plain(url: str, count: int) -> tuple[float, float]:
    """Receive without a spool; return messages per second, and microseconds of CPU for each."""
    queue = fill(url, count)
    with stompy.connect(url) as connection:
        began, cpu = time.perf_counter(), time.process_time()
        for taken, message in enumerate(connection.subscribe(queue, ack="client"), 1):
            if taken % WINDOW == 0 or taken == count:
                message.ack()
            if taken == count:
                break
        return count / (time.perf_counter() - began), 1e6 * (time.process_time() - cpu) / count


def ingest(url: str, count: int, *, receivers: int, place: str) -> float:
    """Receive into a spool; return messages per second from the first segment on."""
    queue = fill(url, count)
    options = spool_options({"url": url, "destination": queue, "spooldir": place, "receivers": str(receivers)})
    spool = make_spool(Files(place), queue)
    filling = ReceiverPool(options, spool)
    view = SpoolView(spool)
    began = first = 0.0
    try:
        while True:
            view.refresh()
            there = view.next
            if there and not first:
                began, first = time.perf_counter(), there
            if there >= count:
                return (count - first) / (time.perf_counter() - began)
            filling.check()
            time.sleep(0.01)
    finally:
        filling.stop()


def filled(spark: SparkSession, url: str, folder: Path, rows: int) -> DataFrame:
    """Return a stream of full micro-batches: its spool is full before it starts, however fast the broker gives."""
    place = str(folder / uuid.uuid4().hex)
    ingest(url, rows * BATCHES, receivers=1, place=place)
    queue = get_spool(Files(place)).destination
    options = {"url": url, "destination": queue, "spoolDir": place, "receivers": "0", "brokerTimeout": "1h"}
    reading = spark.readStream.format("stomp").options(**options)
    return reading.option("maxOffsetsPerTrigger", str(rows)).load()


@contextlib.contextmanager
def running(rows: DataFrame, folder: Path, kind: str = "noop", **options: object) -> Iterator[StreamingQuery]:
    """Run a query, and stop it at the end of the block."""
    writing = rows.writeStream.format(kind).option("checkpointLocation", str(folder / uuid.uuid4().hex))
    query = writing.options(**{name: str(value) for name, value in options.items()}).start()
    try:
        yield query
    finally:
        query.stop()


def batches(query: StreamingQuery, rows: int, at_least: int) -> list[dict[str, Any]]:
    """Wait until a query has read so many rows; return its full micro-batches, without the first."""
    seen: dict[int, dict[str, Any]] = {}
    while sum(one["numInputRows"] for one in seen.values()) < rows:
        if query.awaitTermination(0.2):
            raise SystemExit(f"the query ended: {query.exception()}")
        seen.update({one["batchId"]: one for one in query.recentProgress if one["numInputRows"]})
    return [one for _, one in sorted(seen.items()) if one["numInputRows"] >= at_least][1:]


def took(seen: list[dict[str, Any]]) -> str:
    """Return what the middle micro-batch took, and the ninth of ten."""
    each = sorted(one["durationMs"]["triggerExecution"] for one in seen)
    return f"{statistics.median(each):.0f} ms (p90 {each[len(each) * 9 // 10]:.0f}), {len(each)} batches"


def streaming(spark: SparkSession, url: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Measure micro-batches of several sizes, triggers without data, and the end of a query."""
    for rows, kind in ((1, "noop"), (4000, "noop"), (4000, "parquet"), (RATE, "noop"), (RATE, "stomp")):
        source = filled(spark, url, folder, rows)
        more: dict[str, object] = {"path": str(folder / uuid.uuid4().hex)} if kind == "parquet" else {}
        if kind == "stomp":
            source = source.select("body").repartition(2)
            more = {"url": url, "destination": f"/topic/{uuid.uuid4().hex}"}
        elif rows == RATE:
            source = source.select("body").repartition(2)
        with running(source, folder, kind, **more) as query:
            seen = batches(query, rows * BATCHES, rows)
            yield f"micro-batch, {rows:,} rows to {kind}", took(seen)
            if (rows, kind) == (1, "noop"):
                yield "trigger without data", idle(query)
            began = time.perf_counter()
        yield f"stop of the query to {kind}", f"{1000 * (time.perf_counter() - began):.0f} ms"


def idle(query: StreamingQuery) -> str:
    """Return what triggers cost that find nothing; Spark reports them every 200 ms here."""
    while sum(1 for one in query.recentProgress[-BATCHES:] if not one["numInputRows"]) < BATCHES:
        query.awaitTermination(0.5)
    none = [one["durationMs"]["triggerExecution"] for one in query.recentProgress[-BATCHES:]]
    return f"{statistics.median(none):.0f} ms (most {max(none)}), no micro-batch"


def drained(spark: SparkSession, url: str, folder: Path, count: int) -> str:
    """Return how fast a table is taken from a queue, and read again from its spool."""
    place = {"url": url, "destination": fill(url, count), "spoolDir": str(folder / uuid.uuid4().hex)}
    table = spark.read.format("stomp").options(**place, idleTimeout="2").load()
    table.count()
    began = time.perf_counter()
    table.write.format("noop").mode("append").save()
    return f"{count / (time.perf_counter() - began):,.0f} rows/s"


def to_parquet(spark: SparkSession, url: str, folder: Path, count: int) -> str:
    """Return how fast the rows of a spool are written to Parquet, and how fast those of a Parquet copy are, in turn."""
    place, copy = (str(folder / uuid.uuid4().hex) for _ in range(2))
    options = {"url": url, "destination": fill(url, count), "spoolDir": place, "maxMessages": str(count)}
    spool = spark.read.format("stomp").options(**options).load()
    spool.write.parquet(copy)
    tables = spool, spark.read.parquet(copy)
    rates: list[list[float]] = []
    for _ in range(COPIES):
        rates.append([])
        for table in tables:
            began = time.perf_counter()
            table.write.parquet(str(folder / uuid.uuid4().hex))
            rates[-1].append(count / (time.perf_counter() - began))
    mine, other = (statistics.median(found) for found in zip(*rates, strict=True))
    ratio = statistics.median(one / two for one, two in rates)
    return f"{mine:,.0f} rows/s, from Parquet {other:,.0f} rows/s, ratio {ratio:.0%} (median of {COPIES})"


def sink(spark: SparkSession, url: str, count: int, destination: str) -> str:
    """Return rows per second that are sent, all of them confirmed, in two tasks."""
    rows = spark.range(count, numPartitions=2).selectExpr(f"repeat('x', {len(BODY)}) AS body")

    def write() -> float:
        began = time.perf_counter()
        rows.write.format("stomp").options(url=url, destination=destination).mode("append").save()
        return time.perf_counter() - began

    write()  # the Pythons have started then
    return f"{count / write():,.0f} rows/s"


@contextlib.contextmanager
def broker(kind: str) -> Iterator[str]:
    """Yield the address of a broker in a separate process."""
    if kind == "embedded":
        with subprocess.Popen(
            [sys.executable, "-c", _EMBEDDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().strip()
            finally:
                process.communicate()
        return
    from stompy.testing.containers import SOURCES, start_broker
    from tests.support.local_brokers import LocalBroker

    SOURCES["local"] = LocalBroker
    with start_broker(kind, persistent=True) as real:
        yield real.url()


def measure(spark: SparkSession, url: str, folder: Path, count: int) -> Iterator[tuple[str, str]]:
    """Yield what was measured on one broker, a line each."""
    rate, cpu = plain(url, count)
    yield "plain client, ack each 200", f"{rate:,.0f} messages/s, {cpu:.1f} us CPU each"
    for receivers in (1, 2, 4):
        speed = ingest(url, count, receivers=receivers, place=str(folder / uuid.uuid4().hex))
        yield f"ingest, {receivers} receiver{'s' if receivers > 1 else ''}", f"{speed:,.0f} messages/s"
    yield "spool read by Spark", drained(spark, url, folder, count)
    yield "spool to Parquet", to_parquet(spark, url, folder, 10 * count)
    yield from streaming(spark, url, folder)
    for name in ("topic", "queue"):
        yield f"sink, to a {name}", sink(spark, url, count, f"/{name}/{uuid.uuid4().hex}")


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description="What the data pipeline costs on this machine.")
    parser.add_argument("--broker", action="append", choices=("embedded", "activemq", "artemis", "rabbitmq4"))
    parser.add_argument("--messages", type=int, default=60_000, metavar="N", help="for each figure (default: 60,000)")
    parser.add_argument("--latency", action="store_true", help="only the time from send to foreachBatch, at 100/s")
    arguments = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = session("bench", master="local[2]", spark__ui__enabled="false", spark__sql__shuffle__partitions="2",
                    spark__sql__streaming__noDataProgressEventInterval="200",
                    spark__sql__streaming__numRecentProgressUpdates="1000")  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"Spark {spark.version}, {machine}", flush=True)
    with contextlib.ExitStack() as ending:
        ending.callback(spark.stop)
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        for kind in arguments.broker or ("embedded", "activemq"):
            url = ending.enter_context(broker(kind))
            figures = latency(spark, url, folder, rate=100, seconds=40)
            if not arguments.latency:
                figures = itertools.chain(measure(spark, url, folder, arguments.messages), figures)
            for what, figure in figures:
                print(f"| {kind} | {what} | {figure} |", flush=True)
        for what, figure in floor(spark, folder, seconds=15):
            print(f"| none | {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
