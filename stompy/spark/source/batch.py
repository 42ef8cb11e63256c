"""The batch source as pyspark calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from stompy.spark.source.drain import drain
from stompy.spark.source.reading import read_pieces
from stompy.spark.source.stream import SpoolPart
from stompy.spark.source_options import BatchOptions


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
