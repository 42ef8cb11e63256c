"""The forwarder thread: sends what waits on disk, for as long as it takes.

| thread | owns | may block on | never |
|---|---|---|---|
| `…-forwarder` | the connection, what is in flight | dial, `sendall`, its event, the store | holds a lock there |

It opens a connection when there is something to send, sends in order with receipts, a window of them in flight, and
removes from disk what was confirmed. When the connection ends, all that is unconfirmed is sent again on the next one,
in order and with the same dedupe ids. The wait between connections grows while nothing is confirmed; closing ends it.

When an ERROR ends a connection, the messages that were in flight are sent one at a time until they are through: an
ERROR that names no receipt can then only be about one message, and nothing overtakes one that was refused. So they are
when a connection is lost without an ERROR before anything was confirmed; see `_Silence`.
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
from stompy.outbox.delivery import Delivery, Refusal, Verdict
from stompy.outbox.record import Row
from stompy.outbox.store import Store
from stompy.printable import printable
from stompy.threads import DaemonThread

_LOG = logging.getLogger("stompy.outbox")

_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes read from disk at once; a single message may have more."""

_DISCONNECT = 1.0
"""Seconds for leaving a connection that is of no use any more."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How messages are sent; durations in seconds.

    Attributes:
        connect: opens a connection that tells the listener given.
        batch: messages in flight at most.
        max_tries: refusals after which a message becomes a dead letter; `None` for never.
        retry_delay: bounds of the wait before a new connection: the first, and the largest.
        receipt_timeout: after which a silent broker is left.
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
        """Wake it."""
        self._wake.set()


class _Silence:
    """Judges messages by connections that are lost without an ERROR, as brokers do to frames that are too large.

    That may be the network's doing or the broker's own trouble, so much more of it is asked for than of ERRORs: the
    message was in flight alone each time, twice as often as an ERROR would have to come; nothing was confirmed and the
    broker could be connected to all the time. Where the next message fares the same, it is rather the broker: each
    needs twice as many losses as the one before, until something is confirmed.

    Args:
        max_tries: the number of ERRORs after which a message becomes a dead letter; `None` for never.
    """

    def __init__(self, max_tries: int | None) -> None:
        self._first = None if max_tries is None else 2 * max_tries
        self._most = self._first
        self._losses = 0

    def confirmed(self) -> None:
        """Note that the broker takes messages."""
        self._losses, self._most = 0, self._first

    def unreachable(self) -> None:
        """Note that the broker could not be connected to."""
        self._losses = 0

    def judge(self, alone: list[Refusal]) -> list[Refusal]:
        """Count a loss, and return the message that was in flight alone where it now becomes a dead letter."""
        self._losses = self._losses + 1 if alone else 0
        if not alone or self._most is None or self._losses < self._most:
            return []
        error_message = (
            f"the connection was lost without a reason {self._losses} times in a row, each time while only this "
        )
        self._most, self._losses = 2 * self._most, 0
        return [
            Refusal(one.row, f"{error_message}message was in flight: {one.error_message}", hopeless=True)
            for one in alone
        ]


class Forwarder(DaemonThread):
    """Sends what the store holds.

    Args:
        store: read and written from this thread.
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
        self._silence = _Silence(forwarding.max_tries)
        self._abandoned = False
        self.sent = 0
        """Messages confirmed."""
        self.last_error: StompError | None = None
        """What went wrong last, until something is confirmed."""

    # For other threads.

    def wake(self) -> None:
        """Look at the disk anew."""
        self._wake.set()

    @property
    def connected(self) -> bool:
        """Whether there is a session."""
        connection = self._connection
        return connection is not None and connection.connected

    @property
    def in_flight(self) -> int:
        """Messages sent and not known to be confirmed."""
        delivery = self._delivery
        return 0 if delivery is None else len(delivery)

    def stop(self, deadline: Deadline) -> None:
        """Send nothing more, and leave the broker until then."""
        self._closing_by = deadline
        self._closing.set()
        self._wake.set()

    def cut(self) -> None:
        """End the connection under the thread, which may hang in it."""
        connection = self._connection
        if connection is not None:
            connection.disconnect(timeout=0)

    def abandon(self) -> None:
        """Stop with nobody waiting for it; the thread closes the store."""
        self._abandoned = True
        self.stop(Deadline(_DISCONNECT))
        if self.ended:
            self._store.writer.stop()

    # On its own thread.

    def run(self) -> None:
        """Forward until stopped, or until the file is found damaged."""
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
        """Wait until something is to be sent; return `False` when closing."""
        while not self._closing.is_set():
            self._wake.clear()
            if self._store.ledger.waiting:
                return not self._closing.is_set()
            self._wake.wait()  # woken by a put and by closing
        return False

    def _forward_until_progress(self) -> None:
        """Make sessions, with growing waits between them, until one has brought something forward."""
        # Imported here, where a broker is talked to: who never does shall not pay for it.
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
        """Use one connection to its end; return whether anything was confirmed or dead-lettered.

        Raises:
            OutboxDamaged: the file is not to be trusted.
        """
        before = self.sent
        dead = 0
        try:
            self._remove_confirmed()
            self._connection = connection = self._how.connect(_Ended(self._wake))
        except StompError as error:
            self._note_unless_fatal(error)
            self._silence.unreachable()
            return False
        delivery = Delivery(connection, alone=self._alone_up_to > 0, on_done=self.wake)
        self._delivery = delivery
        lost = False
        try:
            dead += self._send_all(delivery)
        except StompError as error:
            self._note_unless_fatal(error)
            lost = type(error) is ConnectionLost  # and not left by us, as nothing was confirmed
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
        """Return the seconds for leaving: when closing, time for receipts that are on their way."""
        remaining = self._closing_by.remaining()
        return _DISCONNECT if not self._closing.is_set() or remaining is None else remaining * 0.8

    def _send_all(self, delivery: Delivery) -> int:
        """Send and remove until closing or the end of the connection; return how many became dead letters.

        Raises:
            StompError: the connection is over.
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
            delivery.end_caution()
        return 1 if self._alone_up_to else self._how.batch

    def _has_more(self, delivery: Delivery) -> bool:
        """Whether there is more on disk than is in flight or only waits for its removal."""
        return self._store.ledger.waiting > len(delivery) + len(self._confirmed)

    def _remove_confirmed(self) -> None:
        """Remove from disk what was confirmed; what the disk refuses stays here, and is never sent again."""
        if not self._confirmed:
            return
        # Counted first: who waits for an empty outbox looks at the numbers as soon as the disk has it.
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
        """Draw the conclusions from a connection that is over; return how many messages became dead letters."""
        confirmed, refusals, verdict = delivery.settle()
        self._confirmed += confirmed
        self._remove_confirmed()
        if self.sent > sent_before:
            self._silence.confirmed()
        if verdict is Verdict.LOST:
            if not lost or self.sent > sent_before:
                return 0
            refusals = self._silence.judge(refusals)
        if verdict is not Verdict.NONE:
            self._alone_up_to = max(self._alone_up_to, delivery.last_seq)
        return self._refuse(refusals)

    def _refuse(self, refusals: list[Refusal]) -> int:
        """Note refusals on disk; return how many messages became dead letters."""
        dead = 0
        for refusal in refusals:
            row = refusal.row
            most = self._how.max_tries
            final = refusal.hopeless or (most is not None and row.tries + 1 >= most)
            self._store.refuse(row, refusal.error_message, final=final)
            if final:
                dead += 1
                error_message = printable(refusal.error_message[:200])
                _LOG.warning("message %s to %r becomes a dead letter: %s", row.id, row.destination, error_message)
        return dead

    def _note_unless_fatal(self, error: StompError) -> None:
        if isinstance(error, OutboxDamaged) or self._store.writer.failure is not None:
            raise error
        self._note(error)

    def _note(self, error: StompError) -> None:
        self.last_error = error
        if not self._closing.is_set():
            _LOG.info("forwarding stopped for now: %s", error)
