"""The data source of Spark behind `format("stomp")`: pyspark's interface to the source and the sink.

Spark uses two instances of a stream's reader: one in a Python process of the driver, as long as the query runs, for
every method except `read`; the other is pickled to the executors for `read` only. So anything that cannot be pickled is
created at the first call that needs it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from stompy.errors import ConfigurationError
from stompy.spark.option_tables import (
    BatchOptions,
    ReadOptions,
    SinkOptions,
    StreamOptions,
    batch_options,
    of_use,
    read_options,
    stream_options,
)
from stompy.spark.schema import columns, ddl
from stompy.spark.sink.writer import BatchWriter, StreamWriter
from stompy.spark.source.drain import drain
from stompy.spark.source.engine import StreamEngine
from stompy.spark.source.reading import read_pieces
from stompy.spark.spool.index import Piece
from stompy.world import signal, uuid

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # before 4.2, where Spark has no admission control for Python

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for the base class, which this release does not have."""

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Stands in for the limit of Trigger.Once, which this release does not pass."""

    ReadMaxRows = None

_OPTION = "option."
"""What the names of a table's options begin with when Spark creates it."""


class SpoolPart(InputPartition):
    """The partition of one task.

    Args:
        urls: of the spools of the query, by identity.
        pieces: the rows to read.
        options: of the query.
    """

    def __init__(self, urls: Mapping[str, str], pieces: Sequence[Piece], options: ReadOptions) -> None:
        self.array = options.headers_as == "array"
        self.pieces = tuple(pieces)
        used = {piece.spool for piece in pieces}
        self.urls = {identity: url for identity, url in urls.items() if identity in used}


class _Reader:
    """Reads the rows of a task; on an executor, in a pickled copy."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        assert isinstance(partition, SpoolPart)
        return read_pieces(partition.urls, partition.pieces, array=partition.array)


class StompBatchReader(_Reader, DataSourceReader):
    """The messages in a queue, as a table.

    Args:
        options: of the batch read.
        load: the id of this `load()`; Spark pickles it once, so all actions on the DataFrame use the same one.
    """

    def __init__(self, options: BatchOptions, load: str) -> None:
        self._options = options
        self._load = load

    def partitions(self) -> Sequence[SpoolPart]:
        """Receive the messages, on the driver, unless that was done before; return the partition of each task."""
        spool, parts = drain(self._options, self._load)
        # Without a partition, Spark would add one of its own.
        return [SpoolPart({spool.identity: spool.files.url}, part, self._options) for part in parts or [[]]]


class StompStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A spool as a stream.

    Args:
        options: of the query.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    @cached_property
    def _running(self) -> StreamEngine:
        end_on_sigterm()
        return StreamEngine(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the first offset of a query without a checkpoint."""
        return self._running.initial()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end offset of the next micro-batch. Spark before 4.2 passes no arguments."""
        once = isinstance(limit, ReadAllAvailable)
        if once:
            # Trigger.Once calls only once, so all messages must be received before.
            self._running.prepare_available_now()
        return self._running.latest(start, unlimited=once)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return a limit by which Spark shows that it is not Trigger.Once; those in the options apply in any case."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or sys.maxsize)

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
        return [SpoolPart(engine.urls, part, self._options) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Record that everything before `end` was processed."""
        self._running.commit(end)

    def stop(self) -> None:
        """End the receivers."""
        if "_running" in vars(self):
            self._running.stop()


class StompDataSource(DataSource):
    """A STOMP broker as source and sink; registered by `stompy.spark.register`.

    Spark creates one for each `load()` or write, and pickles it; options are checked when their use is known.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._load = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "stomp"

    def schema(self) -> str:
        """Return the columns of a message.

        Raises:
            ConfigurationError: the options are valid neither for a stream nor for a table. Checked here, as Spark would
                otherwise raise it for a stream only when the query runs, in the background.
        """
        if "provider" not in self.options:
            return ddl(array=read_options(dict(self.options)).headers_as == "array")
        # CREATE TABLE. Later Spark passes the columns and no options, so these are kept in the comment of a column.
        given = {name.removeprefix(_OPTION): text for name, text in self.options.items() if name.startswith(_OPTION)}
        array = False
        if any(name.replace("_", "") == "spooldir" for name in given):  # else it is only for INSERT INTO
            array = batch_options(of_use(BatchOptions, given)).headers_as == "array"
        SinkOptions.of(of_use(SinkOptions, given))
        return ddl(array=array, comment=json.dumps(given))

    def reader(self, schema: Any) -> StompBatchReader:
        """Return the reader for `spark.read`."""
        options = batch_options(self._given(schema, BatchOptions))
        _check_schema(schema, options)
        return StompBatchReader(options, self._load)

    def streamReader(self, schema: Any) -> StompStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for `spark.readStream`."""
        options = stream_options(self._given(schema, StreamOptions))
        _check_schema(schema, options)
        return StompStreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Return the writer for `df.write`."""
        if overwrite:
            raise ConfigurationError("a destination cannot be overwritten: use mode('append')")
        return BatchWriter(SinkOptions.of(self._given(schema, SinkOptions)), schema)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Return the writer for `df.writeStream`."""
        if overwrite:
            raise ConfigurationError(
                "outputMode('complete') would send every row of the result again in each micro-batch: use "
                "outputMode('update')"
            )
        return StreamWriter(SinkOptions.of(self._given(schema, SinkOptions)), schema)

    def _given(self, schema: Any, kind: Any) -> dict[str, str]:
        """Return the options that Spark passes, and the table's own options where Spark passes no address."""
        given = dict(self.options)
        if "url" in given:
            return given
        for column in schema.fields:
            if (comment := column.metadata.get("comment", "")).startswith("{"):
                return {**of_use(kind, json.loads(comment)), **given}
        raise ConfigurationError(
            "option url is missing. A table of the catalog is made without columns: CREATE TABLE name USING stomp "
            "OPTIONS (url '...', destination '...', spoolDir '...')"
        )


def _check_schema(schema: Any, options: ReadOptions) -> None:
    array = options.headers_as == "array"
    if schema.fieldNames() != [name for name, _ in columns(array=array)]:
        raise ConfigurationError(
            f"the columns of a message are fixed: {ddl(array=array)}. Leave out .schema(...), and parse the body "
            "with from_json(cast(body as string), ...)"
        )


def end_on_sigterm() -> None:
    """Make SIGTERM raise `SystemExit` in this process, so that it disconnects from the broker.

    By default the process would end at once; no message would be lost, but the broker would not notice immediately.
    Further signals are ignored, as Spark sends SIGTERM twice without waiting. No effect outside the main thread.
    """
    with contextlib.suppress(ValueError):  # of another thread
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
