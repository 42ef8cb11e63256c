"""The inside of a connection: what threads and messages hold on to, so that the user's handle can be forgotten.

| thread | does here | lock |
|---|---|---|
| any caller | `send`, `subscribe`, `acknowledge`, `disconnect` | subscriptions (2), then the link's |
| reader | `messages`, `receipt`, `ended` | subscriptions' inboxes (leaf), dispatcher queue (leaf) |
| dispatcher | user code | none |
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from stompy.connection.codec import encode_body, user_headers
from stompy.connection.config import Config
from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.connection.listener import ConnectionListener
from stompy.connection.message import Message
from stompy.connection.opening import open_first
from stompy.connection.stats import ConnectionStats
from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.errors import (
    AckError,
    BrokerError,
    ConfigurationError,
    HeartBeatTimeout,
    LocalProtocolError,
    NotConnected,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.link.locks import Rank, make_lock
from stompy.link.receipts import Receipt
from stompy.protocol.ack import ack_headers

_LOG = logging.getLogger("stompy.connection")
_NUMBERS = itertools.count(1)


class Core:
    """Links, subscriptions, listeners and the dispatcher of one connection.

    Args:
        config: what `connect` was told.
        listeners: heard from the first session on.
    """

    def __init__(self, config: Config, listeners: Sequence[ConnectionListener] = ()) -> None:
        self.config = config
        self.name = f"{config.name}-{next(_NUMBERS)}"
        self.listeners = list(listeners)
        self.dispatcher = Dispatcher(self.name)
        self.unrouted = 0
        self._subscriptions: dict[str, Subscription] = {}
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._claims = make_lock(Rank.LEAF, "claims")
        self._ids = itertools.count(1)
        self._transactions = itertools.count(1)
        self._link: Link | None = None
        self._closed = False
        self._draining = False

    def open(self) -> None:
        """Open the link; in the caller's thread."""
        opened = open_first(self.config)
        link = Link(opened, self.config.link_settings(self.config.addresses[0]), self, name=self.name)
        self._link = link
        self.dispatcher.start()
        self._tell("on_connected", opened.connected)
        link.start()

    # State.

    @property
    def link(self) -> Link:
        """The newest link."""
        if self._link is None:
            raise NotConnected("the connection was never opened")
        return self._link

    def live_link(self) -> Link:
        """Return the link to use now.

        Raises:
            NotConnected: closed by its owner.
            ConnectionLost: the link died.
        """
        link = self.link
        link.check_open()
        return link

    @property
    def closed(self) -> bool:
        """Whether the owner closed it."""
        return self._closed

    @property
    def receive_timeout(self) -> float:
        """The default wait for a message."""
        return self.config.receipt_timeout

    @property
    def default_content_length(self) -> bool:
        """Whether SEND carries `content-length`."""
        return self.config.content_length

    def new_transaction_id(self) -> str:
        """Return an id that no other transaction of the connection has."""
        return f"{self.name}-tx{next(self._transactions)}"

    def subscriptions(self) -> list[Subscription]:
        """Return the live subscriptions."""
        with self._lock:
            return list(self._subscriptions.values())

    # Sending.

    def send_headers(
        self, destination: str, body: object, content_type: str | None, headers: Mapping[str, object] | None
    ) -> tuple[dict[str, str], bytes]:
        """Return headers and octets of a SEND; user headers come behind the protocol's own."""
        check_destination(destination)
        octets, kind = encode_body(body, content_type)
        fields = {"destination": destination}
        if kind is not None:
            fields["content-type"] = kind
        if headers:
            fields.update(user_headers(headers))
        return fields, octets

    # Acknowledging (`message.Acker`, `transaction.Transacting`).

    def acknowledge(
        self, message: Message, command: str, *, transaction: str | None = None, receipt: bool = False
    ) -> Receipt | None:
        """Send ACK or NACK for a message, once, over the link it came by."""
        headers = self.settle_headers(message, command)
        if transaction is not None:
            headers["transaction"] = transaction
        try:
            return message.link.request(command, headers, receipt=receipt)
        except LocalProtocolError:
            self.unsettle(message)
            raise

    def settle_headers(self, message: Message, command: str) -> dict[str, str]:
        """Claim a message for ACK or NACK and return the headers that name it.

        Raises:
            AckError: it needs none, has had one, or its link is gone.
            LocalProtocolError: the version has no NACK.
        """
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK: the broker took it as consumed when it sent it")
        link = message.link
        if link is not self._link or not link.alive:
            raise AckError("the link that this message came by is gone; the broker will deliver it again")
        version = link.protocol.version
        assert version is not None
        headers = ack_headers(command, message.headers.peek, version)
        with self._claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            message.claim(command)
        return headers

    def unsettle(self, message: Message) -> None:
        """Give a claim back."""
        with self._claims:
            message.claim(None)

    # Subscribing.

    def subscribe(self, subscription: Subscription, headers: dict[str, str], *, timeout: float | None) -> None:
        """Register a subscription, then tell the broker and wait until it has taken it."""
        link = self.live_link()
        with self._lock:
            if subscription.id in self._subscriptions:
                raise LocalProtocolError(f"there is already a subscription with id {subscription.id!r}")
            self._subscriptions[subscription.id] = subscription
        try:
            receipt = link.request("SUBSCRIBE", headers, receipt=True)
            assert receipt is not None
            receipt.wait(timeout)
        except BaseException:
            self._forget(subscription)
            raise

    def new_subscription_id(self) -> str:
        """Return an id that this connection has not used."""
        return str(next(self._ids))

    def unsubscribe(self, subscription: Subscription, *, timeout: float | None) -> None:
        """End a subscription at the broker; a dead link has ended it already."""
        if not self._forget(subscription):
            return
        subscription.end(None)
        link = self._link
        if link is None or not link.alive:
            return
        receipt = link.request("UNSUBSCRIBE", {"id": subscription.id}, receipt=True)
        assert receipt is not None
        receipt.wait(timeout)

    def _forget(self, subscription: Subscription) -> bool:
        with self._lock:
            return self._subscriptions.pop(subscription.id, None) is not None

    # What the link tells (`link.LinkOwner`): on the reader thread.

    def messages(self, link: Link, frames: Sequence[Frame]) -> None:
        """Route the messages of one read: whole runs for one subscription at a time."""
        run: list[Frame] = []
        current: Subscription | None = None
        for frame in frames:
            subscription = self._subscription_of(frame)
            if subscription is not current and run:
                self._route(link, current, run)
                run = []
            current = subscription
            run.append(frame)
        self._route(link, current, run)

    def _subscription_of(self, frame: Frame) -> Subscription | None:
        identity = frame.headers.peek("subscription")
        if identity is not None:
            return self._subscriptions.get(identity)
        # A 1.0 broker may leave the id out; then the destination decides.
        destination = frame.headers.peek("destination")
        return next((one for one in self.subscriptions() if one.destination == destination), None)

    def _route(self, link: Link, subscription: Subscription | None, frames: list[Frame]) -> None:
        heard = [one for one in self.listeners if _hears_messages(one)]
        if subscription is None:
            self.unrouted += len(frames)
            _LOG.warning("%d message(s) for no known subscription, the first: %r", len(frames), frames[0])
        ack = "auto" if subscription is None else subscription.ack
        messages = [Message(frame, link, self, ack_mode=ack) for frame in frames]
        octets = sum([len(frame.body) for frame in frames])
        if subscription is not None and subscription.handler is None:
            link.gate.added(len(messages), octets)
            subscription.offer(messages)
            handler = None
        else:
            handler = None if subscription is None else subscription.handler
        if heard or handler is not None:
            link.gate.added(len(messages), octets)
            self.call_soon(partial(self._deliver, link, messages, heard, handler))

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[ConnectionListener],
        handler: Callable[[Message], object] | None,
    ) -> None:
        """Hand messages to user code; on the dispatcher."""
        for message in messages:
            try:
                if self._still_wanted(message):
                    for listener in listeners:
                        run_reported(partial(listener.on_message, message))
                    if handler is not None:
                        handler(message)
            except Exception:
                _LOG.exception("the handler of %r raised for message %r", message.destination, message.message_id)
            finally:
                link.gate.removed(1, len(message.body))

    def _still_wanted(self, message: Message) -> bool:
        """Whether a queued message is to be delivered: not one that the broker will send again."""
        if self._closed and not self._draining:
            return False
        return message.ack_mode == "auto" or message.link.alive

    def receipt(self, link: Link, frame: Frame) -> None:
        """Tell listeners of a RECEIPT."""
        if self.listeners:
            self._tell("on_receipt", frame)

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Tell everybody that the link is over."""
        for subscription in self.subscriptions():
            subscription.end(reason)
        if isinstance(reason, BrokerError):
            self._tell("on_error", reason.frame)
        elif isinstance(reason, HeartBeatTimeout):
            self._tell("on_heartbeat_timeout")
        self._tell("on_disconnected", reason)
        self.dispatcher.stop()

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher; where that has ended, here and now."""
        if not self.dispatcher.put(function):
            run_reported(function)

    def _tell(self, event: str, *arguments: object) -> None:
        for listener in self.listeners:
            method = getattr(listener, event, None)
            if method is not None:
                self.call_soon(partial(method, *arguments))

    def stats(self) -> ConnectionStats:
        """Return counters and gauges of the newest link."""
        link = self.link
        return ConnectionStats(
            frames_sent=link.counters.frames_out,
            octets_sent=link.counters.octets_out,
            frames_received=link.counters.frames_in,
            octets_received=link.counters.octets_in,
            receipts_pending=len(link.receipts),
            queued_messages=link.gate.waiting_messages,
            queued_octets=link.gate.waiting_octets,
            subscriptions=len(self.subscriptions()),
            unrouted=self.unrouted,
            gate_shut=link.gate.shut,
            times_shut=link.gate.times_shut,
            silent_for=max(0.0, time.monotonic() - link.pulse.last_heard),
        )

    # Closing.

    def disconnect(self, *, timeout: float | None, drain: bool) -> None:
        """Say goodbye, end the threads; see `Connection.disconnect`."""
        deadline = Deadline(self.config.close_timeout if timeout is None else timeout)
        self._draining = drain
        link = self._link
        if link is None:
            self._closed = True
            return
        if drain and link.alive and not self.dispatcher.is_current():
            for subscription in self.subscriptions():
                self.unsubscribe(subscription, timeout=deadline.remaining())
            self.dispatcher.wait_idle(deadline)
        self._closed = True
        try:
            if link.alive:
                link.say_goodbye(deadline)
        except StompError as error:
            _LOG.info("DISCONNECT of %s was not confirmed: %s", self.name, error)
        finally:
            self.abandon()
            link.join(deadline)
            if not self.dispatcher.join_until(deadline):
                _LOG.warning("a callback of %s still runs at the close deadline", self.name)

    def abandon(self) -> None:
        """Close without a word and without waiting."""
        self._closed = True
        if self._link is not None:
            self._link.close()
        self.dispatcher.stop()


def _hears_messages(listener: object) -> bool:
    method = getattr(type(listener), "on_message", None)
    return method is not None and method is not ConnectionListener.on_message


def check_destination(destination: object) -> None:
    """Refuse what cannot be a destination.

    Raises:
        LocalProtocolError: not text, or empty.
    """
    if not isinstance(destination, str) or not destination:
        raise LocalProtocolError(f"a destination is text of at least one character, not {destination!r}")


def check_ack_mode(ack: str) -> None:
    """Refuse an unknown ack mode.

    Raises:
        ConfigurationError: not `auto`, `client` or `client-individual`.
    """
    if ack not in ("auto", "client", "client-individual"):
        raise ConfigurationError(f"ack must be 'auto', 'client' or 'client-individual', not {ack!r}")
