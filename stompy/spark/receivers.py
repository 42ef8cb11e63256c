"""Receivers: each fills a spool from a broker with a connection and a thread; all share one writer.

| thread | owns | may block on | never |
|---|---|---|---|
| `stompy-spool-<number>` | its connection | dial, `receive`, a receipt, the writer | holds a lock there |
| `stompy-spool-maintenance` | the marks, the heartbeat, the removal of processed segments | the disk | |

Group commit without a timer: whenever the writer is free, all messages that have arrived meanwhile, at any receiver,
are made durable as one segment, and each receiver acknowledges its own by cumulative ACKs. It never waits for a full
group, as some brokers (ActiveMQ: after 200 messages) deliver no more until they get an ACK.

The last ACK of each subscription requests a receipt, and several may be pending. When the link is lost, unconfirmed
messages may be redelivered, and their ids are stored as suspects. Messages that were not yet durable are simply
redelivered. An idle receiver makes a round trip from time to time, so that other receivers' ids are no longer needed
(`redelivery.py`).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Sequence

from stompy.backoff import Backoff
from stompy.connection.connection import Connection
from stompy.connection.message import Message, header_table
from stompy.connection.subscription import Subscription, call_on_arrival, take_queued
from stompy.deadline import Deadline
from stompy.default import DEFAULT
from stompy.dialects.brokers import dialect_named
from stompy.errors import (
    AckError,
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    ReceiptTimeoutError,
    RemoteProtocolError,
    SpoolError,
    StompError,
    VersionMismatchError,
)
from stompy.forks import Owner
from stompy.link.receipts import Receipt
from stompy.locks import Rank, make_lock
from stompy.spark.option_tables import SpoolOptions
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.peers import Peers
from stompy.spark.spool.record import Identifier, Record, are_stable, now_us, records_of
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.spool import Spool
from stompy.spark.spool.writer import SpoolWriter
from stompy.threads import DaemonThread
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.spark")

_POLL_INTERVAL = 0.1
"""Maximum seconds between checks of receipts, the closing flag and the limit, and of the state of receivers."""
_GROUP_MESSAGES, _GROUP_BYTES = 10_000, 8 << 20
"""The most messages, and about the most bytes, that a receiver brings to a segment at once."""
_ROW_BYTES = 150
"""About the bytes that a message adds to a segment beside its body and headers."""
_TURN = 100
"""The most messages of one of several destinations before those of another."""
_MAX_PENDING_ACKS = 8
_ACKED_TOGETHER = 50
"""Messages for each cumulative ACK. For each of them ActiveMQ sends at most 400 more, however many it acknowledges, so
that with one for a whole group no more than these are on their way, however high the prefetch."""
_BACKOFF = Backoff(longest=10.0)
"""Between two sessions."""
_MAX_UNREADABLE = 3
"""Consecutive sessions that end by an unreadable frame, with no ACK confirmed in between, until the receiver fails."""
_DISCONNECT_TIMEOUT = 2.0
"""Seconds for disconnecting."""
_ROUND_TRIP_INTERVAL = 0.5
"""Seconds between two round trips of an idle session."""
_STOP_TIMEOUT = 5.0
"""Seconds to wait for receivers to end."""
_PERIOD, _PERIOD_FULL = 1.0, 0.1
"""Seconds between checks of the marks: usually, and while the spool is full and its receivers wait."""


class Health:
    """The state of one receiver: its thread writes it, one attribute at a time, and any thread reads it.

    Args:
        name: of the receiver, for the log and errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._error: StompError | None = None
        self._reason = "there was no connection yet"
        self._lost_since: float | None = time.monotonic()
        self._quiet_since: float | None = None
        self._subscribed_at: float | None = None

    def subscribed(self) -> None:
        """Record that the broker has confirmed the subscription."""
        self._quiet_since = time.monotonic()
        self._lost_since = None
        if self._subscribed_at is None:
            self._subscribed_at = self._quiet_since

    def arrived(self) -> None:
        """Record that messages arrived: until they are `settled` it is not idle, however slow disk and broker are."""
        self._quiet_since = None

    def settled(self) -> None:
        """Record that the broker has confirmed every ACK; idle time starts now, as it may have waited for them."""
        self._quiet_since = time.monotonic()

    def lost(self, reason: StompError) -> None:
        """Record that there is no session now."""
        self._reason = str(reason)
        self._quiet_since = None
        self._lost_since = self._lost_since or time.monotonic()
        _LOG.warning("%s has no connection: %s", self._name, reason)

    def fail(self, error: StompError) -> None:
        """Record that the receiver has ended with an error, and will not retry."""
        self._error = error
        self._quiet_since = None
        _LOG.error("%s has ended: %s", self._name, error)

    def check(self, broker_timeout: float) -> None:
        """Raise if no messages can arrive.

        Args:
            broker_timeout: seconds without a session that are tolerated.

        Raises:
            ConnectTimeoutError: there was no session for longer.
            StompError: the receiver has ended with this error.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)
        since = self._lost_since
        if since is not None and time.monotonic() - since > broker_timeout:
            raise ConnectTimeoutError(
                f"{self._name} had no connection to a broker for more than {broker_timeout:g} s "
                f"(option brokerTimeout): {self._reason}"
            )

    def quiet_for(self) -> float:
        """Return the seconds since the last message, or since the subscription began.

        Return 0 without a subscription, and until messages are in the spool and the broker has confirmed their ACKs.
        """
        since = self._quiet_since
        return 0.0 if since is None else time.monotonic() - since

    def subscribed_for(self) -> float:
        """Return the seconds since the first subscription, including interruptions; 0 before it."""
        return 0.0 if self._subscribed_at is None else time.monotonic() - self._subscribed_at


class Quota:
    """The messages that the receivers of a pool may still take; all others stay with the broker.

    Args:
        writer: of the spool.
        max_bytes: the size of the spool at which nothing is taken until some messages were processed.
        until: the sequence number up to which messages may be taken; `None` for no limit.
        receivers: how many share it.
    """

    def __init__(self, writer: SpoolWriter, max_bytes: int, until: int | None, receivers: int) -> None:
        self._writer = writer
        self._max_bytes = max_bytes
        self._in_hand = [(0, 0)] * receivers
        """By receiver, which alone sets it: the number of messages that are not in the spool yet, and their bytes."""
        self.lock = make_lock(Rank.WRITE, "spool quota")
        """Held while a receiver takes messages, until they are noted."""
        self.allow(until, None)

    def allow(self, until: int | None, size: int | None) -> None:
        """Set the sequence number up to which messages may be taken, and how many bytes more; `None` for no limit."""
        with self.lock:
            self._written = sys.maxsize if size is None else self._writer.written + size
            self._until = sys.maxsize if until is None else until

    def note(self, receiver: int, messages: int, size: int) -> None:
        """Record the messages that a receiver has in hand."""
        self._in_hand[receiver] = messages, size

    def left(self) -> tuple[int, int]:
        """Return how many messages, and about how many bytes, may be taken now."""
        messages, size = map(sum, zip(*self._in_hand, strict=True))
        room = min(self._written - self._writer.written, self._writer.room(self._max_bytes))
        return self._until - self._writer.next - messages, room - size

    @property
    def is_used_up(self) -> bool:
        """Whether nothing may be taken now."""
        return min(self.left()) <= 0

    @property
    def is_stored(self) -> bool:
        """Whether all messages that were taken are in the spool."""
        return not any(messages for messages, _ in self._in_hand)


class Receiver(DaemonThread):
    """One connection that fills a spool.

    Args:
        options: of the receivers.
        writer: shared with the other receivers; closed by the caller.
        number: of this receiver.
        health: updated by this receiver.
        quota: shared with the other receivers.
    """

    def __init__(self, options: SpoolOptions, writer: SpoolWriter, number: int, health: Health, quota: Quota) -> None:
        super().__init__(f"stompy-spool-{number}")
        self._options = options
        self._writer = writer
        self._number = number
        self._health = health
        self._quota = quota
        self._closing = threading.Event()
        self._arrived = threading.Event()
        self._acks: deque[tuple[Sequence[Receipt], StoredRange, Deadline]] = deque()
        self._round_trip_at = 0.0
        self._unreadable = 0
        self._failures = 0

    def close(self) -> None:
        """Ask the thread to end: durable messages are acknowledged, all others go back to the broker."""
        self._closing.set()

    def run(self) -> None:
        """Receive until closed, or until a permanent error."""
        try:
            while not self._closing.is_set():
                try:
                    self._session()
                except StompError as error:
                    self._after(error)
        except StompError as error:
            self._health.fail(error)
        except BaseException as error:  # without a report, the queue would look empty
            self._health.fail(ConnectionLostError(f"the receiver has a bug: {error!r}"))
            if isinstance(error, Exception):  # others, such as SystemExit, only end this thread
                raise

    def _after(self, error: StompError) -> None:
        """Wait before the next session, or raise if another one would fail too."""
        never_connected = not self._health.subscribed_for()
        if isinstance(error, (SpoolError, ConfigurationError)):
            raise error
        if never_connected and isinstance(error, (BrokerError, ConnectRefusedError, VersionMismatchError)):
            raise error
        if self._unreadable >= _MAX_UNREADABLE:
            raise RemoteProtocolError(
                f"a message cannot be read, and the broker sends it again each time: {error}. Raise maxBodyBytes if it "
                "is too large, or move it out of the queue"
            )
        self._health.lost(error)
        self._failures += 1
        self._closing.wait(_BACKOFF(self._failures))

    # One session.

    def _session(self) -> None:
        connection = self._options.connect(name=f"spool-{self._number}")
        try:
            # Before the first message can arrive.
            self._writer.begin(self._number)
            subscriptions = self._subscribe(connection)
            self._health.subscribed()
            self._pump(connection, subscriptions)
        except ConnectionLostError as error:
            self._unreadable += isinstance(error.__cause__, RemoteProtocolError)
            raise
        finally:
            self._leave(connection)

    def _subscribe(self, connection: Connection) -> deque[Subscription]:
        options = self._options
        dialect = dialect_named(connection.dialect)
        # After an unreadable frame one message at a time, so that those before it are acknowledged.
        prefetch = 1 if self._unreadable else options.prefetch
        countable = dialect.supports("prefetch") and (prefetch == 1 or not dialect.prefetch_as_window)
        explicit = dialect.headers.get("prefetch") in options.subscribe_headers
        # With RabbitMQ an ACK in mode `client` would also settle earlier messages of the other subscriptions.
        alone = len(options.destination) == 1 or dialect.ack_reaches == "subscription"
        subscriptions: deque[Subscription] = deque()
        for destination in options.destination:
            subscription = connection.subscribe(
                destination,
                ack="client" if alone else "client-individual",
                prefetch=prefetch if countable and not explicit else DEFAULT,
                selector=options.selector,
                durable=options.durable,
                headers=options.subscribe_headers,
            )
            call_on_arrival(subscription, self._arrived.set)
            subscriptions.append(subscription)
        return subscriptions

    def _pump(self, connection: Connection, subscriptions: deque[Subscription]) -> None:
        """Receive until closed; raises when the link is lost."""
        options = self._options
        identifier = Identifier(options.dedup_header, stable=are_stable(connection.server))
        while not self._closing.is_set():
            self._take_receipts()
            if self._quota.is_used_up:
                # Nothing is received, so that the broker stops at the prefetch; the link may end meanwhile.
                if not connection.connected:
                    raise ConnectionLostError("the connection was lost while nothing was received")
                self._round_trip(connection)
                self._closing.wait(_POLL_INTERVAL)
                continue
            taken = self._take(subscriptions)
            if taken:
                self._health.arrived()
                messages = [message for _, some in taken for message in some]
                table = header_table(messages)
                rows = records_of(messages, table, identifier, broker=connection.address, received_at=now_us())
                self._keep(taken, rows)
                self._quota.note(self._number, 0, 0)
            else:
                self._round_trip(connection)

    def _take(self, subscriptions: deque[Subscription]) -> list[tuple[Subscription, list[Message]]]:
        """Return queued messages of all subscriptions in turn, up to the limits of a segment; wait a moment if none."""
        self._arrived.clear()
        if not any(each.queued or each.closed for each in subscriptions):
            self._arrived.wait(_POLL_INTERVAL)
        waiting = deque(each for each in subscriptions if each.queued or each.closed)
        taken: list[tuple[Subscription, list[Message]]] = []
        count = size = 0
        with self._quota.lock:
            messages, room = map(min, self._quota.left(), (_GROUP_MESSAGES, _GROUP_BYTES))
            while waiting and count < messages and size < room:
                subscription = waiting.popleft()
                most = messages - count if len(subscriptions) == 1 else min(messages - count, _TURN)
                some = take_queued(subscription, most, room - size, _ROW_BYTES)  # raises why the link ended
                taken.append((subscription, some))
                count += len(some)
                size += sum(message.size for message in some) + _ROW_BYTES * len(some)
                if subscription.queued:
                    waiting.append(subscription)
            self._quota.note(self._number, count, size)
        subscriptions.rotate(-1)
        return taken

    def _keep(self, taken: list[tuple[Subscription, list[Message]]], rows: Sequence[Record]) -> None:
        """Make a group durable and acknowledge all of it; duplicates too, as they count towards the prefetch."""
        delivery = self._writer.store(self._number, rows)
        last = {subscription: some[-1] for subscription, some in taken}
        # Even if the receiver was closed meanwhile: durable messages without an ACK would be redelivered.
        try:
            for subscription, some in taken:
                step = 1 if subscription.ack == "client-individual" else _ACKED_TOGETHER
                for message in some[step - 1 :: step]:
                    if message is not last[subscription]:
                        message.ack()
            receipts = [message.ack_async() for message in last.values()]
        except AckError as error:
            taken[0][0].receive(timeout=_POLL_INTERVAL)  # raises why the link ended
            raise ConnectionLostError(f"the connection was lost before the ACK: {error}") from error
        self._acks.append((receipts, delivery, Deadline(self._options.receipt_timeout)))

    def _round_trip(self, connection: Connection) -> None:
        """Make a round trip if it makes other receivers' ids unnecessary; a pending ACK has the same effect."""
        waited = time.monotonic() - self._round_trip_at
        if self._acks or waited < _ROUND_TRIP_INTERVAL or not self._writer.needs_receipt(self._number):
            return
        turn = self._writer.turn
        try:
            with connection.transaction():
                pass
        except ReceiptTimeoutError as error:
            raise ConnectionLostError(f"the broker does not answer: {error}") from error
        self._writer.note_receipt(self._number, turn)
        self._round_trip_at = time.monotonic()

    def _take_receipts(self) -> None:
        """Process the receipts that have arrived; wait for the oldest if too many are pending, or if it is overdue."""
        while self._acks:
            receipts, delivery, deadline = self._acks[0]
            few = len(self._acks) < _MAX_PENDING_ACKS and not deadline.expired
            if few and not all(receipt.done() for receipt in receipts):
                return
            for receipt in receipts:
                try:
                    receipt.result(deadline.remaining())
                except ReceiptTimeoutError as error:
                    raise ConnectionLostError(f"the broker does not confirm an ACK: {error}") from error
            self._acks.popleft()
            self._writer.confirm(delivery)
            self._failures = self._unreadable = 0
            if not self._acks:
                self._health.settled()

    def _leave(self, connection: Connection) -> None:
        """Disconnect, and store the ids of messages that the broker may redeliver."""
        connection.close(timeout=_DISCONNECT_TIMEOUT)
        try:
            # DISCONNECT is confirmed after all ACKs.
            while self._acks and all(receipt.done() and receipt.exception(0) is None for receipt in self._acks[0][0]):
                self._writer.confirm(self._acks.popleft()[1])
        finally:
            self._acks.clear()
            self._quota.note(self._number, 0, 0)
            self._writer.leave(self._number)


