"""Receipts: the broker's confirmations.

| thread | calls | lock |
|---|---|---|
| senders | `Receipts.register`, before the bytes are written | receipts (leaf) |
| reader | `confirm`, `reject`, `fail_all` | receipts (leaf) |
| any caller | `Receipt.result` | waits on an event, without a lock |
| `concurrent.futures` | the state of a `Future`, made at its first use | that of the future |
| any caller, reader | `FailedFrames` | failed frames (leaf) |

A receipt belongs to one link and is resolved when that link ends at the latest. One with a store outlives the link:
its frame is sent again on the next link, under the same id. The store is called without a lock.

Source: STOMP 1.2, Header receipt, RECEIPT. Receipts are matched by id and never by order.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import LimitExceededError, ReceiptTimeoutError, StompError
from stompy.link.settings import MAX_RECEIPTS
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.link.link import Link


class ResendStore(Protocol):
    """Resends frames whose link ended before confirming them; called without a lock, and takes only leaf locks."""

    def registered(self, receipt: Receipt) -> None:
        """Called when a link is about to send the receipt's frame."""

    def will_resend(self, receipt: Receipt) -> bool:
        """Return whether another link will send the frame, so that the receipt stays pending after its link ended."""

    def rejected(self, receipt: Receipt, error: StompError) -> StompError:
        """Return the error for a receipt whose frame the broker rejected: it may have taken an earlier copy."""

    def resolved(self, receipt: Receipt) -> None:
        """Called once when the outcome is known."""


_FUTURE_STATE = frozenset(vars(Future()))
"""The names of what `Future` keeps in an instance, in this release of Python."""


class Receipt(Future[None]):
    """The broker's confirmation of one frame, a future among futures. Thread-safe.

    Returned by `send_async`, `ack_async` and `nack_async`. It may be given to `concurrent.futures.wait`,
    `as_completed` and `asyncio.wrap_future`, which write a frame in this thread's batch first. It cannot be cancelled.

    Attributes:
        id: the `receipt` header of the frame.
    """

    __slots__ = (
        "_account", "_before_wait", "_callbacks", "_deferred", "_error", "_event", "_failed", "_is_future", "_link",
        "_lock", "_resolved", "_store", "id",
    )  # fmt: skip

    def __init__(
        self,
        receipt_id: str,
        link: Link,
        lock: AbstractContextManager[object],
        store: ResendStore | None = None,
    ) -> None:
        # `Future.__init__` does not run: what it makes costs more than all the rest, and most receipts are never waited
        # for but by `result`. `_FutureState` makes it at its first use.
        self.id = receipt_id
        self._link = link
        self._lock = lock
        self._store = store
        self._before_wait: Callable[[float | None], object] | None = None
        """Called before a wait, with its seconds, to write a frame that is still in a batch."""
        self._deferred = False
        """Whether the broker may confirm it after a later COMMIT only, so that nobody else may wait for it now."""
        self._failed: FailedFrames | None = None
        """Counts the frame if it fails; `None` for frames whose caller always waits."""
        self._account: _Account | _Failure | None = None
        """Of the thread that sent the frame; once it failed, what counts it until its error was raised."""
        self._resolved = False
        self._error: StompError | None = None
        self._event: SafeEvent | None = None
        """Made by the first wait."""
        self._callbacks: list[Callable[[Receipt], object]] | None = None
        self._is_future = False
        """Whether the state of a `Future` has been made, or is about to be."""

    def done(self) -> bool:
        """Return whether the broker has confirmed the frame, or it is known that it will not."""
        return self._resolved

    def running(self) -> bool:
        """Return whether the broker may still confirm the frame."""
        return not self._resolved

    def cancel(self) -> bool:
        """Return `False`: a frame that was sent cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """Return `False`."""
        return False

    def result(self, timeout: float | Default | None = DEFAULT) -> None:
        """Wait until the broker has confirmed the frame.

        May be called from listeners and handlers. A frame in this thread's batch is written first.

        Args:
            timeout: seconds; by default the connection's receipt timeout; `0` does not wait.

        Raises:
            ConfigurationError: the timeout is invalid.
            ReceiptTimeoutError: no answer in time; it may still arrive.
            BrokerError: the broker answered with an ERROR that names this receipt.
            ConnectionLostError: the connection was lost first; the broker may or may not have the frame.
        """
        if not self._resolved or timeout is not DEFAULT:
            self._await(timeout)
        if self._error is not None:
            reported(self)
            raise self._error.with_traceback(None)

    def exception(self, timeout: float | Default | None = DEFAULT) -> StompError | None:
        """Wait as `result` does, and return why the frame was not confirmed, or `None`.

        The `outcome` of the error is `"rejected"` if the broker has refused the frame.

        Raises:
            ConfigurationError: the timeout is invalid.
            ReceiptTimeoutError: no answer in time; it may still arrive.
        """
        if not self._resolved or timeout is not DEFAULT:
            self._await(timeout)
        if self._error is not None:
            reported(self)
        return self._error

    def _await(self, timeout: float | Default | None) -> None:
        if timeout is not DEFAULT:
            check_seconds(timeout)
        if self._resolved:
            return
        seconds = given(timeout, self._link.receipt_timeout)
        deadline = Deadline(seconds)
        if self._before_wait is not None:
            self._before_wait(deadline.remaining())
        await_outcome(self, deadline, seconds)

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call `callback(receipt)` on the dispatcher thread when the outcome is known, or soon if it already is."""
        with self._lock:
            if not self._resolved:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        self._call_soon(callback)

    def _call_soon(self, callback: Callable[[Receipt], object]) -> None:
        def call() -> None:
            callback(self)

        self._link.owner.call_soon(call)

    def _become_future(self) -> None:
        """Make the state of a `Future`, for the functions of `concurrent.futures` and `asyncio`, which wait by it."""
        before_wait = self._before_wait
        if before_wait is not None:
            # They cannot bear an error here. One that matters resolves the receipt.
            with contextlib.suppress(StompError):
                before_wait(self._link.receipt_timeout)
        with self._lock:
            self._is_future = True  # first: from here on `resolve` sets the result of the future
            if not vars(self).keys() >= _FUTURE_STATE:
                made: Future[None] = Future()
                if self._resolved:
                    _set(made, self._error)
                vars(self).update(vars(made))  # one call into C: no thread, and no signal handler, sees a half of it
            link = self._link
        self._hold(link)

    def _hold(self, link: Link) -> None:
        """Keep reading enabled for the threads that wait for the future, until it is resolved."""
        if not self._resolved:
            link.flow.hold(self)
            if self.done():  # meanwhile: `resolve`, which sets it first, may have looked too early
                link.flow.holders.discard(self)

    def _move(self, link: Link) -> None:
        """Move to another link, with the threads that wait. Called without the lock."""
        with self._lock:
            self._link = link
            event, self._event = self._event, None
            is_future = self._is_future
        if event is not None:
            event.set()
        if is_future:
            self._hold(link)

    def __repr__(self) -> str:
        state = "pending" if not self._resolved else "confirmed" if self._error is None else type(self._error).__name__
        return f"<Receipt {self.id!r} {state}>"


