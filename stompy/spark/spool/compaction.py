"""Merging small segments, so that a spool that is filled slowly and read late stays cheap to list and to read.

C1 read the segments of a block; C2 write the merged one like any segment; C3 look for a newer claim; C4 remove the
originals. Between C2 and C4 both exist, and the merged one is valid (`index.sound`). Only settled segments are merged,
as their ids are no longer needed; a reader that misses a segment reads the one that now has its rows (`Spool.read`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stompy.errors import SpoolError
from stompy.locks import Lock
from stompy.spark.spool.claims import Claim
from stompy.spark.spool.index import BLOCK, SegmentIndex
from stompy.spark.spool.segment import join
from stompy.spark.spool.spool import Spool
from stompy.world import time

_LOG = logging.getLogger("stompy.spark")

_MERGE_DELAY = 10.0
"""Seconds after which segments are merged; those that a query reads in time are removed before."""


class Compaction:
    """Merges the small segments of a spool, one block per call. Used by the thread of `SpoolWriter.maintain` only.

    Args:
        spool: the spool.
        claim: of the writer.
        index: of the writer.
        lock: guards the index.
        settled: the mark when the writer began.
    """

    def __init__(self, spool: Spool, claim: Claim, index: SegmentIndex, lock: Lock, *, settled: int) -> None:
        self._spool = spool
        self._claim = claim
        self._index = index
        self._lock = lock
        self._checked_at = time.monotonic()
        self._settled = self._mergeable_to = settled
        self._done = 0

    def run(self, settled: int, stopped: Callable[[], bool]) -> None:
        """Merge the segments of one block, if there is one whose messages have been settled for long enough.

        Args:
            settled: the mark, as it is on disk.
            stopped: returns whether to give up.

        Raises:
            SpoolFencedError: a successor has taken over the spool.
        """
        if time.monotonic() - self._checked_at >= _MERGE_DELAY:
            self._checked_at = time.monotonic()
            self._mergeable_to, self._settled = self._settled, settled
        with self._lock:
            block = next(self._index.mergeable(self._done, self._mergeable_to), None)
        self._done = max(self._done, block[-1].end if block else self._mergeable_to // BLOCK * BLOCK)
        if block is None:
            return
        spool, rows = self._spool, []
        try:
            for segment in block:
                if stopped():
                    return
                self._claim.heartbeat()
                rows.append(spool.read(segment))
            merged, data = join(rows, spool=spool.identity, first=block[0].first, epoch=self._claim.epoch, merged=block)
            spool.files.write(merged.name, data)
        except SpoolError as error:
            self._claim.check()  # a successor removes what its predecessor has not finished
            # They can be read unmerged, or reading them raises the reason.
            _LOG.warning("the messages %d to %d are not merged: %s", block[0].first, block[-1].end - 1, error)
            return
        self._claim.check()
        with self._lock:
            self._index.replace(block, merged)
        for segment in block:
            self._claim.heartbeat()
            spool.files.remove(segment.name)
