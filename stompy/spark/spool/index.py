"""Which of the listed segments are valid, and which sequence numbers they cover; pure.

The file name of a segment describes its contents, so that a listing of the folder is the index.

After a takeover two segments can cover the same sequence numbers: a receiver that was frozen may finish its file when
its successor has already begun. The successor's claim says where it began (`start`); what an older receiver wrote from
there on was never acknowledged (see `claims.py`), and is ignored.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from stompy.errors import SpoolDataLossError, SpoolMismatchError

_NAME = re.compile(r"seg-(\d{20})-(\d{7})-e(\d{8})-([0-9a-f]{8})\.arrow")
_ADVICE = "Restore the files from a backup, or continue without these messages with the option failOnDataLoss=false"


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A file of messages.

    Attributes:
        first: the sequence number of its first message.
        count: the number of messages.
        epoch: of the claim of the process that wrote it.
        digest: checksum of the whole file, 8 hexadecimal digits.
        size: bytes of the file.
        modified: when it was written, in seconds since the Unix epoch.
    """

    first: int
    count: int
    epoch: int
    digest: str
    size: int = 0
    modified: float = 0.0

    @property
    def end(self) -> int:
        """The sequence number after its last message."""
        return self.first + self.count

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"seg-{self.first:020d}-{self.count:07d}-e{self.epoch:08d}-{self.digest}.arrow"


