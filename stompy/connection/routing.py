"""Routing messages from the reader to subscriptions, handlers and listeners.

| thread | calls | lock |
|---|---|---|
| reader | `messages` | an inbox or a dispatcher queue (leaves) |
| dispatchers | `_deliver`, user code | none |
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from stompy.connection.acking import Acker
from stompy.connection.dispatcher import Dispatcher, run_logged
from stompy.connection.listeners import Callbacks, ConnectionListener
from stompy.connection.message import Delivery, Message, log_fields
from stompy.connection.subscriptions import SubscriptionTable
from stompy.forks import Owner
from stompy.frames.frame import Headers
from stompy.frames.learned import Row
from stompy.link.link import Link
from stompy.threads import must_propagate

_LOG = logging.getLogger("stompy.connection")
_COUNT_BATCH = 16
"""Messages after which flow control is updated, as each update takes a lock."""
_MAX_KEYS = 10_000
"""Cached values of `subscription`; a broker may encode one value in several ways."""
_MAX_KEY_BYTES = 255
"""Longer values are not cached; those of 1.0 may be padded."""


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
        excluded = [
            message for delivery, batch in separate.items() for message in self._route_separately(delivery, batch)
        ]
        listeners = [each for each in self._callbacks.listeners if _wants_messages(each)]
        if listeners:
            messages = [message for message in messages if message not in excluded] if excluded else messages
        elif separate:
            messages = [message for message in messages if message._delivery not in separate]
        self._hand_over(link, messages, listeners, None)

    def _find(self, cache: _DeliveryCache, headers: bytes | Headers, key: bytes) -> Delivery:
        """Return the delivery that a message belongs to."""
        if isinstance(headers, bytes):
            headers = Headers._from_head(headers, cache.link.protocol.grammar, "MESSAGE")
        identity = headers._peek("subscription")
        destination = headers._peek("destination") if identity is None else None
        subscription = self._subscriptions.find(identity, destination)
        if subscription is None:
            return cache.unrouted
        delivery = subscription._delivery_on(cache.link, self._acker)
        if 0 < len(key) <= _MAX_KEY_BYTES and len(cache.by_key) < _MAX_KEYS:
            cache.by_key[key] = delivery
        return delivery

    def _route_separately(self, delivery: Delivery, messages: list[Message]) -> list[Message]:
        """Route messages that do not go to the connection's dispatcher; return those that listeners must not get."""
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
        elif queued:
            delivery.link.flow.added(len(queued), sum([message.size for message in queued]))
            for message in queued:
                message._counted = True
            subscription._offer(queued)
        if marker:
            subscription._end(None)
        return marker

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
        listeners: list[ConnectionListener],
        own: Dispatcher | None,
    ) -> None:
        """Queue messages for user code as one job; if the dispatcher has ended, run it here."""
        if not messages:
            return
        link.flow.added(len(messages), sum([message.size for message in messages]))
        job = partial(self._deliver, link, messages, listeners, own)
        if not (own or self._callbacks.dispatcher).put(job):
            run_logged(job)

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[ConnectionListener],
        own: Dispatcher | None,
    ) -> None:
        """Call user code with messages; on a dispatcher."""
        callbacks, flow = self._callbacks, link.flow
        done = size = 0
        try:
            for message in messages:
                delivery = message._delivery
                source = delivery.source
                try:
                    # Not if the broker will redeliver it.
                    if not callbacks.discarding and (delivery.ack_mode == "auto" or link.alive):
                        for listener in listeners:
                            run_logged(partial(listener.on_message, message))
                        if source is not None and source._handler is not None and source._dispatcher is own:
                            source._handler(message)
                except BaseException as error:
                    if must_propagate(error) or self._owner.forked:
                        raise
                    _LOG.exception(
                        "the handler of %.200r raised for message %.200r",
                        message.destination,
                        message.message_id,
                        extra=log_fields(message),
                    )
                    message._fail(nack=source is not None and source.on_error == "nack")
                    callbacks.handler_failed(message, error)
                finally:
                    done += 1
                    size += message.size
                # In batches, but immediately while reading is paused.
                if done == _COUNT_BATCH or flow.paused:
                    flow.removed(done, size)
                    done = size = 0
        finally:
            flow.removed(done, size)


def _wants_messages(listener: object) -> bool:
    method = getattr(listener, "on_message", None)
    return method is not None and getattr(method, "__func__", method) is not ConnectionListener.on_message
