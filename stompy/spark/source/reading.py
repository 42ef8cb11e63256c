"""Reading messages of a spool on an executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from stompy.errors import SpoolMismatchError
from stompy.spark.schema import arrow_schema
from stompy.spark.spool.files import Files
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import get_spool

_ROWS = 10_000
"""Approximate rows in one Arrow batch for Spark."""


def read_pieces(urls: Mapping[str, str], pieces: Sequence[Piece], *, array: bool) -> Iterator[pa.RecordBatch]:
    """Yield rows of spools.

    Args:
        urls: of the spools, by identity.
        pieces: the rows to read, in order.
        array: whether the column `headers` has the type of Kafka's source.

    Raises:
        SpoolError: a spool is not visible on this machine.
        SpoolDamagedError, SpoolMismatchError: a segment is corrupt, missing, or of another spool.
    """
    spools = {identity: get_spool(Files(url)) for identity, url in urls.items()}
    for identity, spool in spools.items():
        if spool.identity != identity:
            raise SpoolMismatchError(f"it is not the spool {identity} of the query any more", path=spool.files.url)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for piece, segment in [(one, segment) for one in pieces for segment in one.segments]:
        start, end = max(piece.start, segment.first), min(piece.end, segment.end)
        waiting.append(spools[piece.spool].read(segment).slice(start - segment.first, end - start))
        rows += end - start
        if rows >= _ROWS:
            yield from _joined(waiting, array=array)
            waiting, rows = [], 0
    if waiting:
        yield from _joined(waiting, array=array)


def _joined(batches: Sequence[pa.RecordBatch], *, array: bool) -> Iterator[pa.RecordBatch]:
    """Yield stored rows with the columns of a query, as one batch: faster in Spark than one for each segment."""
    schema = arrow_schema(array=array)
    for batch in pa.Table.from_batches(batches).combine_chunks().to_batches():
        columns = [batch.column(name) for name in schema.names]
        if array:
            columns[schema.get_field_index("headers")] = _pairs(batch, schema.field("headers").type)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _pairs(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Return the headers as a list of pairs, with repeated ones at the end."""
    first, repeated = batch.column("headers"), batch.column("repeated_headers")
    if repeated.null_count == batch.num_rows:
        pairs = pa.StructArray.from_arrays([first.keys, first.items.cast(pa.binary())], names=["key", "value"])
        return pa.ListArray.from_arrays(first.offsets, pairs).cast(kind)
    both = zip(first.to_pylist(), repeated.to_pylist(), strict=True)
    rows = [[*some, *(others or ())] for some, others in both]
    return pa.array([[{"key": key, "value": value.encode()} for key, value in row] for row in rows], kind)
