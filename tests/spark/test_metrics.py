from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from stompy.broker import Broker
from stompy.spark import watch
from stompy.spark.monitoring import metrics_of
from tests.spark.dataframes import needs_available_now, stream
from tests.spark.receiver.helpers import eventually, fill
from tests.spark.streaming_run import begin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def progress(*sources: dict[str, Any]) -> Any:
    return SimpleNamespace(json=json.dumps({"id": "x-1", "name": None, "batchId": 7, "sources": sources}))


def test_what_the_offsets_say_is_reported_and_other_sources_are_left_out() -> None:
    offset = {"v": 4, "spools": {}}
    ours = {
        "numInputRows": 20, "processedRowsPerSecond": 40.0, "endOffset": {**offset, "next": 120, "lost": 3},
        "latestOffset": {**offset, "next": 1500, "dropped": 5, "flagged": 6},
    }  # fmt: skip
    (found,) = metrics_of(progress({"numInputRows": 1, "endOffset": 9}, {"numInputRows": 1, "endOffset": None}, ours))
    assert str(found) == (
        "query x-1, batch 7: 20 rows, 40 a second, backlog 1,380, lost 3, "
        "5 duplicates dropped, 6 possible duplicates kept"
    )


@needs_available_now
@pytest.mark.timeout(150)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_query_is_watched_to_its_end(stomp: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="stompy.spark")
    listener = watch(stomp)

    def lines() -> list[str]:
        return [text for record in caplog.records if " 200 rows, " in (text := record.getMessage())]

    try:
        with Broker() as broker:
            fill(broker.url, range(400))
            given = {"minOffsetsPerTrigger": "200", "maxOffsetsPerTrigger": "200"}
            source = stream(stomp, broker, tmp_path, **given)
            query = begin(source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")))
            try:
                eventually(lambda: len(lines()) == 2, within=60)
                (last,) = listener.metrics.values()
            finally:
                query.stop()
        eventually(lambda: not listener.metrics, within=60)
    finally:
        stomp.streams.removeListener(listener)
    assert (last.backlog, last.lost, last.dropped, last.flagged) == (0, 0, 0, 0)
    assert ", lost 0, 0 duplicates dropped" in lines()[0]
