"""The writer of a lane: what was received becomes durable here, before it is acknowledged.

| who | does | lock |
|---|---|---|
| receiver thread | `seal`, `settle`, `unsettled_to_suspects` | lane (leaf) for the index, not over I/O |
| thread that Spark calls | `index` by `snapshot`, `purge`, `note_planned` | the same |

A group goes through these steps: W1 write and sync an unfinished file; W2 give it its name; W3 sync the folder; W4 look
for a newer claim; W5 ACK with a receipt; W6 the receipt moves the watermark `settled`, in memory first: a mark that is
too low only makes more suspects.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from stompy.errors import SpoolDataLoss, SpoolFenced
from stompy.link.locks import Rank, make_lock
from stompy.spark.spool.claims import Begun, Claim, Patience, begun
from stompy.spark.spool.files import Files
from stompy.spark.spool.index import LaneIndex, lost, sound
from stompy.spark.spool.names import Segment, lane_folder, segment_of
from stompy.spark.spool.record import Record
from stompy.spark.spool.segment import Origin, decode, encode
from stompy.spark.spool.state import damaged, path_of, read_mark, write_mark
from stompy.spark.spool.suspects import Identifier, Suspects

LOW = "low"
SETTLED = "settled"
PLANNED = "planned"
_LAZILY = 1.0
"""Seconds between writes of a mark that may be late."""

T = TypeVar("T")


class LaneWriter:
    """A lane that this process fills.

    Args:
        files: of the spool.
        origin: which spool and lane.
        patience: with a predecessor.
        identifier: what makes two messages the same.
        fail_on_loss: raise where segments are gone; else go on without them.
        closing: ends the wait for a predecessor.

    Raises:
        SpoolBusy: another receiver fills the lane.
        SpoolDamaged, SpoolMismatch, SpoolDataLoss: its files are not what was written.
    """

    def __init__(
        self,
        files: Files,
        origin: Origin,
        *,
        patience: Patience | None = None,
        identifier: Identifier | None = None,
        fail_on_loss: bool = True,
        closing: threading.Event | None = None,
    ) -> None:
        self._files = files
        self._origin = origin
        self._folder = lane_folder(origin.lane)
        self._identifier = identifier or Identifier()
        self._lock = make_lock(Rank.LEAF, "spool lane")
        self._looked = time.monotonic()
        make_lane(files, self._folder)
        self._claim = Claim(files, self._folder, patience=patience or Patience(), closing=closing or threading.Event())
        try:
            self._open(fail_on_loss)
        except BaseException:
            self._claim.release()
            raise

    def _open(self, fail_on_loss: bool) -> None:
        files, folder = self._files, self._folder
        predecessor = begun(files, folder, before=self._claim.epoch) or Begun(0, 0)
        self._index, orphans = load_index(files, self._origin.lane, predecessor)
        self._settled = read_mark(files, f"{folder}/{SETTLED}") or 0
        self._planned = read_mark(files, f"{folder}/{PLANNED}") or 0
        self._written = {SETTLED: (self._settled, time.monotonic()), PLANNED: (self._planned, time.monotonic())}
        self._next = max(self._index.next, self._settled, self._planned, predecessor.start)
        self._check_whole(fail_on_loss)
        self._claim.begin(self._next)
        for segment in orphans:
            files.remove(f"{folder}/{segment.name}")
        files.sweep(folder)
        self.suspects = Suspects(files, folder)
        """What the broker may deliver again; for the receiver thread alone."""
        self._unsettled: deque[tuple[int, dict[str, str]]] = deque()
        self.suspects.save(self._identities_from(self._settled))
        self._settled = self._next
        self._write_mark(SETTLED, self._next)

    def _check_whole(self, fail_on_loss: bool) -> None:
        if not fail_on_loss:
            return
        here = path_of(self._files, self._folder)
        if self._next > self._index.next:
            raise lost(here, self._index.next, self._next)
        segments = self._index.segments
        for before, after in itertools.pairwise(segments):
            if before.end != after.first:
                raise lost(here, before.end, after.first)

    def _identities_from(self, start: int) -> dict[str, str]:
        """Return the ids of what is durable from `start` on: a predecessor may not have got its ACK through."""
        found: dict[str, str] = {}
        for piece in self._index.pieces(start, self._index.next, fail=False):
            found.update(self._identifier.of_batch(read_segment(self._files, self._origin, piece.segment)))
        return found

    # What it is.

    @property
    def lane(self) -> int:
        """The number of the lane."""
        return self._origin.lane

    @property
    def epoch(self) -> int:
        """The number of this writer's claim."""
        return self._claim.epoch

    @property
    def next(self) -> int:
        """The sequence number of the next message."""
        return self._next

    @property
    def settled(self) -> int:
        """Below this the broker has confirmed each ACK, or the message is a suspect."""
        return self._settled

    @property
    def planned(self) -> int:
        """Up to here Spark was told of the messages."""
        return self._planned

    def snapshot(self, look: Callable[[LaneIndex], T]) -> T:
        """Return what a function finds in the index, which nobody changes meanwhile."""
        with self._lock:
            return look(self._index)

    def identity(self, record: Record) -> tuple[str, str] | None:
        """Return what makes the message the same as another; `None` where nothing does."""
        return self._identifier.of(record)

    # The receiver's side.

    def seal(self, records: Sequence[Record]) -> Segment:
        """Make messages durable (W1 to W3) and see that this is still the owner (W4); then they may be acknowledged.

        Raises:
            SpoolFull: there is no room; nothing was written.
            SpoolFenced: a successor is at work; the messages must not be acknowledged.
        """
        segment, data = encode(records, origin=self._origin, first=self._next, epoch=self._claim.epoch)
        self._files.write(f"{self._folder}/{segment.name}", data)
        self._claim.check()
        segment = replace(segment, modified=time.time())
        pairs = (self._identifier.of(record) for record in records)
        self._unsettled.append((segment.end, {pair[0]: pair[1] for pair in pairs if pair is not None}))
        with self._lock:
            self._index.add(segment)
            self._next = segment.end
        return segment

    def check(self) -> None:
        """See that this is still the owner (W4), before an ACK of messages that are in the spool already."""
        self._claim.check()

    def settle(self, end: int, *, again: Sequence[str] = ()) -> None:
        """Note that the broker has confirmed the ACK of everything below `end` (W6).

        Args:
            end: a sequence number.
            again: ids of suspects that the same ACK covered.
        """
        while self._unsettled and self._unsettled[0][0] <= end:
            self._unsettled.popleft()
        if again:
            self.suspects.settle(again)
        self._settled = max(self._settled, end)
        self._write_lazily(SETTLED, self._settled)

    def unsettled_to_suspects(self) -> int:
        """Note that the link is gone: what was not confirmed may come again. Return how many messages.

        Raises:
            SpoolFenced: the lane is a successor's, who knows of them from the segments.
        """
        self._claim.check()
        ids: dict[str, str] = {}
        for _, identities in self._unsettled:
            ids.update(identities)
        self.suspects.save(ids)
        self._unsettled.clear()
        self._settled = self._next
        self._write_mark(SETTLED, self._settled)
        return len(ids)

    def beat(self) -> None:
        """Show that the owner is alive, and write marks that were left for later; called every second or so."""
        self._claim.beat()
        self._write_lazily(SETTLED, self._settled)
        self._look_lazily()

    # The reader's side.

    def note_planned(self, end: int) -> None:
        """Note that Spark was told of messages up to `end`."""
        self._planned = max(self._planned, end)
        self._write_lazily(PLANNED, self._planned)

    def purge(self, low: int, *, retention: float = 0.0) -> int:
        """Forget what was processed: everything below `low`; return how many messages.

        Args:
            low: a sequence number.
            retention: seconds that a segment is kept in any case.

        Raises:
            SpoolFenced: a successor is at work.
            SpoolDataLoss: the spool never held so much.
        """
        if low > self._next:
            raise SpoolDataLoss(
                f"Spark has processed messages up to {low}, the spool ends at {self._next}: it is an older copy, or "
                "segments are gone",
                path=path_of(self._files, self._folder),
            )
        self._claim.check()
        kept = self.snapshot(lambda index: low_after(index, low, retention))
        # An ACK of these may still be under way; the receiver has their ids in memory until it is confirmed.
        kept = min(kept, self._settled)
        return purge_below(self._files, self._folder, kept, self.snapshot)

    def refresh(self) -> None:
        """Do nothing: what this process writes it knows."""

    def close(self) -> None:
        """Write the marks, unless the lane is a successor's, and let another have it."""
        try:
            self._claim.check()
            self._write_mark(SETTLED, self._settled)
            self._write_mark(PLANNED, self._planned)
        except SpoolFenced:
            pass
        finally:
            self._claim.release()

    def _look_lazily(self) -> None:
        """Look what a reader in another process has processed, and what it was told of."""
        now = time.monotonic()
        if now - self._looked < _LAZILY:
            return
        self._looked = now
        low = read_mark(self._files, f"{self._folder}/{LOW}") or 0
        planned = read_mark(self._files, f"{self._folder}/{PLANNED}") or 0
        with self._lock:
            self._index.remove_below(low)
            self._planned = max(self._planned, planned)

    def _write_lazily(self, name: str, value: int) -> None:
        last, when = self._written[name]
        if last != value and time.monotonic() - when >= _LAZILY:
            self._write_mark(name, value)

    def _write_mark(self, name: str, value: int) -> None:
        if self._written[name][0] != value:
            write_mark(self._files, f"{self._folder}/{name}", value)
        self._written[name] = (value, time.monotonic())


