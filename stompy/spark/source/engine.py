"""The driver's side of a streaming query: starts the receivers, and reports offsets and partitions to Spark.

Spark calls it in one thread, in this order: `prepare_available_now`, `initial`, `latest`, and for each micro-batch
`commit` of the previous one, then `plan`. After a restart with an unfinished batch it begins with `plan`. Whichever
process fills the spool, the query reads it through a `SpoolView`.

Before an offset of a checkpoint is used, it is compared with the spool, which may have been replaced by an older copy:
what was received into that one has the numbers of messages that Spark has processed. The receivers start after that, so
a query that is refused has acknowledged nothing.

| thread | owns | may block on |
|---|---|---|
| Spark's | offsets, the view | the disk; with `prepare_available_now` the broker, in `latest` |
| `stompy-spool-query` | the heartbeat of the query's claim | the disk |
| `stompy-spool-<number>` | see `receiver.py` | |
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stompy.deadline import Deadline
from stompy.errors import SpoolBusyError, SpoolDamagedError, SpoolMismatchError, StompError
from stompy.spark.receiver.pool import NoReceivers, ReceiverPool, Receivers
from stompy.spark.receiver.process import ReceiverProcess
from stompy.spark.source.reading import split
from stompy.spark.source_options import SpoolOptions, StreamOptions
from stompy.spark.spool.claims import HEARTBEAT_INTERVAL, READER, Claim, ClaimTimeouts
from stompy.spark.spool.files import read_counts
from stompy.spark.spool.index import Piece, Segment
from stompy.spark.spool.spool import Spool, check_identity, make_spool, open_files
from stompy.spark.spool.view import SpoolView
from stompy.threads import DaemonThread
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.spark")

_POLL_INTERVAL = 0.1
"""Seconds between checks of the spool while waiting."""
_VERSION = 3
"""The version of the format of offsets."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in a spool.

    Attributes:
        spool: the spool's identity.
        next: the sequence number of the next message.
        digest: of the segment with the message before that; `None` if it was removed, or there is none.
        lost: number of lost messages before this position.
    """

    spool: str
    next: int
    digest: str | None = None
    lost: int = 0

    def json(self) -> dict[str, Any]:
        """Return the offset as a JSON object, which Spark stores."""
        stored: dict[str, Any] = {"v": _VERSION, "spool": self.spool, "next": self.next}
        if self.digest is not None:
            stored["digest"] = self.digest
        if self.lost:
            stored["lost"] = self.lost
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], *, path: str) -> Offset:
        """Return the offset in a JSON object.

        Args:
            stored: from the checkpoint.
            path: of the spool, for the error.

        Raises:
            SpoolMismatchError: it is an offset of another source, or of another version.
        """
        if stored.get("v") != _VERSION or not isinstance(stored.get("next"), int) or "spool" not in stored:
            raise SpoolMismatchError(
                f"the checkpoint contains an offset of an unknown format ({sorted(stored)}): it belongs to "
                "another source or another version. Give the query its own checkpointLocation",
                path=path,
            )
        return cls(str(stored["spool"]), stored["next"], stored.get("digest"), int(stored.get("lost", 0)))


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Limits of one micro-batch; `None` for no limit.

    Attributes:
        max_messages: maximum number of messages.
        max_bytes: approximate maximum of bytes.
        min_messages: number of messages to wait for, up to `max_trigger_delay`.
    """

    max_messages: int | None = None
    max_bytes: int | None = None
    min_messages: int | None = None


