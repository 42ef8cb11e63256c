"""The subscriptions of a connection: restoring them on each link, and routing messages to them, handlers and listeners.

| thread | calls | lock |
|---|---|---|
| reader | `Router.messages` | an inbox or a dispatcher queue (leaves) |
| dispatchers | `Router._deliver`, user code | none |
| any caller | `SubscriptionTable` | subscriptions |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 2 | subscriptions | id to subscription, the link that confirmed each, the newest link | no |

Three threads may add, remove and replay a subscription at once, on different links. Each checks the state under the
lock: `add` starts over if the next link was replayed without it, `replay` undoes what is being removed, and `remove`
uses the link that `replay` recorded.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stompy.connection.listeners import Callbacks, Dispatcher, Listener, run_logged
from stompy.connection.message import Acker, Delivery, Message, log_fields
from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.default import Default, given
from stompy.errors import ConfigurationError, ConnectionLostError, LocalProtocolError, StompError
from stompy.forks import Owner
from stompy.frames.frame import Headers, headers_from_head
from stompy.frames.learned import Row
from stompy.link.link import Link
from stompy.locks import Rank, make_lock
from stompy.threads import must_propagate

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.link_manager import LinkManager

_LOG = logging.getLogger("stompy.connection")
_COUNT_BATCH = 16
"""Messages after which flow control is updated, as each update takes a lock."""
_MAX_KEYS = 10_000
"""Cached values of `subscription`; a broker may encode one value in several ways."""
_MAX_KEY_BYTES = 255
"""Longer values are not cached; those of 1.0 may be padded."""


class SubscriptionTable:
    """The active subscriptions of one connection. Any thread.

    Args:
        config: timeouts, client id.
        callbacks: the listeners of the connection.
    """

    links: LinkManager
    """Set by the link manager."""

    def __init__(self, config: Config, callbacks: Callbacks) -> None:
        self._config = config
        self._callbacks = callbacks
        self.receive_timeout = config.timeouts.receipt
        """Default timeout of `Subscription.receive`, in seconds."""
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._subscriptions: dict[str, Subscription] = {}
        self._confirmed: dict[str, Link] = {}
        self._newest: Link | None = None
        self._ids = itertools.count(1)
        self.changes = 0
        """Incremented when a subscription is added or removed, to invalidate caches."""

    def listened_to(self) -> bool:
        """Return whether a listener of the connection hears messages."""
        return bool(self._callbacks.message_listeners)

    def new_id(self) -> str:
        """Return an id that is not in use."""
        return next(identity for identity in map(str, self._ids) if identity not in self._subscriptions)

    def all(self) -> list[Subscription]:
        """Return the active subscriptions."""
        with self._lock:
            return list(self._subscriptions.values())

    def find(self, identity: str | None, destination: str | None) -> Subscription | None:
        """Return the subscription that a message names; a 1.0 broker may send its destination only."""
        if identity is not None:
            return self._subscriptions.get(identity)
        return next((each for each in self.all() if each.destination == destination), None)

    def add(self, subscription: Subscription, *, timeout: float | Default | None, announce: bool = True) -> None:
        """Register a subscription, then send SUBSCRIBE and wait for its receipt; on the next link if one is lost.

        Args:
            subscription: registered first, as its messages may arrive before the receipt.
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
            subscription._announced = announce
            if not announce:
                return
            self._subscribe(subscription, Deadline(given(timeout, self.receive_timeout)))
        except BaseException:
            self.forget(subscription)
            subscription._end(None)
            raise

    def _subscribe(self, subscription: Subscription, deadline: Deadline) -> None:
        link = self.links.live(deadline.remaining())
        while True:
            try:
                self._send_subscribe(subscription, link, deadline.remaining())
                if self._note_confirmed(subscription, link):
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

    def _send_subscribe(self, subscription: Subscription, link: Link, timeout: float | None) -> None:
        sent: list[Link] = []
        try:
            receipt = link.writer.request(
                "SUBSCRIBE", subscription._subscribe_headers(), receipt=True, on_written=lambda: sent.append(link)
            )
            assert receipt is not None
            receipt.result(timeout)
        except BaseException:
            # Only if it was sent: UNSUBSCRIBE for an unknown id is an error.
            if sent:
                self._send_unsubscribe(link, subscription)
            raise

    def _note_confirmed(self, subscription: Subscription, link: Link) -> bool:
        """Record the link that confirmed a subscription; return `False` if the next link was replayed without it."""
        with self._lock:
            if self._newest not in (None, link):
                return False
            self._confirmed[subscription.id] = link
            return True

    def remove(self, subscription: Subscription, *, timeout: float | Default | None, delete: bool = False) -> None:
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
            subscription.id, subscription._options, delete=delete, client_id=self._config.client, version=link.version
        )
        with self._lock:
            # Only one of several callers, as a second UNSUBSCRIBE is an error.
            if not self._contains(subscription) or subscription._unsubscribing:
                return
            subscription._unsubscribing = True
            link = self._confirmed.get(subscription.id, link)
        try:
            for headers in frames if link.alive and subscription._announced else ():
                receipt = link.writer.request("UNSUBSCRIBE", headers, receipt=True)
                assert receipt is not None
                receipt.result(timeout)
        finally:
            # Only now, as messages may arrive until the receipt.
            if self.forget(subscription):
                subscription._end(None)

    def acknowledge_held(self) -> None:
        """Acknowledge what the current thread has received in mode `handled`: its block has ended."""
        for subscription in self.all():
            subscription._acknowledge_held()

    def close(self, subscription: Subscription, *, timeout: float | Default | None, drain: bool) -> None:
        """End a subscription, after its messages were handled if `drain` is true; see `Subscription.close`."""
        deadline = Deadline(given(timeout, self.receive_timeout))
        if drain and not self.links.forked:  # in a child, nobody handles what its parent received
            subscription._drain()
            if subscription.ack == "auto":
                self.remove(subscription, timeout=deadline.remaining())
            dispatcher = subscription._dispatcher or self._callbacks.dispatcher
            if not (subscription._wait_read(deadline) and dispatcher.wait_passed(deadline)):
                _LOG.warning("%r is closed before all received messages were handled", subscription)
        self.remove(subscription, timeout=deadline.remaining())

    def replay(self, link: Link) -> None:
        """Restore the confirmed subscriptions on a new link, before it is published."""
        with self._lock:
            self._newest = link
            active = [
                each for each in self._subscriptions.values() if each.id in self._confirmed and not each._unsubscribing
            ]
        receipts = [link.writer.request("SUBSCRIBE", each._subscribe_headers(), receipt=True) for each in active]
        for receipt in receipts:
            assert receipt is not None
            receipt.result()
        for subscription in active:
            if not self._note_replayed(subscription, link):
                self._send_unsubscribe(link, subscription)

    def _note_replayed(self, subscription: Subscription, link: Link) -> bool:
        """Record that a subscription is on a new link; return `False` if it is being removed."""
        with self._lock:
            active = self._contains(subscription) and not subscription._unsubscribing
            if active:
                self._confirmed[subscription.id] = link
            return active

    def link_lost(self, reason: StompError | None) -> None:
        """Called when a session has ended; `reason` is `None` if we closed it."""
        for subscription in self.all():
            if reason is not None and subscription._link_lost(reason):
                self.forget(subscription)

    def finish(self, reason: StompError | None) -> None:
        """End all subscriptions: there will be no other session."""
        for subscription in self.all():
            subscription._end(reason)

    def forget(self, subscription: Subscription) -> bool:
        """Remove a subscription without UNSUBSCRIBE; return whether it was known."""
        with self._lock:
            if not self._contains(subscription):
                return False
            del self._subscriptions[subscription.id]
            self.changes += 1
            self._confirmed.pop(subscription.id, None)
            return True

    def withdraw(self, subscription: Subscription) -> None:
        """End a subscription whose `add` was interrupted."""
        with self._lock:
            link = self._confirmed.get(subscription.id) if self._contains(subscription) else None
        self.forget(subscription)
        if link is not None:
            self._send_unsubscribe(link, subscription)
        subscription._end(None)

    def _contains(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.id) is subscription

    def _send_unsubscribe(self, link: Link, subscription: Subscription) -> None:
        """Send UNSUBSCRIBE for a subscription that the broker may have, without a receipt."""
        with contextlib.suppress(StompError):
            # With the usual timeout, as a shorter one could end a link whose TCP window is full.
            link.writer.request("UNSUBSCRIBE", {"id": subscription.id})


