"""Which rows a task reads: pieces of segments, split into parts of about the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stompy.spark.spool.index import Piece

ROWS_A_TASK = 10_000
OCTETS_A_TASK = 32 << 20


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