# For the parts of a connection; functions, so that users do not take them for methods of a receipt.


def receipt_line(receipt: Receipt) -> bytes:
    """Return the header line that requests a receipt."""
    return b"receipt:%b\n" % receipt.id.encode("ascii")


def is_resendable(receipt: Receipt) -> bool:
    """Return whether the frame of a receipt is sent again if its link ends before confirming it."""
    return receipt._store is not None


def write_before_wait(receipt: Receipt, write: Callable[[float | None], object] | None) -> None:
    """Call `write` with the seconds of each wait for a receipt, whose frame is still in a batch; `None` ends this."""
    receipt._before_wait = write


def commit_left(receipts: Iterable[Receipt]) -> None:
    """Let others wait for the receipts of a transaction: its COMMIT has left."""
    for receipt in receipts:
        receipt._deferred = False


def reported(receipt: Receipt) -> None:
    """Record that a call raises the error of the frame, so that `flush` does not raise it again."""
    if receipt._failed is not None:
        receipt._failed.reported(receipt)


def await_outcome(receipt: Receipt, deadline: Deadline, seconds: float | None) -> None:
    """Wait until the outcome is known, without writing this thread's batch first.

    Raises:
        ReceiptTimeoutError: no answer by the deadline, which was `seconds` from the call.
    """
    while True:
        with receipt._lock:
            if receipt._resolved:
                return
            if receipt._event is None:
                receipt._event = SafeEvent()
            event, flow = receipt._event, receipt._link.flow
        holder = object()
        try:
            flow.hold(holder)
            arrived = event.wait(deadline.remaining())
        finally:
            flow.holders.discard(holder)
        if receipt.done():
            return
        if not arrived:
            hint = "; the inbox is at its hard limit, so the receipt may be unread" if flow.paused else ""
            raise ReceiptTimeoutError(f"no receipt {receipt.id!r} within {seconds:g} s{hint}", receipt_id=receipt.id)
        # It moved to another link, whose flow control is the one to hold now.