def _check_cumulative_acks(new: Subscription, others: Iterable[Subscription]) -> None:
    """Check that no ACK for one subscription also acknowledges messages of another."""
    if new.ack == "auto":
        return
    for other in others:
        if other.ack != "auto" and (new._acks_all or other._acks_all):
            raise ConfigurationError(
                "with this broker, an ACK in mode 'client' acknowledges messages of all subscriptions of a connection,"
                f" so {new.destination!r} and {other.destination!r} need 'client-individual' or separate connections"
            )


class _DeliveryCache:
    """The deliveries of a link by the raw value of `subscription`, until the subscriptions change."""

    __slots__ = ("by_key", "changes", "link", "unrouted")

    def __init__(self, link: Link, changes: int, acker: Acker) -> None:
        self.link = link
        self.changes = changes
        self.by_key: dict[bytes, Delivery] = {}
        self.unrouted: Delivery = Delivery(link, acker, None)


class Router:
    """Routes the MESSAGE frames of a connection.

    Args:
        subscriptions: of the connection.
        callbacks: listeners and dispatchers.
        acker: for the messages.
    """

    def __init__(self, subscriptions: SubscriptionTable, callbacks: Callbacks, acker: Acker) -> None:
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._acker = acker
        self.unrouted = 0
        """Number of messages for no known subscription."""
        self._warn_unrouted_at = 1
        self._cache: _DeliveryCache | None = None
        self._running: dict[Dispatcher | None, Delivery] = {}
        """What each dispatcher delivers now; `None` is the connection's."""
        self._owner = Owner("connection")

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Route the messages of one read; on the reader."""
        cache, changes = self._cache, self._subscriptions.changes
        # The reader of the previous link may still run: each works on the cache that it has got.
        if cache is None or cache.link is not link or cache.changes != changes:
            cache = self._cache = _DeliveryCache(link, changes, self._acker)
        by_key = cache.by_key
        messages: list[Message] = []
        separate: defaultdict[Delivery, list[Message]] = defaultdict(list)
        for headers, key, body in rows:
            delivery = by_key.get(key) or self._find(cache, headers, key)
            message = Message(delivery, headers, body)
            messages.append(message)
            if delivery.source is None or not delivery.source._direct:
                separate[delivery].append(message)
        listeners = self._callbacks.message_listeners
        excluded = [
            message
            for delivery, batch in separate.items()
            for message in self._route_separately(delivery, batch, listeners)
        ]
        if listeners:
            messages = [message for message in messages if message not in excluded] if excluded else messages
        elif separate:
            messages = [message for message in messages if message._delivery not in separate]
        self._hand_over(link, messages, listeners, None)

    def _find(self, cache: _DeliveryCache, headers: bytes | Headers, key: bytes) -> Delivery:
        """Return the delivery that a message belongs to."""
        if isinstance(headers, bytes):
            headers = headers_from_head(headers, cache.link.protocol.grammar, "MESSAGE")
        identity = headers.get("subscription")
        destination = headers.get("destination") if identity is None else None
        subscription = self._subscriptions.find(identity, destination)
        if subscription is None:
            return cache.unrouted
        delivery = subscription._delivery_on(cache.link, self._acker)
        if 0 < len(key) <= _MAX_KEY_BYTES and len(cache.by_key) < _MAX_KEYS:
            cache.by_key[key] = delivery
        return delivery

    def _route_separately(
        self, delivery: Delivery, messages: list[Message], listeners: list[Listener]
    ) -> list[Message]:
        """Route messages that have no handler on the dispatcher; return those that listeners must not get."""
        subscription = delivery.source
        if subscription is None:
            self._count_unrouted(messages)
            return []
        if subscription._draining:
            return messages
        marker = messages[-1:] if subscription._is_end_marker(messages[-1]) else []
        queued = messages[:-1] if marker else messages
        if subscription._dispatcher is not None:
            self._hand_over(delivery.link, queued, [], subscription._dispatcher)
        elif queued and not (listeners and subscription._is_unread()):
            delivery.link.flow.added(len(queued), sum([message.size for message in queued]))
            for message in queued:
                message._counted = True
            subscription._offer(queued)
            if self._callbacks.message_listeners:
                self.pass_on(subscription)
            if not subscription._has_reader:
                return messages  # for listeners by `pass_on` only, not a second time
        if marker:
            subscription._end(None)
        return marker

    # A listener may be added when messages wait in an inbox already. Nothing is lost, left there or overtaken, as
    #
    # - whoever adds one does so first, and then calls `listener_added`; the reader first puts messages into an inbox,
    #   and then looks whether there is a listener. So one of them at least calls `pass_on`.
    # - the reader gives messages to listeners directly only if the inbox is empty. What was in it was taken by a job on
    #   the dispatcher, where the job for these messages follows.

    def listener_added(self) -> None:
        """Let the listeners have what waits for somebody who receives, if nobody ever did."""
        for subscription in self._subscriptions.all():
            self.pass_on(subscription)

    def pass_on(self, subscription: Subscription) -> None:
        """Queue a call of the listeners with what is in an inbox that nobody reads."""
        if subscription._handler is None and not subscription._has_reader:
            self._callbacks.call_soon(partial(self._pass_on, subscription))

    def _pass_on(self, subscription: Subscription) -> None:
        listeners = self._callbacks.message_listeners
        for message in subscription._take_unread() if listeners else ():
            link = message._link
            # One by one, so that reading stays paused while too many wait.
            link.flow.taken(message)
            link.flow.added(1, message.size)
            self._deliver(link, [message], listeners, None)

    def _count_unrouted(self, messages: list[Message]) -> None:
        # Logged when the count has doubled, so that a broker cannot fill a disk with log lines.
        if self.unrouted + len(messages) >= self._warn_unrouted_at:
            _LOG.warning(
                "%d message(s) for no known subscription so far, the latest: %r",
                self.unrouted + len(messages),
                messages[0].frame,
            )
            self._warn_unrouted_at = 2 * (self.unrouted + len(messages))
        self.unrouted += len(messages)

    def _hand_over(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[Listener],
        own: Dispatcher | None,
    ) -> None:
        """Queue messages for user code as one job; if the dispatcher has ended, run it here."""
        if not messages:
            return
        link.flow.added(len(messages), sum([message.size for message in messages]))
        job = partial(self._deliver, link, messages, listeners, own)
        if not (own or self._callbacks.dispatcher).put(job):
            run_logged(job)

    def stalled(self, link: Link, seconds: float) -> None:
        """Warn that reading has been paused for `seconds`, and say whose messages wait; on the reader."""
        inboxes = [each for each in self._subscriptions.all() if each.queued]
        waiting = link.flow.waiting_messages
        if 2 * sum(each.queued for each in inboxes) >= waiting:
            reason = f"nobody has received from {_names(inboxes)}: iterate over it, give it a handler, or unsubscribe"
        else:
            running = {each.source for each in self._running.copy().values() if each.source is not None}
            reason = f"the handler or listener for {_names(running)} is busy: let it return sooner, or set prefetch"
        _LOG.warning(
            "reading from %s has been paused for %g s, as %d received messages wait; %s",
            link.address,
            seconds,
            waiting,
            reason,
            extra={"stompy_address": link.address},
        )

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[Listener],
        own: Dispatcher | None,
    ) -> None:
        """Call user code with messages; on a dispatcher."""
        callbacks, flow, running = self._callbacks, link.flow, self._running
        done = size = 0
        try:
            for message in messages:
                running[own] = delivery = message._delivery
                source = delivery.source
                try:
                    # Not if the broker will redeliver it.
                    if not callbacks.discarding and (
                        delivery.ack_mode == "auto"
                        or (
                            link.alive
                            and (source is None or not source._unsubscribing or link.dialect.ack_after_unsubscribe)
                        )
                    ):
                        failure: BaseException | None = None
                        for listener in listeners:
                            failure = run_logged(partial(listener.on_message, message)) or failure
                        if source is not None:
                            handler = source._handler
                            if handler is not None:
                                if source._dispatcher is not own:
                                    continue
                                handler(message)
                            elif failure is not None:  # of the listeners, which are the consumer
                                self._failed(message, failure)
                                continue
                            if delivery.ack_mode == "handled":
                                message._handled()
                except BaseException as error:
                    if must_propagate(error) or self._owner.forked:
                        raise
                    _LOG.exception(
                        "the handler of %.200r raised for message %.200r",
                        message.destination,
                        message.message_id,
                        extra=log_fields(message),
                    )
                    self._failed(message, error)
                finally:
                    done += 1
                    size += message.size
                # In batches, but immediately while reading is paused.
                if done == _COUNT_BATCH or flow.paused:
                    flow.removed(done, size)
                    done = size = 0
        finally:
            running.pop(own, None)
            flow.removed(done, size)

    def _failed(self, message: Message, error: BaseException) -> None:
        """Called when the consumer of a message raised."""
        source = message._delivery.source
        message._fail(nack=source is not None and source.on_exception == "nack")
        self._callbacks.handler_failed(message, error)


def _names(subscriptions: Iterable[Subscription]) -> str:
    return ", ".join(sorted(f"{each.destination!r} (subscription {each.id})" for each in subscriptions))
