"""What the driver's Python does for a streaming query: fills the spool, and tells Spark what is in it.

Spark calls from one thread, one call at a time, in this order: `initial` or `prepare_available_now`, `latest`, and for
each micro-batch `commit` of the one before, then `plan`. After a restart with an unfinished batch it begins with
`plan`.

| thread | owns | may block on |
|---|---|---|
| the one that Spark calls | offsets, the lanes' purge | the disk; in `prepare_available_now` the broker |
| `stompy-spool-<lane>` | see `receiver.py` | |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from stompy.errors import SpoolDataLoss
from stompy.spark.receiver.crew import Crew, Lane, Onlooker, ThreadCrew
from stompy.spark.receiver.process import ProcessCrew
from stompy.spark.source.admission import Limits, shares
from stompy.spark.source.offsets import Offset
from stompy.spark.source.pieces import split
from stompy.spark.source_options import SpoolOptions, StreamOptions
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import Spool, check_identity, make_spool, open_files

_LOG = logging.getLogger("stompy.spark")


class StreamEngine:
    """The driver's side of one streaming query.

    Args:
        options: what the query was told. Nothing happens before the first call.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._spool: Spool | None = None
        self._crew: Crew | None = None
        self._position: Offset | None = None
        self._target: dict[int, int] | None = None
        self._last_batch = time.monotonic()
        self._stopped = False

    # What Spark asks.

    def initial(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins: with the oldest message in the spool."""
        spool, crew = self._opened()
        lanes = {lane.lane: lane.snapshot(lambda index: index.low) for lane in crew.lanes}
        return Offset(spool.identity, lanes).json()

    def latest(self, start: Mapping[str, Any] | None, limits: Limits) -> dict[str, Any]:
        """Return how far the next micro-batch goes; where the last one ended if there is nothing for it.

        Args:
            start: where the last one ended; `None` where Spark (before 4.2) does not say it.
            limits: of the micro-batch.

        Raises:
            StompError: no messages can come, and why.
            SpoolDataLoss: the checkpoint is ahead of the spool.
        """
        spool, crew = self._opened()
        crew.check()
        lanes = {lane.lane: lane for lane in crew.lanes}
        for lane in lanes.values():
            lane.refresh()
        begin = self._start(start, spool, lanes)
        ends = {number: self._end(lane, begin.of(number)) for number, lane in lanes.items()}
        available = {number: end - begin.of(number) for number, end in ends.items()}
        if not any(available.values()) or self._waits(available, limits):
            return begin.json()
        admitted = _admitted(lanes, begin, available, limits)
        found = {number: begin.of(number) + admitted[number] for number in lanes}
        offset = Offset(spool.identity, {**begin.lanes, **found})
        for number, lane in lanes.items():
            lane.note_planned(offset.of(number))
        self._position, self._last_batch = offset, time.monotonic()
        return offset.json()

    def report(self) -> dict[str, Any] | None:
        """Return how far the spool goes, for the query's progress: the difference to `endOffset` is the backlog."""
        if self._spool is None or self._crew is None:
            return None
        return Offset(self._spool.identity, {lane.lane: lane.next for lane in self._crew.lanes}).json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[Piece]]:
        """Return what the tasks of a micro-batch read, one list a task.

        Raises:
            SpoolMismatch: the checkpoint was made with another spool.
            SpoolDataLoss: not everything is there (option failOnDataLoss).
        """
        spool, crew = self._opened()
        begin, until = self._checked(start, spool), self._checked(end, spool)
        lanes = {lane.lane: lane for lane in crew.lanes}
        pieces: list[Piece] = []
        for number in sorted(until.lanes):
            if until.of(number) <= begin.of(number):
                continue
            if number not in lanes:
                raise SpoolDataLoss(f"lane {number} is gone, with the messages up to {until.of(number)}", path=self.url)
            pieces += self._pieces(lanes[number], begin.of(number), until.of(number))
            lanes[number].note_planned(until.of(number))
        self._position = until
        if self._options.spool_access == "driver":
            return split(pieces, most=None, octets=INLINE_OCTETS)
        return split(pieces, most=self._options.num_partitions)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Forget what was processed; raises as `LaneWriter.purge`."""
        spool, crew = self._opened()
        done = self._checked(end, spool)
        for lane in crew.lanes:
            if done.of(lane.lane):
                lane.purge(done.of(lane.lane), retention=self._options.spool_retention)

    def prepare_available_now(self) -> None:
        """Receive until the queue counts as empty, and let the query end there.

        Waits for the broker, then until nothing has come for `idleTimeout`, but no longer than `availableNowTimeout`.

        Raises:
            StompError: no messages can come, and why.
        """
        _, crew = self._opened()
        options = self._options
        crew.watch(
            lambda: min(options.idle_timeout - crew.quiet_for(), options.available_now_timeout - crew.subscribed_for())
        )
        crew.check()
        for lane in crew.lanes:
            lane.refresh()
        self._target = {lane.lane: lane.next for lane in crew.lanes}

    def stop(self) -> None:
        """End the receivers; idempotent."""
        self._stopped = True
        if self._crew is not None:
            self._crew.stop()

    @property
    def url(self) -> str:
        """Where the spool is."""
        return self._options.spool.spool_dir if self._spool is None else self._spool.files.url

    @property
    def identity(self) -> str:
        """Which spool it is; only once something was asked."""
        return self._opened()[0].identity

    # How.

    def _opened(self) -> tuple[Spool, Crew]:
        """Open the spool and start the receivers, if that was not done."""
        if self._spool is None or self._crew is None:
            options = self._options.spool
            spool = make_spool(open_files(options.spool_dir), options.destination)
            self._crew = _crew_of(options, spool)
            self._spool = spool
            _LOG.info("spool %s has %s", spool.files.url, _told(self._crew))
        return self._spool, self._crew

    def _checked(self, stored: Mapping[str, Any], spool: Spool) -> Offset:
        offset = Offset.from_json(stored, path=self.url)
        check_identity(spool, offset.spool)
        return offset

    def _start(self, stored: Mapping[str, Any] | None, spool: Spool, lanes: Mapping[int, Lane]) -> Offset:
        if stored is not None:
            return self._checked(stored, spool)
        if self._position is not None:
            return self._position
        # What was handed out before is at most a little behind; Spark goes on from its own checkpoint in any case.
        known = {number: max(lane.planned, lane.snapshot(lambda index: index.low)) for number, lane in lanes.items()}
        return Offset(spool.identity, known)

    def _end(self, lane: Lane, start: int) -> int:
        if start > lane.next:
            if self._options.spool.fail_on_data_loss:
                raise SpoolDataLoss(
                    f"the checkpoint says that messages up to {start} of lane {lane.lane} were processed, the spool "
                    f"ends at {lane.next}: it is an older copy, or segments are gone. Give the query the spoolDir "
                    "that it had, or a new checkpoint; or go on with the option failOnDataLoss=false",
                    path=self.url,
                )
            return start
        if self._target is None:
            return lane.next
        return max(start, min(lane.next, self._target.get(lane.lane, 0)))

    def _waits(self, available: Mapping[int, int], limits: Limits) -> bool:
        if limits.least is None or self._target is not None or sum(available.values()) >= limits.least:
            return False
        return time.monotonic() - self._last_batch < self._options.max_trigger_delay

    def _pieces(self, lane: Lane, start: int, end: int) -> list[Piece]:
        fail = self._options.spool.fail_on_data_loss
        found = lane.snapshot(lambda index: index.pieces(start, end, fail=fail))
        missing = end - start - sum(piece.rows for piece in found)
        if missing:
            _LOG.warning("lane %d has lost %d of the messages %d to %d", lane.lane, missing, start, end - 1)
        return found


INLINE_OCTETS = 4 << 20
"""Octets of a part that the driver sends itself: what it sends, Spark's own memory must hold several times."""


def _crew_of(options: SpoolOptions, spool: Spool) -> Crew:
    if not options.receivers:
        return Onlooker(spool)
    return ProcessCrew(options, spool) if options.receiver_mode == "process" else ThreadCrew(options, spool)


def _admitted(lanes: Mapping[int, Lane], begin: Offset, available: Mapping[int, int], limits: Limits) -> dict[int, int]:
    """Return how many messages of each lane the next micro-batch takes."""
    admitted = dict(available)
    if limits.octets is not None:
        share = max(1, limits.octets // max(1, sum(count > 0 for count in available.values())))
        for number, lane in lanes.items():
            start = begin.of(number)
            end = lane.snapshot(lambda index, start=start: index.octets_up_to(start, share))  # type: ignore[misc]
            admitted[number] = max(0, min(admitted[number], end - start))
    return admitted if limits.most is None else shares(admitted, limits.most)


def _told(crew: Crew) -> str:
    return (
        ", ".join(f"lane {lane.lane}: {lane.snapshot(lambda index: index.low)} to {lane.next}" for lane in crew.lanes)
        or "no lane yet"
    )
