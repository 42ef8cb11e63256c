"""A client of a Spark Connect server, which it starts on a free port of loopback: all that the pipeline offers, once.

Arguments: URL of a broker, folder. Standard output ends with a line of JSON: what the client saw.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from stompy.spark import cause, session
from stompy.spark.archiving import Body, archive

ENOUGH = 150


def main() -> None:
    url, folder = sys.argv[1:]
    spark = session("client", remote="local[2]")
    source = {"url": url, "idleTimeout": "1", "prefetch": "100"}

    start = partial(
        archive,
        spark,
        source={**source, "destination": "/queue/archived", "spoolDir": f"{folder}/spool"},
        path=f"{folder}/archive",
        checkpoint=f"{folder}/archiving",
        body=Body("text"),
        available_now=True,
    )
    while True:
        try:
            running = start()
            break
        except Exception as error:  # the server gives the Python worker of a query 10 s to import PySpark, no option
            if "Timed out while waiting for the Python worker to connect back" not in str(error):
                raise
    assert running.query.awaitTermination(ENOUGH)

    stream = spark.readStream.format("stomp").options(
        **source, destination="/queue/streamed", spoolDir=f"{folder}/streamed"
    )
    copying = (
        stream.load()
        .select("body", "headers")
        .writeStream.format("stomp")
        .options(url=url, destination="/queue/copied", checkpointLocation=f"{folder}/copying")
        .trigger(availableNow=True)
        .start()
    )
    assert copying.awaitTermination(ENOUGH)

    table = spark.read.format("stomp").options(**source, destination="/queue/table", spoolDir=f"{folder}/tables").load()
    table.select("body").write.format("stomp").mode("append").options(url=url, destination="/queue/written").save()

    def fails(act: Callable[[], Any]) -> str:
        try:
            act()
        except Exception as error:
            return cause(error)
        return "nothing failed"

    def fails_on_an_executor() -> None:
        sink = {"url": "stomp://127.0.0.1:1", "destination": "/queue/x", "brokerTimeout": "0"}
        spark.sql("SELECT 'a' AS body").write.format("stomp").mode("append").options(**sink).save()

    result = {
        "session": type(spark).__module__,
        "archived": dict(running.rows()),
        "load": fails(
            lambda: spark.read.format("stomp").options(url=url).load().schema
        ),  # asked of the server only now
        "executor": fails(fails_on_an_executor),
    }
    spark.stop()
    sys.stdout.write(f"{json.dumps(result)}\n")


if __name__ == "__main__":
    main()
