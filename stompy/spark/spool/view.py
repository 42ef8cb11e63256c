"""The reader's view of a spool, whichever process fills it. One thread.

The reader lists the segments before it reads the newest claim. So a listed segment of an older process existed before
that claim, and the owner of the claim has seen it too; while an owner is about to begin, nothing new is shown. The
reader only writes the marks `low` and `planned`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stompy.deadline import Deadline
from stompy.errors import SpoolBusyError
from stompy.spark.spool.claims import FILLER, ActiveClaim, active_claim, last_heartbeat
from stompy.spark.spool.files import LOW, PLANNED, read_mark, write_mark
from stompy.spark.spool.index import Segment, SegmentIndex, lost, sound, stale_claims
from stompy.spark.spool.spool import Spool
from stompy.world import time

_LOG = logging.getLogger("stompy.spark")

_POLL_INTERVAL = 0.1
"""Seconds between checks whether the owner has begun."""


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
        self.spool = spool
        self.fail_on_loss = fail_on_loss
        self._files = spool.files
        self.planned = read_mark(self._files, PLANNED) or 0
        """The mark below which messages were given to Spark."""
        self._heartbeat = last_heartbeat(self._files)
        self._heartbeat_at = time.monotonic()
        self._segments: dict[str, Segment] = {}
        self._newest: ActiveClaim | None = None
        self.epoch = 0
        """The number of the newest claim whose owner has begun."""
        self.index = SegmentIndex(low=spool.low(), path=self._files.url)
        """The segments."""
        self.refresh()

    @property
    def next(self) -> int:
        """The sequence number after the last message that can be read."""
        return self.index.next

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
        low = self.spool.low()
        new, gone = self._list()
        newest = active_claim(self._files)
        if newest is None:
            self._newest = None
            return False
        self.index.remove_below(low)
        # Usually segments were added at the end, or processed; in any other case the index is rebuilt.
        follows = self.index.followed_by(new) and all(segment.epoch == newest.epoch for segment in new)
        if newest != self._newest or not follows or any(segment.end > low for segment in gone):
            # A listing is not atomic: it may lack a segment, and have the one after it, which its writer wrote later.
            self._list()
            return self._begin_again(low)
        if new:
            # A segment is listed before its writer has synced the folder, and a power cut must not remove what Spark
            # has planned.
            self._files.sync("")
        for segment in new:
            self.index.add(segment)
        return True

    def await_refresh(self, patience: float, check: Callable[[], object] = lambda: None) -> None:
        """Refresh; wait for an owner that is about to begin.

        Args:
            patience: seconds to wait.
            check: called before each pause.

        Raises:
            SpoolBusyError: the owner did not begin in time.
        """
        deadline = Deadline(patience)
        while not self.refresh():
            check()
            if deadline.expired:
                raise SpoolBusyError(
                    "a process has claimed it and does not start to fill it, so that its messages are not known: "
                    "start that process again",
                    path=self._files.url,
                )
            time.sleep(_POLL_INTERVAL)

    def _list(self) -> tuple[list[Segment], list[Segment]]:
        """List the folder; return the new segments, in order, and those that have disappeared."""
        known, names = self._segments, set(self._files.list(""))
        gone = [known.pop(name) for name in known.keys() - names]
        found = map(self.spool.segment, names - known.keys())
        new = sorted(segment for segment in found if segment is not None)
        known.update((segment.name, segment) for segment in new)
        return new, gone

    def _begin_again(self, low: int) -> bool:
        """Rebuild the index; return `False` while an owner is about to begin."""
        newest = self._newest = active_claim(self._files)
        if newest is None:
            return False
        # The checkpoint will name this claim, which its owner may not have synced yet. After a power cut, the spool,
        # with the claim before, would look like an older copy.
        if newest.epoch:
            self._files.sync(FILLER.folder)
        self.epoch = newest.epoch
        listed = self._segments.values()
        # Whoever writes has begun before, and its claim is only removed by who began later.
        if any(one.epoch > newest.epoch for one in listed):
            self._newest = None
            raise stale_claims(self._files.url)
        kept, _ = sound((one for one in listed if one.end > low), epoch=newest.epoch, start=newest.start)
        index = SegmentIndex(low=low, path=self._files.url, segments=kept)
        if index.next < self.next:
            missing = lost(self._files.url, index.next, self.next)
            if self.fail_on_loss:
                self._newest = None
                raise missing
            _LOG.warning("%s", missing)
        elif index.next > self.next:
            self._files.sync("")
        self.index = index
        return True

    def valid(self) -> list[Segment]:
        """Return every segment that counts and is still there, also those that were processed."""
        newest = self._newest or ActiveClaim(0, 0)
        return sound(self._segments.values(), epoch=newest.epoch, start=newest.start)[0]

    def note_planned(self, end: int) -> None:
        """Record that messages below `end` were given to Spark, so that the writer numbers new ones above it."""
        if end > self.planned:
            write_mark(self._files, PLANNED, end)
            self.planned = end

    def note_processed(self, low: int) -> None:
        """Record that everything below `low` was processed, so that the writer removes it."""
        if low > self.index.low:
            write_mark(self._files, LOW, low)
            self.index.remove_below(low)
