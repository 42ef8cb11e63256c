"""A whole query whose spool is on a server that speaks S3: the driver fills it, the executors read it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stompy.broker import Broker
from tests.spark.dataframes import needs_available_now, run_once, stream, written
from tests.spark.receiver.helpers import QUEUE, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
@needs_available_now
@pytest.mark.timeout(600)
def test_a_query_with_its_spool_on_s3_continues_from_its_checkpoint(
    stomp: SparkSession, broker: Broker, s3_server: str, tmp_path: Path
) -> None:
    place = f"s3://bucket/{uuid.uuid4().hex}?endpoint_override={s3_server.removeprefix('http://')}&scheme=http"
    for sent, count in ((0, 300), (300, 500)):
        fill(broker.url, range(sent, count))
        query = run_once(stream(stomp, broker, tmp_path, spoolDir=place, maxMessagesPerTrigger="100"), tmp_path)
        assert query.exception() is None
        assert written(stomp, tmp_path) == list(range(count))
        assert broker.depth(QUEUE) == 0
    assert not (tmp_path / "spool").exists()
