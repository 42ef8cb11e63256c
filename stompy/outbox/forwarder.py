"""The forwarder thread: sends the stored messages, and retries without a limit.

| thread | owns | may block on | never |
|---|---|---|---|
| `…-forwarder` | the connection, the messages in flight | dial, `sendall`, its event, the store | holds a lock there |

It opens a connection when there is something to send, sends in order with receipts, up to a limit of messages in
flight, and deletes confirmed messages from disk. When the connection ends, all unconfirmed messages are resent on the
next one, in order and with the same dedupe ids. The delay between connections grows while nothing is confirmed; closing
interrupts it.

After an ERROR that does not name a message, all that were in flight are sent one at a time until all are settled: the
next ERROR can then only be about one message. The same is done after a connection was lost without an ERROR before
anything was confirmed.

A destination whose message was refused, or was in flight alone when the connection was lost, is a suspect. Its messages
wait, in their order, and those of other destinations go on. Its first message is tried again after a delay of its own,
alone, until one is confirmed: so a refusal ends a session in which nothing else is in flight.
"""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Callable
from dataclasses import dataclass

from stompy.backoff import Backoff
from stompy.connection.connection import Connection
from stompy.connection.listeners import DisconnectedEvent, Listener
from stompy.deadline import Deadline
from stompy.dialects.dialect import Dialect
from stompy.errors import ConnectionLostError, OutboxDamagedError, OutboxError, OutboxFullError, StompError
from stompy.outbox.delivery import InFlight, RefusedRow, Verdict
from stompy.outbox.record import Row
from stompy.outbox.store import Store
from stompy.printable import printable
from stompy.threads import DaemonThread
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.outbox")

