"""The forwarder thread: sends the stored messages, and retries without a limit.

| thread | owns | may block on | never |
|---|---|---|---|
| `…-forwarder` | the connection, what is in flight | dial, `sendall`, its event, the store | holds a lock there |

It opens a connection when there is something to send, sends in order with receipts, up to a limit of messages in
flight, and deletes confirmed messages from disk. When the connection ends, all unconfirmed messages are resent on the
next one, in order and with the same dedupe ids. The delay between connections grows while nothing is confirmed; closing
interrupts it.

After an ERROR has ended a connection, the messages that were in flight are sent one at a time until all are settled: an
ERROR without `receipt-id` can then only be about one message, and no message overtakes a rejected one. The same is done
after a connection was lost without an ERROR before anything was confirmed; see `_SilentLosses`.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass

from stompy.connection.connection import Connection
from stompy.connection.listeners import ConnectionListener
from stompy.deadline import Deadline
from stompy.errors import ConnectionLost, OutboxDamaged, OutboxError, StompError
from stompy.outbox.delivery import Delivery, RefusedRow, Verdict
from stompy.outbox.record import Row
from stompy.outbox.store import Store
from stompy.printable import printable
from stompy.threads import DaemonThread

_LOG = logging.getLogger("stompy.outbox")

_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes read from disk at once; a single message may have more."""

_DISCONNECT_TIMEOUT = 1.0
"""Seconds for disconnecting after an error."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How messages are sent; durations in seconds.

    Attributes:
        connect: opens a connection with the given listener.
        batch: limit of messages in flight.
        max_tries: number of rejections after which a message becomes a dead letter; `None` for no limit.
        retry_delay: upper bounds of the random delay before a new connection: the first one, and the largest.
        receipt_timeout: time without a confirmation after which the connection is closed.
    """

    connect: Callable[[ConnectionListener], Connection]
    batch: int
    max_tries: int | None
    retry_delay: tuple[float, float]
    receipt_timeout: float