class StreamEngine:
    """The driver's side of one streaming query.

    Args:
        options: of the query; the spool is opened at the first call.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._fail = options.spool.fail_on_data_loss
        self._claim: _QueryClaim | None = None
        self._opened: tuple[Spool, SpoolView] | None = None
        self._receivers: Receivers | None = None
        self._checked: tuple[Offset, Segment] | None = None
        self._position: Offset | None = None
        self._available_now = False
        self._target: int | None = None
        self._last_batch = time.monotonic()
        self._valid: dict[Segment, bool] = {}

    # For Spark.

    def initial(self) -> dict[str, Any]:
        """Return the first offset of a query without a checkpoint: that of the oldest message in the spool."""
        spool, view = self._open()
        self._started(view)
        return self._offset(view.index.low, spool, view).json()

    def latest(self, start: Mapping[str, Any] | None, limits: BatchLimits) -> dict[str, Any]:
        """Return the end offset of the next micro-batch; the start offset if there are no messages for it.

        Args:
            start: the end offset of the previous one; `None` before Spark 4.2, which does not pass it.
            limits: of the micro-batch.

        Raises:
            StompError: no messages can arrive; the error says why.
            SpoolMismatchError: the start offset is not one of this spool, or of a newer one of which this is a copy.
            SpoolBusyError, SpoolFencedError: another query reads the spool.
        """
        spool, view = self._claimed()
        if self._available_now:
            self._refresh(view)
        readable = view.refresh()
        begin = self._start(start, spool, view, readable=readable)
        receivers = self._started(view)
        receivers.check()
        if self._available_now:
            readable = self._receive_available(view, receivers)
            self._available_now = False
        if not readable:
            return begin.json()
        last = view.next if self._target is None else min(view.next, self._target)
        last = self._admitted(view, begin.next, last, limits)
        if last <= begin.next:
            return begin.json()
        lost = begin.lost + self._missing(view, begin.next, last, self._pieces(view, begin.next, last))
        end = self._offset(last, spool, view, lost=lost)
        view.note_planned(end.next)
        self._position, self._last_batch = end, time.monotonic()
        return end.json()

    def report(self) -> dict[str, Any] | None:
        """Return the end offset of the spool for the query's progress; the difference to `endOffset` is the backlog.

        It includes the numbers of duplicates that the receivers have dropped, and of possible ones that they kept.
        """
        if self._opened is None:
            return None
        spool, view = self._opened
        counts = read_counts(spool.files)
        dropped, flagged = (sum(getattr(each, name) for each in counts) for name in ("dropped", "flagged"))
        return {**Offset(spool.identity, view.next).json(), "dropped": dropped, "flagged": flagged}

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[Piece]]:
        """Return the pieces that each task of a micro-batch reads.

        Raises:
            SpoolMismatchError: the checkpoint belongs to another spool, or to a newer one of which this is a copy.
            SpoolDataLossError: messages are missing (option failOnDataLoss).
            SpoolBusyError, SpoolFencedError: another query reads the spool.
        """
        spool, view = self._claimed()
        self._refresh(view)
        begin, until = self._check(start, spool, view), self._check(end, spool, view)
        pieces = self._pieces(view, begin.next, until.next)
        missing = self._missing(view, begin.next, until.next, pieces)
        if missing:
            _LOG.warning("%d of the messages %d to %d are lost and skipped", missing, begin.next, until.next - 1)
        self._started(view)
        view.note_planned(until.next)
        self._position = until
        return split(pieces, max_parts=self._options.num_partitions)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Record that everything before `end` was processed; raises as `plan`."""
        spool, view = self._claimed()
        done = self._check(end, spool, view).next
        view.note_processed(done, retention=self._options.spool_retention)
        self._valid = {segment: sound for segment, sound in self._valid.items() if segment.end > done}

    def prepare_available_now(self) -> None:
        """Make the next `latest` receive until the queue counts as empty, and the query end there.

        It waits for a session, then until no message has arrived for `idleTimeout`. `availableNowTimeout` limits this
        wait, but only once there is a message, as a run without one would imply that the queue was empty.
        """
        # Only `latest` knows whether the spool is the checkpoint's, and what is received before cannot be given back.
        self._available_now = True

    def stop(self) -> None:
        """End the receivers. Idempotent."""
        if self._receivers is not None:
            self._receivers.stop()
        if self._claim is not None:
            self._claim.close()

    @property
    def url(self) -> str:
        """The path or URL of the spool."""
        return self._options.spool.spool_dir if self._opened is None else self._opened[0].files.url

    @property
    def identity(self) -> str:
        """The identity of the spool."""
        return self._open()[0].identity

    # Internals.

    def _open(self) -> tuple[Spool, SpoolView]:
        """Open the spool at the first call."""
        if self._opened is None:
            options = self._options.spool
            spool = make_spool(open_files(options.spool_dir), options.origin)
            if self._claim is None:
                self._claim = _QueryClaim(spool, options)
            view = SpoolView(spool, fail_on_loss=self._fail)
            self._opened = spool, view
            _LOG.info("spool %s has the messages %d to %d", spool.files.url, view.index.low, view.next - 1)
        return self._opened

    def _claimed(self) -> tuple[Spool, SpoolView]:
        """Return the spool, which no other query has taken over."""
        opened = self._open()
        assert self._claim is not None, "the spool is claimed when it is opened"
        self._claim.check()
        return opened

    def _started(self, view: SpoolView) -> Receivers:
        """Start the receivers at the first call."""
        if self._receivers is None:
            self._receivers = _receivers_of(self._options.spool, self._open()[0], view)
            view.refresh()
        return self._receivers

    def _refresh(self, view: SpoolView) -> None:
        """Refresh the view; wait for an owner that is about to begin.

        Raises:
            SpoolBusyError: the owner did not begin in time.
        """
        deadline = Deadline(self._options.spool.lock_timeout)
        while not view.refresh():
            # An owner that has died is replaced by ours, before anything can be compared.
            self._started(view).check()
            if deadline.expired:
                raise SpoolBusyError("a process has claimed it and does not start to fill it", path=self.url)
            time.sleep(_POLL_INTERVAL)

    def _receive_available(self, view: SpoolView, receivers: Receivers) -> bool:
        """Receive until the queue counts as empty; return whether there is something to read."""
        options = self._options
        before = view.next

        def left() -> float:
            view.refresh()
            quiet = options.idle_timeout - receivers.quiet_for()
            rest = options.available_now_timeout - receivers.subscribed_for()
            return min(quiet, rest if rest > 0 or view.next > before else _POLL_INTERVAL)

        receivers.watch(left)
        receivers.check()
        readable = view.refresh()
        self._target = view.next
        return readable

    def _offset(self, position: int, spool: Spool, view: SpoolView, *, lost: int = 0) -> Offset:
        segment = view.index.holding(position - 1)
        return Offset(spool.identity, position, None if segment is None else segment.digest, lost)

    def _start(self, stored: Mapping[str, Any] | None, spool: Spool, view: SpoolView, *, readable: bool) -> Offset:
        if stored is None:
            # May be somewhat behind, but Spark continues from its own checkpoint in any case.
            return self._position or self._offset(max(view.planned, view.index.low), spool, view)
        if readable:
            return self._check(stored, spool, view)
        return Offset.from_json(stored, path=self.url)

    def _check(self, stored: Mapping[str, Any], spool: Spool, view: SpoolView) -> Offset:
        """Return an offset of the checkpoint, if the spool is the one that it was made with.

        Raises:
            SpoolMismatchError: it is another one, or an older copy, which may have been filled since.
        """
        offset = Offset.from_json(stored, path=self.url)
        check_identity(spool, offset.spool)
        segment = view.index.holding(offset.next - 1)
        if segment is None:
            # Processed and removed; or lost, and then the spool's own mark tells that it was there.
            known = offset.next <= view.index.low or (not self._fail and offset.next <= view.planned)
        elif (offset, segment) == self._checked or segment.digest == offset.digest:
            known = True
        else:
            # It may have been merged since.
            damaged = not self._fail and not self._is_valid(segment)
            known = damaged or spool.merged_from(segment, offset.digest)
        if not known:
            raise SpoolMismatchError(
                f"the checkpoint says that the messages before {offset.next} were given to Spark, and the spool, which "
                f"ends at {view.next}, does not have the last of them: it is an older copy, or lags, or segments are "
                "missing. Use the original spoolDir. If it is lost, start with a new checkpoint: it begins with the "
                "oldest message in this spool, and some of its messages may have been processed before",
                path=self.url,
            )
        if segment is not None:
            self._checked = offset, segment
        return offset

    def _admitted(self, view: SpoolView, start: int, end: int, limits: BatchLimits) -> int:
        """Return the end of the next micro-batch within the limits; `start` while waiting for more messages."""
        waited = time.monotonic() - self._last_batch
        too_few = limits.min_messages is not None and self._target is None and end - start < limits.min_messages
        if too_few and waited < self._options.max_trigger_delay:
            return start
        if limits.max_bytes is not None and end > start:
            end = min(end, view.index.end_within(start, limits.max_bytes))
        return end if limits.max_messages is None else min(end, start + limits.max_messages)

    def _pieces(self, view: SpoolView, start: int, end: int) -> list[Piece]:
        """Return the pieces that cover some messages, without lost ones if the option failOnDataLoss is false."""
        pieces = view.index.pieces(start, end, fail=self._fail)
        return pieces if self._fail else [piece for piece in pieces if self._is_valid(piece.segment)]

    def _is_valid(self, segment: Segment) -> bool:
        if segment not in self._valid:
            try:
                self._open()[0].read(segment)
            except SpoolDamagedError as error:
                _LOG.warning("the messages %d to %d are skipped: %s", segment.first, segment.end - 1, error)
                self._valid[segment] = False
            else:
                self._valid[segment] = True
        return self._valid[segment]

    @staticmethod
    def _missing(view: SpoolView, start: int, end: int, pieces: list[Piece]) -> int:
        return end - start - sum(piece.rows for piece in pieces)