def make_lane(files: Files, folder: str) -> None:
    """Make a lane that is not there yet: its low watermark comes first, so that a lane without one has lost it."""
    if read_mark(files, f"{folder}/{LOW}") is not None:
        return
    if any(entry.name != "lock" for entry in files.list(folder)):
        raise damaged(path_of(files, f"{folder}/{LOW}"), "the file that says where the lane begins is gone")
    files.make_folder(folder)
    write_mark(files, f"{folder}/{LOW}", 0)


def load_index(files: Files, lane: int, newest: Begun) -> tuple[LaneIndex, list[Segment]]:
    """List a lane; return its index and what is to be removed: leftovers, and what a fenced receiver wrote.

    Raises:
        SpoolDamaged: its low watermark is gone.
    """
    folder = lane_folder(lane)
    low = read_mark(files, f"{folder}/{LOW}")
    if low is None:
        raise damaged(path_of(files, f"{folder}/{LOW}"), "the file that says where the lane begins is gone")
    names = (segment_of(entry.name, size=entry.size, modified=entry.modified) for entry in files.list(folder))
    listed = [segment for segment in names if segment is not None]
    left = [segment for segment in listed if segment.end <= low]
    kept, orphans = sound([one for one in listed if one.end > low], epoch=newest.epoch, start=newest.start)
    index = LaneIndex(lane=lane, low=low, path=path_of(files, folder))
    for segment in kept:
        index.add(segment)
    return index, [*left, *orphans]


