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
from collections.abc import Container, Mapping
from typing import Any

from stompy.deadline import Deadline
from stompy.errors import ConnectTimeoutError, SpoolError, SpoolMismatchError, StompError
from stompy.forks import Owner
from stompy.spark.option_tables import StreamOptions
from stompy.spark.options import EARLIEST
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source.admission import admitted, split
from stompy.spark.source.offsets import Offset, Offsets, Vector, dump_vector, load_vector
from stompy.spark.spool.claims import HEARTBEAT_INTERVAL, READER, Claim, ClaimTimeouts
from stompy.spark.spool.files import IDENTITY, Files, read_counts
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import Spool, make_spool
from stompy.spark.spool.view import SpoolView
from stompy.threads import DaemonThread
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.spark")

_POLL_INTERVAL = 0.1
"""Seconds between two looks at the receivers of AvailableNow, at most."""
AVAILABLE_BYTES = 256 << 20
"""About how much a micro-batch of AvailableNow receives if the query has no limit."""


class StreamEngine:
    """The driver's side of one streaming query.

    Args:
        options: of the query; the spool is opened at the first call.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self._opened: dict[str, Offsets] = {}
        """Replaced, never changed, as the thread below reads it."""
        self._closing = threading.Event()
        self._heart = DaemonThread("stompy-spool-query", self._beat)
        self._owner = Owner("spool query")
        self._receivers: ReceiverPool | None = None
        self._first: Vector | None = None
        self._position: Vector | None = None
        self._available_now = False
        self._targets: dict[str, int] | None = None
        self._last_batch = time.monotonic()
        self._told: set[str] = set()
        self._retired: set[str] = set()

    # For Spark.

    def initial(self) -> dict[str, Any]:
        """Return the first offset of a query without a checkpoint, after `latest` too, when Spark asks again.

        Raises:
            SpoolMismatchError: startingOffsets names a folder that is not in spoolDir.
            ConfigurationError: it names a message that is not there.
        """
        opened = self._open()
        if self._first is None:
            self._first = self._position = self._beginning(opened)
        self._started()
        return dump_vector(self._first)

    def latest(self, start: Mapping[str, Any] | None, *, unlimited: bool = False) -> dict[str, Any]:
        """Return the end offset of the next micro-batch; the start offset if there are no messages for it.

        Args:
            start: the end offset of the previous one; `None` before Spark 4.2, which does not pass it.
            unlimited: whether the limits in the options do not apply.

        Raises:
            StompError: no messages can arrive; the error says why.
            SpoolMismatchError: the start offset is not one of these spools, or of a newer one of which one is a copy.
            SpoolBusyError, SpoolFencedError: another query reads a spool.
        """
        opened = self._claimed(look=True)
        if self._available_now:
            self._refresh(opened)
        readable = {key for key, each in opened.items() if each.view.refresh()}
        begin = self._start(start, opened, readable)
        opened = self._opened  # without those that were read
        if self._targets is None:
            self._check_receivers()
        if self._available_now and self._targets is None:
            ended = self._receive_available(opened, begin, unlimited=unlimited)
            readable = {key for key, each in opened.items() if each.view.refresh()}
            if ended:
                self._targets = {key: each.view.next for key, each in opened.items()}
        ends = {}
        for key in (key for key in begin if key in readable):
            last = opened[key].view.next
            if self._targets is not None:
                last = min(last, self._targets.get(key, 0))
            ends[key] = max(begin[key].next, last)
        if not unlimited:
            # What is there must do for a query that ends.
            waited = math.inf if self._available_now else time.monotonic() - self._last_batch
            ranges = [(opened[key].view.index, begin[key].next, end) for key, end in ends.items()]
            ends = dict(zip(ends, admitted(self.options, ranges, waited=waited), strict=True))
        end = dict(begin)
        for key, last in ends.items():
            each, first = opened[key], begin[key]
            if last > first.next:
                end[key] = each.at(last, lost=first.lost + each.loss.count(first.next, last))
                each.view.note_planned(last)
            elif each.is_retired and first.next == each.view.next:
                del end[key]
        if all(end[key] == begin[key] for key in end):
            return dump_vector(begin) if start is None else dict(start)
        self._position, self._last_batch = end, time.monotonic()
        return dump_vector(end)

    def report(self) -> dict[str, Any] | None:
        """Return the end offset of the spools for the query's progress; the difference to `endOffset` is the backlog.

        It includes the numbers of duplicates that the receivers have dropped, and of possible ones that they kept.
        """
        if not self._opened:
            return None
        counts = [count for each in self._opened.values() for count in read_counts(each.spool.files)]
        dropped, flagged = (sum(getattr(one, name) for one in counts) for name in ("dropped", "flagged"))
        ends = dump_vector({key: Offset(each.view.next) for key, each in self._opened.items()})
        return {**ends, "dropped": dropped, "flagged": flagged}

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[list[Piece]]:
        """Return the pieces that each task of a micro-batch reads.

        Raises:
            SpoolMismatchError: the checkpoint belongs to other spools, or to newer ones of which one is a copy.
            SpoolDataLossError: messages are missing (option failOnDataLoss).
            SpoolBusyError, SpoolFencedError: another query reads a spool.
        """
        opened = self._claimed()
        self._refresh(opened)
        begins, ends = self._checked(start, opened), self._checked(end, opened)
        pieces: list[Piece] = []
        for key, until in ends.items():
            each = opened[key]
            begin = begins[key].next if key in begins else each.view.index.low
            found = each.loss.pieces(begin, until.next)
            missing = until.next - begin - sum(piece.rows for piece in found)
            if missing:
                _LOG.warning("%d of the messages %d to %d are lost and skipped", missing, begin, until.next - 1)
            pieces += found
        self._started()
        for key, until in ends.items():
            opened[key].view.note_planned(until.next)
        self._position = ends
        return split(pieces, max_parts=self.options.num_partitions)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Record that everything before `end` was processed; raises as `plan`."""
        opened = self._claimed()
        self._refresh(opened)  # a query that was restarted has not seen a spool whose owner was about to begin
        for key, done in self._checked(end, opened).items():
            opened[key].view.note_processed(done.next)
            opened[key].loss.forget_below(done.next)

    def prepare_available_now(self) -> None:
        """Make each `latest` receive for one micro-batch, and the query end when the queue counts as empty.

        The queue counts as empty when no message has arrived for `idleTimeout`, in a session. `availableNowTimeout`
        limits how long messages are received, but only once there is a message, as a run without one would imply that
        the queue was empty. All other messages stay in the broker.
        """
        # Only `latest` knows whether the spool is the checkpoint's, and what is received before cannot be given back.
        self._available_now, self._targets = True, None

    def stop(self) -> None:
        """End the receivers. Idempotent."""
        if self._receivers is not None:
            self._receivers.stop()
        if self._owner.forked:
            return
        self._closing.set()
        self._heart.join_until(Deadline(HEARTBEAT_INTERVAL))
        for each in self._opened.values():
            each.claim.release()

    @property
    def urls(self) -> dict[str, str]:
        """The folders of the spools, by identity."""
        return {key: each.spool.files.url for key, each in self._open().items()}

    # Internals.

    def _open(self, *, look: bool = False) -> dict[str, Offsets]:
        """Return the spools, by identity: opened at the first call, and those that were added or moved since.

        Args:
            look: whether to look for others.
        """
        options = self.options
        if self._opened and not (look and options.has_peers):
            return self._opened
        known = {each.spool.files.url for each in self._opened.values()} | self._retired
        for folder in options.folders():
            if folder not in known:
                self._open_one(make_spool(Files(folder), options.origin, shared=options.has_peers))
        if not self._opened:
            raise SpoolError("no folder with a spool matches it", path=",".join(options.spool_dir))
        return self._opened

    def _open_one(self, spool: Spool) -> None:
        options, url = self.options, spool.files.url
        for key, other in self._opened.items():
            there = other.spool.files
            if key != spool.identity and other.spool.first == spool.first:
                raise SpoolMismatchError(
                    f"its messages have the same sequence numbers as those of {there.url}, as it was made alone. Make "
                    "it anew, in an empty folder, with a spoolDir that names several",
                    path=url,
                )
            if key == spool.identity and there.state(IDENTITY) is not None:
                raise SpoolMismatchError(f"it is a copy of {there.url}: name one of them in spoolDir", path=url)
        before = self._opened.get(spool.identity)
        if before is not None:
            before.claim.release()
        patience = ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after)
        claim = Claim(spool.files, patience=patience, role=READER)
        try:
            claim.begin(0)
            view = SpoolView(spool, fail_on_loss=options.fail_on_data_loss)
        except BaseException:
            claim.release()
            raise
        self._opened = {**self._opened, spool.identity: Offsets(claim, view)}
        if not self._heart.started:
            self._heart.start()
        word = "was opened" if before is None else "was moved here"
        _LOG.info("spool %s %s: messages %d to %d", url, word, view.index.low, view.next - 1)

    def _beat(self) -> None:
        """Show that the query is alive until it is stopped, as Spark does not call during a batch."""
        while not self._closing.wait(HEARTBEAT_INTERVAL / 2):
            for each in self._opened.values():
                with contextlib.suppress(StompError):  # Spark's thread has it too, and raises it
                    each.claim.heartbeat()

    def _claimed(self, *, look: bool = False) -> dict[str, Offsets]:
        """Return the spools, which no other query has taken over."""
        opened = self._open(look=look)
        for each in opened.values():
            if self.options.has_peers and each.spool.files.state(IDENTITY) is None:
                raise SpoolError(
                    "the spool is gone, and in no other folder of spoolDir. If it was moved, name its new folder; to "
                    "retire one, see `retired` in the documentation",
                    path=each.spool.files.url,
                )
            each.claim.check()
        return opened

    def _checked(
        self, stored: Mapping[str, Any], opened: Mapping[str, Offsets], readable: Container[str] | None = None
    ) -> Vector:
        """Return an offset of the checkpoint without missing spools; the readable spools, or all, are checked."""
        vector = load_vector(stored)
        for key in vector.keys() - opened.keys():
            reason = SpoolMismatchError(
                f"the checkpoint was made with spool {key}, which is not among those of spoolDir "
                f"({', '.join(sorted(opened))}). Use the original spoolDir; or, if it is lost, start with a new "
                "checkpoint: it then begins with the oldest message in these. To retire a spool, leave it in spoolDir "
                "with a file `retired` in it until the log says that it was read",
                path=",".join(self.options.spool_dir),
            )
            if self.options.fail_on_data_loss or vector.keys().isdisjoint(opened):
                raise reason
            if key not in self._told:
                self._told.add(key)
                _LOG.warning("%s", reason)
        return {
            key: opened[key].check(one) if readable is None or key in readable else one
            for key, one in vector.items()
            if key in opened
        }

    def _beginning(self, opened: Mapping[str, Offsets]) -> Vector:
        """Return where a query without a checkpoint begins."""
        places, since = self.options.starting_offsets, self.options.starting_timestamp
        by_url = {Files(name).url: place for name, place in places.items() if name}
        if unknown := by_url.keys() - {each.spool.files.url for each in opened.values()}:
            raise SpoolMismatchError("startingOffsets names it, and it is no spool of spoolDir", path=min(unknown))
        others = places.get("", EARLIEST)
        if by_url or since is not None or others != EARLIEST:
            self._refresh(opened)
        return {
            key: each.at(each.starting(by_url.get(each.spool.files.url, others), since)) for key, each in opened.items()
        }

    def _started(self) -> ReceiverPool | None:
        """Start the receivers at the first call; return `None` if another process fills the spool."""
        if self._receivers is None and self.options.receivers:
            # The first one that is named.
            first = next(iter(self._open().values()))
            self._receivers = ReceiverPool(self.options, first.spool, until=0 if self._available_now else None)
            first.view.refresh()
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
        elif min(each.view.silent_for() for each in self._open().values()) > patience:
            raise ConnectTimeoutError(
                f"no process has filled the spool for more than {patience:g} s (option brokerTimeout). With "
                "receivers=0, `stompy spool fill` must fill it while the query runs, except with Trigger.AvailableNow"
            )

    def _refresh(self, opened: Mapping[str, Offsets]) -> None:
        """Refresh the views; raises as `SpoolView.await_refresh`."""
        for each in opened.values():
            # An owner that has died is replaced by ours, before anything can be compared.
            each.view.await_refresh(self.options.lock_timeout, self._check_receivers)

    def _receive_available(self, opened: Mapping[str, Offsets], begin: Vector, *, unlimited: bool) -> bool:
        """Receive for the next micro-batch; return whether the queue counts as empty, or the time is over."""
        options, receivers = self.options, self._started()
        if receivers is None:
            return True
        key, first = next(iter(opened.items()))
        start, writer, quota = begin[key].next, receivers.writer, receivers.quota
        rows = size = None
        if not unlimited:
            rows = options.max_offsets_per_trigger
            size = options.max_bytes_per_trigger or (AVAILABLE_BYTES if rows is None else None)
        if size is not None:
            size -= sum(piece.size for piece in first.view.index.pieces(start, writer.next, fail=False))
        quota.allow(None if rows is None else start + rows, size)
        begun = time.monotonic()
        ended = False

        def left() -> float:
            nonlocal ended
            # A receiver that had to wait was quiet, too.
            quiet = options.idle_timeout - min(receivers.quiet_for(), time.monotonic() - begun)
            rest = options.available_now_timeout - receivers.subscribed_for()
            ended = quiet <= 0 or (rest <= 0 and any(one.messages for one in writer.counts()))
            if ended or (writer.next > start and quota.is_used_up and quota.is_stored and not unlimited):
                return 0.0
            return min(quiet, _POLL_INTERVAL)

        receivers.watch(left)
        if ended:
            quota.allow(0, 0)
            receivers.close_receivers()
        return ended

    def _start(self, stored: Mapping[str, Any] | None, opened: Mapping[str, Offsets], readable: set[str]) -> Vector:
        """Return where the next micro-batch begins, also in spools that were added since the last one."""
        if stored is None and self._position is not None:
            vector = dict(self._position)
        elif stored is None:
            # May be somewhat behind, but Spark continues from its own checkpoint in any case.
            vector = {key: each.at(max(each.view.planned, each.view.index.low)) for key, each in opened.items()}
        else:
            vector = self._checked(stored, opened, readable)
        for key in [key for key in opened if key not in vector]:
            each = opened[key]
            if each.is_retired and each.view.index.low >= each.view.next:
                self._opened = {name: one for name, one in self._opened.items() if name != key}
                self._retired.add(each.spool.files.url)
                each.claim.release()
                _LOG.info("spool %s was read and may be removed", each.spool.files.url)
            else:
                vector[key] = each.at(each.view.index.low)
        return vector