def resolve(receipt: Receipt, error: StompError | None) -> bool:
    """Set the outcome, once; return whether it was not set. Called without the lock."""
    if error is not None:
        with receipt._lock:
            if receipt._resolved:
                return False
            receipt._error = error
        # Before anybody sees the outcome: a flush that has waited for it must find the failure.
        if receipt._failed is not None:
            receipt._failed.add(receipt, error)
    with receipt._lock:
        if receipt._resolved:
            return False
        receipt._error = error
        receipt._resolved = True
        callbacks, event, is_future = receipt._callbacks, receipt._event, receipt._is_future
        receipt._callbacks = None
    if event is not None:
        event.set()
    if is_future:
        receipt._link.flow.holders.discard(receipt)
        _set(receipt, error)
    for callback in callbacks or ():
        receipt._call_soon(callback)
    if receipt._store is not None:
        receipt._store.resolved(receipt)
    return True


class _FutureState:
    """One value that `Future` keeps, of a receipt that has none yet; an instance's own, once made, goes before this."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, receipt: Receipt, owner: type[Receipt]) -> object:
        receipt._become_future()
        return vars(receipt)[self._name]


for _name in _FUTURE_STATE:
    setattr(Receipt, _name, _FutureState(_name))


def _set(future: Future[None], error: StompError | None) -> None:
    """Set the result of a future, if that was not done when its state was made."""
    with contextlib.suppress(InvalidStateError):
        if error is None:
            Future.set_result(future, None)
        else:
            Future.set_exception(future, error)


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

    `flush` raises their errors, although their link may have been replaced. Unless the receipt did, the next flush
    of the thread that sent the frame does, and so does a flush of another thread that comes before it. Any thread.
    """

    def __init__(self) -> None:
        self._lock = make_lock(Rank.LEAF, "failed frames")
        self._own = _Own()
        self._unseen: list[_Failure] = []
        """Those that no flush has raised yet."""

    def watch(self, receipt: Receipt) -> None:
        """Count a frame of this thread if it fails; called when the call that sent it returns without an error."""
        receipt._account, receipt._failed = self._own.account, self
        if (error := receipt._error) is not None:  # already; `resolve`, which sets it first, may have looked too early
            self.add(receipt, error)

    def add(self, receipt: Receipt, error: StompError) -> None:
        """Count a frame that failed, once, unless a call has raised its error."""
        with self._lock:
            if not isinstance(account := receipt._account, _Account):
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
            return next((each.error for each in (own, *unseen) if each is not None and each.count), None)


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

    def make(self, *, deferred: bool = False) -> Receipt:
        """Return a receipt that is not registered yet; a deferred one is not outstanding before `commit_left`."""
        receipt = Receipt(f"{self._prefix}{next(self._numbers)}", self._link, self._lock)
        receipt._deferred = deferred
        return receipt

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
        """Drop a receipt whose call fails, so that a `flush` beside that call does not wait for it."""
        if self._pending.pop(receipt.id, None) is not None and receipt._store is None:
            resolve(receipt, StompError("the call that asked for this receipt has failed"))

    def confirm(self, receipt_id: str) -> bool:
        """Confirm the receipt; return `False` for an id that is not pending (late, duplicate, unknown)."""
        if (receipt := self._pending.get(receipt_id)) is None:
            return False
        first = resolve(receipt, None)
        self._pending.pop(receipt_id, None)  # last, so that a flush finds each receipt here, or else its outcome
        return first

    def reject(self, receipt_id: str, error: StompError) -> None:
        """Reject the receipt that an ERROR named."""
        if (receipt := self._pending.get(receipt_id)) is not None:
            resolve(receipt, error if receipt._store is None else receipt._store.rejected(receipt, error))
            self._pending.pop(receipt_id, None)

    def fail_all(self, error: StompError) -> None:
        """Resolve all but those to resend as unknown, and accept no more: the link has ended."""
        with self._lock:
            self._closed = True
        for receipt in self._pending.copy().values():
            if receipt._store is None or not receipt._store.will_resend(receipt):
                resolve(receipt, error)
            self._pending.pop(receipt.id, None)

    def outstanding(self) -> list[Receipt]:
        """Return the pending receipts, but for those of transactions whose COMMIT has not left yet."""
        with self._lock:
            return [receipt for receipt in self._pending.copy().values() if not receipt._deferred]
