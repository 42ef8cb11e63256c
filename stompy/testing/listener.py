"""A listener that records its events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

from stompy.connection.listeners import (
    ClosedEvent,
    ConnectedEvent,
    DisconnectedEvent,
    HandlerErrorEvent,
    HeartbeatTimeoutEvent,
    Listener,
    ReconnectingEvent,
)
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, StompError, StompTimeoutError
from stompy.frames.frame import Frame
from stompy.locks import make_condition

EventName: TypeAlias = Literal[
    "connected",
    "message",
    "handler_error",
    "receipt",
    "error",
    "heartbeat_timeout",
    "reconnecting",
    "disconnected",
    "closed",
]
_NAMES: tuple[EventName, ...] = get_args(EventName)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One call of a listener's method. It does not keep the connection alive, unlike the events of listeners.

    Attributes:
        name: of the method, without `on_`.
        frame: of `connected`, `receipt` and `error`.
        message: of `message` and `handler_error`.
        error: of `handler_error`: the handler's exception.
        attempt: of `reconnecting`.
        delay: of `reconnecting`, in seconds.
        reason: of `disconnected`, `reconnecting` and `closed`; `None` also where `close` ended the session.
    """

    name: EventName
    frame: Frame | None = None
    message: Message | None = None
    attempt: int | None = None
    delay: float | None = None
    reason: StompError | None = None
    error: BaseException | None = None


class RecordingListener(Listener):
    """Records every event of a connection, and lets a test wait for one.

    Pass it as `stompy.connect(..., listeners=[listener])`, so that it gets the first event too. Events come on
    the connection's dispatcher; everything else is for any thread. Its one lock is a leaf and guards the list.
    """

    def __init__(self) -> None:
        self._heard = make_condition("recording listener", None)
        self._events: list[Event] = []
        self._changes = 0

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, in order."""
        with self._heard:
            return tuple(self._events)

    @property
    def names(self) -> list[EventName]:
        """The names of the events so far, in order."""
        return [event.name for event in self.events]

    @property
    def messages(self) -> list[Message]:
        """The messages so far, in order."""
        return [event.message for event in self.events if event.message is not None]

    def wait_for(
        self,
        name: EventName,
        *,
        count: int = 1,
        matching: Callable[[Event], object] = lambda event: True,
        timeout: float = 5.0,
    ) -> Event:
        """Wait until there were `count` such events, also before the call; return the event with that number.

        Args:
            name: of the event.
            count: which of them, from 1.
            matching: which events count.
            timeout: seconds.

        Raises:
            StompTimeoutError: there were too few in time; the text lists the events that came.
            ConfigurationError: no event has that name, or `count` is below 1.
        """
        if name not in _NAMES or count < 1:
            raise ConfigurationError(f"cannot wait for event {count} of {name!r}; events are {', '.join(_NAMES)}")

        deadline = Deadline(timeout)
        while True:
            with self._heard:
                seen, events = self._changes, tuple(self._events)
            fitting = [event for event in events if event.name == name and matching(event)]
            if len(fitting) >= count:
                return fitting[count - 1]
            with self._heard:
                if not self._heard.wait_for(partial(self._has_changed, seen), deadline.remaining()):
                    heard = ", ".join(event.name for event in events) or "nothing"
                    raise StompTimeoutError(f"no {name!r} number {count} within {timeout:g} s; heard: {heard}")

    def clear(self) -> None:
        """Discard all events so far."""
        with self._heard:
            self._events.clear()
            self._changes += 1

    def _has_changed(self, seen: int) -> bool:
        return self._changes != seen

    def _note(self, event: Event) -> None:
        with self._heard:
            self._events.append(event)
            self._changes += 1
            self._heard.notify_all()

    def on_connected(self, event: ConnectedEvent) -> None:
        """Record it."""
        self._note(Event(name="connected", frame=event.frame))

    def on_message(self, message: Message) -> None:
        """Record it."""
        self._note(Event(name="message", message=message))

    def on_handler_error(self, event: HandlerErrorEvent) -> None:
        """Record it."""
        self._note(Event(name="handler_error", message=event.message, error=event.error))

    def on_receipt(self, frame: Frame) -> None:
        """Record it."""
        self._note(Event(name="receipt", frame=frame))

    def on_error(self, frame: Frame) -> None:
        """Record it."""
        self._note(Event(name="error", frame=frame))

    def on_heartbeat_timeout(self, event: HeartbeatTimeoutEvent) -> None:
        """Record it."""
        self._note(Event(name="heartbeat_timeout"))

    def on_reconnecting(self, event: ReconnectingEvent) -> None:
        """Record it."""
        self._note(Event(name="reconnecting", attempt=event.attempt, delay=event.delay, reason=event.reason))

    def on_disconnected(self, event: DisconnectedEvent) -> None:
        """Record it."""
        self._note(Event(name="disconnected", reason=event.reason))

    def on_closed(self, event: ClosedEvent) -> None:
        """Record it."""
        self._note(Event(name="closed", reason=event.reason))

    def __repr__(self) -> str:
        return f"<RecordingListener events={len(self._events)}>"
