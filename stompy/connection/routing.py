"""From the reader to user code: which subscription a message is for, and who hears it.

| thread | does here | lock |
|---|---|---|
| reader | `messages` | an inbox or a dispatcher queue (leaves) |
| dispatchers | `_deliver`, user code | none |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from stompy.connection.acking import Acker
from stompy.connection.callbacks import Callbacks
from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.connection.listener import ConnectionListener
from stompy.connection.message import Message
from stompy.connection.registry import Registry
from stompy.connection.subscription import Subscription
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.link.thread import is_for_caller

_LOG = logging.getLogger("stompy.connection")


class Router:
    """Routes the MESSAGE frames of a connection.

    Args:
        registry: the subscriptions.
        callbacks: listeners and dispatchers.
        acker: acknowledges messages.
    """

    def __init__(self, registry: Registry, callbacks: Callbacks, acker: Acker) -> None:
        self._registry = registry
        self._callbacks = callbacks
        self._acker = acker
        self.unrouted = 0
        """Messages that came for no known subscription."""
        self._tell_of_unrouted = 1

    def messages(self, link: Link, frames: Sequence[Frame]) -> None:
        """Route the messages of one read, whole runs for one subscription at a time; on the reader."""
        run: list[Frame] = []
        current: Subscription | None = None
        for frame in frames:
            identity = frame.headers.peek("subscription")
            destination = frame.headers.peek("destination") if identity is None else None
            subscription = self._registry.find(identity, destination)
            if subscription is not current and run:
                self._route(link, current, run)
                run = []
            current = subscription
            run.append(frame)
        self._route(link, current, run)

    def _route(self, link: Link, subscription: Subscription | None, frames: list[Frame]) -> None:
        if subscription is None:
            self._count_unrouted(frames)
        elif subscription.winding_up:
            return
        elif frames and subscription.is_end(frames[-1]):
            self._route(link, subscription, frames[:-1])
            subscription.end(None)
            return
        if not frames:
            return
        ack = "auto" if subscription is None else subscription.ack
        acker = self._acker
        messages = [Message(frame, link, acker, ack_mode=ack, subscription=subscription) for frame in frames]
        octets = sum([message.size for message in messages])
        heard = [one for one in self._callbacks.listeners if _hears_messages(one)]
        handled = subscription if subscription is not None and subscription.handler is not None else None
        if subscription is not None and handled is None:
            link.gate.added(len(messages), octets)
            for message in messages:
                message.counted = True
            subscription.offer(messages)
        if handled is not None and handled.dispatcher is not None:
            self._hand_over(link, messages, octets, [], handled, handled.dispatcher)
            handled = None
        if heard or handled is not None:
            self._hand_over(link, messages, octets, heard, handled, None)

    def _count_unrouted(self, frames: list[Frame]) -> None:
        # Told of when the count has doubled: a broker must not be able to fill a disk with a line for each message.
        if self.unrouted + len(frames) >= self._tell_of_unrouted:
            _LOG.warning(
                "%d message(s) for no known subscription so far, now: %r", self.unrouted + len(frames), frames[0]
            )
            self._tell_of_unrouted = 2 * (self.unrouted + len(frames))
        self.unrouted += len(frames)

    def _hand_over(
        self,
        link: Link,
        messages: list[Message],
        octets: int,
        listeners: list[ConnectionListener],
        handled: Subscription | None,
        dispatcher: Dispatcher | None,
    ) -> None:
        link.gate.added(len(messages), octets)
        job = partial(self._deliver, link, messages, listeners, handled)
        if not (dispatcher or self._callbacks.dispatcher).put(job):
            run_reported(job)

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[ConnectionListener],
        handled: Subscription | None,
    ) -> None:
        """Hand messages to user code; on a dispatcher."""
        handler = None if handled is None else handled.handler
        for message in messages:
            try:
                if self._still_wanted(message):
                    for listener in listeners:
                        run_reported(partial(listener.on_message, message))
                    if handler is not None:
                        handler(message)
            except BaseException as error:
                if is_for_caller(error):
                    raise
                _LOG.exception("the handler of %r raised for message %r", message.destination, message.message_id)
                message.fail(nack=handled is not None and handled.on_error == "nack")
                self._callbacks.handler_failed(message, error)
            finally:
                link.gate.removed(1, message.size)

    def _still_wanted(self, message: Message) -> bool:
        """Whether a queued message is to be delivered: not one that the broker will send again."""
        return not self._callbacks.discarding and (message.ack_mode == "auto" or message.link.alive)


def _hears_messages(listener: object) -> bool:
    method = getattr(listener, "on_message", None)
    return method is not None and getattr(method, "__func__", method) is not ConnectionListener.on_message
