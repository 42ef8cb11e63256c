"""A driver of its own: runs a query from queues into Parquet until it is killed, or until everything is written.

Arguments: folder, master, its end, and the options of each source as JSON. The end is a number of messages, `killed`,
or `drained`: what the spools hold is written. It writes `started` and `done`. With STOMP_SECRET, which is the passcode,
a query to the broker at STOMP_REFUSING follows, and it tells what that failed of.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet
from pyspark.sql import DataFrame

from stompy.spark import session
from tests.spark.streaming_run import begin


def main() -> None:
    folder, master, end, *given = sys.argv[1:]
    spark = session(
        "victim",
        master=master,
        spark__ui__enabled="false",
        spark__sql__shuffle__partitions="2",
        spark__eventLog__enabled="true",
        spark__eventLog__dir=f"file://{folder}/events",
        spark__sql__execution__pyspark__udf__tracebackWithLocals__enabled="true",
    )
    sources = [{"maxOffsetsPerTrigger": "200", "lockTimeout": "60", **json.loads(options)} for options in given]
    if "STOMP_SECRET" in os.environ:
        sources = [
            {**options, "url": options["url"].replace("://", "://victim@"), "passcodeEnv": "STOMP_SECRET"}
            for options in sources
        ]
    frames = [spark.readStream.format("stomp").options(**options).load() for options in sources]
    frame = functools.reduce(DataFrame.union, frames)
    frame.explain(extended=True)
    writer = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    query = begin(writer.trigger(availableNow=True) if end == "drained" else writer)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    names: set[str] = set()
    numbers: set[int] = set()
    while query.isActive:
        time.sleep(0.2)
        if end.isdigit():
            new = committed(Path(folder, "out")) - names
            names |= new
            numbers.update(number for number, _ in rows_of(new))
            if len(numbers) >= int(end):
                query.stop()
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    sys.stdout.write(f"done {query.lastProgress}\n")
    sys.stdout.flush()
    if "STOMP_REFUSING" in os.environ:
        options = {**sources[0], "url": os.environ["STOMP_REFUSING"], "spoolDir": f"{folder}/refused"}
        tell_of_refusal(spark.readStream.format("stomp").options(**options).load())
    spark.stop()


def written(folder: Path) -> list[tuple[int, bool]]:
    """Return what Spark's file sink has committed, as its log says, and whether it may be a second copy."""
    return rows_of(committed(folder / "out"))


def rows_of(names: Iterable[str]) -> list[tuple[int, bool]]:
    found: list[tuple[int, bool]] = []
    for name in names:
        table = pyarrow.parquet.read_table(name, columns=["body", "possible_duplicate"])
        bodies, flags = (table.column(place).to_pylist() for place in range(2))
        found += [(int(body), flag) for body, flag in zip(bodies, flags, strict=True)]
    return found


def committed(out: Path) -> set[str]:
    names: set[str] = set()
    for log in (out / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            names.add(unquote(urlsplit(json.loads(line)["path"]).path))
    return names


def tell_of_refusal(frame: DataFrame) -> None:
    try:
        begin(frame.writeStream.format("noop")).awaitTermination()
    except Exception as error:
        sys.stdout.write(f"refused {error}\n")


if __name__ == "__main__":
    main()
