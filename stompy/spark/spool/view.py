"""A spool as its reader sees it, whoever fills it. One thread.

The reader lists segments first and reads the newest claim after that. So what it takes for an older process's segment
was there before the claim, and the owner of the claim has taken it over too; while an owner is about to begin, nothing
new is shown. The reader writes two marks and nothing else: `low` and `planned`.
"""

from __future__ import annotations

import logging
import time

from stompy.errors import SpoolDataLoss
from stompy.spark.spool.claims import ActiveClaim, active_claim, last_heartbeat
from stompy.spark.spool.files import Entry
from stompy.spark.spool.index import SegmentIndex, lost, sound
from stompy.spark.spool.names import Segment, segment_of
from stompy.spark.spool.spool import Spool
from stompy.spark.spool.state import LOW, PLANNED, SETTLED, read_mark, write_mark

_LOG = logging.getLogger("stompy.spark")


class SpoolView:
    """What a reader sees of a spool, as of the last `refresh`.

    Args:
        spool: to read.
        fail_on_loss: raise where segments are gone; else go on without them.

    Raises:
        SpoolDamaged: a file of it is not what was written.
    """

    def __init__(self, spool: Spool, *, fail_on_loss: bool = True) -> None:
        self._spool = spool
        self._files = spool.files
        self._fail = fail_on_loss
        self._planned = read_mark(self._files, PLANNED) or 0
        self._heartbeat = last_heartbeat(self._files)
        self._heartbeat_at = time.monotonic()
        self._entries: dict[str, Entry] = {}
        self._segments: dict[str, Segment] = {}
        self._newest: ActiveClaim | None = None
        self.index = SegmentIndex(low=spool.low(), path=self._files.url)
        """The segments."""
        self.refresh()

    @property
    def next(self) -> int:
        """The number after the last message that can be read."""
        return self.index.next

    @property
    def planned(self) -> int:
        """Up to here the messages were given to Spark."""
        return self._planned

    def settled(self) -> int:
        """Return the writer's mark; it numbers no message below."""
        return read_mark(self._files, SETTLED) or 0

    def silent_for(self) -> float:
        """Return for how many seconds, at least, no process that fills the spool has shown a heartbeat."""
        beat = last_heartbeat(self._files)
        if beat != self._heartbeat:
            self._heartbeat, self._heartbeat_at = beat, time.monotonic()
        return time.monotonic() - self._heartbeat_at

    def refresh(self) -> bool:
        """Look what is there now; return whether that is known, which it is not while an owner is about to begin.

        Raises:
            SpoolDataLoss: a segment that was there is gone, and was not processed.
        """
        low = self._spool.low()
        new, gone = self._list()
        newest = active_claim(self._files)
        if newest is None:
            self._newest = None
            return False
        self.index.remove_below(low)
        # As a rule some were added at the end and some were processed; else all of it is made sense of again.
        follows = self.index.followed_by(new) and all(segment.epoch == newest.epoch for segment in new)
        if newest != self._newest or not follows or any(segment.end > low for segment in gone):
            listed = set(self._segments.values())
            self._list()
            return self._begin_again(low, listed.union(self._segments.values()))
        if new:
            # A segment is listed before its writer has synced the folder, and Spark must not plan with what a power
            # cut may take away.
            self._files.sync("")
        for segment in new:
            self.index.add(segment)
        return True

    def _list(self) -> tuple[list[Segment], list[Segment]]:
        """List the folder; return the segments that are new there, in order, and those that are gone."""
        known, entries = self._entries, self._files.list("", self._entries)
        others = [entry for entry in entries if entry.name not in known]
        gone = []
        if len(entries) - len(others) < len(known):
            for name in known.keys() - {entry.name for entry in entries}:
                gone.append(self._segments.pop(name))
                del known[name]
        new = []
        for entry in others:
            segment = segment_of(entry.name, size=entry.size, modified=entry.modified)
            if segment is not None:  # else a mark, which is written again and again
                new.append(segment)
                self._segments[entry.name], known[entry.name] = segment, entry
        return sorted(new), gone

    def _begin_again(self, low: int, listed: set[Segment]) -> bool:
        """Make sense of all that is there."""
        newest = self._newest = active_claim(self._files)
        if newest is None:
            return False
        kept, _ = sound((one for one in listed if one.end > low), epoch=newest.epoch, start=newest.start)
        index = SegmentIndex(low=low, path=self._files.url)
        for segment in kept:
            index.add(segment)
        if index.next < self.next:
            missing = lost(self._files.url, index.next, self.next)
            if self._fail:
                self._newest = None
                raise missing
            _LOG.warning("%s", missing)
        elif index.next > self.next:
            self._files.sync("")
        self.index = index
        return True

    def below_gap(self, position: int) -> tuple[int, int] | None:
        """Return what lies in the spool below a position and is cut off from it: first number and end.

        A checkpoint is at such a position when the spool was set back to an older copy, and filled since: nobody can
        tell which of these messages were processed.
        """
        return self.index.below_gap(position)

    def note_planned(self, end: int) -> None:
        """Note that messages were given to Spark up to `end`: the writer numbers new ones from there on."""
        if end > self._planned:
            write_mark(self._files, PLANNED, end)
            self._planned = end

    def note_processed(self, low: int, *, retention: float = 0.0) -> None:
        """Note that everything below `low` was processed; the writer removes it.

        Args:
            low: a sequence number.
            retention: seconds that a segment is kept in any case.

        Raises:
            SpoolDataLoss: the spool never held so much.
        """
        if low > max(self.next, self._planned):
            raise SpoolDataLoss(
                f"Spark has processed messages up to {low}, the spool ends at {self.next}: it is an older copy, "
                "or segments are missing",
                path=self._files.url,
            )
        if retention > 0:
            young = time.time() - retention
            low = min([low, *(segment.first for segment in self.index.segments if segment.modified > young)])
        if low > self.index.low:
            write_mark(self._files, LOW, low)
            self.index.remove_below(low)