def segment_of(name: str) -> Segment | None:
    """Return the segment with a file name, without its size; `None` if the name is not that of a segment."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    first, count, epoch, digest = found.groups()
    return Segment(int(first), int(count), int(epoch), digest)


_NAMED = attrgetter("first", "count", "epoch", "digest")


class Piece(NamedTuple):
    """Rows of consecutive segments, between which none is missing.

    Attributes:
        segments: the files, in order; at least one.
        start: the first sequence number.
        end: the sequence number after the last one.
        spool: the identity of the spool.
    """

    segments: tuple[Segment, ...]
    start: int
    end: int
    spool: str = ""

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.end - self.start

    @property
    def size(self) -> int:
        """The approximate size of the rows in bytes."""
        first, last = self.segments[0], self.segments[-1]
        before = first.size * (self.start - first.first) // first.count
        return sum(one.size for one in self.segments) - before - last.size * (last.end - self.end) // last.count

    def between(self, start: int, end: int) -> Piece:
        """Return the piece of some of its rows."""
        return Piece(tuple(_between(self.segments, start, end)), start, end, self.spool)

    def __reduce__(self) -> tuple[Any, ...]:
        # In columns, as there may be thousands of segments.
        return _piece, (tuple(zip(*map(_NAMED, self.segments), strict=True)), *self[1:])


def _piece(columns: tuple[Any, ...], *rest: Any) -> Piece:
    return Piece(tuple(map(Segment, *columns)), *rest)


def _between(segments: Sequence[Segment], start: int, end: int) -> Sequence[Segment]:
    """Return those of consecutive segments that have some of the sequence numbers from `start` up to `end`."""
    if start >= end:
        return ()
    first = bisect.bisect_right(segments, start, key=lambda one: one.end)
    return segments[first : bisect.bisect_left(segments, end, key=lambda one: one.first)]


class SegmentIndex:
    """The segments of a spool in order, from its low watermark up.

    Args:
        low: everything below was processed.
        path: of the spool, named by errors.
        segments: in order; those below `low` are left out.
    """

    def __init__(self, *, low: int, path: str, segments: Iterable[Segment] = ()) -> None:
        self.low = low
        self._path = path
        self._segments = [segment for segment in segments if segment.end > low]
        self.size = sum(segment.size for segment in self._segments)
        """Bytes of their files."""

    @property
    def next(self) -> int:
        """The sequence number of the next message."""
        return max(self.low, self._segments[-1].end) if self._segments else self.low

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order."""
        return tuple(self._segments)

    def add(self, segment: Segment) -> None:
        """Add a segment after the others."""
        assert not self._segments or segment.first >= self._segments[-1].end, "segments are added in order"
        self._segments.append(segment)
        self.size += segment.size

    def followed_by(self, segments: Sequence[Segment]) -> bool:
        """Return whether `segments` continue this index without a gap."""
        ends = (self.next, *(segment.end for segment in segments))
        return all(segment.first == end for segment, end in zip(segments, ends, strict=False))

    def holding(self, number: int) -> Segment | None:
        """Return the segment with a message; `None` if there is none, or all of it was processed."""
        count = bisect.bisect_right(self._segments, number, key=lambda one: one.first)
        return self._segments[count - 1] if count and number < self._segments[count - 1].end else None

    def remove_below(self, low: int) -> list[Segment]:
        """Remove the segments below a new low mark, and return them."""
        self.low = max(self.low, low)
        gone = list(itertools.takewhile(lambda segment: segment.end <= self.low, self._segments))
        del self._segments[: len(gone)]
        self.size -= sum(segment.size for segment in gone)
        return gone

    def pieces(self, start: int, end: int, *, fail: bool = True, spool: str = "") -> Iterator[Piece]:
        """Yield the pieces, one unless there are gaps, that cover the sequence numbers from `start` up to `end`.

        Args:
            start: the first number.
            end: the number after the last one.
            fail: whether to raise for a gap; otherwise it is ignored.
            spool: the identity of the spool, for the pieces.

        Raises:
            SpoolDataLossError: there is a gap.
        """
        at = start
        for run in _runs(_between(self._segments, start, end)):
            first = max(start, run[0].first)
            if first > at and fail:
                raise lost(self._path, at, first)
            at = min(end, run[-1].end)
            yield Piece(tuple(run), first, at, spool)
        if at < end and fail:
            raise lost(self._path, at, end)

    def end_within(self, start: int, max_bytes: int) -> int:
        """Return the end of about `max_bytes` of messages from `start` on, at least of one message."""
        at = start
        for segment in _between(self._segments, start, self.next):
            at = max(at, segment.first)
            rows = segment.end - at
            size = segment.size * rows // segment.count
            if size > max_bytes:
                return max(at + max_bytes * rows // size, start + 1)
            max_bytes -= size
            at = segment.end
        return at


def _runs(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Yield the segments up to each gap, usually all of them."""
    ends = [at for at, (one, other) in enumerate(itertools.pairwise(segments), 1) if one.end != other.first]
    for first, last in itertools.pairwise([0, *ends, len(segments)]):
        if first < last:
            yield segments[first:last]


def lost(path: str, start: int, end: int) -> SpoolDataLossError:
    """Return the error for lost messages."""
    return SpoolDataLossError(
        f"the segments with the messages {start} to {end - 1} ({end - start} in all) are missing. They were "
        f"acknowledged to the broker, which will not send them again. {_ADVICE}",
        path=path,
    )


def stale_claims(path: str) -> SpoolMismatchError:
    """Return the error for segments of a process that came after the newest claim."""
    return SpoolMismatchError(
        "the claims below `epoch` are older than the segments: a part of the folder was put back from a copy. Put back "
        "all of it, from one copy",
        path=path,
    )


def sound(segments: Iterable[Segment], *, epoch: int, start: int) -> tuple[list[Segment], list[Segment]]:
    """Return the valid segments, in order, and the others.

    Args:
        segments: all listed segments.
        epoch: of the newest receiver that has begun.
        start: where it began.
    """
    kept: list[Segment] = []
    orphans: list[Segment] = []
    # Of two that overlap, that of the later receiver is valid, as it knew what its predecessors had acknowledged.
    for segment in sorted(segments, key=lambda one: (one.first, -one.epoch)):
        counts = segment.epoch == epoch or (segment.epoch < epoch and segment.end <= start)
        while counts and kept and kept[-1].end > segment.first and kept[-1].epoch < segment.epoch:
            orphans.append(kept.pop())
        if counts and not (kept and kept[-1].end > segment.first):
            kept.append(segment)
        else:
            orphans.append(segment)
    return kept, orphans
