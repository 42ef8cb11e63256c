"""Receipts: what the broker was asked to confirm.

| who | does | lock |
|---|---|---|
| senders | `Receipts.register` before the bytes leave | receipts (leaf) |
| reader | `confirm`, `reject`, `fail_all` | receipts (leaf) |
| anybody | `Receipt.wait` | waits on an event, with no lock |

A receipt belongs to one link and ends with it at the latest. One that has a keeper outlives its links: its frame is
sent again on the next one, which adopts the receipt under the same id. The keeper is called without a lock.

Source: STOMP 1.2, Header receipt, RECEIPT. Receipts are matched by id and never by order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, Protocol

from stompy.deadline import Deadline, check_seconds
from stompy.errors import LimitExceeded, ReceiptTimeout, StompError
from stompy.locks import Event, Rank, make_lock

if TYPE_CHECKING:
    from stompy.link.link import Link

MAX_RECEIPTS = 100_000
"""Receipts under way on one link: a broker that never confirms must not fill the memory."""

Outcome = Literal["pending", "confirmed", "rejected", "unknown"]


class ResendStore(Protocol):
    """Sends frames again whose link died before it confirmed them; called without a lock, and takes none but leaves."""

    def admitted(self, receipt: Receipt) -> None:
        """Hear that a link is about to send the receipt's frame."""
        ...

    def keeps(self, receipt: Receipt) -> bool:
        """Return whether the receipt stays open although its link is over, as another link will send its frame."""
        ...

    def settled(self, receipt: Receipt) -> None:
        """Hear, once, that the outcome is there."""
        ...


