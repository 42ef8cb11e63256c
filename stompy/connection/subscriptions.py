"""The subscriptions of a connection: where their messages wait, and how they are restored on each link.

| thread | calls | lock |
|---|---|---|
| reader | `ActiveSubscription.offer`, `end` | inbox (leaf) |
| callers that receive | `ActiveSubscription.take` | inbox (leaf), waits on its condition |
| any caller | `SubscriptionTable` | subscriptions |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 2 | subscriptions | id to subscription, the link that confirmed each, the newest link | no |

Three threads may add, remove and replay a subscription at once, on different links. Each checks the state under the
lock: `add` starts over if the next link was replayed without it, `replay` undoes a subscription that is being removed,
and `remove` uses the link that `replay` recorded.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakSet

from stompy.connection.message import AckMode, Delivery, Message, delivery_of, flow_of, release
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, given
from stompy.dialects.options import SubscribeOptions
from stompy.errors import (
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    LocalProtocolError,
    NotConnectedError,
    ReceiveTimeoutError,
    StompError,
)
from stompy.link.link import Link
from stompy.locks import Rank, make_condition, make_lock
from stompy.threads import DaemonThread
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.message import Acker
    from stompy.connection.routing import Dispatcher

_LOG = logging.getLogger("stompy.connection")

Handler = Callable[[Message], object]


class MessageListener(Protocol):
    """An object that can be given to `Connection.subscribe` in place of a function."""

    def on_message(self, message: Message, /) -> object:
        """Called with each message of the subscription."""


OnException = Literal["nack", "leave"]

_NO_OPTIONS = SubscribeOptions()

_FEW = 10
"""Messages; a subscription with a larger prefetch does not keep the last ones."""

_LOOP_INTERVAL = 0.02
"""Seconds between checks whether a loop has ended."""


class Sessions(Protocol):
    """The links of a connection, as its subscriptions need them; the link manager."""

    @property
    def link(self) -> Link:
        """The newest published link, alive or not."""

    forked: bool
    """Whether this is the copy in a forked child."""

    def check_process(self) -> None:
        """Check that this is not a forked child."""

    def live(self, timeout: float | Default | None = DEFAULT) -> Link:
        """Return the link to use now; if it has ended, wait for the next one."""


class UserCode(Protocol):
    """The listeners and dispatchers of a connection, as its subscriptions and the router need them."""

    message_listeners: list[MessageListener]
    discarding: bool
    dispatcher: Dispatcher

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher."""

    def handler_failed(self, message: Message, error: BaseException) -> None:
        """Report the exception of a handler."""


class Hand:
    """The last message that a thread has received in mode `handled`, if it is not yet acknowledged."""

    __slots__ = ("__weakref__", "message")

    def __init__(self) -> None:
        self.message: Message | None = None


