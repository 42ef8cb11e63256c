"""How many messages a micro-batch gets, and how its tasks share them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from stompy.spark.option_tables import StreamOptions
from stompy.spark.spool.index import Piece, SegmentIndex

ROWS_PER_TASK = 30_000
BYTES_PER_TASK = 32 << 20


def admitted(options: StreamOptions, waiting: Sequence[tuple[SegmentIndex, int, int]], *, waited: float) -> list[int]:
    """Return the ends of the next micro-batch within the limits, which the spools share; its starts while it waits.

    Args:
        options: with the limits.
        waiting: of each spool the index, the start of the micro-batch, and the end of what could be read.
        waited: seconds since the micro-batch before.
    """
    least, most = options.min_offsets_per_trigger or 0, options.max_offsets_per_trigger
    max_bytes = options.max_bytes_per_trigger
    ends = [end for _, _, end in waiting]
    if sum(end - start for _, start, end in waiting) < least and waited < options.max_trigger_delay:
        return [start for _, start, _ in waiting]
    if max_bytes is not None:
        sizes = [sum(piece.size for piece in index.pieces(start, end, fail=False)) for index, start, end in waiting]
        for place, share in enumerate(shares(max_bytes, sizes)):
            index, start, end = waiting[place]
            if share < sizes[place]:
                ends[place] = min(end, index.end_within(start, share)) if share else start
    if most is not None:
        rows = [end - start for end, (_, start, _) in zip(ends, waiting, strict=True)]
        ends = [start + share for share, (_, start, _) in zip(shares(most, rows), waiting, strict=True)]
    return ends


def shares(total: int, wanted: Sequence[int]) -> list[int]:
    """Return how much of a total each gets: as much as every other, or less if it wants less."""
    given = [0] * len(wanted)
    for place, others in zip(
        sorted(range(len(wanted)), key=wanted.__getitem__), range(len(wanted), 0, -1), strict=True
    ):
        given[place] = min(wanted[place], total // others)
        total -= given[place]
    return given


def split(pieces: Sequence[Piece], *, max_parts: int | None) -> list[list[Piece]]:
    """Return the pieces in parts of about the same number of rows; a piece may be split.

    Args:
        pieces: in order.
        max_parts: maximum number of parts; `None` makes one for every 30,000 rows or 32 MiB.
    """
    rows = sum(piece.rows for piece in pieces)
    if max_parts is None:
        size = sum(piece.size for piece in pieces)
        max_parts = max(-(-rows // ROWS_PER_TASK), -(-size // BYTES_PER_TASK))
    count = min(max_parts, rows)
    parts: list[list[Piece]] = [[] for _ in range(count)]
    number = before = 0
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            full = rows * (number + 1) // count  # rows of this part and those before it
            end = min(piece.end, start + full - before)
            parts[number].append(piece.between(start, end))
            before, start = before + end - start, end
            if before == full:
                number += 1
    return parts
