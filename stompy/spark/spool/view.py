"""A lane that another process fills, as its reader sees it. One thread.

The reader lists segments first and reads the newest claim after that. So what it takes for an older receiver's segment
was there before the claim, and the owner of the claim has taken it over too; while an owner is about to begin, nothing
new is shown. What the reader writes are the watermarks `low` and `planned`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from stompy.errors import SpoolDataLoss
from stompy.spark.spool.claims import begun
from stompy.spark.spool.files import Files
from stompy.spark.spool.index import LaneIndex, lost, sound
from stompy.spark.spool.lane import LOW, PLANNED, SETTLED, low_after, make_lane, purge_below
from stompy.spark.spool.names import lane_folder, segment_of
from stompy.spark.spool.segment import Origin
from stompy.spark.spool.state import damaged, path_of, read_mark, write_mark

T = TypeVar("T")

_LAZILY = 1.0
"""Seconds between writes of a mark that may be late."""


class LaneView:
    """What a reader sees of a lane, as of the last `refresh`.

    Args:
        files: of the spool.
        origin: which spool and lane.

    Raises:
        SpoolDamaged: a file of it is not what was written.
    """

    def __init__(self, files: Files, origin: Origin) -> None:
        self._files = files
        self._folder = lane_folder(origin.lane)
        self.lane = origin.lane
        make_lane(files, self._folder)
        self._planned = self._written = read_mark(files, f"{self._folder}/{PLANNED}") or 0
        self._wrote = time.monotonic()
        self._index = LaneIndex(lane=self.lane, low=self._low(), path=path_of(files, self._folder))
        self.refresh()

    def _low(self) -> int:
        name = f"{self._folder}/{LOW}"
        low = read_mark(self._files, name)
        if low is None:
            raise damaged(path_of(self._files, name), "the file that says where the lane begins is gone")
        return low

    @property
    def next(self) -> int:
        """The number behind the last message that can be read."""
        return self._index.next

    @property
    def planned(self) -> int:
        """Up to here Spark was told of the messages."""
        return self._planned

    def snapshot(self, look: Callable[[LaneIndex], T]) -> T:
        """Return what a function finds in the index."""
        return look(self._index)

    def refresh(self) -> None:
        """Look what is there now.

        Raises:
            SpoolDataLoss: a segment that was there is gone, and was not processed.
        """
        low = self._low()
        names = (segment_of(one.name, size=one.size, modified=one.modified) for one in self._files.list(self._folder))
        listed = [segment for segment in names if segment is not None and segment.end > low]
        newest = begun(self._files, self._folder)
        if newest is None:
            return
        kept, _ = sound(listed, epoch=newest.epoch, start=newest.start)
        index = LaneIndex(lane=self.lane, low=low, path=path_of(self._files, self._folder))
        for segment in kept:
            index.add(segment)
        if index.next < self._index.next:
            raise lost(path_of(self._files, self._folder), index.next, self._index.next)
        self._index = index

    def note_planned(self, end: int) -> None:
        """Note that Spark was told of messages up to `end`, for the receiver's limit."""
        self._planned = max(self._planned, end)
        if self._planned != self._written and time.monotonic() - self._wrote >= _LAZILY:
            self._write_planned()

    def purge(self, low: int, *, retention: float = 0.0) -> int:
        """Forget what was processed, as `LaneWriter.purge`."""
        self.refresh()
        if low > self.next:
            raise SpoolDataLoss(
                f"Spark has processed messages up to {low}, the spool ends at {self.next}: it is an older copy, or "
                "segments are gone",
                path=path_of(self._files, self._folder),
            )
        settled = read_mark(self._files, f"{self._folder}/{SETTLED}") or 0
        kept = min(low_after(self._index, low, retention), settled)
        return purge_below(self._files, self._folder, kept, self.snapshot)

    def close(self) -> None:
        """Write what was left for later."""
        if self._planned != self._written:
            self._write_planned()

    def _write_planned(self) -> None:
        write_mark(self._files, f"{self._folder}/{PLANNED}", self._planned)
        self._written, self._wrote = self._planned, time.monotonic()
