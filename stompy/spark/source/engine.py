"""The driver's side of a streaming query: starts the receivers, and reports offsets and partitions to Spark.

Spark calls it in one thread, in this order: `prepare_available_now`, `initial`, `latest`, and for each micro-batch
`commit` of the previous one, then `plan`. After a restart with an unfinished batch it begins with `plan`. Whichever
process fills the spool, the query reads it through a `SpoolView`.

The receivers start after an offset of the checkpoint was compared with the spool, so a query that is refused has
acknowledged nothing.

| thread | owns | may block on |
|---|---|---|
| Spark's | offsets, the view | the disk; with `prepare_available_now` the broker, in `latest` |
| `stompy-spool-query` | the heartbeat of the query's claim | the disk |
| `stompy-spool-<number>` | see `receivers.py` | |
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Mapping
from typing import Any

from stompy.deadline import Deadline
from stompy.errors import ConnectTimeoutError, SpoolBusyError, StompError
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source.admission import admitted, split
from stompy.spark.source.offsets import Loss, Offset, Offsets
from stompy.spark.source_options import SpoolOptions, StreamOptions
from stompy.spark.spool.claims import HEARTBEAT_INTERVAL, READER, Claim, ClaimTimeouts
from stompy.spark.spool.files import Files, read_counts
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import Spool, make_spool
from stompy.spark.spool.view import SpoolView
from stompy.threads import DaemonThread
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.spark")

_POLL_INTERVAL = 0.1
"""Seconds between checks of the spool while waiting."""


class StreamEngine:
    """The driver's side of one streaming query.

    Args:
        options: of the query; the spool is opened at the first call.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._claim: _QueryClaim | None = None
        self._opened: Offsets | None = None
        self._receivers: ReceiverPool | None = None
        self._position: Offset | None = None
        self._available_now = False
        self._target: int | None = None
        self._last_batch = time.monotonic()

    # For Spark.

    def initial(self) -> dict[str, Any]:
        """Return the first offset of a query without a checkpoint: that of the oldest message in the spool."""
        opened = self._open()
        self._started()
        return opened.at(opened.view.index.low).json()

    def latest(self, start: Mapping[str, Any] | None, *, unlimited: bool = False) -> dict[str, Any]:
        """Return the end offset of the next micro-batch; the start offset if there are no messages for it.

        Args:
            start: the end offset of the previous one; `None` before Spark 4.2, which does not pass it.
            unlimited: whether the limits in the options do not apply.

        Raises:
            StompError: no messages can arrive; the error says why.
            SpoolMismatchError: the start offset is not one of this spool, or of a newer one of which this is a copy.
            SpoolBusyError, SpoolFencedError: another query reads the spool.
        """
        opened = self._claimed()
        view = opened.view
        if self._available_now:
            self._refresh(view)
        readable = view.refresh()
        begin = self._start(start, opened, readable=readable)
        self._check_receivers()
        if self._available_now:
            readable = self._receive_available(view)
            self._available_now = False
        if not readable:
            return begin.json()
        last = view.next if self._target is None else min(view.next, self._target)
        if not unlimited:
            # What is there must do for a query that ends at its target.
            waited = time.monotonic() - self._last_batch if self._target is None else math.inf
            last = admitted(self.options, view.index, begin.next, last, waited=waited)
        if last <= begin.next:
            return begin.json()
        end = opened.at(last, lost=begin.lost + opened.loss.count(begin.next, last))
        view.note_planned(end.next)
        self._position, self._last_batch = end, time.monotonic()
        return end.json()

    def report(self) -> dict[str, Any] | None:
        """Return the end offset of the spool for the query's progress; the difference to `endOffset` is the backlog.

        It includes the numbers of duplicates that the receivers have dropped, and of possible ones that they kept.
        """
        if self._opened is None:
            return None
        spool, view = self._opened.spool, self._opened.view
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
        opened = self._claimed()
        self._refresh(opened.view)
        begin, until = opened.check(start), opened.check(end)
        pieces = opened.loss.pieces(begin.next, until.next)
        missing = until.next - begin.next - sum(piece.rows for piece in pieces)
        if missing:
            _LOG.warning("%d of the messages %d to %d are lost and skipped", missing, begin.next, until.next - 1)
        self._started()
        opened.view.note_planned(until.next)
        self._position = until
        return split(pieces, max_parts=self.options.num_partitions)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Record that everything before `end` was processed; raises as `plan`."""
        opened = self._claimed()
        done = opened.check(end).next
        opened.view.note_processed(done)
        opened.loss.forget_below(done)

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
    def spool(self) -> Spool:
        """The spool."""
        return self._open().spool

    # Internals.

    def _open(self) -> Offsets:
        """Open the spool at the first call."""
        if self._opened is None:
            options = self.options
            spool = make_spool(Files(options.spool_dir), options.origin)
            if self._claim is None:
                self._claim = _QueryClaim(spool, options)
            view = SpoolView(spool, fail_on_loss=options.fail_on_data_loss)
            self._opened = Offsets(spool, view, Loss(spool, view, fail=options.fail_on_data_loss))
            _LOG.info("spool %s has the messages %d to %d", spool.files.url, view.index.low, view.next - 1)
        return self._opened

    def _claimed(self) -> Offsets:
        """Return the spool, which no other query has taken over."""
        opened = self._open()
        assert self._claim is not None, "the spool is claimed when it is opened"
        self._claim.check()
        return opened

    def _started(self) -> ReceiverPool | None:
        """Start the receivers at the first call; return `None` if another process fills the spool."""
        if self._receivers is None and self.options.receivers:
            opened = self._open()
            self._receivers = ReceiverPool(self.options, opened.spool)
            opened.view.refresh()
        return self._receivers

    def _check_receivers(self) -> None:
        """Start the receivers at the first call.

        Raises:
            StompError: no messages can arrive.
        """
        receivers = self._started()
        patience = self.options.broker_timeout
        if receivers is not None:
            receivers.check()
        elif self._open().view.silent_for() > patience:
            raise ConnectTimeoutError(
                f"no process has filled the spool for more than {patience:g} s (option brokerTimeout). With "
                "receivers=0, `stompy spool` must fill it while the query runs, except with Trigger.AvailableNow"
            )

    def _refresh(self, view: SpoolView) -> None:
        """Refresh the view; wait for an owner that is about to begin.

        Raises:
            SpoolBusyError: the owner did not begin in time.
        """
        deadline = Deadline(self.options.lock_timeout)
        while not view.refresh():
            # An owner that has died is replaced by ours, before anything can be compared.
            self._check_receivers()
            if deadline.expired:
                path = self.spool.files.url
                raise SpoolBusyError("a process has claimed it and does not start to fill it", path=path)
            time.sleep(_POLL_INTERVAL)

    def _receive_available(self, view: SpoolView) -> bool:
        """Receive until the queue counts as empty; return whether there is something to read."""
        options, receivers = self.options, self._started()
        before = view.next

        def left(receivers: ReceiverPool) -> float:
            view.refresh()
            quiet = options.idle_timeout - receivers.quiet_for()
            rest = options.available_now_timeout - receivers.subscribed_for()
            return min(quiet, rest if rest > 0 or view.next > before else _POLL_INTERVAL)

        if receivers is not None:
            receivers.watch(lambda: left(receivers))
            receivers.check()
        readable = view.refresh()
        self._target = view.next
        return readable

    def _start(self, stored: Mapping[str, Any] | None, opened: Offsets, *, readable: bool) -> Offset:
        if stored is None:
            # May be somewhat behind, but Spark continues from its own checkpoint in any case.
            return self._position or opened.at(max(opened.view.planned, opened.view.index.low))
        return opened.check(stored) if readable else Offset.from_json(stored, path=opened.spool.files.url)


class _QueryClaim(DaemonThread):
    """The claim of a query, and the thread that shows that it is alive, as Spark does not call for hours in a batch."""

    def __init__(self, spool: Spool, options: SpoolOptions) -> None:
        super().__init__("stompy-spool-query")
        patience = ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after)
        self._closing = threading.Event()
        self._claim = Claim(spool.files, patience=patience, role=READER)
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
