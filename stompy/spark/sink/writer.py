"""The writers that Spark calls: in the executors to send a partition, on the driver when a job or micro-batch ends.

Delivery is at least once: what a task committed before it failed is sent again by the next attempt, with the same ids.
`commit` and `abort` cannot change that; they only log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from stompy.spark.option_tables import SinkOptions
from stompy.spark.sink.publisher import Publisher
from stompy.spark.sink.rows import Columns, identified
from stompy.world import uuid

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

# Local properties that Spark's stream execution sets for its tasks; the API does not pass them to a writer.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """What one task has sent.

    Attributes:
        messages: how many the broker has confirmed.
    """

    messages: int


class _Writer:
    """Sends partitions; travels to the executors.

    Args:
        options: of the sink.
        schema: of the rows.

    Raises:
        ConfigurationError: a column cannot be sent.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns(
            [(column.name, column.dataType.simpleString()) for column in schema.fields], destination=options.destination
        )
        # Made once for each write on the driver and pickled: the same in every attempt of every task.
        self._job = options.job_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[RecordBatch]) -> Published:
        """Send the rows of one partition; runs in an executor's Python, once for each attempt of a task.

        Raises:
            PublishError: the broker refuses them, has stopped reading, or cannot be reached.
        """
        context = TaskContext.get()
        assert context is not None, "it runs in a task"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        partition = context.partitionId()
        part = f"{query or self._job}/{batch or '-'}/{partition}"
        with closing(Publisher(self._options, name=f"spark-sink-{partition}")) as publisher:
            publisher.publish(identified(self._columns.messages(iterator), part, self._options.dedup))
            return Published(publisher.confirmed)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803  # Spark's name
        """Log how much was sent; called again for a micro-batch that is run again."""
        log.info("%s: sent %s", _of(batchId), _totals(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Log how much was sent although the job or micro-batch failed."""
        log.warning("%s failed; the broker keeps what its finished tasks sent: %s", _of(batchId), _totals(messages))


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Sends the rows of a batch job."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Sends the rows of one micro-batch."""


def _of(batch: int | None) -> str:
    return "the job" if batch is None else f"micro-batch {batch}"


def _totals(messages: Sequence[WriterCommitMessage | None]) -> str:
    sent = [cast("Published", message).messages for message in messages if message is not None]
    return f"{sum(sent)} messages of {len(sent)} tasks (of {len(messages)})"