class _QueryClaim(DaemonThread):
    """The claim of a query, and the thread that shows that it is alive, as Spark does not call for hours in a batch."""

    def __init__(self, spool: Spool, options: SpoolOptions) -> None:
        super().__init__("stompy-spool-query")
        patience = ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after)
        self._closing = threading.Event()
        self._claim = Claim(spool.files, patience=patience, closing=self._closing, role=READER)
        try:
            self._claim.begin(0)
        except BaseException:
            self._claim.release()
            raise
        self.check = self._claim.check
        self.start()

    def run(self) -> None:
        """Touch the claim until closed."""
        while not self._closing.wait(HEARTBEAT_INTERVAL / 2):
            with contextlib.suppress(StompError):  # Spark's thread has it too, and raises it
                self._claim.heartbeat()

    def close(self) -> None:
        """Release the claim. Idempotent."""
        if self._claim.owner.forked:
            return
        self._closing.set()
        self.join_until(Deadline(HEARTBEAT_INTERVAL))
        self._claim.release()


def _receivers_of(options: SpoolOptions, spool: Spool, view: SpoolView) -> Receivers:
    if not options.receivers:
        return NoReceivers(view, options.broker_timeout)
    return ReceiverProcess(options) if options.receiver_mode == "process" else ReceiverPool(options, spool)