class _Ended(ConnectionListener):
    """Wakes the forwarder when its connection is lost while nothing is in flight."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_disconnected(self, reason: StompError | None) -> None:
        """Wake the forwarder."""
        self._wake.set()


class _SilentLosses:
    """Counts connections that are lost without an ERROR, as some brokers do after a frame that is too large.

    The cause may also be the network or the broker, so a message only becomes a dead letter after twice as many losses
    as ERRORs would be needed, in a row, each while it was in flight alone, with nothing confirmed and the broker
    reachable in between. If the next message has the same problem, the broker is the likelier cause: each message needs
    twice as many losses as the one before, until something is confirmed.

    Args:
        max_tries: the number of ERRORs after which a message becomes a dead letter; `None` for never.
    """

    def __init__(self, max_tries: int | None) -> None:
        self._first = None if max_tries is None else 2 * max_tries
        self._most = self._first
        self._losses = 0

    def confirmed(self) -> None:
        """Record that the broker confirmed a message."""
        self._losses, self._most = 0, self._first

    def unreachable(self) -> None:
        """Record that no connection could be opened."""
        self._losses = 0

    def judge(self, alone: list[RefusedRow]) -> list[RefusedRow]:
        """Count a loss, and return the message that was in flight alone if it now becomes a dead letter."""
        self._losses = self._losses + 1 if alone else 0
        if not alone or self._most is None or self._losses < self._most:
            return []
        error_message = (
            f"the connection was lost without a reason {self._losses} times in a row, each time while only this "
        )
        self._most, self._losses = 2 * self._most, 0
        return [
            RefusedRow(refusal.row, f"{error_message}message was in flight: {refusal.error_message}", permanent=True)
            for refusal in alone
        ]


class Forwarder(DaemonThread):
    """Sends the messages of a store.

    Args:
        store: the messages; read and written by this thread.
        forwarding: how to send.
        name: prefix of the thread's name.
    """

    def __init__(self, store: Store, forwarding: Forwarding, *, name: str) -> None:
        super().__init__(f"{name}-forwarder")
        self._store = store
        self._how = forwarding
        self._closing = threading.Event()
        self._closing_by = Deadline(None)
        self._wake = threading.Event()
        self._connection: Connection | None = None
        self._delivery: Delivery | None = None
        self._confirmed: list[Row] = []
        self._alone_up_to = 0
        self._silent_losses = _SilentLosses(forwarding.max_tries)
        self._abandoned = False
        self.sent = 0
        """Number of messages confirmed."""
        self.last_error: StompError | None = None
        """The last error, until something is confirmed."""

    # For other threads.

    def wake(self) -> None:
        """Check for stored messages and receipts again."""
        self._wake.set()

    @property
    def connected(self) -> bool:
        """Whether a session is open now."""
        connection = self._connection
        return connection is not None and connection.connected

    @property
    def in_flight(self) -> int:
        """Number of messages that were sent and are not known to be confirmed."""
        delivery = self._delivery
        return 0 if delivery is None else len(delivery)

    def stop(self, deadline: Deadline) -> None:
        """Send nothing more, and disconnect before the deadline; does not wait."""
        self._closing_by = deadline
        self._closing.set()
        self._wake.set()

    def cut(self) -> None:
        """End the connection from another thread, as the forwarder may be blocked in it."""
        connection = self._connection
        if connection is not None:
            connection.disconnect(timeout=0)

    def abandon(self) -> None:
        """Stop without waiting; the thread closes the store."""
        self._abandoned = True
        self.stop(Deadline(_DISCONNECT_TIMEOUT))
        if self.ended:
            self._store.writer.stop()

    # On its own thread.

    def run(self) -> None:
        """Forward until stopped, or until the file turns out to be corrupt."""
        try:
            while self._await_work():
                self._forward_until_progress()
        except OutboxError as error:
            if not self._closing.is_set():
                _LOG.error("sending has stopped: %s", error)
            self._note(error)
        finally:
            if self._abandoned:
                self._store.writer.stop()

    def _await_work(self) -> bool:
        """Wait until there is a message to send; return `False` when closing."""
        while not self._closing.is_set():
            self._wake.clear()
            if self._store.ledger.waiting:
                return not self._closing.is_set()
            self._wake.wait()  # set by a put and by closing
        return False

    def _forward_until_progress(self) -> None:
        """Open connections, with growing delays between them, until one has made progress."""
        # Imported late, as it is slow to import.
        import tenacity

        first, longest = self._how.retry_delay
        tenacity.Retrying(
            retry=tenacity.retry_if_result(operator.not_),
            stop=tenacity.stop_when_event_set(self._closing),
            wait=tenacity.wait_random_exponential(multiplier=first, max=longest),
            sleep=tenacity.sleep_using_event(self._closing),
            retry_error_callback=lambda state: False,
        )(self._session)

    def _session(self) -> bool:
        """Use one connection until it ends; return whether anything was confirmed or dead-lettered.

        Raises:
            OutboxDamaged: the file is corrupt.
        """
        before = self.sent
        dead = 0
        try:
            self._remove_confirmed()
            self._connection = connection = self._how.connect(_Ended(self._wake))
        except StompError as error:
            self._note_unless_fatal(error)
            self._silent_losses.unreachable()
            return False
        delivery = Delivery(connection, alone=self._alone_up_to > 0, on_done=self.wake)
        self._delivery = delivery
        lost = False
        try:
            dead += self._send_all(delivery)
        except StompError as error:
            self._note_unless_fatal(error)
            lost = type(error) is ConnectionLost  # not a timeout, after which we close it ourselves
        finally:
            connection.disconnect(timeout=self._disconnect_timeout(connection))
        try:
            dead += self._settle(delivery, lost=lost, sent_before=before)
        except StompError as error:
            self._note_unless_fatal(error)
        finally:
            self._delivery = self._connection = None
        return self.sent > before or dead > 0

    def _disconnect_timeout(self, connection: Connection) -> float:
        """Return the seconds for disconnecting: when closing, longer, so that pending receipts can arrive."""
        remaining = self._closing_by.remaining()
        return _DISCONNECT_TIMEOUT if not self._closing.is_set() or remaining is None else remaining * 0.8

    def _send_all(self, delivery: Delivery) -> int:
        """Send messages and remove confirmed ones until closing; return how many became dead letters.

        Raises:
            StompError: the connection was lost.
        """
        dead = 0
        while not self._closing.is_set():
            self._wake.clear()
            self._confirmed += delivery.take_confirmed()
            batch = self._window(delivery)
            if self._confirmed and (not delivery or 2 * len(self._confirmed) >= batch):
                self._remove_confirmed()
            if len(delivery) < batch and self._has_more(delivery):
                rows = self._store.read(after=delivery.last_seq, limit=batch - len(delivery), max_bytes=_BATCH_BYTES)
                if rows:
                    dead += self._refuse(delivery.send(rows))
                    continue
            left = delivery.check(self._how.receipt_timeout)
            if left is None and not self.connected:
                return dead
            self._wake.wait(left)
        return dead

    def _window(self, delivery: Delivery) -> int:
        """Return how many messages may be in flight."""
        if self._alone_up_to and delivery.last_seq >= self._alone_up_to and not delivery:
            self._alone_up_to = 0
            delivery.allow_several()
        return 1 if self._alone_up_to else self._how.batch

    def _has_more(self, delivery: Delivery) -> bool:
        """Return whether there are stored messages that are neither in flight nor confirmed."""
        return self._store.ledger.waiting > len(delivery) + len(self._confirmed)

    def _remove_confirmed(self) -> None:
        """Delete confirmed messages from disk; after an error they stay in memory, and are not sent again."""
        if not self._confirmed:
            return
        # Counted first: a caller of `drain` may read the numbers as soon as the transaction is committed.
        before, self.last_error = self.last_error, None
        self.sent += len(self._confirmed)
        try:
            self._store.remove(self._confirmed)
        except OutboxError:
            self.sent -= len(self._confirmed)
            self.last_error = before
            raise
        self._confirmed = []

    def _settle(self, delivery: Delivery, *, lost: bool, sent_before: int) -> int:
        """Process the outcome of an ended connection; return how many messages became dead letters."""
        confirmed, refusals, verdict = delivery.settle()
        self._confirmed += confirmed
        self._remove_confirmed()
        if self.sent > sent_before:
            self._silent_losses.confirmed()
        if verdict is Verdict.LOST:
            if not lost or self.sent > sent_before:
                return 0
            refusals = self._silent_losses.judge(refusals)
        if verdict is not Verdict.NONE:
            self._alone_up_to = max(self._alone_up_to, delivery.last_seq)
        return self._refuse(refusals)

    def _refuse(self, refusals: list[RefusedRow]) -> int:
        """Store rejections on disk; return how many messages became dead letters."""
        dead = 0
        for refusal in refusals:
            row = refusal.row
            most = self._how.max_tries
            final = refusal.permanent or (most is not None and row.tries + 1 >= most)
            self._store.refuse(row, refusal.error_message, final=final)
            if final:
                dead += 1
                error_message = printable(refusal.error_message[:200])
                _LOG.warning(
                    "message %s to %.200r becomes a dead letter: %.500s", row.id, row.destination, error_message
                )
        return dead

    def _note_unless_fatal(self, error: StompError) -> None:
        if isinstance(error, OutboxDamaged) or self._store.writer.failure is not None:
            raise error
        self._note(error)

    def _note(self, error: StompError) -> None:
        self.last_error = error
        if not self._closing.is_set():
            _LOG.info("forwarding stopped for now: %s", error)
