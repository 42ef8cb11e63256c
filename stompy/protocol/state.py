"""The conversation as one table: which frame may come in which state, and where it leads.

Client and broker look at the same conversation from its two ends, so one table serves both.

Source: STOMP 1.2, Connecting, DISCONNECT, ERROR.
"""

from __future__ import annotations

import enum

from stompy.errors import LimitExceeded
from stompy.protocol.rules import Lookup, shown


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


MAX_SUBSCRIPTIONS = 10_000
MAX_TRANSACTIONS = 1_000

_TRANSACTED = frozenset(("SEND", "ACK", "NACK", "COMMIT", "ABORT"))


def subscription_key(header: Lookup) -> str:
    """Return what a subscription is known by: its id or, in 1.0, the destination where it has none.

    The two cannot be confused: an id is marked with `#`, a destination with `@`.
    """
    identity = header("id")
    return f"#{identity}" if identity is not None else f"@{header('destination')}"


class SessionIds:
    """The subscriptions and open transactions of one session; both sides keep the same book."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, str] = {}
        """Key of each live subscription to its ack mode; see `subscription_key`."""
        self.transactions: set[str] = set()
        """Ids of the open transactions."""

    def clear(self) -> None:
        """Forget all of them, as the session is over."""
        self.subscriptions.clear()
        self.transactions.clear()

    def violation(self, command: str, header: Lookup) -> str | None:
        """Return in words which id of a frame is taken or unknown, or `None`.

        Args:
            command: a client command.
            header: looks up the frame's headers, which `rules.violation` finds nothing wrong with.
        """
        if command == "SUBSCRIBE":
            key = subscription_key(header)
            taken = key in self.subscriptions
            return f"there is already a subscription {_name(key)} (SUBSCRIBE id Header)" if taken else None
        if command == "UNSUBSCRIBE":
            key = subscription_key(header)
            return None if key in self.subscriptions else f"there is no subscription {_name(key)} (UNSUBSCRIBE)"
        transaction = header("transaction")
        if transaction is None:
            return None
        if command == "BEGIN":
            taken = transaction in self.transactions
            return f"transaction {shown(transaction)} is already open (BEGIN)" if taken else None
        if command in _TRANSACTED and transaction not in self.transactions:
            return f"there is no open transaction {shown(transaction)} ({command})"
        return None

    def check_room(self, command: str, *, max_subscriptions: int, max_transactions: int) -> None:
        """Refuse a frame that would make one id too many.

        Raises:
            LimitExceeded: there are as many subscriptions, or open transactions, as there may be.
        """
        if command == "SUBSCRIBE" and len(self.subscriptions) >= max_subscriptions:
            raise LimitExceeded("too many subscriptions", limit_name="max_subscriptions", limit=max_subscriptions)
        if command == "BEGIN" and len(self.transactions) >= max_transactions:
            raise LimitExceeded("too many open transactions", limit_name="max_transactions", limit=max_transactions)

    def note(self, command: str, header: Lookup) -> None:
        """Book a frame that has no violation."""
        if command == "SUBSCRIBE":
            self.subscriptions[subscription_key(header)] = header("ack") or "auto"
        elif command == "UNSUBSCRIBE":
            self.subscriptions.pop(subscription_key(header), None)
        elif command == "BEGIN":
            self.transactions.add(header("transaction") or "")
        elif command in ("COMMIT", "ABORT"):
            self.transactions.discard(header("transaction") or "")


def _name(key: str) -> str:
    return f"{'on ' if key[0] == '@' else ''}{shown(key[1:])}"
