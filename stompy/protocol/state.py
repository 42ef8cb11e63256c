"""The conversation as one table: which frame may come in which state, and where it leads.

Client and broker look at the same conversation from its two ends, so one table serves both.

Source: STOMP 1.2, Connecting, DISCONNECT, ERROR.
"""

from __future__ import annotations

import enum


class State(enum.Enum):
    """Where the conversation stands."""

    NEW = "nothing was said"
    CONNECTING = "the client asked for a session"
    CONNECTED = "the session is open"
    DISCONNECTING = "the client said goodbye"
    FAILED = "the session failed"
    CLOSED = "the stream ended"


class Event(enum.Enum):
    """What can happen in a conversation; frames that have the same rights share one event."""

    CONNECT = "CONNECT or STOMP"
    CONNECTED = "CONNECTED"
    CLIENT_FRAME = "any other frame of the client"
    DISCONNECT = "DISCONNECT"
    SERVER_FRAME = "MESSAGE or RECEIPT"
    ERROR = "ERROR"
    END = "end of the stream"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.NEW: {
        Event.CONNECT: State.CONNECTING,
        Event.ERROR: State.FAILED,
        Event.END: State.CLOSED,
    },
    State.CONNECTING: {
        Event.CONNECTED: State.CONNECTED,
        Event.ERROR: State.FAILED,
        Event.END: State.CLOSED,
    },
    State.CONNECTED: {
        Event.CLIENT_FRAME: State.CONNECTED,
        Event.SERVER_FRAME: State.CONNECTED,
        Event.DISCONNECT: State.DISCONNECTING,
        Event.ERROR: State.FAILED,
        Event.END: State.CLOSED,
    },
    State.DISCONNECTING: {
        Event.SERVER_FRAME: State.DISCONNECTING,
        Event.ERROR: State.FAILED,
        Event.END: State.CLOSED,
    },
    State.FAILED: {Event.END: State.CLOSED},
    State.CLOSED: {Event.END: State.CLOSED},
}

EVENTS = {
    "CONNECT": Event.CONNECT,
    "STOMP": Event.CONNECT,
    "CONNECTED": Event.CONNECTED,
    "DISCONNECT": Event.DISCONNECT,
    "MESSAGE": Event.SERVER_FRAME,
    "RECEIPT": Event.SERVER_FRAME,
    "ERROR": Event.ERROR,
    **dict.fromkeys(
        ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"), Event.CLIENT_FRAME
    ),
}
"""Each command of the specification and the event that it is."""


def after(state: State, command: str) -> State | None:
    """Return the state behind a frame, or `None` if the frame may not come in `state`."""
    event = EVENTS.get(command)
    return None if event is None else TRANSITIONS[state].get(event)


def ended(state: State) -> State:
    """Return the state behind the end of the stream, which may come at any time."""
    return TRANSITIONS[state][Event.END]
