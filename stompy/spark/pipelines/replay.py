"""An archive back to a destination: in its order, at a rate, from where it stood.

Progress is kept by micro-batch, some files each. What had been sent of a micro-batch that was cut short is sent again,
with the same ids in `stompy-dedupe-id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from stompy.errors import ConfigurationError
from stompy.spark.pipelines.archive import MESSAGES
from stompy.spark.pipelines.batches import Tally, query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_SENT = ("body", "headers", "content_type")


@dataclass(frozen=True, slots=True)
class Which:
    """Which messages of an archive are sent; without any of these, all.

    Attributes:
        since: from this moment on, by the broker's timestamp or, where it gave none, by that of receiving.
        until: before this moment.
        headers: header to the value it must have.
        where: a condition on the columns of the archive, in SQL.
    """

    since: datetime | None = None
    until: datetime | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            moment = getattr(self, name)
            if moment is not None and moment.tzinfo is None:
                raise ConfigurationError(f"{name} must say its time zone: {moment.isoformat()}+00:00 for UTC")

    def of(self, rows: DataFrame) -> DataFrame:
        """Return the rows that are meant."""
        moment = sql.coalesce(sql.col("broker_timestamp"), sql.col("received_at"))
        if self.since is not None:
            rows = rows.where(moment >= sql.lit(self.since))
        if self.until is not None:
            rows = rows.where(moment < sql.lit(self.until))
        for name, value in self.headers.items():
            rows = rows.where(sql.col("headers")[name] == sql.lit(value))
        return rows if self.where is None else rows.where(self.where)


@dataclass(frozen=True, slots=True)
class Replay:
    """A running replay.

    Attributes:
        query: the streaming query; it ends when all is sent.
        tally: rows that the broker has confirmed so far, under `"sent"`.
    """

    query: StreamingQuery
    tally: Tally


def replay(
    spark: SparkSession,
    *,
    path: str,
    sink: Mapping[str, str],
    checkpoint: str,
    which: Which | None = None,
    rate: int | None = None,
    tasks: int = 1,
    files_per_batch: int = 1,
    replay_id: str | None = None,
) -> Replay:
    """Start to send an archive; it ends when everything that was there at the start is sent.

    Args:
        spark: with the data source `stomp` registered.
        path: the folder of the archive.
        sink: options of the sink `stomp`; without `destination`, each message goes to where it came from.
        checkpoint: the folder of the query's state; a replay that finds its checkpoint goes on from there.
        which: the messages that are meant.
        rate: messages per second, at most; `None` for no limit.
        tasks: how many connections send side by side; with one, the order of each file is kept.
        files_per_batch: files of the archive in one micro-batch.
        replay_id: part of the ids by which a copy is known; by default that of the query, so that another replay, with
            another checkpoint, has others.

    Raises:
        ConfigurationError: an option is wrong, or there is no archive.
    """
    folder = f"{path.rstrip('/')}/{MESSAGES}"
    if tasks < 1 or files_per_batch < 1 or (rate is not None and rate < tasks):
        raise ConfigurationError("tasks and files_per_batch must be 1 or more, and rate at least one for each task")
    rows = _archived(spark, folder, files_per_batch)
    chosen = (which or Which()).of(rows)
    columns = (*_SENT, *(() if "destination" in sink else ("destination",)))
    tally = Tally()

    def send(batch: DataFrame, _: int) -> None:
        ours = replay_id or query_id(batch.sparkSession, checkpoint)
        identity = sql.concat_ws("/", sql.lit(ours), sql.col("part"), sql.col("lane"), sql.col("sequence"))
        ordered = batch.coalesce(tasks).sortWithinPartitions("received_at", "lane", "sequence")
        options = {**sink, **({} if rate is None else {"rateLimit": str(rate // tasks)})}

        def save(counted: DataFrame) -> None:
            counted.write.format("stomp").options(**options).mode("append").save()

        tally.counted(ordered.withColumn("dedup_id", identity).select(*columns, "dedup_id"), "sent", save)

    query = (
        chosen.writeStream.foreachBatch(send)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .queryName(f"replay {folder}")
        .start()
    )
    return Replay(query, tally)


def _archived(spark: SparkSession, folder: str, files_per_batch: int) -> DataFrame:
    try:
        schema = spark.read.parquet(folder).schema
    except Exception as error:
        raise ConfigurationError(f"there is no archive in {folder}: {type(error).__name__}") from error
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(folder)
