"""STOMP as a data source of Spark: what `format("stomp")` stands for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from stompy.errors import ConfigurationError
from stompy.spark.schema import columns, ddl
from stompy.spark.sink.writer import BatchWriter, StreamWriter, batch_writer, stream_writer
from stompy.spark.sink_options import SinkOptions
from stompy.spark.source.drain import drain
from stompy.spark.source.reading import read_pieces
from stompy.spark.source.stream import SpoolPart, StompStreamReader
from stompy.spark.source_options import BatchOptions, ColumnOptions, batch_options, column_options, stream_options

_NO_TABLE = (
    ": Spark does not pass the options of such a table to the source. Use CREATE TEMPORARY VIEW ... USING stomp "
    "OPTIONS (...), which takes each message once"
)


class StompBatchReader(DataSourceReader):
    """The messages that lie in a queue, as a table.

    Args:
        options: what was asked.
        load: an id of this `load()`; Spark pickles it once, so that all actions on the DataFrame have the same.
    """

    def __init__(self, options: BatchOptions, load: str) -> None:
        self._options = options
        self._load = load

    def partitions(self) -> Sequence[SpoolPart]:
        """Take the messages, on the driver, if that was not done; return what each task reads."""
        spool, parts = drain(self._options, self._load)
        # Spark would make a part of its own for none.
        return [SpoolPart(spool.files.url, spool.identity, part) for part in parts or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; on an executor."""
        assert isinstance(partition, SpoolPart)
        return read_pieces(partition.url, partition.identity, partition.pieces, columns=self._options.columns)


class StompDataSource(DataSource):
    """A STOMP broker as source and sink; `stompy.spark.register` makes it known to a session.

    Spark makes one for each `load()` or write, and pickles it; options are checked when it is known what for.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._load = uuid.uuid4().hex

    @classmethod
    def name(cls) -> str:
        """Return what `format` is called with."""
        return "stomp"

    def schema(self) -> str:
        """Return the columns of a message.

        Raises:
            ConfigurationError: the options fit neither a stream nor a table. For a stream Spark would otherwise raise
                it only when the query runs, in the background.
        """
        return ddl(**_form(column_options(self._given())))

    def reader(self, schema: Any) -> StompBatchReader:
        """Return what `spark.read` reads with."""
        options = batch_options(self._given())
        _check_schema(schema, options.columns)
        return StompBatchReader(options, self._load)

    def streamReader(self, schema: Any) -> StompStreamReader:  # noqa: N802  # Spark's name
        """Return what `spark.readStream` reads with."""
        options = stream_options(self._given())
        _check_schema(schema, options.columns)
        return StompStreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Return what `df.write` writes with."""
        return batch_writer(SinkOptions.of(self._given()), schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Return what `df.writeStream` writes with."""
        return stream_writer(SinkOptions.of(self._given()), schema, overwrite=overwrite)

    def _given(self) -> dict[str, str]:
        # Of a table of the catalog Spark hands on the options when it is created, and none when it is used.
        if "provider" in self.options:
            raise ConfigurationError(f"CREATE TABLE ... USING stomp is not possible{_NO_TABLE}")
        if not self.options:
            raise ConfigurationError(f"option url is missing. A catalog table is not possible{_NO_TABLE}")
        return dict(self.options)


def _form(options: ColumnOptions) -> dict[str, bool]:
    return {"text": options.body_as == "text", "array": options.headers_as == "array"}


def _check_schema(schema: Any, options: ColumnOptions) -> None:
    if schema.fieldNames() != [name for name, _ in columns(**_form(options))]:
        raise ConfigurationError(
            f"the columns of a message are fixed: {ddl(**_form(options))}. Leave out .schema(...), and parse the body "
            "with from_json(cast(body as string), ...)"
        )
