"""From the reader to user code: which subscription a message is for, and who hears it.

| thread | does here | lock |
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
from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.connection.listeners import Callbacks, ConnectionListener
from stompy.connection.message import Delivery, Message
from stompy.connection.subscriptions import SubscriptionTable
from stompy.frames.frame import Headers
from stompy.frames.learned import Row
from stompy.link.link import Link
from stompy.threads import is_for_caller

_LOG = logging.getLogger("stompy.connection")
_AT_ONCE = 16
"""Messages that are counted down from the gate at a time."""
_KEYS = 10_000
"""Values of `subscription` that are kept in mind; a broker may write one in many ways."""
_LONGEST_KEY = 255
"""Bytes of such a value; one of 1.0 may be padded."""


class _Known:
    """The deliveries of a link by the value of `subscription` on the wire, until a subscription comes or goes."""

    __slots__ = ("by_key", "changes", "link", "unrouted")

    def __init__(self, link: Link, changes: int, acker: Acker) -> None:
        self.link = link
        self.changes = changes
        self.by_key: dict[bytes, Delivery] = {}
        self.unrouted: Delivery = Delivery(link, acker, None)


class Router:
    """Routes the MESSAGE frames of a connection.

    Args:
        subscriptions: the subscriptions.
        callbacks: listeners and dispatchers.
        acker: acknowledges messages.
    """

    def __init__(self, subscriptions: SubscriptionTable, callbacks: Callbacks, acker: Acker) -> None:
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._acker = acker
        self.unrouted = 0
        """Messages that came for no known subscription."""
        self._tell_of_unrouted = 1
        self._known: _Known | None = None

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Route the messages of one read; on the reader."""
        known, changes = self._known, self._subscriptions.changes
        # A reader of the last link may be at work beside that of the next: each goes on with the one it has in hand.
        if known is None or known.link is not link or known.changes != changes:
            known = self._known = _Known(link, changes, self._acker)
        by_key = known.by_key
        messages: list[Message] = []
        apart: defaultdict[Delivery, list[Message]] = defaultdict(list)
        for headers, key, body in rows:
            delivery = by_key.get(key) or self._find(known, headers, key)
            message = Message(delivery, headers, body)
            messages.append(message)
            if delivery.source is None or not delivery.source._direct:
                apart[delivery].append(message)
        unheard = [one for delivery, few in apart.items() for one in self._set_apart(delivery, few)]
        heard = [one for one in self._callbacks.listeners if _hears_messages(one)]
        if heard:
            messages = [one for one in messages if one not in unheard] if unheard else messages
        elif apart:
            messages = [one for one in messages if one._delivery not in apart]
        self._hand_over(link, messages, heard, None)

    def _find(self, known: _Known, headers: bytes | Headers, key: bytes) -> Delivery:
        """Return the delivery that a message belongs to by its headers."""
        if isinstance(headers, bytes):
            headers = Headers.from_head(headers, known.link.protocol.grammar, "MESSAGE")
        identity = headers.peek("subscription")
        destination = headers.peek("destination") if identity is None else None
        subscription = self._subscriptions.find(identity, destination)
        if subscription is None:
            return known.unrouted
        delivery = subscription._delivery_on(known.link, self._acker)
        if 0 < len(key) <= _LONGEST_KEY and len(known.by_key) < _KEYS:
            known.by_key[key] = delivery
        return delivery

    def _set_apart(self, delivery: Delivery, messages: list[Message]) -> list[Message]:
        """Take the messages of a subscription that the dispatcher does not run; return what nobody may hear."""
        subscription = delivery.source
        if subscription is None:
            self._count_unrouted(messages)
            return []
        if subscription._draining:
            return messages
        mark = messages[-1:] if subscription._is_end(messages[-1]) else []
        wanted = messages[:-1] if mark else messages
        if subscription._dispatcher is not None:
            self._hand_over(delivery.link, wanted, [], subscription._dispatcher)
        elif wanted:
            delivery.link.flow.added(len(wanted), sum([one.size for one in wanted]))
            for one in wanted:
                one._counted = True
            subscription._offer(wanted)
        if mark:
            subscription._end(None)
        return mark

    def _count_unrouted(self, messages: list[Message]) -> None:
        # Told of when the count has doubled: a broker must not be able to fill a disk with a line for each message.
        if self.unrouted + len(messages) >= self._tell_of_unrouted:
            _LOG.warning(
                "%d message(s) for no known subscription so far, now: %r",
                self.unrouted + len(messages),
                messages[0].frame,
            )
            self._tell_of_unrouted = 2 * (self.unrouted + len(messages))
        self.unrouted += len(messages)

    def _hand_over(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[ConnectionListener],
        own: Dispatcher | None,
    ) -> None:
        """Queue messages for user code in one go; where the dispatcher has ended, run it here and now."""
        if not messages:
            return
        link.flow.added(len(messages), sum([one.size for one in messages]))
        job = partial(self._deliver, link, messages, listeners, own)
        if not (own or self._callbacks.dispatcher).put(job):
            run_reported(job)

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[ConnectionListener],
        own: Dispatcher | None,
    ) -> None:
        """Hand messages to user code; on a dispatcher."""
        callbacks, gate = self._callbacks, link.flow
        done = size = 0
        try:
            for message in messages:
                delivery = message._delivery
                source = delivery.source
                try:
                    # Not one that the broker will send again.
                    if not callbacks.discarding and (delivery.ack_mode == "auto" or link.alive):
                        for listener in listeners:
                            run_reported(partial(listener.on_message, message))
                        if source is not None and source._handler is not None and source._dispatcher is own:
                            source._handler(message)
                except BaseException as error:
                    if is_for_caller(error):
                        raise
                    _LOG.exception("the handler of %r raised for message %r", message.destination, message.message_id)
                    message._fail(nack=source is not None and source.on_error == "nack")
                    callbacks.handler_failed(message, error)
                finally:
                    done += 1
                    size += message.size
                # Counted down a few at a time, as that takes a lock; one at a time while the reader waits for it.
                if done == _AT_ONCE or gate.shut:
                    gate.removed(done, size)
                    done = size = 0
        finally:
            gate.removed(done, size)


def _hears_messages(listener: object) -> bool:
    method = getattr(listener, "on_message", None)
    return method is not None and getattr(method, "__func__", method) is not ConnectionListener.on_message
