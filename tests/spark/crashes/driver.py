"""A driver of its own: runs a query from a queue into Parquet until it is killed, or until everything is written.

Arguments: URL, queue, folder, master, number of messages, of receivers. It writes `started` and `done`. With
STOMP_SECRET, which is the passcode, a query to the broker at STOMP_REFUSING follows, and it tells what that failed of.
"""

from __future__ import annotations

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
    url, queue, folder, master, expected, receivers = sys.argv[1:]
    spark = session(
        "victim",
        master=master,
        spark__ui__enabled="false",
        spark__sql__shuffle__partitions="2",
        spark__eventLog__enabled="true",
        spark__eventLog__dir=f"file://{folder}/events",
        spark__sql__execution__pyspark__udf__tracebackWithLocals__enabled="true",
    )
    options = {
        "url": url, "destination": queue, "spoolDir": f"{folder}/spool", "maxOffsetsPerTrigger": "200",
        "receivers": receivers, "prefetch": "300", "brokerTimeout": "30", "lockTimeout": "60",
    }  # fmt: skip
    if "STOMP_SECRET" in os.environ:
        options |= {"url": url.replace("://", "://victim@"), "passcodeEnv": "STOMP_SECRET"}
    frame = spark.readStream.format("stomp").options(**options).load()
    frame.explain(extended=True)
    query = begin(
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    sys.stdout.write("started\n")
    sys.stdout.flush()
    names: set[str] = set()
    numbers: set[int] = set()
    while query.isActive:
        time.sleep(0.2)
        new = committed(Path(folder, "out")) - names
        names |= new
        numbers.update(number for number, _ in rows_of(new))
        if len(numbers) >= int(expected):
            sys.stdout.write(f"done {query.lastProgress}\n")
            sys.stdout.flush()
            query.stop()
            if "STOMP_REFUSING" in os.environ:
                options |= {"url": os.environ["STOMP_REFUSING"], "spoolDir": f"{folder}/refused"}
                tell_of_refusal(spark.readStream.format("stomp").options(**options).load())
            spark.stop()
            return
    raise SystemExit(str(query.exception()))


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
