"""The program's side of a connection: its listeners, and the dispatchers that run them and its handlers.

| thread | does here | lock |
|---|---|---|
| reader | `receipts`, `call_soon` | a dispatcher's queue (leaf) |
| who opens or replaces a link | `connected`, `lost`, `tell`, with the link manager's lock: must not block | the same |
| any caller | `new_dispatcher` | dispatchers (leaf) |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import BrokerError, HeartBeatTimeout, StompError
from stompy.frames.frame import Frame
from stompy.frames.learned import Run, frames_of
from stompy.link.link import Link
from stompy.locks import Event, Rank, make_lock


class ConnectionListener:
    """Base of listeners: override what you want to hear.

    All methods run on the connection's dispatcher thread, one at a time, in the order the listeners were added. They
    may call anything, `send`, `subscribe`, `ack` and `disconnect` included. What they raise is logged and does no harm.
    """

    def on_connected(self, frame: Frame) -> None:
        """Hear, before any frame of it, that a session is open; `frame` is CONNECTED.

        A session may be lost again before it is used, as while subscriptions are made on it: `on_disconnected` follows.
        """

    def on_message(self, message: Message) -> None:
        """Hear of every message of the connection, before the handler of its subscription."""

    def on_handler_error(self, message: Message, error: BaseException) -> None:
        """Called when the handler of a subscription raised `error`; before its next message if they share a thread.

        Where `message.settled` is `None` and its `ack_mode` not `"auto"`, the message was not refused: it holds a place
        in the prefetch until it is settled, which may be done here, or the session ends.
        """

    def on_receipt(self, frame: Frame) -> None:
        """Hear of every RECEIPT."""

    def on_error(self, frame: Frame) -> None:
        """Hear of an ERROR frame; `on_disconnected` follows."""

    def on_heartbeat_timeout(self) -> None:
        """Hear that the broker fell silent; `on_disconnected` follows."""

    def on_reconnecting(self, attempt: int, delay: float) -> None:
        """Hear that attempt number `attempt` at a new session comes in `delay` seconds.

        Also at the first session, with `connect(startup_timeout=...)`.
        """

    def on_closed(self, reason: StompError | None) -> None:
        """Called once per connection, as the last event, when there will be no other session.

        `reason` is why the last attempt to reconnect failed or, without a policy, why the session was lost; `None`
        where `disconnect` or the end of the program closed the connection. Not called where `connect` itself raised.
        """

    def on_disconnected(self, reason: StompError | None) -> None:
        """Hear, once a session, that it is over; `None` where `disconnect` ended it."""


class Callbacks:
    """Listeners and dispatchers of one connection.

    Args:
        name: of the connection.
        listeners: heard from the first session on.
    """

    def __init__(self, name: str, listeners: Sequence[ConnectionListener]) -> None:
        self.listeners = list(listeners)
        self.discarding = False
        """Whether what is queued is not wanted any more, as the connection was closed."""
        self.dispatcher = Dispatcher(f"stompy-{name}-dispatcher")
        self._name = name
        self._dispatchers = [self.dispatcher]
        self._numbers = itertools.count(2)
        self._lock = make_lock(Rank.LEAF, "callbacks")

    def add_listener(self, listener: ConnectionListener) -> None:
        """Call a listener from now on, after those that are there."""
        with self._lock:
            self.listeners = [*self.listeners, listener]

    def remove_listener(self, listener: ConnectionListener) -> None:
        """Call a listener no more; one that is not there is ignored."""
        with self._lock:
            self.listeners = [other for other in self.listeners if other is not listener]

    def new_dispatcher(self) -> Dispatcher:
        """Return a started dispatcher of its own for a subscription."""
        with self._lock:
            dispatcher = Dispatcher(f"stompy-{self._name}-dispatcher-{next(self._numbers)}")
            self._dispatchers = [*(one for one in self._dispatchers if not one.ended), dispatcher]
        dispatcher.start()
        return dispatcher

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher; where that has ended, here and now."""
        if not self.dispatcher.put(function):
            run_reported(function)

    # What listeners hear.

    def tell(self, event: str, *arguments: object) -> None:
        """Tell listeners of an event, by the name of their method."""
        for job in self._heard_by(event, *arguments):
            self.call_soon(job)

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        """Tell listeners of RECEIPTs."""
        if not self.listeners:
            return
        for frame in frames_of([frames]):
            # Counted like a message: a flood of receipts must not pile up in front of a slow listener.
            link.flow.added(1, frame.headers.size)
            self.tell("on_receipt", frame)
            self.call_soon(partial(link.flow.removed, 1, frame.headers.size))

    def handler_failed(self, message: Message, error: BaseException) -> None:
        """Tell listeners what a handler raised, before its next message where they share a dispatcher."""
        for job in self._heard_by("on_handler_error", message, error):
            if self.dispatcher.is_current():
                run_reported(job)
            else:
                self.dispatcher.put(job)

    def connected(self, frame: Frame, decided: Event) -> None:
        """Tell listeners of a new session, before any frame of it, when `decided` is set: it is used, or given up."""

        def wait() -> None:
            decided.wait()

        if self.listeners:
            self.call_soon(wait)
            self.tell("on_connected", frame)

    def lost(self, reason: StompError | None) -> None:
        """Tell listeners that the session is over."""
        if isinstance(reason, BrokerError):
            self.tell("on_error", reason.frame)
        elif isinstance(reason, HeartBeatTimeout):
            self.tell("on_heartbeat_timeout")
        self.tell("on_disconnected", reason)

    def _heard_by(self, event: str, *arguments: object) -> list[Callable[[], None]]:
        """Return the calls that tell each listener of an event."""
        methods = (getattr(listener, event, None) for listener in self.listeners)
        return [partial(method, *arguments) for method in methods if method is not None]

    # The end.

    def finish(self, reason: StompError | None) -> None:
        """Tell listeners that there will be no other session, and end behind what is queued."""
        for dispatcher in self._dispatchers:
            dispatcher.stop(self._heard_by("on_closed", reason) if dispatcher is self.dispatcher else ())

    def is_current(self) -> bool:
        """Whether the caller is one of the dispatchers."""
        return any(dispatcher.is_current() for dispatcher in self._dispatchers)

    def wait_idle(self, deadline: Deadline) -> None:
        """Wait until nothing is queued or running."""
        for dispatcher in self._dispatchers:
            dispatcher.wait_idle(deadline)

    def join_until(self, deadline: Deadline) -> bool:
        """Wait until the dispatchers have ended; return whether they have."""
        ended = [dispatcher.join_until(deadline) for dispatcher in self._dispatchers]
        return all(ended)
