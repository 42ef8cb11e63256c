"""Splitting messages of a spool into tasks, and reading them on an executor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from stompy.errors import SpoolError
from stompy.spark.schema import arrow_schema
from stompy.spark.source_options import ColumnOptions
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import check_identity, find_spool, open_files
from stompy.world import socket

ROWS_PER_TASK = 10_000
BYTES_PER_TASK = 32 << 20
_ROWS = 10_000
"""Approximate rows in one Arrow batch for Spark."""


def split(pieces: Sequence[Piece], *, max_parts: int | None) -> list[list[Piece]]:
    """Return the pieces in parts of about the same number of rows; a piece may be split.

    Args:
        pieces: in order.
        max_parts: maximum number of parts; `None` makes one for every 10,000 rows or 32 MiB.
    """
    rows = sum(piece.rows for piece in pieces)
    if not rows:
        return []
    if max_parts is None:
        size = sum(piece.size for piece in pieces)
        max_parts = max(-(-rows // ROWS_PER_TASK), -(-size // BYTES_PER_TASK))
    count = max(1, min(max_parts, rows))
    bounds = [rows * number // count for number in range(1, count + 1)]
    return list(_cut(pieces, bounds))


def _cut(pieces: Sequence[Piece], bounds: Sequence[int]) -> Iterator[list[Piece]]:
    """Yield the pieces between bounds, which are numbers of rows from the start."""
    done = 0
    part: list[Piece] = []
    left = list(bounds)
    for whole in pieces:
        piece = whole
        while piece.rows:
            take = min(piece.rows, left[0] - done)
            part.append(replace(piece, end=piece.start + take))
            piece = replace(piece, start=piece.start + take)
            done += take
            if done == left[0]:
                yield part
                part = []
                left.pop(0)
                if not left:
                    return


def read_pieces(
    url: str, identity: str, pieces: Sequence[Piece], *, columns: ColumnOptions
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a spool.

    Args:
        url: of the spool.
        identity: the expected identity of the spool.
        pieces: the rows to read, in order.
        columns: the columns of the result.

    Raises:
        SpoolError: the spool is not visible on this machine.
        SpoolDamagedError, SpoolMismatchError: a segment is corrupt, missing, or of another spool.
    """
    files = open_files(url)
    spool = find_spool(files)
    if spool is None:
        raise SpoolError(
            f"it is not visible on executor {socket.gethostname()}. Every executor must reach it under this name: "
            "use a shared folder",
            path=url,
        )
    check_identity(spool, identity)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for piece in pieces:
        waiting.append(spool.read(piece.segment).slice(piece.start - piece.segment.first, piece.rows))
        rows += piece.rows
        if rows >= _ROWS:
            yield from _joined(waiting, columns)
            waiting, rows = [], 0
    if waiting:
        yield from _joined(waiting, columns)


def _joined(batches: Sequence[pa.RecordBatch], columns: ColumnOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of several batches as one batch, which is faster in Spark than one for each segment."""
    table = pa.Table.from_batches(batches).combine_chunks()
    for batch in table.to_batches():
        yield _shaped(batch, columns)


def _shaped(batch: pa.RecordBatch, columns: ColumnOptions) -> pa.RecordBatch:
    """Return stored rows with the columns of a query."""
    array = columns.headers_as == "array"
    schema = arrow_schema(text=columns.body_as == "text", array=array)
    arrays = {name: batch.column(name) for name in schema.names if name != "text"}
    if array:
        arrays["headers"] = _pairs(batch, schema.field("headers").type)
    if columns.body_as == "text":
        arrays["text"] = _texts(batch.column("body"))
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _pairs(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Return the headers as a list of pairs, with repeated ones at the end."""
    first, repeated = batch.column("headers"), batch.column("repeated_headers")
    if repeated.null_count == batch.num_rows:
        pairs = pa.StructArray.from_arrays([first.keys, first.items.cast(pa.binary())], names=["key", "value"])
        return pa.ListArray.from_arrays(first.offsets, pairs).cast(kind)
    both = zip(first.to_pylist(), repeated.to_pylist(), strict=True)
    rows = [[*some, *(others or ())] for some, others in both]
    return pa.array([[{"key": key, "value": value.encode()} for key, value in row] for row in rows], kind)


def _texts(bodies: pa.Array) -> pa.Array:
    """Return each body decoded from UTF-8; null if it is invalid."""
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(body) for body in bodies.to_pylist()], pa.string())


def _text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