class ActiveSubscription:
    """A subscription, as the connection knows it: the headers of its SUBSCRIBE, its consumer, its inbox and its end.

    It has one consumer: its handler; without one the listeners of the connection that define `on_message`; else
    the callers of `take`, which are the callers of the `Subscription` that the user holds.

    Args:
        table: of the connection.
        id: the `id` header.
        destination: as given.
        ack: the acknowledgement mode.
        handler: called with each message, or `None`.
        headers: of SUBSCRIBE, but for `id`, `destination` and `ack`.
        dispatcher: of the handler alone; `None` is that of the connection.
        options: as given.
        acks_all: whether an ACK also acknowledges messages of other subscriptions.
        on_exception: whether to refuse a message whose handler raised.
    """

    def __init__(
        self,
        table: SubscriptionTable,
        *,
        id: str,
        destination: str,
        ack: AckMode,
        handler: Handler | None = None,
        headers: Mapping[str, str] | None = None,
        dispatcher: Dispatcher | None = None,
        options: SubscribeOptions = _NO_OPTIONS,
        acks_all: bool = False,
        on_exception: OnException = "nack",
    ) -> None:
        self.id = id
        self.destination = destination
        self.ack: AckMode = ack
        self.handler = handler
        self.dispatcher = dispatcher
        self.options = options
        self.acks_all = acks_all
        self.on_exception: OnException = on_exception
        self._headers = headers or {}
        self.table = table
        # The table's, guarded by its lock.
        self.announced = True
        """Whether SUBSCRIBE was sent: some brokers create reply queues by themselves."""
        self.confirmed: Link | None = None
        """The link that confirmed it last."""
        self.unsubscribing = False
        """Whether `SubscriptionTable.remove` was called."""
        # The router's.
        self.direct = handler is not None and dispatcher is None
        """Whether all messages go to the connection's dispatcher."""
        self.draining = False
        """Whether new messages are dropped, so that the broker redelivers them after the link ended."""
        self.has_reader = False
        """Whether somebody has begun to receive; from then on messages go to the inbox, whoever else listens."""
        self._delivery: Delivery | None = None
        # The inbox's.
        self._condition = make_condition("inbox")
        self.inbox: deque[Message] = deque()
        """Messages that wait to be received."""
        self.closed = False
        """Whether it has ended, so that no more messages arrive."""
        self._counted = True
        self._reason: StompError | None = None
        self.on_arrival: Callable[[], object] | None = None
        """Called after messages were added to the inbox, and at the end; must not block."""
        few = options.prefetch is not None and options.prefetch <= _FEW and ack != "auto"
        self._recent: deque[Message] | None = deque(maxlen=options.prefetch) if few else None
        """As many of the last messages as the broker sends before an ACK, to explain why no other comes."""
        # Those of the threads that receive.
        self.loops: dict[object, int] = {}
        """The threads of the loops over it."""
        self.receiver: int | None = None
        """The thread that called `receive` last."""
        self._own = threading.local()
        """The hand of the current thread. It ends with the thread, whose identifier may be used again."""
        self._hands: WeakSet[Hand] = WeakSet()
        """Those of all threads; guarded by the inbox's lock."""

    @property
    def subscribe_headers(self) -> dict[str, str]:
        """The headers of the SUBSCRIBE frame."""
        # Brokers know this mode in STOMP 1.0 too, which does not define it.
        ack = "client-individual" if self.ack == "handled" else self.ack
        return {**self._headers, "id": self.id, "destination": self.destination, "ack": ack}

    # Arrival and end; on the reader, or while the connection is closed.

    def is_end_marker(self, message: Message) -> bool:
        """Return whether a message is an end marker, not a message."""
        return False

    def delivery_on(self, link: Link, acker: Acker) -> Delivery:
        """Return the delivery for `link`, the newest; on the reader."""
        delivery = self._delivery
        if delivery is None or delivery.link is not link:
            delivery = self._delivery = Delivery(link, acker, self)
        return delivery

    def offer(self, messages: Sequence[Message]) -> None:
        """Add messages to the inbox."""
        with self._condition:
            self.inbox.extend(messages)
            self._condition.notify(len(messages))
            counted = self._counted
        if not counted:
            release(messages)
        self._notify_arrival()

    def take_unread(self) -> list[Message]:
        """Remove and return the messages of the inbox, unless a thread receives from it."""
        with self._condition:
            if self.has_reader:
                return []
            taken = list(self.inbox)
            self.inbox.clear()
            self._condition.notify_all()
            return taken

    def link_lost(self, reason: StompError) -> bool:
        """Drop the messages that the broker will redeliver, as the link was lost; return whether it has ended."""
        self._drop_unacknowledged()
        return False

    def drain(self) -> None:
        """Accept no more messages if they need ACK.

        The subscription stays open at the broker, which would otherwise reject their ACKs.
        """
        if self.ack != "auto":
            self.draining, self.direct = True, False
            self.end(None)

    def end(self, reason: StompError | None) -> None:
        """Accept no more messages; queued messages can still be received, unless the broker will redeliver them."""
        with self._condition:
            if not self.closed:
                self.closed, self._reason = True, reason
            # What is left in the inbox may never be received, so it must not pause reading.
            uncounted = list(self.inbox) if reason is None else []
            self._counted = self._counted and reason is not None
            self._condition.notify_all()
        release(uncounted)
        if reason is not None:
            self._drop_unacknowledged()
        if self.dispatcher is not None:
            self.dispatcher.stop()
        self._notify_arrival()

    def _notify_arrival(self) -> None:
        if self.on_arrival is not None:
            self.on_arrival()

    def _drop_unacknowledged(self) -> None:
        if self.ack == "auto":
            return
        with self._condition:
            dropped = list(self.inbox)
            self.inbox.clear()
        release(dropped)

    # Receiving; any caller.

    def take(self, deadline: Deadline) -> Message | None:
        """Return the next message; `None` if the subscription was closed by us, and nothing is left.

        Raises:
            ReceiveTimeoutError: no message in time.
            LocalProtocolError: the messages have another consumer.
            StompError: why the subscription has ended.
        """
        if not self.has_reader:
            self._become_reader()
        if self.table.links.forked:
            self.table.links.check_process()
        taken: Message | None = None
        # A signal may raise between any two steps. Until the caller has the message, it is put back: by the inner block
        # while the lock is held, else by the outer one.
        try:
            with self._condition:
                if not self.inbox and not self._await_message(deadline):
                    return None
                taken = self.inbox[0]
                try:
                    self.inbox.popleft()
                    if not self.inbox:
                        self._condition.notify_all()
                except BaseException:
                    self._restore(taken)
                    taken = None
                    raise
            flow_of(taken).taken(taken, not self.inbox)
            if self._recent is not None:
                self._recent.append(taken)
            return taken
        except BaseException:
            if taken is not None:
                self.put_back(taken)
            raise

    def take_queued(self, most: int, room: int, overhead: int) -> list[Message]:
        """Return messages that wait, at least one.

        Not in the main thread, where a signal could lose them until the session ends.

        Args:
            most: how many, at most.
            room: the bytes at which it ends.
            overhead: bytes that are added to the size of each.

        Raises:
            NotConnectedError: the subscription was closed by us, and nothing is left.
            StompError: as `take`.
        """
        first = self.take(Deadline(0.0))
        if first is None:
            raise NotConnectedError(f"subscription {self.id!r} is closed")
        taken, room = [first], room - first.size - overhead
        with self._condition:
            while self.inbox and len(taken) < most and room > 0:
                taken.append(self.inbox.popleft())
                room -= taken[-1].size + overhead
            if not self.inbox:
                self._condition.notify_all()
        for flow, some in itertools.groupby(taken, flow_of):
            flow.dequeued(some)
        return taken

    def put_back(self, message: Message) -> None:
        """Put a message back for the next caller, after a signal interrupted this one."""
        if self._counted:
            flow_of(message).put_back(message)
        with self._condition:
            self._restore(message)

    def _restore(self, message: Message) -> None:
        if not self.inbox or self.inbox[0] is not message:
            self.inbox.appendleft(message)
            self._condition.notify_all()

    def _become_reader(self) -> None:
        """Make the threads that receive the consumer, unless there is another consumer."""
        if self.handler is not None:
            raise LocalProtocolError("cannot receive from a subscription that has a handler: subscribe without one")
        with self._condition:
            if self.table.listened_to:
                raise LocalProtocolError(
                    f"cannot receive from {self.destination!r}: a listener of the connection defines on_message and"
                    " gets its messages; receive on a connection without such a listener"
                )
            self.has_reader = True

    def _await_message(self, deadline: Deadline) -> bool:
        """Wait for a message, with the lock held; return `False` if the subscription was closed by us."""
        if not self._condition.wait_for(lambda: self.inbox or self.closed, deadline.remaining()):
            raise ReceiveTimeoutError(f"no message from {self.destination!r} in time" + self._why_none())
        if not self.inbox and self._reason is not None:
            raise self._reason.with_traceback(None)
        return bool(self.inbox)

    def _why_none(self) -> str:
        """Return why the broker sends no more, if the reason is known."""
        recent, most = self._recent or (), self.options.prefetch
        unsettled = sum(message.settled is None and not message.session_ended for message in recent)
        if not unsettled or unsettled != most:
            return ""
        return f": {unsettled} unacknowledged, prefetch={most}; acknowledge them to get more"

    # Mode `handled`, for what is received. Each thread has its own message in hand. It is acknowledged when the thread
    # asks for the next one, or when the block of the connection ends without an exception.
    #
    # A loop that is left by an exception has not handled its last message, even if the exception is caught outside the
    # loop and the thread goes on: that message is redelivered after the session.

    def hold(self, message: Message) -> Hand:
        """Note the message that this thread has received."""
        hand: Hand | None = getattr(self._own, "hand", None)
        if hand is None:
            hand = self._own.hand = Hand()
            with self._condition:
                self._hands.add(hand)
        hand.message = message
        return hand

    def acknowledge_held(self) -> None:
        """Acknowledge the message in hand, as this thread asks for the next one, or ends the block."""
        hand: Hand | None = getattr(self._own, "hand", None)
        if hand is not None and hand.message is not None:
            delivery_of(hand.message).acker.handled(hand.message)
            # Last, as a signal may interrupt: a message that is settled is not acknowledged again.
            hand.message = None

    def wait_read(self, deadline: Deadline) -> bool:
        """Wait until other threads have handled their messages and ended their loops; return `False` at the deadline.

        Messages that only this thread receives, or that no thread has ever received, are not waited for.
        """
        own = threading.get_ident()
        with self._condition:
            while (
                any(loop != own for loop in list(self.loops.values()))
                or (self.inbox and self._read_elsewhere(own))
                or self._held_elsewhere()
            ):
                if deadline.expired:
                    return False
                # Polled, as the end of an abandoned generator or of a thread notifies no condition.
                self._condition.wait(deadline.sooner(_LOOP_INTERVAL).remaining())
            return True

    def _read_elsewhere(self, own: int) -> bool:
        """Whether the last thread that called `receive` is another one, and still runs."""
        return self.receiver not in (None, own) and any(
            thread.ident == self.receiver for thread in threading.enumerate()
        )

    def _held_elsewhere(self) -> bool:
        """Whether another thread, which still runs, has received a message and not asked for the next one."""
        own = getattr(self._own, "hand", None)
        held = [hand.message for hand in self._hands if hand is not own]
        return any(message is not None and message.settled is None and not message.session_ended for message in held)

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<Subscription {self.destination!r} id={self.id} {self.ack} queued={len(self.inbox)}{state}>"


