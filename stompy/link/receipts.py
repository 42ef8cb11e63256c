"""Receipts: the broker's confirmations.

| who | calls | lock |
|---|---|---|
| senders | `Receipts.register`, before the bytes are written | receipts (leaf) |
| reader | `confirm`, `reject`, `fail_all` | receipts (leaf) |
| any caller | `Receipt.wait` | waits on an event, without a lock |
| any caller, reader | `FailedFrames` | failed frames (leaf) |

A receipt belongs to one link and is resolved when that link ends at the latest. One with a store outlives the link:
its frame is sent again on the next link, under the same id. The store is called without a lock.

Source: STOMP 1.2, Header receipt, RECEIPT. Receipts are matched by id and never by order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import LimitExceededError, ReceiptTimeoutError, StompError
from stompy.locks import Event, Rank, make_lock
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.link.link import Link

MAX_RECEIPTS = 100_000
"""Limit of pending receipts on one link, so that a broker that never confirms cannot exhaust memory."""

ReceiptOutcome = Literal["pending", "confirmed", "rejected", "unknown"]


class ResendStore(Protocol):
    """Resends frames whose link ended before confirming them; called without a lock, and takes only leaf locks."""

    def registered(self, receipt: Receipt) -> None:
        """Called when a link is about to send the receipt's frame."""
        ...

    def will_resend(self, receipt: Receipt) -> bool:
        """Return whether another link will send the frame, so that the receipt stays pending after its link ended."""
        ...

    def resolved(self, receipt: Receipt) -> None:
        """Called once when the outcome is known."""
        ...