def read_segment(files: Files, origin: Origin, segment: Segment) -> pa.RecordBatch:
    """Return the rows of a segment; raises as `decode`."""
    name = f"{lane_folder(origin.lane)}/{segment.name}"
    return decode(files.read(name), segment, origin=origin, path=path_of(files, name))


def low_after(index: LaneIndex, low: int, retention: float) -> int:
    """Return the low watermark that leaves what is younger than `retention` seconds."""
    if retention <= 0:
        return low
    young = time.time() - retention
    return min([low, *(segment.first for segment in index.segments if segment.modified > young)])


def purge_below(
    files: Files, folder: str, low: int, snapshot: Callable[[Callable[[LaneIndex], list[Segment]]], list[Segment]]
) -> int:
    """Write the low watermark, then remove the files below it: a crash in between leaves files, and never a gap."""
    if low <= (read_mark(files, f"{folder}/{LOW}") or 0):
        return 0
    # Before the mark is written: who reads the mark takes them out of the index too, and removes no file.
    gone = snapshot(lambda index: [segment for segment in index.segments if segment.end <= low])
    write_mark(files, f"{folder}/{LOW}", low)
    snapshot(lambda index: index.remove_below(low))
    for segment in gone:
        files.remove(f"{folder}/{segment.name}")
    return sum(segment.count for segment in gone)
