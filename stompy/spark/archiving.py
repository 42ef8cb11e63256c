"""Archive a destination in Parquet files: each message once, by date, with invalid messages in a separate folder.

::

    PATH/kind=messages/date=2026-01-31/part=<query>-<batch>/*.parquet
    PATH/kind=bad/date=2026-01-31/part=<query>-<batch>/*.parquet      with `reason`, which is null in messages

A micro-batch writes into folders with its number, both kinds at once, so that the spool is read once. If it is repeated
after a crash, it replaces them: while the pipeline is not running, PATH has each message exactly once, for any reader
of Parquet. Each file is in the order of receipt.

The function that writes a micro-batch may run in a separate process, on a Spark Connect server, so it only refers to
text; Spark counts the written rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as sql

from stompy.errors import ConfigurationError
from stompy.spark.replaying import BAD, MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BodyKind = Literal["binary", "text", "json"]


@dataclass(frozen=True, slots=True)
class Body:
    """The required format of bodies; other messages are invalid ("bad").

    Attributes:
        kind: `"binary"` accepts everything; `"text"` requires UTF-8, and adds the column `text`; `"json"` requires JSON
            with `schema`, and adds the column `value`. Spark's parser checks it, which ignores text after the value.
        schema: of JSON, as DDL (`"id BIGINT, at TIMESTAMP"`).
    """

    kind: BodyKind = "binary"
    schema: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("binary", "text", "json"):
            raise ConfigurationError(f"a body is binary, text or json, not {self.kind!r}")
        if (self.kind == "json") != (self.schema is not None):
            raise ConfigurationError("JSON needs a schema, and the other formats have none")


@dataclass(frozen=True, slots=True)
class Archive:
    """A running archive.

    Attributes:
        query: the streaming query.
    """

    query: StreamingQuery
    _counts: dict[int, Mapping[str, int]] = field(default_factory=dict)

    def rows(self) -> Mapping[str, int]:
        """Return the numbers of rows written so far: `"messages"` and, if bodies are checked, `"bad"`.

        Spark stores the last 100 micro-batches, so call this at least once every 100 of them.
        """
        for progress in self.query.recentProgress:
            observed = (progress.observedMetrics or {}).get(_COUNTS)
            if observed is not None:
                self._counts[progress.batchId] = dict(zip((MESSAGES, BAD), _values(observed), strict=False))
        kinds = {kind for counts in self._counts.values() for kind in counts}
        return {kind: sum(counts[kind] for counts in self._counts.values()) for kind in sorted(kinds, reverse=True)}


_COUNTS = "stompy_archived"


def _values(observed: Row) -> tuple[int, ...]:
    # A Spark Connect server returns the row as its values and their schema.
    found = observed.asDict()
    return tuple(found["values"] if "schema" in found else found.values())


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
        checkpoint: the folder of the query's state; one for each archive, and kept between runs, like the spool.
        body: the required format of bodies; `None` accepts everything.
        interval: between micro-batches, as Spark writes it.
        available_now: whether to end when the messages that are available now are archived.

    Raises:
        ConfigurationError: an option is invalid.
    """
    rows = spark.readStream.format("stomp").options(**source).load()
    if rows.schema["headers"].dataType.typeName() != "map":
        raise ConfigurationError("an archive keeps headers as a map: leave out the option headersAs")
    root = path.rstrip("/")
    checks = body is not None and body.kind != "binary"
    valid = sql.col("reason").isNull()
    counts = [sql.count_if(valid).alias(MESSAGES), *([sql.count_if(~valid).alias(BAD)] if checks else [])]
    counted = _checked(_dated(rows), body or Body()).observe(_COUNTS, *counts)

    def write(batch: DataFrame, number: int) -> None:
        # The session is the query's own. Spark's default type for times is deprecated in Parquet, and has no statistics
        # in the file, which readers use to skip data.
        batch.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        part = sql.lit(f"{query_id(batch.sparkSession, checkpoint)}-{number:09d}")
        # Replaces the folders of this micro-batch, if it was run before, and no others.
        (
            batch.withColumns({"part": part, "kind": sql.when(valid, MESSAGES).otherwise(BAD)})
            .sortWithinPartitions("kind", "date", "part", "sequence")
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("kind", "date", "part")
            .parquet(root)
        )

    writing = counted.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    when = writing.trigger(availableNow=True) if available_now else writing.trigger(processingTime=interval)
    return Archive(when.queryName(f"archive {root}").start())


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query of a checkpoint, which is the same after each restart.

    Raises:
        ConfigurationError: the folder is not a checkpoint.
    """
    try:
        text = "".join(row[0] for row in spark.read.text(f"{checkpoint.rstrip('/')}/metadata").collect())
        return str(json.loads(text)["id"])
    except Exception as error:
        # Errors of the file system are Java errors of many kinds.
        raise ConfigurationError(
            f"{checkpoint}/metadata is not the metadata of a checkpoint: {type(error).__name__}"
        ) from error


def _dated(rows: DataFrame) -> DataFrame:
    moment = sql.coalesce(sql.col("broker_timestamp"), sql.col("received_at"))
    return rows.withColumn("date", sql.date_format(sql.convert_timezone(None, sql.lit("UTC"), moment), "yyyy-MM-dd"))


def _checked(rows: DataFrame, body: Body) -> DataFrame:
    """Add the column of the decoded body, and `reason`: why the message is invalid, or null."""
    if body.kind == "binary":
        return rows.withColumn("reason", sql.lit(None).cast("string"))
    body_text = sql.col("body").cast("string")
    readable = sql.is_valid_utf8(body_text)
    broken, text = sql.when(~readable, sql.lit("the body is not UTF-8")), sql.when(readable, body_text)
    if body.kind == "text":
        return rows.withColumn("reason", broken).withColumn("text", text)
    corrupt = "_stompy_corrupt"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": corrupt}
    parsed = rows.withColumn("value", sql.from_json(text, f"{body.schema}, {corrupt} STRING", options))
    mismatch = sql.col("value").isNull() | sql.col(f"value.{corrupt}").isNotNull()
    reason = sql.coalesce(broken, sql.when(mismatch, sql.lit("the body is not JSON that fits the schema")))
    return parsed.withColumn("reason", reason).withColumn("value", sql.col("value").dropFields(corrupt))
