"""Messages as the source would give them, without a broker: from files."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from stompy.spark.schema import ddl

START = datetime(2026, 1, 31, 23, 0, tzinfo=timezone.utc)


class Feed:
    """A stream of messages; what is delivered before a query runs is in its next micro-batches, one for each call.

    The n-th message was sent n minutes after START to /queue/n, with n % 3 in the header `kind`.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._places = itertools.count()
        self._calls = itertools.count()
        folder.mkdir()

    def deliver(self, *bodies: bytes) -> None:
        rows = [
            (
                place, f"ID:{place}", f"/queue/{place}", {"kind": str(place % 3), "message-id": f"ID:{place}"},
                body, None, False, False, START + timedelta(minutes=place), START + timedelta(minutes=place), "0",
                "stomp://localhost:61613",
            )
            for body, place in zip(bodies, self._places, strict=False)
        ]  # fmt: skip
        frame = self._spark.createDataFrame(rows, ddl()).coalesce(1)
        frame.write.parquet(str(self._folder / f"{next(self._calls):03d}"))

    def stream(self) -> DataFrame:
        stream = self._spark.readStream.schema(ddl()).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(self._folder / "*"))


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path / "feed")