class Receipt:
    """The broker's confirmation of one frame. Thread-safe.

    Returned by `send(..., receipt=True)`, `ack(receipt=True)` and `nack(receipt=True)`.

    Attributes:
        id: the `receipt` header of the frame.
    """

    __slots__ = (
        "_account",
        "_before_wait",
        "_callbacks",
        "_deferred",
        "_error",
        "_event",
        "_failed",
        "_link",
        "_lock",
        "_outcome",
        "_store",
        "id",
    )

    def __init__(
        self,
        receipt_id: str,
        link: Link,
        lock: AbstractContextManager[object],
        store: ResendStore | None = None,
    ) -> None:
        self.id = receipt_id
        self._link = link
        self._lock = lock
        self._store = store
        self._before_wait: Callable[[float | None], object] | None = None
        """Called first by `wait`, with its seconds, to write a frame that is still in a batch."""
        self._deferred = False
        """Whether the broker may confirm it after a later COMMIT only, so that nobody else may wait for it now."""
        self._failed: FailedFrames | None = None
        """Counts the frame if it fails; `None` for frames whose caller always waits."""
        self._account: _Account | _Failure | None = None
        """Of the thread that sent the frame; once it failed, what counts it until its error was raised."""
        self._outcome: ReceiptOutcome = "pending"
        self._error: StompError | None = None
        # Made by `wait`, as most receipts are never waited for one by one.
        self._event: Event | None = None
        self._callbacks: list[Callable[[Receipt], None]] | None = None

    @property
    def _line(self) -> bytes:
        """The header line that requests it."""
        return b"receipt:%b\n" % self.id.encode("ascii")

    @property
    def outcome(self) -> ReceiptOutcome:
        """`"pending"`, `"confirmed"`, `"rejected"` (by an ERROR) or `"unknown"` (the connection was lost first)."""
        return self._outcome

    @property
    def done(self) -> bool:
        """Whether the outcome is final."""
        return self._outcome != "pending"

    @property
    def error(self) -> StompError | None:
        """Why the frame was not confirmed, or `None`."""
        return self._error

    def wait(self, timeout: float | Default | None = DEFAULT) -> None:
        """Wait until the broker has confirmed the frame.

        May be called from listeners and handlers. A frame in this thread's batch is written first.

        Args:
            timeout: seconds; by default the connection's receipt timeout; `0` does not wait.

        Raises:
            ReceiptTimeoutError: no answer in time; it may still arrive.
            BrokerError: the broker answered with an ERROR that names this receipt.
            ConnectionLostError: the connection was lost first; the broker may or may not have the frame.
        """
        if timeout is not DEFAULT:
            check_seconds(timeout)
        if self._outcome == "pending":
            seconds = given(timeout, self._link.receipt_timeout)
            deadline = Deadline(seconds)
            before_wait = self._before_wait
            if before_wait is not None:
                before_wait(deadline.remaining())
            self._await_outcome(deadline, seconds)
        if self._error is not None:
            self._report()
            raise self._error.with_traceback(None)

    def _await_outcome(self, deadline: Deadline, seconds: float | None) -> None:
        """Wait until the outcome is known.

        Raises:
            ReceiptTimeoutError: no answer by the deadline, which was `seconds` from the call.
        """
        while True:
            with self._lock:
                if self.done:
                    return
                if self._event is None:
                    self._event = Event()
                event, flow = self._event, self._link.flow
            holder = object()
            try:
                flow.hold(holder)
                arrived = event.wait(deadline.remaining())
            finally:
                flow.holders.discard(holder)
            if self._outcome != "pending":
                return
            if not arrived:
                hint = "; the inbox is at its hard limit, so the receipt may be unread" if flow.paused else ""
                raise ReceiptTimeoutError(f"no receipt {self.id!r} within {seconds:g} s{hint}", receipt_id=self.id)
            # It moved to another link, whose flow control is the one to hold now.

    def add_done_callback(self, callback: Callable[[Receipt], None]) -> None:
        """Call `callback(receipt)` on the dispatcher thread when the outcome is known, or soon if it already is."""
        with self._lock:
            if not self.done:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        self._link.owner.call_soon(lambda: callback(self))

    @property
    def _resendable(self) -> bool:
        """Whether the frame is sent again if its link ends before confirming it."""
        return self._store is not None

    def _move(self, link: Link) -> None:
        """Move to another link, and callers of `wait` with it. Called without the lock."""
        with self._lock:
            self._link = link
            event, self._event = self._event, None
        if event is not None:
            event.set()

    def _resolve(self, outcome: ReceiptOutcome, error: StompError | None) -> None:
        """Set the outcome, once. Called without the lock, by the link, the store or a batch."""
        with self._lock:
            if self._outcome != "pending":
                return
            self._error = error
            self._outcome = outcome
            callbacks, event = self._callbacks, self._event
            self._callbacks = None
        if event is not None:
            event.set()
        for callback in callbacks or ():
            self._link.owner.call_soon(lambda callback=callback: callback(self))  # type: ignore[misc]
        account = self._account
        if error is not None and self._failed is not None and isinstance(account, _Account):
            self._failed.add(self, account, error)
        if self._store is not None:
            self._store.resolved(self)

    def _report(self) -> None:
        """Record that a call raises the error of the frame, so that `flush` does not raise it again."""
        if self._failed is not None:
            self._failed.reported(self)

    def __repr__(self) -> str:
        return f"<Receipt {self.id!r} {self._outcome}>"


class _Failure:
    """Frames of one thread that failed since its last flush."""

    __slots__ = ("count", "error")

    def __init__(self, error: StompError) -> None:
        self.error = error
        """Of the first one."""
        self.count = 0
        """Frames whose error no call has raised yet."""


