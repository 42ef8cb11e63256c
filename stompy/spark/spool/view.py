"""The reader's view of a spool, whichever process fills it. One thread.

The reader lists the segments before it reads the newest claim. So a listed segment of an older process existed before
that claim, and the owner of the claim has seen it too; while an owner is about to begin, nothing new is shown. The
reader only writes the marks `low` and `planned`.
"""

from __future__ import annotations

import logging

from stompy.spark.spool.claims import ActiveClaim, active_claim, last_heartbeat
from stompy.spark.spool.files import LOW, PLANNED, FolderEntry, read_mark, write_mark
from stompy.spark.spool.index import Segment, SegmentIndex, lost, segment_of, sound, stale_claims
from stompy.spark.spool.spool import Spool
from stompy.world import time

_LOG = logging.getLogger("stompy.spark")


class SpoolView:
    """The messages of a spool that can be read, as of the last `refresh`.

    Args:
        spool: to read.
        fail_on_loss: whether to raise if segments are missing; otherwise they are ignored.

    Raises:
        SpoolDamagedError: a file is corrupt.
        SpoolMismatchError: the claims are those of an older copy.
    """

    def __init__(self, spool: Spool, *, fail_on_loss: bool = True) -> None:
        self._spool = spool
        self._files = spool.files
        self._fail = fail_on_loss
        self._planned = read_mark(self._files, PLANNED) or 0
        self._heartbeat = last_heartbeat(self._files)
        self._heartbeat_at = time.monotonic()
        self._entries: dict[str, FolderEntry] = {}
        self._segments: dict[str, Segment] = {}
        self._newest: ActiveClaim | None = None
        self.index = SegmentIndex(low=spool.low(), path=self._files.url)
        """The segments."""
        self.refresh()

    @property
    def next(self) -> int:
        """The sequence number after the last message that can be read."""
        return self.index.next

    @property
    def planned(self) -> int:
        """The mark below which messages were given to Spark."""
        return self._planned

    def silent_for(self) -> float:
        """Return the seconds since this view saw the heartbeat of a process that fills the spool change."""
        beat = last_heartbeat(self._files)
        if beat != self._heartbeat:
            self._heartbeat, self._heartbeat_at = beat, time.monotonic()
        return time.monotonic() - self._heartbeat_at

    def refresh(self) -> bool:
        """Read the folder again; return `False`, without new messages, while an owner is about to begin.

        Raises:
            SpoolDataLossError: a segment that was not processed has disappeared.
        """
        low = self._spool.low()
        new, gone = self._list()
        newest = active_claim(self._files)
        if newest is None:
            self._newest = None
            return False
        self.index.remove_below(low)
        # Usually segments were added at the end, or processed; in any other case the index is rebuilt.
        follows = self.index.followed_by(new) and all(segment.epoch == newest.epoch for segment in new)
        if newest != self._newest or not follows or any(segment.end > low for segment in gone):
            listed = set(self._segments.values())
            self._list()
            return self._begin_again(low, listed.union(self._segments.values()))
        if new:
            # A segment is listed before its writer has synced the folder, and a power cut must not remove what Spark
            # has planned.
            self._files.sync("")
        for segment in new:
            self.index.add(segment)
        return True

    def _list(self) -> tuple[list[Segment], list[Segment]]:
        """List the folder; return the new segments, in order, and those that have disappeared."""
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
            if segment is not None:  # not a mark, which is rewritten repeatedly
                new.append(segment)
                self._segments[entry.name], known[entry.name] = segment, entry
        return sorted(new), gone

    def _begin_again(self, low: int, listed: set[Segment]) -> bool:
        """Rebuild the index; return `False` while an owner is about to begin."""
        newest = self._newest = active_claim(self._files)
        if newest is None:
            return False
        # Whoever writes has begun before, and its claim is only removed by who began later.
        if any(one.epoch > newest.epoch for one in listed):
            self._newest = None
            raise stale_claims(self._files.url)
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

    def note_planned(self, end: int) -> None:
        """Record that messages below `end` were given to Spark, so that the writer numbers new ones above it."""
        if end > self._planned:
            write_mark(self._files, PLANNED, end)
            self._planned = end

    def note_processed(self, low: int, *, retention: float = 0.0) -> None:
        """Record that everything below `low` was processed, so that the writer removes it.

        Args:
            low: a sequence number.
            retention: seconds for which each segment is kept in any case.
        """
        if retention > 0:
            young = time.time() - retention
            low = min([low, *(segment.first for segment in self.index.segments if segment.modified > young)])
        if low > self.index.low:
            write_mark(self._files, LOW, low)
            self.index.remove_below(low)