class Receipt:
    """The broker's confirmation of one frame, to be waited for now, later or never.

    Made by `send(..., receipt=True)` and the like. Safe to use from any thread.
    """

    __slots__ = (
        "_before_wait",
        "_callbacks",
        "_error",
        "_event",
        "_keeper",
        "_link",
        "_lock",
        "_outcome",
        "id",
    )

    def __init__(
        self,
        receipt_id: str,
        link: Link,
        lock: AbstractContextManager[object],
        keeper: ResendStore | None = None,
    ) -> None:
        self.id = receipt_id
        self._link = link
        self._lock = lock
        self._keeper = keeper
        self._before_wait: Callable[[], object] | None = None
        """Called by `wait` first, where the frame has not left yet."""
        self._outcome: Outcome = "pending"
        self._error: StompError | None = None
        # Most receipts are pipelined and never waited for one by one, so events are made for those that are.
        self._event: Event | None = None
        self._callbacks: list[Callable[[Receipt], None]] | None = None

    @property
    def _line(self) -> bytes:
        """The header line that asks for it; for stompy's own use."""
        return b"receipt:%b\n" % self.id.encode("ascii")

    @property
    def outcome(self) -> Outcome:
        """`"pending"`, `"confirmed"`, `"rejected"` (an ERROR named it) or `"unknown"` (the link died first)."""
        return self._outcome

    @property
    def done(self) -> bool:
        """Whether the outcome is known or can never be."""
        return self._outcome != "pending"

    @property
    def error(self) -> StompError | None:
        """Why it was not confirmed, or `None`."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Return when the broker has confirmed the frame.

        Works in a listener too, since the reader resolves it and keeps reading meanwhile. A frame that waits in a batch
        of this thread is written out first.

        Args:
            timeout: seconds; `None` takes the connection's receipt timeout, `0` only looks.

        Raises:
            ReceiptTimeout: no answer came in time; it may still come.
            BrokerError: the broker answered with an ERROR that names this receipt.
            ConnectionLost: the link died first; whether the broker took the frame is unknown.
        """
        if timeout is not None:
            check_seconds(timeout)
        if self._outcome == "pending":
            before_wait = self._before_wait
            if before_wait is not None:
                before_wait()
            self._wait(self._link.receipt_timeout if timeout is None else timeout)
        if self._error is not None:
            raise self._error.with_traceback(None)

    def _wait(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        while True:
            with self._lock:
                if self.done:
                    return
                if self._event is None:
                    self._event = Event()
                event, gate = self._event, self._link.flow
            holder = object()
            try:
                gate.hold(holder)
                arrived = event.wait(deadline.remaining())
            finally:
                gate.holders.discard(holder)
            if self._outcome != "pending":
                return
            if not arrived:
                hint = "; the inbox is full up to its hard limit, so it may lie unread" if gate.shut else ""
                raise ReceiptTimeout(f"no receipt {self.id!r} within {seconds:g} s{hint}", receipt_id=self.id)
            # Another link has adopted it, whose gate is the one to hold now.

    def add_done_callback(self, callback: Callable[[Receipt], None]) -> None:
        """Call `callback(receipt)` on the dispatcher thread when the outcome is there; soon, if it is already."""
        with self._lock:
            if not self.done:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        self._link.owner.call_soon(lambda: callback(self))

    @property
    def _kept(self) -> bool:
        """Whether the frame is sent again where its link dies before the confirmation."""
        return self._keeper is not None

    def _move(self, link: Link) -> None:
        """Belong to another link; who waits goes on waiting there. Called without the lock."""
        with self._lock:
            self._link = link
            event, self._event = self._event, None
        if event is not None:
            event.set()

    def _settle(self, outcome: Outcome, error: StompError | None) -> None:
        """Set the outcome, once; called without the lock, by who knows it: the link, the keeper, a batch."""
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
        if self._keeper is not None:
            self._keeper.settled(self)

    def __repr__(self) -> str:
        return f"<Receipt {self.id!r} {self._outcome}>"


class Receipts:
    """The receipts of one link that are under way.

    Args:
        prefix: what the ids begin with; a link's own, so that an answer can never meet another link's receipt.
        link: whose receipts they are.
        limit: how many may be under way.
    """

    def __init__(self, prefix: str, link: Link, *, limit: int = MAX_RECEIPTS) -> None:
        self._prefix = prefix
        self._limit = limit
        self._link = link
        self._lock = make_lock(Rank.LEAF, "receipts")
        self._pending: dict[str, Receipt] = {}
        self._numbers = itertools.count(1)
        self._over = False

    def __len__(self) -> int:
        return len(self._pending)

    def make(self) -> Receipt:
        """Return a receipt that waits for nothing yet."""
        return Receipt(f"{self._prefix}{next(self._numbers)}", self._link, self._lock)

    def register(self, receipt: Receipt, *, always: bool = False) -> None:
        """Note a receipt that waits for its answer from now on, before its frame leaves.

        One that has a keeper moves here from the link before, if there was one. It is not measured by the limit: what
        is sent again was let in before, and its own bounds hold it.

        Args:
            receipt: that of the frame.
            always: take it where there is no room, as the last one.

        Raises:
            LimitExceeded: too many are under way.
            StompError: the link is over, with the reason; nothing has changed.
        """
        keeper = receipt._keeper
        with self._lock:
            if self._over:
                self._link.check_open()
            if len(self._pending) >= self._limit and keeper is None and not always:
                raise LimitExceeded("too many receipts are under way", limit_name="max_receipts", limit=self._limit)
            self._pending[receipt.id] = receipt
        if keeper is not None:
            # Should the link end right here, `fail_all` asks the keeper before the next link is thought of.
            keeper.admitted(receipt)
            receipt._move(self._link)

    def forget(self, receipt: Receipt) -> None:
        """Drop a receipt whose frame never left."""
        self._pending.pop(receipt.id, None)

    def confirm(self, receipt_id: str) -> bool:
        """Resolve the receipt; an id that nobody waits for (late, doubled, unknown) is passed over with `False`."""
        receipt = self._pending.pop(receipt_id, None)
        if receipt is None:
            return False
        receipt._settle("confirmed", None)
        return True

    def reject(self, receipt_id: str, error: StompError) -> None:
        """Resolve the receipt that an ERROR named."""
        receipt = self._pending.pop(receipt_id, None)
        if receipt is not None:
            receipt._settle("rejected", error)

    def fail_all(self, error: StompError) -> None:
        """Resolve all others as unknown, but for those that are kept, and refuse new ones: the link is over."""
        with self._lock:
            self._over = True
            left = list(self._pending.copy().values())
            self._pending.clear()
        for receipt in left:
            if receipt._keeper is None or not receipt._keeper.keeps(receipt):
                receipt._settle("unknown", error)

    def outstanding(self) -> list[Receipt]:
        """Return the receipts that still wait."""
        with self._lock:
            return list(self._pending.copy().values())