class QueueBrowser(ActiveSubscription):
    """A subscription that reads a queue without consuming it, for `Connection.browse`."""

    def __init__(self, table: SubscriptionTable, **arguments: Any) -> None:
        super().__init__(table, ack="auto", **arguments)
        self.has_reader = True

    def messages(self, timeout: float | None) -> Iterator[Message]:
        """Subscribe, and yield the messages; raises as `Connection.browse` does.

        Args:
            timeout: seconds for each message.
        """
        try:
            self.table.add(self, timeout=DEFAULT)
            while (message := self._next(Deadline(timeout))) is not None:
                yield message
        finally:
            if not self.closed:
                # From a new thread, as the garbage collector may run this in one that holds any of our locks.
                with contextlib.suppress(StompError):  # no thread can be started
                    DaemonThread(f"stompy-browser-{self.id}", self._close_quietly).start()

    def is_end_marker(self, message: Message) -> bool:
        """Return whether it is ActiveMQ's end marker, which is not a message."""
        return message.headers.get("browser") == "end"

    def link_lost(self, reason: StompError) -> bool:
        """End: on the next link it would start over."""
        self.end(reason)
        return True

    def _next(self, deadline: Deadline) -> Message | None:
        message = self.take(deadline)
        if message is None:
            # The reader, which found the end marker, never writes, so the broker still has the subscription.
            with contextlib.suppress(StompError):
                self.table.remove(self, timeout=deadline.remaining())
        return message

    def _close_quietly(self) -> None:
        with contextlib.suppress(StompError):
            self.table.remove(self, timeout=DEFAULT)


