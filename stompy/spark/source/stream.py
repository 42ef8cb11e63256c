"""The streaming source, as pyspark's interface.

Spark uses two instances: one in a Python process of the driver, as long as the query runs, for every method except
`read`; the other is pickled to the executors for `read` only. So anything that cannot be pickled is created at the
first call that needs it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from stompy.spark.source.engine import BatchLimits, StreamEngine
from stompy.spark.source.reading import read_pieces
from stompy.spark.source_options import StreamOptions
from stompy.spark.spool.index import Piece
from stompy.world import signal, threading

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2, where Spark has no admission control for Python

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the base class, which this release does not have."""

    ReadAllAvailable = ReadLimit = ReadMaxBytes = ReadMaxRows = ReadMinRows = None


class SpoolPart(InputPartition):
    """The partition of one task.

    Args:
        url: of the spool.
        identity: of the spool.
        pieces: the rows to read from the spool.
    """

    def __init__(self, url: str, identity: str, pieces: Sequence[Piece]) -> None:
        self.url = url
        self.identity = identity
        self.pieces = tuple(pieces)

    def __repr__(self) -> str:
        return f"<SpoolPart {sum(piece.rows for piece in self.pieces)} rows of {self.url}>"


class StompStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A spool as a stream.

    Args:
        options: of the query.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._engine: StreamEngine | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_engine": None}

    @property
    def _running(self) -> StreamEngine:
        if self._engine is None:
            end_on_sigterm()
            self._engine = StreamEngine(self._options)
        return self._engine

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the first offset of a query without a checkpoint."""
        return self._running.initial()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end offset of the next micro-batch. Spark before 4.2 passes no arguments."""
        if ReadLimit is not None and isinstance(limit, ReadAllAvailable):
            # Trigger.Once calls only once, so all messages must be received before.
            self._running.prepare_available_now()
        return self._running.latest(start, self._limits(limit))

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return one of the limits in the options; all of them apply, whichever is returned."""
        options = self._options
        if options.max_messages_per_trigger is not None:
            return ReadMaxRows(options.max_messages_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_messages_per_trigger is not None:
            return ReadMinRows(options.min_messages_per_trigger)
        # Not ReadAllAvailable, which identifies Trigger.Once.
        return ReadMaxRows(sys.maxsize)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end offset of the spool, for the query's progress."""
        return self._running.report()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Receive until the queue counts as empty, and make the query end there."""
        self._running.prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpoolPart]:
        """Return the partitions of a micro-batch, one for each task."""
        engine = self._running
        parts = engine.plan(start, end)
        return [SpoolPart(engine.url, engine.identity, part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; on an executor, in the pickled copy."""
        assert isinstance(partition, SpoolPart)
        return read_pieces(partition.url, partition.identity, partition.pieces, columns=self._options.columns)

    def commit(self, end: dict[str, Any]) -> None:
        """Record that everything before `end` was processed."""
        self._running.commit(end)

    def stop(self) -> None:
        """End the receivers."""
        if self._engine is not None:
            self._engine.stop()

    def _limits(self, limit: Any) -> BatchLimits:
        options = self._options
        if ReadLimit is not None and isinstance(limit, ReadAllAvailable):
            return BatchLimits()
        return BatchLimits(
            max_messages=options.max_messages_per_trigger,
            max_bytes=options.max_bytes_per_trigger,
            min_messages=options.min_messages_per_trigger,
        )


def end_on_sigterm() -> None:
    """Make SIGTERM raise `SystemExit` in this process, so that it disconnects from the broker.

    By default the process would end at once; no message would be lost, but the broker would not notice immediately.
    Further signals are ignored, as Spark sends SIGTERM twice without waiting. No effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
