"""A destination into Parquet files: each message once, by date, and those that cannot be read kept apart.

::

    PATH/messages/date=2026-01-31/part=<query>-<batch>/*.parquet
    PATH/bad/date=2026-01-31/part=<query>-<batch>/*.parquet      with the column `reason`

A micro-batch writes into folders that bear its name. Where it is run again, since the process died on the way, it
replaces them: what is under PATH has each message once, for any reader of Parquet, whenever the pipeline stands still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as sql

from stompy.errors import ConfigurationError
from stompy.spark.pipelines.batches import Tally, query_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

MESSAGES, BAD = "messages", "bad"

BodyKind = Literal["binary", "text", "json"]


@dataclass(frozen=True, slots=True)
class Body:
    """What a body has to be, or the message is bad.

    Attributes:
        kind: `"binary"` takes everything; `"text"` wants UTF-8, and adds the column `text`; `"json"` wants JSON that
            fits `schema`, and adds the column `value`; Spark's parser judges, which passes over text behind the value.
        schema: of JSON, as DDL (`"id BIGINT, at TIMESTAMP"`).
    """

    kind: BodyKind = "binary"
    schema: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("binary", "text", "json"):
            raise ConfigurationError(f"a body is binary, text or json, not {self.kind!r}")
        if (self.kind == "json") != (self.schema is not None):
            raise ConfigurationError("JSON needs a schema, and nothing else does")


@dataclass(frozen=True, slots=True)
class Archive:
    """A running archive.

    Attributes:
        query: the streaming query.
        tally: rows written so far, under `"messages"` and `"bad"`.
    """

    query: StreamingQuery
    tally: Tally


def archive(
    spark: SparkSession,
    *,
    source: Mapping[str, str],
    path: str,
    checkpoint: str,
    body: Body | None = None,
    interval: str = "10 seconds",
    available_now: bool = False,
) -> Archive:
    """Start to archive a destination.

    Args:
        spark: with the data source `stomp` registered.
        source: options of the source `stomp`.
        path: the folder of the archive.
        checkpoint: the folder of the query's state; one for each archive, kept between runs, as the spool is.
        body: what bodies have to be.
        interval: between micro-batches.
        available_now: end when what is there now was archived.

    Raises:
        ConfigurationError: an option is wrong.
    """
    rows = spark.readStream.format("stomp").options(**source).load()
    return archive_rows(
        rows, path=path, checkpoint=checkpoint, body=body, interval=interval, available_now=available_now
    )


def archive_rows(
    rows: DataFrame,
    *,
    path: str,
    checkpoint: str,
    body: Body | None = None,
    interval: str = "10 seconds",
    available_now: bool = False,
) -> Archive:
    """Start to archive `rows`, a stream with the columns of the source; else as `archive`."""
    tally = Tally()
    root = path.rstrip("/")
    checked = _checked(_dated(rows), body or Body())

    def write(batch: DataFrame, number: int) -> None:
        part = f"{query_id(batch.sparkSession, checkpoint)}-{number:09d}"
        named = batch.withColumn("part", sql.lit(part))
        _write(named.where("reason IS NULL").drop("reason"), f"{root}/{MESSAGES}", tally, MESSAGES)
        if body is not None and body.kind != "binary":
            _write(named.where("reason IS NOT NULL"), f"{root}/{BAD}", tally, BAD)

    writing = checked.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    when = writing.trigger(availableNow=True) if available_now else writing.trigger(processingTime=interval)
    return Archive(when.queryName(f"archive {root}").start(), tally)


def _write(rows: DataFrame, folder: str, tally: Tally, kind: str) -> None:
    def save(counted: DataFrame) -> None:
        # Replaces the folders of this micro-batch, if it was run before, and no others.
        counted.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("date", "part").parquet(
            folder
        )

    tally.counted(rows, kind, save)


def _dated(rows: DataFrame) -> DataFrame:
    moment = sql.coalesce(sql.col("broker_timestamp"), sql.col("received_at"))
    return rows.withColumn("date", sql.date_format(sql.convert_timezone(None, sql.lit("UTC"), moment), "yyyy-MM-dd"))


def _checked(rows: DataFrame, body: Body) -> DataFrame:
    """Add what is made of the body, and `reason`: why the message is bad, or null."""
    if body.kind == "binary":
        return rows.withColumn("reason", sql.lit(None).cast("string"))
    readable = sql.is_valid_utf8(sql.col("body").cast("string"))
    broken = sql.when(~readable, sql.lit("the body is not UTF-8"))
    text = sql.col("body").cast("string")
    if body.kind == "text":
        return rows.withColumn("reason", broken).withColumn("text", sql.when(readable, text))
    return _parsed(rows, body.schema or "", readable, broken)


def _parsed(rows: DataFrame, schema: str, readable: Column, broken: Column) -> DataFrame:
    text = sql.when(readable, sql.col("body").cast("string"))
    corrupt = "_stompy_corrupt"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    parsed = rows.withColumn("value", sql.from_json(text, f"{schema}, {corrupt} STRING", options))
    misfit = sql.col("value").isNull() | sql.col(f"value.{corrupt}").isNotNull()
    reason = sql.coalesce(broken, sql.when(misfit, sql.lit("the body is not JSON that fits the schema")))
    return parsed.withColumn("reason", reason).withColumn("value", sql.col("value").dropFields(corrupt))