class SubscriptionTable:
    """The active subscriptions of one connection. Any thread.

    Args:
        config: timeouts, client id.
        user_code: the listeners of the connection.
    """

    links: Sessions
    """Set by the link manager."""

    def __init__(self, config: Config, user_code: UserCode) -> None:
        self._config = config
        self._user_code = user_code
        self.receive_timeout = config.timeouts.receipt
        """Default timeout of `Subscription.receive`, in seconds."""
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._subscriptions: dict[str, ActiveSubscription] = {}
        self._newest: Link | None = None
        self._error_before = False
        """Whether the last replay was ended by an ERROR that names no frame."""
        self._ids = itertools.count(1)
        self.changes = 0
        """Incremented when a subscription is added or removed, to invalidate caches."""

    @property
    def listened_to(self) -> bool:
        """Whether a listener of the connection hears messages."""
        return bool(self._user_code.message_listeners)

    def new_id(self) -> str:
        """Return an id that is not in use."""
        return next(identity for identity in map(str, self._ids) if identity not in self._subscriptions)

    def all(self) -> list[ActiveSubscription]:
        """Return the active subscriptions."""
        with self._lock:
            return list(self._subscriptions.values())

    def find(self, identity: str | None, destination: str | None) -> ActiveSubscription | None:
        """Return the subscription that a message names; a 1.0 broker may send its destination only."""
        if identity is not None:
            return self._subscriptions.get(identity)
        return next((each for each in self.all() if each.destination == destination), None)

    def add(self, subscription: ActiveSubscription, *, timeout: float | Default | None, announce: bool = True) -> None:
        """Register a subscription, then send SUBSCRIBE and wait for its receipt; on the next link if one is lost.

        Args:
            subscription: registered first, as its messages may arrive before the receipt; ended if this raises.
            timeout: seconds in total; by default the receipt timeout.
            announce: whether to send SUBSCRIBE.
        """
        try:
            with self._lock:
                if subscription.id in self._subscriptions:
                    raise LocalProtocolError(f"there is already a subscription with id {subscription.id!r}")
                _check_cumulative_acks(subscription, self._subscriptions.values())
                self._subscriptions[subscription.id] = subscription
                self.changes += 1
            subscription.announced = announce
            if announce:
                self._subscribe(subscription, Deadline(given(timeout, self.receive_timeout)))
        except BaseException:
            self.withdraw(subscription)
            raise

    def withdraw(self, subscription: ActiveSubscription) -> None:
        """End a subscription whose `add` failed, or was interrupted after the broker had confirmed."""
        link = subscription.confirmed
        if self.forget(subscription) and link is not None:
            self._send_unsubscribe(link, subscription)
        subscription.end(None)

    def _subscribe(self, subscription: ActiveSubscription, deadline: Deadline) -> None:
        link = self.links.live(deadline.remaining())
        while True:
            try:
                self._send_subscribe(subscription, link, deadline.remaining())
                with self._lock:
                    # Unless the next link was replayed meanwhile, without this subscription.
                    if self._newest in (None, link):
                        subscription.confirmed = link
                        return
            except ConnectionLostError as error:
                if link.alive or deadline.expired:
                    raise
                lost = error
            else:
                lost = ConnectionLostError("the connection was lost while subscribing")
            try:
                link = self.links.live(deadline.remaining())
            except StompError:
                raise lost from None

    def _send_subscribe(self, subscription: ActiveSubscription, link: Link, timeout: float | None) -> None:
        receipt, sent = link.receipts.make(), list[Link]()
        try:
            headers = subscription.subscribe_headers
            link.writer.request("SUBSCRIBE", headers, receipt=receipt, on_written=lambda: sent.append(link))
            receipt.result(timeout)
        except BaseException:
            # Only if it was sent: UNSUBSCRIBE for an unknown id is an error.
            if sent:
                self._send_unsubscribe(link, subscription)
            raise

    def remove(
        self, subscription: ActiveSubscription, *, timeout: float | Default | None, delete: bool = False
    ) -> None:
        """End a subscription, with UNSUBSCRIBE if its link is alive.

        Args:
            subscription: ignored if unknown.
            timeout: seconds for each UNSUBSCRIBE; by default the receipt timeout.
            delete: delete a durable subscription.

        Raises:
            ConfigurationError: it is not durable, or the broker cannot delete it.
        """
        link = self.links.link
        frames = link.dialect.unsubscribe_headers(
            subscription.id, subscription.options, delete=delete, client_id=self._config.client, version=link.version
        )
        with self._lock:
            # Only one of several callers, as a second UNSUBSCRIBE is an error.
            if not self._contains(subscription) or subscription.unsubscribing:
                return
            subscription.unsubscribing = True
            link = subscription.confirmed or link
        try:
            for headers in frames if link.alive and subscription.announced else ():
                receipt = link.receipts.make()
                link.writer.request("UNSUBSCRIBE", headers, receipt=receipt)
                receipt.result(timeout)
        finally:
            # Only now, as messages may arrive until the receipt.
            if self.forget(subscription):
                subscription.end(None)

    def close(self, subscription: ActiveSubscription, *, timeout: float | Default | None, drain: bool) -> None:
        """End a subscription, after its messages were handled if `drain` is true; see `Subscription.close`."""
        deadline = Deadline(given(timeout, self.receive_timeout))
        if drain and not self.links.forked:  # in a child, nobody handles what its parent received
            subscription.drain()
            if subscription.ack == "auto":
                self.remove(subscription, timeout=deadline.remaining())
            dispatcher = subscription.dispatcher or self._user_code.dispatcher
            if not (subscription.wait_read(deadline) and dispatcher.wait_passed(deadline)):
                _LOG.warning("%r is closed before all received messages were handled", subscription)
        self.remove(subscription, timeout=deadline.remaining())

    def replay(self, link: Link) -> None:
        """Restore the confirmed subscriptions on a new link, before it is published."""
        with self._lock:
            self._newest = link
            active = [each for each in self._subscriptions.values() if each.confirmed and not each.unsubscribing]
        receipts = [link.receipts.make() for _ in active]
        for subscription, receipt in zip(active, receipts, strict=True):
            link.writer.request("SUBSCRIBE", subscription.subscribe_headers, receipt=receipt)
        try:
            for receipt in receipts:
                receipt.result()
        except BrokerError as error:
            # One that names no frame may be about the session, as of a broker that stops; a refusal comes again.
            if error.receipt_id is None and not self._error_before:
                self._error_before = True
                raise ConnectionLostError(str(error)) from error
            raise
        self._error_before = False
        for subscription in active:
            with self._lock:
                removed = subscription.unsubscribing or not self._contains(subscription)
                if not removed:
                    subscription.confirmed = link
            if removed:
                self._send_unsubscribe(link, subscription)

    def link_lost(self, reason: StompError | None) -> None:
        """Called when a session has ended; `reason` is `None` if we closed it."""
        for subscription in self.all():
            if reason is not None and subscription.link_lost(reason):
                self.forget(subscription)

    def finish(self, reason: StompError | None) -> None:
        """End all subscriptions: there will be no other session."""
        for subscription in self.all():
            subscription.end(reason)

    def forget(self, subscription: ActiveSubscription) -> bool:
        """Remove a subscription without UNSUBSCRIBE; return whether it was known."""
        with self._lock:
            if not self._contains(subscription):
                return False
            del self._subscriptions[subscription.id]
            self.changes += 1
            subscription.confirmed = None
            return True

    def _contains(self, subscription: ActiveSubscription) -> bool:
        return self._subscriptions.get(subscription.id) is subscription

    def _send_unsubscribe(self, link: Link, subscription: ActiveSubscription) -> None:
        """Send UNSUBSCRIBE for a subscription that the broker may have, without a receipt."""
        with contextlib.suppress(StompError):
            # With the usual timeout, as a shorter one could end a link whose TCP window is full.
            link.writer.request("UNSUBSCRIBE", {"id": subscription.id})


def _check_cumulative_acks(new: ActiveSubscription, others: Iterable[ActiveSubscription]) -> None:
    """Check that no ACK for one subscription also acknowledges messages of another."""
    if new.ack == "auto":
        return
    # The first is enough: one that acknowledges for all is the only one that acknowledges.
    other = next((other for other in others if other.ack != "auto"), None)
    if other is not None and (new.acks_all or other.acks_all):
        raise ConfigurationError(
            "with this broker, an ACK in mode 'client' acknowledges messages of all subscriptions of a connection,"
            f" so {new.destination!r} and {other.destination!r} need 'client-individual' or separate connections"
        )
