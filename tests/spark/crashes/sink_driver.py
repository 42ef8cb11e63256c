"""A driver of its own for a stream to a queue, which is killed where the orders in its folder say.

Arguments: URL, queue, folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stompy.spark import session
from tests.spark.sink_jobs import SinkJobs


def main() -> None:
    url, queue, folder = sys.argv[1:]
    spark = session("victim", master="local[2]", spark__ui__enabled="false")
    jobs = SinkJobs(spark, url, Path(folder), queue=queue)
    jobs.start().awaitTermination()


if __name__ == "__main__":
    main()
