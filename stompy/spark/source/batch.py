"""The batch source as pyspark calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from stompy.spark.source.drain import drain, make_read
from stompy.spark.source_options import BatchOptions
from stompy.spark.spool.spool import Spool, check_identity


class BatchPart(InputPartition):
    """What one task takes and reads.

    Args:
        identity: of the read's spool.
        lane: of the task.
    """

    def __init__(self, identity: str, lane: int) -> None:
        self.identity = identity
        self.lane = lane

    def __repr__(self) -> str:
        return f"<BatchPart {self.lane}>"


class StompBatchReader(DataSourceReader):
    """The messages that lie in a queue, as a table.

    Args:
        options: what was asked.
        load: an id of this `load()`; Spark pickles it once, so that all actions on the DataFrame have the same.
    """

    def __init__(self, options: BatchOptions, load: str) -> None:
        self._options = options
        self._load = load

    def partitions(self) -> Sequence[BatchPart]:
        """Return one part a task; makes the read's spool, on the driver."""
        spool = make_read(self._options, self._load)
        return [BatchPart(spool.identity, lane) for lane in range(self._options.num_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; on an executor."""
        assert isinstance(partition, BatchPart)
        spool: Spool = make_read(self._options, self._load)
        check_identity(spool, partition.identity)
        return drain(self._options, spool, partition.lane)
