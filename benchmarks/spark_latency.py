"""The parts of the time from `send` to `foreachBatch`, compared with a built-in source of Spark.

Each message says when it was sent; the file of its segment says when it became visible to the query; Spark's progress
says how long each step of the micro-batch took.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompy.spark.spool.index import segment_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SENDER = """
import sys, time
import stompy

url, queue, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
with stompy.connect(url) as connection:
    began = time.time()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.time()))
        connection.send(queue, b"x" * 200, headers={"sent": repr(time.time()), "persistent": "true"})
"""
_STEPS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets", "commitBatch")
_WARM = 30.0
"""Seconds that are left out: Spark's Pythons start, and Java compiles what it does often."""
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_CONTEXT = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"

Rows = list[tuple[int, float, float, float, float]]
"""Of each message: its micro-batch, and when it was sent, visible, given to the function, and read there."""


def latency(spark: SparkSession, url: str, folder: Path, *, rate: float, seconds: float) -> Iterator[tuple[str, str]]:
    """Measure the latency of messages that come at a rate; yield the whole, its parts, and the cost of a batch."""
    place, queue = folder / uuid.uuid4().hex, f"/queue/{uuid.uuid4().hex}"
    source = spark.readStream.format("stomp").options(url=url, destination=queue, spoolDir=str(place)).load()
    seen: Rows = []
    seconds += _WARM
    expected = int(rate * seconds)

    def store(batch: DataFrame, number: int) -> None:
        called = time.time()
        rows = batch.selectExpr("sequence", "CAST(headers['sent'] AS DOUBLE)").collect()
        there = time.time()
        visible = sorted(_visible(place))
        for sequence, sent in rows:
            named = [at for first, at in visible if first <= sequence][-1]
            seen.append((number, sent, named, called, there))

    def sending() -> None:
        subprocess.run([sys.executable, "-c", _SENDER, url, queue, str(rate), str(seconds)], check=True)

    progress = _run(source, store, folder, sending, lambda: len(seen) >= expected)
    yield from _told(f"{rate:g} messages/s", seen, progress)
    yield "micro-batch of it", _steps(progress)


def floor(spark: SparkSession, folder: Path, *, seconds: float) -> Iterator[tuple[str, str]]:
    """Measure micro-batches of sources that have nothing to do: Spark's own, and the least one in Python."""
    spark.dataSource.register(_least_source())
    own = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "25").load()
    least = spark.readStream.format("least").load()

    def store(batch: DataFrame, number: int) -> None:
        batch.collect()

    def steps(source: DataFrame) -> str:
        return _steps(_run(source, store, folder, lambda: time.sleep(seconds), lambda: True))

    yield "micro-batch of the least source in Python", steps(least)
    yield "micro-batch of Spark's own source", steps(own)
    spark.conf.set(_MANAGER, _BY_CONTEXT)
    yield "the same with Spark's default for checkpoints", steps(own)
    spark.conf.unset(_MANAGER)


def _run(
    source: DataFrame,
    store: Callable[[DataFrame, int], None],
    folder: Path,
    work: Callable[[], None],
    done: Callable[[], bool],
) -> dict[int, dict[str, Any]]:
    """Run a query while `work` runs and until `done`; return its progress by the number of the micro-batch."""
    query = source.writeStream.foreachBatch(store).option("checkpointLocation", str(folder / uuid.uuid4().hex)).start()
    try:
        work()
        while not done():
            if query.awaitTermination(0.2):
                raise SystemExit(f"the query ended: {query.exception()}")
    finally:
        query.stop()
    return {one["batchId"]: one for one in query.recentProgress if one["numInputRows"]}


def _visible(place: Path) -> Iterator[tuple[int, float]]:
    """Yield the first number of each segment, and when its file got its name."""
    for entry in os.scandir(place):
        segment = segment_of(entry.name)
        with contextlib.suppress(FileNotFoundError):  # processed meanwhile
            if segment is not None:
                yield segment.first, entry.stat().st_ctime


def _told(name: str, seen: Rows, progress: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    first = min(sent for _, sent, *_ in seen)
    parts: list[dict[str, float]] = []
    for number, sent, named, called, there in seen:
        if sent < first + _WARM or number not in progress:
            continue
        took = progress[number]["durationMs"]
        trigger = _seconds(progress[number]["timestamp"])
        before = {step: took.get(step, 0) / 1000 for step in ("latestOffset", "walCommit", "getBatch", "queryPlanning")}
        part = {"broker and receiver, until the segment has its name": named - sent}
        part["wait for the next trigger"] = max(0.0, trigger - named)
        part |= before
        part["latestOffset"] -= max(0.0, named - trigger)
        part["the rest until foreachBatch"] = called - trigger - sum(before.values())
        part["rows read in foreachBatch"] = there - called
        parts.append(part)
    whole = sorted(parts, key=lambda part: sum(part.values()))
    to_call = sorted(sum(part.values()) - part["rows read in foreachBatch"] for part in parts)
    yield f"latency at {name}, to foreachBatch", _quantiles(to_call)
    yield f"latency at {name}, rows in foreachBatch", _quantiles([sum(part.values()) for part in whole])
    middle = whole[len(whole) * 4 // 10 : len(whole) * 6 // 10 + 1]
    for key in middle[0]:
        yield f"of the middle fifth: {key}", f"{1000 * statistics.fmean(part[key] for part in middle):.0f} ms"


def _quantiles(each: list[float]) -> str:
    p50, p90, p99 = (1000 * sorted(each)[len(each) * percent // 100] for percent in (50, 90, 99))
    return f"p50 {p50:.0f} ms, p90 {p90:.0f}, p99 {p99:.0f}, {len(each)} messages; load {os.getloadavg()[0]:.1f}"


def _steps(progress: Mapping[int, Mapping[str, Any]]) -> str:
    """Return what the middle micro-batch took in each of Spark's steps."""
    durations = [one["durationMs"] for _, one in sorted(progress.items())]
    durations = durations[len(durations) // 3 :]
    each = {step: statistics.median(one.get(step, 0) for one in durations) for step in _STEPS}
    whole = statistics.median(one["triggerExecution"] for one in durations)
    named = ", ".join(f"{step} {took:.0f}" for step, took in each.items() if took)
    return f"{whole:.0f} ms ({named}), {len(durations)} batches"


def _seconds(timestamp: str) -> float:
    """Return seconds since the epoch of a time as a progress has it."""
    from datetime import datetime

    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def _least_source() -> Any:
    """Return a source with a row each 10 ms, made here so that it travels to Spark's Pythons by value."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Part(InputPartition):
        def __init__(self, start: int, end: int) -> None:
            self.range = start, end

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": int(100 * time.time())}

        def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
            return self.initialOffset()

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
            return [Part(start["at"], end["at"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            assert isinstance(partition, Part)
            return ((number,) for number in range(*partition.range))

    class Least(DataSource):
        @classmethod
        def name(cls) -> str:
            return "least"

        def schema(self) -> str:
            return "n BIGINT"

        def streamReader(self, schema: Any) -> Reader:  # noqa: N802
            return Reader()

    return Least
