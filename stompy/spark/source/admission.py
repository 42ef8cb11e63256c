"""How many messages a micro-batch gets, and how its tasks share them; pure."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stompy.spark.source_options import StreamOptions
from stompy.spark.spool.index import Piece, SegmentIndex

ROWS_PER_TASK = 10_000
BYTES_PER_TASK = 32 << 20


def admitted(options: StreamOptions, index: SegmentIndex, start: int, end: int, *, waited: float) -> int:
    """Return the end of the next micro-batch within the limits; `start` while waiting for more messages.

    Args:
        options: with the limits.
        index: of the spool.
        start: of the micro-batch.
        end: of what could be read.
        waited: seconds since the micro-batch before.
    """
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and end - start < least and waited < options.max_trigger_delay:
        return start
    if options.max_bytes_per_trigger is not None and end > start:
        end = min(end, index.end_within(start, options.max_bytes_per_trigger))
    return end if most is None else min(end, start + most)


def split(pieces: Sequence[Piece], *, max_parts: int | None) -> list[list[Piece]]:
    """Return the pieces in parts of about the same number of rows; a piece may be split.

    Args:
        pieces: in order.
        max_parts: maximum number of parts; `None` makes one for every 10,000 rows or 32 MiB.
    """
    starts = [0, *itertools.accumulate(piece.rows for piece in pieces)]
    rows = starts[-1]
    if not rows:
        return []
    if max_parts is None:
        size = sum(piece.size for piece in pieces)
        max_parts = max(-(-rows // ROWS_PER_TASK), -(-size // BYTES_PER_TASK))
    count = min(max_parts, rows)
    bounds = [rows * number // count for number in range(count + 1)]
    return [list(_between(pieces, starts, first, last)) for first, last in itertools.pairwise(bounds)]


def _between(pieces: Sequence[Piece], starts: Sequence[int], first: int, last: int) -> Iterator[Piece]:
    """Yield the pieces between two rows, which are counted from the first row of all; `starts` are those of pieces."""
    for place in range(bisect_right(starts, first) - 1, len(pieces)):
        piece, start = pieces[place], starts[place]
        if start >= last:
            return
        yield replace(piece, start=piece.start + max(0, first - start), end=piece.start + min(piece.rows, last - start))
