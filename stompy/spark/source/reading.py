"""Which rows of a spool a task reads, and reading them, on an executor."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from stompy.errors import BodyDecodeError, SpoolError
from stompy.spark.schema import arrow_schema
from stompy.spark.source_options import ColumnOptions
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import check_identity, find_spool, open_files

ROWS_PER_TASK = 10_000
BYTES_PER_TASK = 32 << 20
_ROWS = 10_000
"""Rows in one batch for Spark, at most."""


def split(pieces: Sequence[Piece], *, max_parts: int | None, max_bytes: int = BYTES_PER_TASK) -> list[list[Piece]]:
    """Return the pieces in parts of about the same number of rows; a segment may be cut.

    Args:
        pieces: in order.
        max_parts: `None` makes one for each 10,000 rows or `max_bytes`.
        max_bytes: of a part, where `max_parts` is `None`.
    """
    rows = sum(piece.rows for piece in pieces)
    if not rows:
        return []
    if max_parts is None:
        size = sum(piece.size for piece in pieces)
        max_parts = max(-(-rows // ROWS_PER_TASK), -(-size // max_bytes))
    count = max(1, min(max_parts, rows))
    bounds = [rows * number // count for number in range(1, count + 1)]
    return list(_cut(pieces, bounds))


def _cut(pieces: Sequence[Piece], bounds: Sequence[int]) -> Iterator[list[Piece]]:
    """Yield the pieces between bounds, which are counts of rows from the beginning."""
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
    url: str, identity: str, pieces: Sequence[Piece], *, columns: ColumnOptions | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a spool.

    Args:
        url: of the spool.
        identity: that it must have.
        pieces: what to read, in order.
        columns: that the rows get; `None` leaves them as they are stored.

    Raises:
        SpoolError: the spool cannot be seen from this machine.
        SpoolDamaged, SpoolMismatch: a segment is not what was written.
        BodyDecodeError: a body is no text, and must be.
    """
    files = open_files(url)
    spool = find_spool(files)
    if spool is None:
        raise SpoolError(
            f"it is not visible on executor {socket.gethostname()}. Every executor must reach it under this name: "
            "use a shared folder or an object store, or the option spoolAccess=driver for a few messages",
            path=url,
        )
    check_identity(spool, identity)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for piece in pieces:
        batch = spool.read(piece.segment).slice(piece.start - piece.segment.first, piece.rows)
        waiting.append(_flagged(batch) if piece.again else batch)
        rows += piece.rows
        if rows >= _ROWS:
            yield from _joined(waiting, columns)
            waiting, rows = [], 0
    if waiting:
        yield from _joined(waiting, columns)


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose messages may all be copies."""
    column = batch.schema.get_field_index("possible_duplicate")
    return batch.set_column(column, batch.schema.field(column), pa.array([True] * batch.num_rows))


def _joined(batches: Sequence[pa.RecordBatch], columns: ColumnOptions | None) -> Iterator[pa.RecordBatch]:
    """Yield batches as one: a batch for each segment would cost Spark more."""
    table = pa.Table.from_batches(batches).combine_chunks()
    for batch in table.to_batches():
        yield batch if columns is None else shaped(batch, columns)


def shaped(batch: pa.RecordBatch, columns: ColumnOptions) -> pa.RecordBatch:
    """Return rows of a spool with the columns of a query.

    Args:
        batch: as it is stored.
        columns: of the query.

    Raises:
        BodyDecodeError: a body is no text, and must be; it names the message.
    """
    array = columns.headers_as == "array"
    schema = arrow_schema(text=columns.body_as == "text", array=array)
    arrays = {name: batch.column(name) for name in schema.names if name != "text"}
    if array:
        arrays["headers"] = _pairs(batch, schema.field("headers").type)
    if columns.body_as == "text":
        arrays["text"] = _texts(batch, fail=columns.invalid_text == "fail")
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _pairs(batch: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
    """Return the headers as a list of pairs, those that were repeated at its end."""
    first, repeated = batch.column("headers"), batch.column("repeated_headers")
    if repeated.null_count == batch.num_rows:
        pairs = pa.StructArray.from_arrays([first.keys, first.items.cast(pa.binary())], names=["key", "value"])
        return pa.ListArray.from_arrays(first.offsets, pairs).cast(kind)
    both = zip(first.to_pylist(), repeated.to_pylist(), strict=True)
    rows = [[*some, *(others or ())] for some, others in both]
    return pa.array([[{"key": key, "value": value.encode()} for key, value in row] for row in rows], kind)


def _texts(batch: pa.RecordBatch, *, fail: bool) -> pa.Array:
    """Return each body decoded from UTF-8, null where it is none."""
    try:
        return batch.column("body").cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(batch, row, fail=fail) for row in range(batch.num_rows)], pa.string())


def _decoded(batch: pa.RecordBatch, row: int, *, fail: bool) -> str | None:
    body = batch.column("body")[row].as_py()
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError as error:
        if not fail:
            return None
        identity = batch.column("message_id")[row].as_py()
        where = f"sequence {batch.column('sequence')[row].as_py()}"
        raise BodyDecodeError(
            f"the body of message {identity!r} ({where}) is not UTF-8 ({error.reason} at byte {error.start}); the "
            "option invalidText=permissive makes its text null",
            body=body,
        ) from None
