"""Windows over the moment of reception: a query that is stopped in the middle of one goes on as if it had not been."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from tests.spark.dataframes import needs_available_now, run_once, stream, until
from tests.spark.spool.builders import record, seal, spool_files, spool_writer
from tests.spark.streaming_run import ENOUGH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    needs_available_now,
    pytest.mark.timeout(150),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

BEGAN = 1_700_000_000
SECONDS_A_WINDOW = 10
MESSAGES = 40


@pytest.mark.hard_case("T27")
def test_a_restart_in_the_middle_of_a_window_changes_nothing(
    stomp: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    # A message a second, long ago: a batch of 25 ends within a window of 10, and the time of this run is in none.
    files = spool_files(tmp_path / "spool")
    writer = spool_writer(files)
    for start in range(0, MESSAGES, 10):
        seal(writer, [record(n)._replace(received_at=(BEGAN + n) * 1_000_000) for n in range(start, start + 10)])
    writer.close()
    one, two = tmp_path / "uninterrupted", tmp_path / "restarted"
    for path in (one, two):
        shutil.copytree(tmp_path / "spool", path / "spool")

    def windows(path: Path) -> DataFrame:
        return (
            stream(stomp, broker, path, maxOffsetsPerTrigger="25", receivers="0")
            .withWatermark("received_at", "1 second")
            .selectExpr(f"window(received_at, '{SECONDS_A_WINDOW} seconds') AS span")
            .groupBy("span")
            .count()
            .selectExpr("unix_timestamp(span.start) AS start", "count")
        )

    query = (
        windows(two)
        .writeStream.format("parquet")
        .option("path", str(two / "out"))
        .option("checkpointLocation", str(two / "checkpoint"))
        .start()
    )
    until(query, lambda: len([one for one in query.recentProgress if one["numInputRows"]]) >= 1)
    query.stop()
    assert query.awaitTermination(ENOUGH)
    for path in (one, two):
        run_once(windows(path), path)

    def found(path: Path) -> dict[int, int]:
        return {row["start"]: row["count"] for row in stomp.read.parquet(str(path / "out")).collect()}

    assert found(one) == found(two)
    # The last window stays open: no later message moves the watermark over its end.
    every = Counter((BEGAN + at) // SECONDS_A_WINDOW * SECONDS_A_WINDOW for at in range(MESSAGES))
    assert found(two) == {start: count for start, count in every.items() if start < max(every)}