class ReceiverPool:
    """Receivers as threads of this process.

    Args:
        options: of the receivers.
        spool: to fill.
        until: the sequence number up to which the receivers fill it at first; `None` for no limit.

    Raises:
        SpoolError: the spool cannot be opened; no receiver was started.
    """

    def __init__(self, options: SpoolOptions, spool: Spool, *, until: int | None = None) -> None:
        self._options = options
        self._stopped = False
        self._owner = Owner("pool of receivers")
        folders = options.folders()
        peers = Peers(
            spool,
            options.folders,
            Identifier(options.dedup_header),
            # The broker sends what was not acknowledged first, to whoever comes first.
            fresh=options.prefetch * options.receivers * len(folders),
        )
        self.writer = SpoolWriter(
            spool,
            peers=peers if options.has_peers else None,
            patience=ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after),
            dedup_header=options.dedup_header,
            fail_on_loss=options.fail_on_data_loss,
        )
        """Shared by all receivers."""
        self.quota = Quota(self.writer, options.max_spool_bytes, until, options.receivers)
        """How much they may take."""
        self.healths = [Health(f"receiver {number} of {options.origin}") for number in range(options.receivers)]
        """The state of each receiver, by its number."""
        self._receivers = [
            Receiver(options, self.writer, number, health, self.quota) for number, health in enumerate(self.healths)
        ]
        self._closing = threading.Event()
        self._error: StompError | None = None
        self._maintenance = DaemonThread("stompy-spool-maintenance", self._maintain)
        for thread in (self._maintenance, *self._receivers):
            thread.start()

    def check(self) -> None:
        """Raise if no messages can arrive; see `Health.check`."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        for health in self.healths:
            health.check(self._options.broker_timeout)

    def quiet_for(self) -> float:
        """Return the seconds since any receiver got a message; 0 unless all of them are subscribed."""
        return min(health.quiet_for() for health in self.healths)

    def subscribed_for(self) -> float:
        """Return the seconds since all of them were subscribed for the first time."""
        return min(health.subscribed_for() for health in self.healths)

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`, as soon as that raises.

        Args:
            left: returns about the seconds until it returns 0; it is called several times a second.
        """
        self.check()
        while (seconds := left()) > 0:
            time.sleep(min(seconds, _POLL_INTERVAL))
            self.check()
        self.check()

    def close_receivers(self) -> None:
        """Ask the receivers to end: messages that are not stored go back to the broker."""
        for receiver in self._receivers:
            receiver.close()

    def stop(self) -> None:
        """End the receivers and close the spool. Idempotent."""
        if self._stopped or self._owner.forked:
            return
        self._stopped = True
        self.close_receivers()
        deadline = Deadline(_STOP_TIMEOUT)
        ended = [receiver.join_until(deadline) for receiver in self._receivers]
        self._closing.set()
        # If a thread is blocked in a file system, the claim is kept, as only one process may write to the spool.
        if self._maintenance.join_until(deadline) and all(ended):
            with contextlib.suppress(SpoolError):  # a mark that could not be written is an older one
                self.writer.close()

    def _maintain(self) -> None:
        """Run `SpoolWriter.maintain` regularly until closed, also while there is no session."""
        most = self._options.max_spool_bytes
        try:
            while not self._closing.wait(_PERIOD if self.writer.room(most) > 0 else _PERIOD_FULL):
                self.writer.maintain()
        except StompError as error:
            self._error = error
