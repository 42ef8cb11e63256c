"""Which rows of a spool a task reads, and reading them, on an executor."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from stompy.errors import BodyDecodeError, SpoolError
from stompy.spark.schema import arrow_schema
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import check_identity, find_spool, open_files

ROWS_A_TASK = 10_000
OCTETS_A_TASK = 32 << 20
_ROWS = 10_000
"""Rows in one batch for Spark, at most."""


def split(pieces: Sequence[Piece], *, most: int | None, octets: int = OCTETS_A_TASK) -> list[list[Piece]]:
    """Return the pieces in parts of about the same number of rows; a segment may be cut.

    Args:
        pieces: in order.
        most: parts; `None` makes one for so many rows or octets.
        octets: of a part, where `most` does not say otherwise.
    """
    rows = sum(piece.rows for piece in pieces)
    if not rows:
        return []
    if most is None:
        size = sum(piece.size for piece in pieces)
        most = max(-(-rows // ROWS_A_TASK), -(-size // octets))
    count = max(1, min(most, rows))
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


def read_pieces(url: str, identity: str, pieces: Sequence[Piece], *, text: str | None) -> Iterator[pa.RecordBatch]:
    """Yield rows of a spool.

    Args:
        url: of the spool.
        identity: that it must have.
        pieces: what to read, in order.
        text: `permissive` or `fail` adds the column `text`; `None` does not.

    Raises:
        SpoolError: the spool cannot be seen from this machine.
        SpoolDamaged, SpoolMismatch: a segment is not what was written.
        BodyDecodeError: with `fail`, a body is no text.
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
            yield from joined(waiting, text=text)
            waiting, rows = [], 0
    if waiting:
        yield from joined(waiting, text=text)


def _flagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose messages may all be copies."""
    column = batch.schema.get_field_index("possible_duplicate")
    return batch.set_column(column, batch.schema.field(column), pa.array([True] * batch.num_rows))


def joined(batches: Sequence[pa.RecordBatch], *, text: str | None) -> Iterator[pa.RecordBatch]:
    """Yield batches as one, with the column `text` if asked: a batch for each segment would cost Spark more."""
    table = pa.Table.from_batches(batches).combine_chunks()
    for batch in table.to_batches():
        yield batch if text is None else with_text(batch, fail=text == "fail")


def with_text(batch: pa.RecordBatch, *, fail: bool) -> pa.RecordBatch:
    """Return a batch with the column `text`: each body decoded from UTF-8, null where it is none.

    Args:
        batch: with the columns of a message.
        fail: raise for a body that is no text.

    Raises:
        BodyDecodeError: there is one; it names the message.
    """
    body = batch.column("body")
    try:
        decoded = body.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = pa.array([_decoded(batch, row, fail=fail) for row in range(batch.num_rows)], pa.string())
    return pa.RecordBatch.from_arrays([*batch.columns, decoded], schema=arrow_schema(text=True))


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
            f"the body of message {identity!r} ({where}) is not UTF-8 ({error.reason} at octet {error.start}); the "
            "option invalidText=permissive makes its text null",
            body=body,
        ) from None