_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes read from disk at once; a single message may have more."""

_DISCONNECT_TIMEOUT = 1.0
"""Seconds for disconnecting after an error."""

_CHUNK = 100
"""Messages that become dead letters, or are removed late, in one transaction."""


class _Ended(Listener):
    """Wakes the forwarder when its connection is lost while nothing is in flight."""

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake

    def on_disconnected(self, event: DisconnectedEvent) -> None:
        """Wake the forwarder."""
        self._wake.set()


@dataclass(slots=True)
class _Suspect:
    """A destination that refused a message, or whose message was in flight alone when the connection was lost.

    Attributes:
        since: no message of it that waits has a smaller sequence number.
        failures: how often in a row its first message failed.
        losses: how many of them in a row were lost connections.
        due: when to try again, by `time.monotonic`.
    """

    since: int
    failures: int = 0
    losses: int = 0
    due: float = 0.0


class Forwarder(DaemonThread):
    """Sends the messages of a store.

    Args:
        store: the messages; read and written by this thread.
        connect: opens a connection with the given listener.
        batch: limit of messages in flight.
        attempts: number of rejections after which a message becomes a dead letter; `None` for no limit.
        backoff: before a new connection, and before a suspect is tried again.
        receipt_timeout: seconds without a confirmation after which the connection is closed.
        name: prefix of the thread's name.
    """

    def __init__(
        self,
        store: Store,
        connect: Callable[[Listener], Connection],
        *,
        batch: int,
        attempts: int | None,
        backoff: Backoff,
        receipt_timeout: float,
        name: str,
    ) -> None:
        super().__init__(f"{name}-forwarder")
        self._store = store
        self._connect = connect
        self._batch = batch
        self._attempts = attempts
        self._backoff = backoff
        self._receipt_timeout = receipt_timeout
        self._closing = threading.Event()
        self._closing_by = Deadline(None)
        self._wake = threading.Event()
        self._connection: Connection | None = None
        self._delivery: InFlight | None = None
        self._confirmed: list[Row] = []
        self._after = 0
        """Every waiting message up to this number is in flight, confirmed, or one of a suspect."""
        self._alone_up_to = 0
        """The number of the last message that is sent alone, as one up to it was refused or lost."""
        self._suspects: dict[str, _Suspect] = {}
        self._probe: str | None = None
        """The suspect whose first message is in flight now, and nothing else."""
        self._since_probe = 0
        self._most_losses = self._first_losses = None if attempts is None else 2 * attempts
        self._unremoved: dict[int, None] = {}
        self._remove_at = 0.0
        self._abandoned = False
        self.dialect: Dialect | None = None
        """Of the broker of the last session."""
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

    @property
    def unremoved(self) -> int:
        """Number of messages that are confirmed, and still on a disk without room to note it."""
        return len(self._unremoved)

    def stop(self, deadline: Deadline) -> None:
        """Send nothing more, and disconnect before the deadline; does not wait."""
        self._closing_by = deadline
        self._closing.set()
        self._wake.set()

    def cut(self) -> None:
        """End the connection from another thread, as the forwarder may be blocked in it."""
        connection = self._connection
        if connection is not None:
            connection.close(timeout=0)

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
            self._remove_at = 0.0
            self._remove_late()
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
            now = time.monotonic()
            try:
                self._remove_late()
                sendable = self._has_more() and (not self._suspects or self._due(now) or self._read(limit=1))
                ready = self._confirmed or sendable  # a session removes what the disk has refused to
            except OutboxError as error:
                self._note_unless_fatal(error)
                ready = True  # a session meets it again, after a delay that grows
            if ready:
                return not self._closing.is_set()
            self._wake.wait(self._pause(now))  # ended by a put and by closing
        return False

    def _forward_until_progress(self) -> None:
        """Open connections, with growing delays between them, until one has made progress."""
        # Imported late, as it is slow to import.
        import tenacity

        tenacity.Retrying(
            retry=tenacity.retry_if_result(operator.not_),
            stop=tenacity.stop_when_event_set(self._closing),
            wait=lambda state: self._backoff(state.attempt_number),
            sleep=tenacity.sleep_using_event(self._closing),
            retry_error_callback=lambda state: False,
        )(self._session)

    def _session(self) -> bool:
        """Use one connection until it ends; return whether anything was confirmed, or is known of a message.

        Raises:
            OutboxDamagedError: the file is corrupt.
        """
        before = self.sent
        self._since_probe = 0
        try:
            self._remove_confirmed()
            self._connection = connection = self._connect(_Ended(self._wake))
        except StompError as error:
            self._note_unless_fatal(error)
            for suspect in self._suspects.values():
                suspect.losses = 0
            return False
        delivery = InFlight(connection, alone=self._alone_up_to > 0, on_done=self.wake)
        self._delivery, self.dialect = delivery, delivery.dialect
        lost = known = False
        try:
            self._send_all(delivery)
        except StompError as error:
            self._note_unless_fatal(error)
            lost = type(error) is ConnectionLostError  # not a timeout, after which we close it ourselves
        finally:
            connection.close(timeout=self._disconnect_timeout())
        try:
            known = self._settle(delivery, lost=lost, sent_before=before)
        except StompError as error:
            self._note_unless_fatal(error)
        finally:
            self._delivery = self._connection = self._probe = None
        return self.sent > before or known

    def _disconnect_timeout(self) -> float:
        """Return the seconds for disconnecting: when closing, longer, so that pending receipts can arrive."""
        remaining = self._closing_by.remaining()
        return _DISCONNECT_TIMEOUT if not self._closing.is_set() or remaining is None else remaining * 0.8

    def _send_all(self, delivery: InFlight) -> None:
        """Send messages and remove confirmed ones until closing.

        Raises:
            StompError: the connection was lost.
        """
        while not self._closing.is_set():
            self._wake.clear()
            now = time.monotonic()
            self._confirmed += delivery.take_confirmed()
            window = self._window(delivery)
            if self._confirmed and (not delivery or 2 * len(self._confirmed) >= window):
                self._remove_confirmed()
            if self._probe is not None and not delivery:
                self._acquit(self._probe, delivery)
            if self._send_more(delivery, window, self._due(now)):
                continue
            self._remove_late()
            left = delivery.check(self._receipt_timeout)
            if left is None and not self.connected:
                return
            self._wake.wait(min((wait for wait in (left, self._pause(now)) if wait is not None), default=None))

    def _window(self, delivery: InFlight) -> int:
        """Return how many messages may be in flight."""
        if self._alone_up_to and self._after >= self._alone_up_to and not delivery:
            self._alone_up_to = 0
            delivery.alone = False
        return 1 if self._alone_up_to or self._probe is not None else self._batch

    def _send_more(self, delivery: InFlight, window: int, suspect: str | None) -> bool:
        """Send the messages that may be in flight now; return `False` if there is none.

        Others go first in each session, as a suspect may end it. A suspect that is due has its turn after as many
        messages as may be in flight, so that an endless stream of others does not keep it waiting.
        """
        others = len(delivery) < window and (suspect is None or self._since_probe < self._batch)
        if others and self._has_more() and (rows := self._read(limit=window - len(delivery))):
            self._send(delivery, [row for row in rows if row.seq not in self._unremoved])
            self._after = rows[-1].seq
            self._since_probe += len(rows)
            return True
        if suspect is None or delivery or self._probe is not None:
            return False
        first = self._store.first_of(suspect, since=self._suspects[suspect].since)
        while first is not None and first.seq in self._unremoved:
            first = self._store.first_of(suspect, since=first.seq + 1)
        self._since_probe = 0
        if first is None:
            del self._suspects[suspect]
            return True
        self._suspects[suspect].since = first.seq
        self._probe, delivery.alone = suspect, True
        self._send(delivery, [first])
        return True

    def _send(self, delivery: InFlight, rows: list[Row]) -> None:
        for refusal in delivery.send(rows):
            self._dead_letter(refusal)

    def _read(self, *, limit: int) -> list[Row]:
        """Return the next messages of destinations that are not suspects."""
        newest = self._store.ledger.next_seq - 1
        rows = self._store.read(after=self._after, limit=limit, max_bytes=_BATCH_BYTES, without=self._suspects)
        if not rows:
            self._after = max(self._after, newest)  # all of those are suspects', and are not looked at again
        return rows

    def _has_more(self) -> bool:
        """Return whether there are stored messages that are neither in flight nor confirmed."""
        return self._store.ledger.waiting > self.in_flight + len(self._confirmed) + self.unremoved

    # Suspects.

    def _due(self, now: float) -> str | None:
        """Return the suspect to try now: of those that are due, the one that has waited longest."""
        found = min(self._suspects, key=lambda name: self._suspects[name].due, default=None)
        return found if found is not None and self._suspects[found].due <= now else None

    def _pause(self, now: float) -> float | None:
        """Return the seconds until something is due that was not at the time `now`; `None` for never."""
        times = [suspect.due for suspect in self._suspects.values()] + [self._remove_at] * bool(self._unremoved)
        first = min((when for when in times if when > now), default=None)
        return None if first is None else max(0.0, first - time.monotonic())

    def _suspect(self, row: Row) -> _Suspect:
        """Hold back the messages of a destination, from `row` on, for a delay that grows with each failure."""
        suspect = self._suspects.get(row.destination)
        if suspect is None:
            suspect = self._suspects[row.destination] = _Suspect(row.seq)
            _LOG.info("messages to %r wait, as one of them was not taken; others go on", row.destination)
        suspect.failures += 1
        suspect.due = time.monotonic() + self._backoff(suspect.failures)
        return suspect

    def _acquit(self, destination: str, delivery: InFlight) -> None:
        """Send the messages of a destination with the others again, from its first on, as one was confirmed."""
        # Those of others from there on are confirmed and removed: this one was in flight alone.
        self._after = min(self._after, self._suspects.pop(destination).since)
        self._probe, delivery.alone = None, self._alone_up_to > 0

    # Outcomes.

    def _remove_confirmed(self) -> None:
        """Delete confirmed messages from disk; after an error they are remembered, and are not sent again."""
        if not self._confirmed:
            return
        # Counted first: a caller of `flush` may read the numbers as soon as the transaction is committed.
        before, self.last_error = self.last_error, None
        self.sent += len(self._confirmed)
        try:
            self._store.remove(self._confirmed)
        except OutboxFullError as error:
            # What is on disk must be able to leave it nevertheless.
            if not self._unremoved:
                _LOG.warning("%s; what the broker confirms is removed later", error)
            self._unremoved |= dict.fromkeys(row.seq for row in self._confirmed)
            self._remove_at = time.monotonic() + self._backoff.longest
        except OutboxError:
            self.sent -= len(self._confirmed)
            self.last_error = before
            raise
        self._confirmed = []

    def _remove_late(self) -> None:
        """Try again to delete messages that were confirmed while the disk was full."""
        while self._unremoved and self._remove_at <= time.monotonic():
            chunk = dict.fromkeys(itertools.islice(self._unremoved, _CHUNK))
            # Taken out first: until the transaction is committed they count as waiting, never as less than nothing.
            self._unremoved = {number: None for number in self._unremoved if number not in chunk}
            try:
                self._store.remove_numbers(chunk)
            except OutboxError as error:
                self._unremoved |= chunk
                self._remove_at = time.monotonic() + self._backoff.longest
                if not isinstance(error, OutboxFullError):
                    raise

    def _settle(self, delivery: InFlight, *, lost: bool, sent_before: int) -> bool:
        """Process the outcome of an ended connection; return whether it is known which message was the cause."""
        confirmed, refusals, verdict = delivery.settle()
        self._confirmed += confirmed
        probe = self._probe
        if probe is None:
            # Before anything that the disk may refuse. The next session removes what is confirmed before it reads.
            self._after = min([self._after, *(number - 1 for number in delivery.unsettled)])
        self._remove_confirmed()
        # Unless it was not sent.
        if probe is not None and not delivery.unsettled and delivery.last_seq == self._suspects[probe].since:
            self._acquit(probe, delivery)
        if self.sent > sent_before:
            self._most_losses = self._first_losses
        if verdict is Verdict.LOST:
            if lost and refusals:
                self._judge_loss(refusals[0])
            elif lost and self.sent == sent_before:
                self._alone_up_to = max(self._alone_up_to, delivery.last_seq)
            return lost and bool(refusals)
        if verdict is Verdict.SUSPECT:
            self._alone_up_to = max(self._alone_up_to, delivery.last_seq)
        for refusal in refusals:
            self._judge(refusal)
        if not refusals and probe in self._suspects:  # a timeout: nothing is known, and the others have their turn
            suspect = self._suspects[probe]
            suspect.due = time.monotonic() + self._backoff.first
        return bool(refusals)

    def _judge(self, refusal: RefusedRow) -> None:
        """Store a rejection: the message is tried again, or becomes a dead letter; or all of its destination do."""
        row = refusal.row
        if refusal.invalid_destination:
            self._dead_letter_all(row.destination, refusal.error_message)
            return
        suspect = self._suspect(row)
        suspect.losses = 0
        most = self._attempts
        if most is not None and row.tries + 1 >= most:
            suspect.failures, suspect.due = 0, time.monotonic()
            self._dead_letter(refusal)
        else:
            self._store.refuse(row, refusal.error_message, final=False)

    def _judge_loss(self, refusal: RefusedRow) -> None:
        """Count a connection that was lost without an ERROR, as some brokers do after a frame that is too large.

        The cause may also be the network or the broker, so the message only becomes a dead letter after twice as many
        losses as ERRORs would be needed, in a row, each while it was in flight alone, and with the broker reachable in
        between. If the next message has the same problem, the broker is the likelier cause: each message needs twice
        as many losses as the one before, until something is confirmed.
        """
        suspect = self._suspect(refusal.row)
        suspect.losses += 1
        if self._most_losses is None or suspect.losses < self._most_losses:
            return
        error_message = (
            f"the connection was lost without a reason {suspect.losses} times in a row, each time while only this "
            f"message was in flight: {refusal.error_message}"
        )
        self._most_losses *= 2
        suspect.losses = suspect.failures = 0
        self._dead_letter(RefusedRow(refusal.row, error_message, permanent=True))

    def _dead_letter(self, refusal: RefusedRow) -> None:
        row = refusal.row
        self._store.refuse(row, refusal.error_message, final=True)
        error_message = printable(refusal.error_message[:200])
        _LOG.warning("message %s to %.200r becomes a dead letter: %.500s", row.id, row.destination, error_message)

    def _dead_letter_all(self, destination: str, error_message: str) -> None:
        total = 0
        while count := self._store.refuse_all(destination, error_message, limit=_CHUNK):
            total += count
        self._suspects.pop(destination, None)
        shown = printable(error_message[:200])
        _LOG.warning(
            "%d messages to %.200r become dead letters, as the broker takes none: %s", total, destination, shown
        )

    def _note_unless_fatal(self, error: StompError) -> None:
        if isinstance(error, OutboxDamagedError) or self._store.writer.failure is not None:
            raise error
        self._note(error)

    def _note(self, error: StompError) -> None:
        self.last_error = error
        if not self._closing.is_set():
            _LOG.warning("messages are kept, not sent: %s", error)
