"""Tables and streams of Spark over a queue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from stompy.broker import Broker
from tests.spark.receiver.helpers import QUEUE, eventually, url_of
from tests.spark.streaming_run import ENOUGH, begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WITH_LIMITS = tuple(int(part) for part in pyspark.__version__.split(".")[:2]) >= (4, 2)
"""Whether this Spark has admission control and Trigger.AvailableNow for Python."""

needs_available_now = pytest.mark.skipif(not WITH_LIMITS, reason="Spark before 4.2 has no AvailableNow for Python")


def table(spark: SparkSession, broker: Broker | str, path: Path, **given: str) -> DataFrame:
    options = {
        "url": url_of(broker),
        "destination": QUEUE,
        "spoolDir": str(path / "spool"),
        "idleTimeout": "2",
        **given,
    }
    return spark.read.format("stomp").options(**options).load()


def stream(spark: SparkSession, broker: Broker | str, path: Path, **given: str) -> DataFrame:
    options = {
        "url": url_of(broker),
        "destination": QUEUE,
        "spoolDir": str(path / "spool"),
        "idleTimeout": "2",
        **given,
    }
    return spark.readStream.format("stomp").options(**options).load()


def run_once(frame: DataFrame, path: Path) -> Any:
    """Run a query over what is available into Parquet, and return it when it has ended."""
    query = begin(
        frame.writeStream.format("parquet")
        .option("path", str(path / "out"))
        .option("checkpointLocation", str(path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert query.awaitTermination(ENOUGH)
    return query


def until(query: Any, condition: Callable[[], object]) -> None:
    """Return when the condition holds; fail with what the query has failed of."""
    eventually(lambda: condition() or query.exception(), within=ENOUGH)
    assert query.exception() is None


def written(spark: SparkSession, path: Path) -> list[int]:
    return sorted(int(row.body) for row in spark.read.parquet(str(path / "out")).select("body").collect())
