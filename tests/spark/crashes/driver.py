"""A driver of its own: runs a query from a queue into Parquet until it is killed, or until everything is written.

Arguments: URL, queue, folder, master, number of messages. Standard output tells `started` and `done`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from stompy.spark import session


def main() -> None:
    url, queue, folder, master, expected = sys.argv[1:]
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
        "url": url, "destination": queue, "spoolDir": f"{folder}/spool", "maxMessagesPerTrigger": "500",
        "prefetch": "300", "brokerTimeout": "30", "lockTimeout": "60",
    }  # fmt: skip
    if "STOMP_SECRET" in os.environ:
        options |= {"login": "victim", "passcodeEnv": "STOMP_SECRET"}
    frame = spark.readStream.format("stomp").options(**options).load()
    frame.explain(extended=True)
    query = (
        frame.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    sys.stdout.write("started\n")
    sys.stdout.flush()
    while query.isActive:
        time.sleep(0.2)
        done = Path(folder, "out", "_spark_metadata").is_dir()
        if done and spark.read.schema("body BINARY").parquet(f"{folder}/out").distinct().count() >= int(expected):
            sys.stdout.write(f"done {query.lastProgress}\n")
            sys.stdout.flush()
            query.stop()
            spark.stop()
            return
    raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
