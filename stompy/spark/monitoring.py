"""Observing a query: the metrics of its STOMP sources, and the cause of a failure.

Spark's `sources[].metrics` stays empty, as Spark 4.3 does not request it from Python sources (the classes that run them
do not implement `ReportsSourceMetrics`). The metrics are part of the offsets in `query.lastProgress` instead.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stompy.errors import PipelineError, StompError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger("stompy.spark")

_OURS = re.compile(r"^(?:.*[\s:])?stompy\.errors\.(\w+: .*)$")
_PYTHON = re.compile(r"^(?:.*Exception: )?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .*)?)$")
_JAVA = re.compile(r"^Caused by: ([\w.$]+(?:: .*)?)$")
_TRACEBACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """Metrics of one source of a query, as of a micro-batch.

    Attributes:
        query: the name of the query, or its id if it has no name.
        batch: the number of the micro-batch.
        rows: rows in the micro-batch.
        rate: rows processed per second.
        backlog: messages in the spool after the micro-batch; 0 with Spark before 4.2, which does not request it.
        lost: messages lost so far (`failOnDataLoss=false`).
        dropped: duplicates dropped since the process that fills the spool began.
        flagged: possible duplicates kept since then.
    """

    query: str
    batch: int
    rows: int
    rate: float
    backlog: int
    lost: int
    dropped: int
    flagged: int

    def __str__(self) -> str:
        return (
            f"query {self.query}, batch {self.batch}: {self.rows:,} rows, {self.rate:,.0f} a second, backlog "
            f"{self.backlog:,}, lost {self.lost:,}, {self.dropped:,} duplicates dropped, {self.flagged:,} possible "
            "duplicates kept"
        )


def metrics_of(progress: Any) -> list[SourceMetrics]:
    """Return the metrics of the STOMP sources of a query, in order.

    Args:
        progress: a `StreamingQueryProgress`, from a listener or from `query.lastProgress`.
    """
    document = json.loads(progress.json)
    found = []
    for source in document["sources"]:
        end, latest = (_offset(source.get(name)) for name in ("endOffset", "latestOffset"))
        if end is None:
            continue
        latest = latest or end
        found.append(
            SourceMetrics(
                query=document.get("name") or document["id"],
                batch=document["batchId"],
                rows=source["numInputRows"],
                rate=source.get("processedRowsPerSecond", 0.0),
                backlog=max(0, latest["next"] - end["next"]),
                lost=end.get("lost", 0),
                dropped=latest.get("dropped", 0),
                flagged=latest.get("flagged", 0),
            )
        )
    return found


def _offset(found: Any) -> dict[str, Any] | None:
    """Return an offset of a STOMP source in a progress; `None` for another source."""
    if isinstance(found, str):
        found = json.loads(found)
    return found if isinstance(found, dict) and {"v", "spools", "next"} <= found.keys() else None


def watch(spark: SparkSession) -> Any:
    """Log the metrics of all STOMP sources of a session, after each micro-batch.

    The logger is `stompy.spark`; the level is WARNING if messages were lost since the last micro-batch, else INFO.

    Args:
        spark: the session; may be one of Spark Connect.

    Returns:
        The `StreamingQueryListener`, for `spark.streams.removeListener`. Its `metrics` is a dict of the latest
        `SourceMetrics` of all running queries, by the query's id and the number of the source.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Watch(StreamingQueryListener):
        def __init__(self) -> None:
            self.metrics: dict[tuple[str, int], SourceMetrics] = {}

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802  # Spark's name
            """Do nothing."""

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            for number, now in enumerate(metrics_of(event.progress)):
                key = str(event.progress.id), number
                before = self.metrics.get(key)
                level = logging.WARNING if now.lost > (before.lost if before else 0) else logging.INFO
                self.metrics[key] = now
                _LOG.log(level, "%s", now)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            for key in [key for key in self.metrics if key[0] == str(event.id)]:
                del self.metrics[key]

    listener = Watch()
    spark.streams.addListener(listener)
    return listener


def cause(error: BaseException) -> str:
    """Return the cause of an error of Spark, in one line.

    It is the error that stompy raised, on the driver or an executor, as class and text; or else the last line of a
    Python traceback, the innermost cause in a Java traceback, or the first line of the error message.

    Args:
        error: an error that Spark raised, such as a `StreamingQueryException`, or `query.exception()`.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, StompError):
            return f"{type(found).__name__}: {found}"
        found = found.__cause__ or found.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if ours := [match[1] for line in lines if (match := _OURS.match(line))]:
        return ours[-1]
    if of_python := _after_traceback(lines):
        return of_python
    if of_java := [match[1] for line in lines if (match := _JAVA.match(line))]:
        return of_java[-1]
    return lines[0] if lines else type(error).__name__


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Raise errors of Spark as a `PipelineError` with their cause."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PipelineError(cause(error)) from error


def _after_traceback(lines: list[str]) -> str | None:
    """Return the last line of the last Python traceback, or `None`."""
    starts = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    rest = lines[starts[-1] + 1 :] if starts else []
    return next((match[1] for line in rest if (match := _PYTHON.match(line))), None)
