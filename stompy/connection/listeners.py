"""Listeners of a connection, their events, and the calls of user code.

| thread | calls | lock |
|---|---|---|
| reader | `receipts`, `call_soon` | a dispatcher's queue (leaf) |
| any, under the link manager's lock | `connected`, `disconnected`, `notify` (must not block) | the same |
| any caller | `new_dispatcher` | dispatchers (leaf) |
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from stompy.arguments import is_async
from stompy.connection.message import Message
from stompy.connection.routing import Dispatcher, run_logged
from stompy.connection.subscriptions import Handler, MessageListener
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, HeartbeatTimeoutError, StompError
from stompy.frames.frame import Frame
from stompy.frames.heads import Run, frames_of
from stompy.link.link import Link, error_of
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.values import Value

if TYPE_CHECKING:
    from stompy.connection.connection import Connection


class ConnectionEvent(Value):
    """An event of a connection; the argument of most methods of a `Listener`.

    Attributes:
        connection: to which it happened.
    """

    connection: Connection


class ConnectedEvent(ConnectionEvent):
    """A session is open.

    Attributes:
        frame: CONNECTED.
    """

    frame: Frame


class DisconnectedEvent(ConnectionEvent):
    """A session has ended.

    Attributes:
        reason: `None` if `close` ended it.
    """

    reason: StompError | None


class HeartbeatTimeoutEvent(ConnectionEvent):
    """The broker sent nothing for too long."""


class ReconnectingEvent(ConnectionEvent):
    """An attempt to open a session follows.

    Attributes:
        attempt: its number.
        delay: seconds until then.
        reason: why the session was lost, or the previous attempt failed.
    """

    attempt: int
    delay: float
    reason: StompError | None


class HandlerErrorEvent(ConnectionEvent):
    """A handler raised.

    Attributes:
        message: that it was called with.
        error: that it raised.
    """

    message: Message
    error: BaseException


class ClosedEvent(ConnectionEvent):
    """There will be no further session.

    Attributes:
        reason: the error of the last reconnect attempt or, without a reconnect policy, of the session; `None` if
            `close` or the exit of the program closed the connection.
    """

    reason: StompError | None


class Listener:
    """Base class of listeners: override the methods you need.

    Methods run on the connection's dispatcher thread, one at a time, in the order the listeners were added. They may
    call anything, including `send`, `subscribe`, `ack` and `close`. Exceptions they raise are logged and ignored.
    """

    def on_connected(self, event: ConnectedEvent) -> None:
        """Called when a session is open, before any other frame of it.

        If the session is lost before it is used, such as while subscriptions are restored, `on_disconnected` follows.
        """

    def on_message(self, message: Message) -> None:
        """Called with every message of the connection, before the handler of its subscription.

        A subscription without a handler then needs no other reader, and has no inbox; see `Connection.subscribe`.
        """

    def on_handler_error(self, event: HandlerErrorEvent) -> None:
        """Called when a handler raised; before its next message, unless it runs on its own thread.

        If `event.message.settled` is `None` and its `ack_mode` is not `"auto"`, the message is still unacknowledged and
        counts towards the prefetch until it is acknowledged, which may be done here, or the session ends.
        """

    def on_receipt(self, frame: Frame) -> None:
        """Called with every RECEIPT frame."""

    def on_error(self, frame: Frame) -> None:
        """Called with an ERROR frame; `on_disconnected` follows."""

    def on_heartbeat_timeout(self, event: HeartbeatTimeoutEvent) -> None:
        """Called when the broker sent nothing for too long; `on_disconnected` follows."""

    def on_reconnecting(self, event: ReconnectingEvent) -> None:
        """Called when a further attempt to open a session follows.

        This includes the first session, with `Timeouts.start`.
        """

    def on_closed(self, event: ClosedEvent) -> None:
        """Called once per connection, as the last event, when there will be no further session.

        Not called if `connect` itself raised.
        """

    def on_disconnected(self, event: DisconnectedEvent) -> None:
        """Called once per session when it has ended."""


def hears_messages(listener: object) -> bool:
    """Return whether an object defines `on_message`."""
    method = getattr(listener, "on_message", None)
    return method is not None and getattr(method, "__func__", method) is not Listener.on_message


def check_function(function: object, name: str) -> None:
    """Check that user code can be called here.

    Raises:
        ConfigurationError: it cannot be called, or is `async def`, and would return without having run.
    """
    if not callable(function):
        raise ConfigurationError(f"{name} must be callable, not {function!r}")
    if is_async(function):
        raise ConfigurationError(
            f"{name} must not be async def, as its messages would count as handled before it has run: hand them over to"
            " the event loop by asyncio.run_coroutine_threadsafe(...).result()"
        )


def handler_of(consumer: Handler | MessageListener | None) -> Handler | None:
    """Return the function to call with messages: the argument, or its `on_message`.

    Raises:
        ConfigurationError: it is neither a function nor an object that defines `on_message`, or is `async def`.
    """
    if consumer is None:
        return None
    is_class = isinstance(consumer, type) and hasattr(consumer, "on_message")
    if is_class or not (callable(consumer) or hears_messages(consumer)):
        raise ConfigurationError(f"the handler must be a function or an object with on_message, not {consumer!r}")
    function: Handler = consumer if callable(consumer) else consumer.on_message
    check_function(function, "the handler")
    return function


def _check_listener(listener: object) -> None:
    """Check the methods of a listener; raises as `check_function` does."""
    if isinstance(listener, type):
        raise ConfigurationError(f"a listener must be an object, not the class {listener.__name__}")
    for event in (name for name in vars(Listener) if name.startswith("on_")):
        method = getattr(listener, event, None)
        if method is not None:
            check_function(method, f"{event} of a listener")


class Callbacks:
    """Listeners and dispatchers of one connection.

    Args:
        name: of the connection.
        listeners: called from the first session on.
    """

    def __init__(self, name: str, listeners: Sequence[Listener]) -> None:
        self.connection: Callable[[], Connection | None] = lambda: None
        """Returns the connection of the events, which must not be kept alive here: it closes when it is collected."""
        for listener in listeners:
            _check_listener(listener)
        self.listeners = list(listeners)
        self.message_listeners: list[MessageListener] = list(filter(hears_messages, listeners))
        """Those that define `on_message`."""
        self.discarding = False
        """Whether queued messages are dropped, as the connection was closed."""
        self.dispatcher = Dispatcher(f"stompy-{name}-dispatcher")
        self._name = name
        self._dispatchers = [self.dispatcher]
        self._numbers = itertools.count(2)
        self._lock = make_lock(Rank.LEAF, "callbacks")

    def add_listener(self, listener: Listener) -> None:
        """Add a listener after the existing ones; raises as `connect` does for one that cannot be called."""
        _check_listener(listener)
        with self._lock:
            self._set([*self.listeners, listener])

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; unknown ones are ignored."""
        with self._lock:
            self._set([other for other in self.listeners if other is not listener])

    def _set(self, listeners: list[Listener]) -> None:
        self.listeners = listeners
        self.message_listeners = list(filter(hears_messages, listeners))

    def new_dispatcher(self) -> Dispatcher:
        """Start and return a dispatcher for one subscription."""
        with self._lock:
            dispatcher = Dispatcher(f"stompy-{self._name}-dispatcher-{next(self._numbers)}")
            self._dispatchers = [*(each for each in self._dispatchers if not each.ended), dispatcher]
        dispatcher.start()
        return dispatcher

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher; if that has ended, run it here."""
        if not self.dispatcher.put(function):
            run_logged(function)

    # Events.

    def _notify(self, method: str, argument: object) -> None:
        """Queue calls of a method of the listeners."""
        for job in self._calls_of(method, argument):
            self.call_soon(job)

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        """Queue `on_receipt` calls."""
        if not self.listeners:
            return
        for frame in frames_of([frames]):
            # Counted like messages, so that receipts cannot pile up before a slow listener.
            link.flow.added(1, frame.headers.size)
            self._notify("on_receipt", frame)
            self.call_soon(partial(link.flow.removed, 1, frame.headers.size))

    def handler_failed(self, message: Message, error: BaseException) -> None:
        """Report the exception of a handler, before its next message if they share a dispatcher."""
        event = HandlerErrorEvent(connection=self._source(), message=message, error=error)
        for job in self._calls_of("on_handler_error", event):
            if self.dispatcher.is_current():
                run_logged(job)
            else:
                self.dispatcher.put(job)

    def connected(self, frame: Frame, decided: SafeEvent) -> None:
        """Queue `on_connected`, to run before any frame of the session and after `decided` is set."""

        def wait() -> None:
            decided.wait()

        if self.listeners:
            self.call_soon(wait)
            self._notify("on_connected", ConnectedEvent(connection=self._source(), frame=frame))

    def disconnected(self, reason: StompError | None) -> None:
        """Queue the calls for the end of a session."""
        error = error_of(reason)
        if error is not None:
            self._notify("on_error", error.frame)
        elif isinstance(reason, HeartbeatTimeoutError):
            self._notify("on_heartbeat_timeout", HeartbeatTimeoutEvent(connection=self._source()))
        self._notify("on_disconnected", DisconnectedEvent(connection=self._source(), reason=reason))

    def reconnecting(self, attempt: int, delay: float, reason: StompError | None) -> None:
        """Queue the calls before a further attempt to open a session."""
        event = ReconnectingEvent(connection=self._source(), attempt=attempt, delay=delay, reason=reason)
        self._notify("on_reconnecting", event)

    def _source(self) -> Connection:
        # Not `None`: a connection that is collected before it has ended gives itself back for its last events.
        return cast("Connection", self.connection())

    def _calls_of(self, name: str, argument: object) -> list[Callable[[], None]]:
        """Return one call for each listener that has the method."""
        methods = (getattr(listener, name, None) for listener in self.listeners)
        return [partial(method, argument) for method in methods if method is not None]

    # Closing.

    def finish(self, reason: StompError | None) -> None:
        """Queue `on_closed`, and end the dispatchers after the jobs that are queued."""
        last = self._calls_of("on_closed", ClosedEvent(connection=self._source(), reason=reason))
        for dispatcher in self._dispatchers:
            dispatcher.stop(last if dispatcher is self.dispatcher else ())

    def is_current(self) -> bool:
        """Whether the caller is one of the dispatchers."""
        return any(dispatcher.is_current() for dispatcher in self._dispatchers)

    def wait_idle(self, deadline: Deadline) -> bool:
        """Wait until the dispatchers have nothing queued or running; return whether they have."""
        return all([dispatcher.wait_idle(deadline) for dispatcher in self._dispatchers])  # noqa: C419 - each waits

    def join_until(self, deadline: Deadline) -> bool:
        """Wait until the dispatchers have ended; return whether they have."""
        return all([dispatcher.join_until(deadline) for dispatcher in self._dispatchers])  # noqa: C419 - each waits