class _Account:
    """The newest failure of one thread."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: _Failure | None = None


class _Own(threading.local):
    def __init__(self) -> None:
        self.account = _Account()


class FailedFrames:
    """Frames with a receipt that failed after the call that sent them had returned, on any link of a connection.

    `flush` raises their errors, although their link may have been replaced. Unless `Receipt.wait` did, the next flush
    of the thread that sent the frame does, and so does a flush of another thread that comes before it. Any thread.
    """

    def __init__(self) -> None:
        self._lock = make_lock(Rank.LEAF, "failed frames")
        self._own = _Own()
        self._unseen: list[_Failure] = []
        """Those that no flush has raised yet."""

    def watch(self, receipt: Receipt) -> None:
        """Count a frame of this thread if it fails; called when the call that sent it returns without an error."""
        account = receipt._account = self._own.account
        receipt._failed = self
        error = receipt._error
        if error is not None:  # already; `_resolve`, which sets it first, may have looked too early
            self.add(receipt, account, error)

    def add(self, receipt: Receipt, account: _Account, error: StompError) -> None:
        """Count a frame that failed, once, unless a call has raised its error."""
        with self._lock:
            if receipt._account is not account:
                return
            failure = account.failure
            if failure is None or not failure.count:
                failure = account.failure = _Failure(error)
                self._unseen.append(failure)
            failure.count += 1
            receipt._account = failure

    def reported(self, receipt: Receipt) -> None:
        """Do not count a frame, as a call raises its error."""
        with self._lock:
            failure, receipt._account = receipt._account, None
            if isinstance(failure, _Failure):
                failure.count -= 1
                if not failure.count and failure in self._unseen:
                    self._unseen.remove(failure)

    def take(self) -> StompError | None:
        """Return the error for a flush of this thread to raise, the first of its own frames' if there is one."""
        account = self._own.account
        with self._lock:
            own, account.failure = account.failure, None
            unseen, self._unseen = self._unseen, []
            failures = [each for each in (own, *unseen) if each is not None and each.count]
            return failures[0].error if failures else None


class Receipts:
    """The pending receipts of one link.

    Args:
        prefix: of the ids; unique per link, so that an answer never matches another link's receipt.
        link: they belong to.
        limit: how many may be pending.
    """

    def __init__(self, prefix: str, link: Link, *, limit: int = MAX_RECEIPTS) -> None:
        self._prefix = prefix
        self._limit = limit
        self._link = link
        self._lock = make_lock(Rank.LEAF, "receipts")
        self._pending: dict[str, Receipt] = {}
        self._numbers = itertools.count(1)
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def make(self) -> Receipt:
        """Return a receipt that is not registered yet."""
        return Receipt(f"{self._prefix}{next(self._numbers)}", self._link, self._lock)

    def register(self, receipt: Receipt, *, always: bool = False) -> None:
        """Register the receipt of a frame before it is written.

        One with a store moves here from its previous link, and does not count towards the limit, as the store has its
        own.

        Args:
            receipt: of the frame.
            always: ignore the limit.

        Raises:
            LimitExceededError: too many receipts are pending.
            StompError: why the link has ended; nothing was registered.
        """
        store = receipt._store
        with self._lock:
            if self._closed:
                self._link.check_open()
            if len(self._pending) >= self._limit and store is None and not always:
                raise LimitExceededError("too many receipts are pending", limit_name="max_receipts", limit=self._limit)
            self._pending[receipt.id] = receipt
        if store is not None:
            # If the link ends right here, `fail_all` asks the store before the next link is opened.
            store.registered(receipt)
            receipt._move(self._link)

    def forget(self, receipt: Receipt) -> None:
        """Drop a receipt whose frame was not written."""
        self._pending.pop(receipt.id, None)

    def confirm(self, receipt_id: str) -> bool:
        """Confirm the receipt; return `False` for an id that is not pending (late, duplicate, unknown)."""
        receipt = self._pending.pop(receipt_id, None)
        if receipt is None:
            return False
        receipt._resolve("confirmed", None)
        return True

    def reject(self, receipt_id: str, error: StompError) -> None:
        """Reject the receipt that an ERROR named."""
        receipt = self._pending.pop(receipt_id, None)
        if receipt is not None:
            receipt._resolve("rejected", error)

    def fail_all(self, error: StompError) -> None:
        """Resolve all but those to resend as unknown, and accept no more: the link has ended."""
        with self._lock:
            self._closed = True
            left = list(self._pending.copy().values())
            self._pending.clear()
        for receipt in left:
            if receipt._store is None or not receipt._store.will_resend(receipt):
                receipt._resolve("unknown", error)

    def outstanding(self) -> list[Receipt]:
        """Return the pending receipts, but for those of transactions whose COMMIT has not left yet."""
        with self._lock:
            return [receipt for receipt in self._pending.copy().values() if not receipt._deferred]
