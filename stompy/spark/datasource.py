"""The data source of Spark behind `format("stomp")`."""

from __future__ import annotations

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
from stompy.world import uuid

_NO_TABLE = (
    ": Spark does not pass the options of such a table to the source. Use CREATE TEMPORARY VIEW ... USING stomp "
    "OPTIONS (...), which takes each message once"
)


class StompBatchReader(DataSourceReader):
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
        return [SpoolPart(spool.files.url, spool.identity, part) for part in parts or [[]]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; on an executor."""
        assert isinstance(partition, SpoolPart)
        return read_pieces(partition.url, partition.identity, partition.pieces, columns=self._options.columns)


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
        return ddl(**_form(column_options(self._given())))

    def reader(self, schema: Any) -> StompBatchReader:
        """Return the reader for `spark.read`."""
        options = batch_options(self._given())
        _check_schema(schema, options.columns)
        return StompBatchReader(options, self._load)

    def streamReader(self, schema: Any) -> StompStreamReader:  # noqa: N802  # Spark's name
        """Return the reader for `spark.readStream`."""
        options = stream_options(self._given())
        _check_schema(schema, options.columns)
        return StompStreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        """Return the writer for `df.write`."""
        return batch_writer(SinkOptions.of(self._given()), schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Return the writer for `df.writeStream`."""
        return stream_writer(SinkOptions.of(self._given()), schema, overwrite=overwrite)

    def _given(self) -> dict[str, str]:
        # For a table of the catalog, Spark passes the options when it is created, and none when it is used.
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
