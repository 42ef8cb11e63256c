"""The state of a session: which frame is allowed in which state, and the subscriptions and transactions in use.

Client and broker share one transition table, as it describes the session and not one side of it.

Source: STOMP 1.2, Connecting, DISCONNECT, ERROR.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from stompy.errors import LimitExceededError
from stompy.frames.grammar import FrameLimits, Grammar, Leniency, Version, grammar_of, handshake_grammar
from stompy.frames.parser import Parser
from stompy.protocol.heartbeat import Heartbeats
from stompy.protocol.rules import Fault, FaultyFrame, Lookup, checked_versions, shown


class State(enum.Enum):
    """The states of a session; the values are used in error messages."""

    NEW = "no CONNECT was sent yet"
    CONNECTING = "CONNECT was sent"
    CONNECTED = "the session is open"
    DISCONNECTING = "DISCONNECT was sent"
    FAILED = "the session failed"
    CLOSED = "the stream ended"


class ProtocolEvent(enum.Enum):
    """The events of a session; commands that are allowed in the same states share one event."""

    CONNECT = "CONNECT or STOMP"
    CONNECTED = "CONNECTED"
    CLIENT_FRAME = "any other client frame"
    DISCONNECT = "DISCONNECT"
    SERVER_FRAME = "MESSAGE or RECEIPT"
    ERROR = "ERROR"
    END = "end of the stream"


TRANSITIONS: dict[State, dict[ProtocolEvent, State]] = {
    State.NEW: {
        ProtocolEvent.CONNECT: State.CONNECTING,
        ProtocolEvent.ERROR: State.FAILED,
        ProtocolEvent.END: State.CLOSED,
    },
    State.CONNECTING: {
        ProtocolEvent.CONNECTED: State.CONNECTED,
        ProtocolEvent.ERROR: State.FAILED,
        ProtocolEvent.END: State.CLOSED,
    },
    State.CONNECTED: {
        ProtocolEvent.CLIENT_FRAME: State.CONNECTED,
        ProtocolEvent.SERVER_FRAME: State.CONNECTED,
        ProtocolEvent.DISCONNECT: State.DISCONNECTING,
        ProtocolEvent.ERROR: State.FAILED,
        ProtocolEvent.END: State.CLOSED,
    },
    State.DISCONNECTING: {
        ProtocolEvent.SERVER_FRAME: State.DISCONNECTING,
        ProtocolEvent.ERROR: State.FAILED,
        ProtocolEvent.END: State.CLOSED,
    },
    State.FAILED: {ProtocolEvent.END: State.CLOSED},
    State.CLOSED: {ProtocolEvent.END: State.CLOSED},
}

EVENTS = {
    "CONNECT": ProtocolEvent.CONNECT,
    "STOMP": ProtocolEvent.CONNECT,
    "CONNECTED": ProtocolEvent.CONNECTED,
    "DISCONNECT": ProtocolEvent.DISCONNECT,
    "MESSAGE": ProtocolEvent.SERVER_FRAME,
    "RECEIPT": ProtocolEvent.SERVER_FRAME,
    "ERROR": ProtocolEvent.ERROR,
    **dict.fromkeys(
        ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"), ProtocolEvent.CLIENT_FRAME
    ),
}
"""The event of each command."""


def next_state(state: State, command: str) -> State | None:
    """Return the state after a frame, or `None` if the frame is not allowed in `state`."""
    event = EVENTS.get(command)
    return None if event is None else TRANSITIONS[state].get(event)


MAX_SUBSCRIPTIONS = 10_000
MAX_TRANSACTIONS = 1_000

_TRANSACTED = frozenset(("SEND", "ACK", "NACK", "COMMIT", "ABORT"))


def subscription_key(header: Lookup) -> str:
    """Return the key of a subscription: `#` and its id or, in 1.0 without an id, `@` and its destination."""
    identity = header("id")
    return f"#{identity}" if identity is not None else f"@{header('destination')}"


class SessionIds:
    """The active subscriptions and open transactions of a session; both sides track the same ones."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, str] = {}
        """The ack mode of each active subscription, by its key; see `subscription_key`."""
        self.transactions: set[str] = set()
        """The ids of the open transactions."""

    def clear(self) -> None:
        """Remove all of them at the end of the session."""
        self.subscriptions.clear()
        self.transactions.clear()

    def violation(self, command: str, header: Lookup) -> FaultyFrame | None:
        """Return what is wrong with an id that is already in use or unknown, or `None`.

        Args:
            command: a client command.
            header: looks up a header of the frame; `rules.violation` must have accepted them.
        """
        if command == "SUBSCRIBE":
            key = subscription_key(header)
            if key in self.subscriptions:
                message = f"there is already a subscription {_name(key)} (SUBSCRIBE id Header)"
                return FaultyFrame(Fault.SUBSCRIPTION_EXISTS, message)
            return None
        if command == "UNSUBSCRIBE":
            key = subscription_key(header)
            if key not in self.subscriptions:
                return FaultyFrame(Fault.UNKNOWN_SUBSCRIPTION, f"there is no subscription {_name(key)} (UNSUBSCRIBE)")
            return None
        transaction = header("transaction")
        if transaction is None:
            return None
        if command == "BEGIN":
            if transaction in self.transactions:
                return FaultyFrame(
                    Fault.TRANSACTION_EXISTS, f"transaction {shown(transaction)} is already open (BEGIN)"
                )
        elif command in _TRANSACTED and transaction not in self.transactions:
            return unknown_transaction(transaction, command)
        return None

    def check_limits(self, command: str, *, max_subscriptions: int, max_transactions: int) -> None:
        """Check that a frame does not open a subscription or transaction beyond the limits.

        Raises:
            LimitExceededError: a limit is reached.
        """
        if command == "SUBSCRIBE" and len(self.subscriptions) >= max_subscriptions:
            raise LimitExceededError("too many subscriptions", limit_name="max_subscriptions", limit=max_subscriptions)
        if command == "BEGIN" and len(self.transactions) >= max_transactions:
            raise LimitExceededError(
                "too many open transactions", limit_name="max_transactions", limit=max_transactions
            )

    def record(self, command: str, header: Lookup) -> None:
        """Update the ids after a frame without violation."""
        if command == "SUBSCRIBE":
            self.subscriptions[subscription_key(header)] = header("ack") or "auto"
        elif command == "UNSUBSCRIBE":
            self.subscriptions.pop(subscription_key(header), None)
        elif command == "BEGIN":
            self.transactions.add(header("transaction") or "")
        elif command in ("COMMIT", "ABORT"):
            self.transactions.discard(header("transaction") or "")


def unknown_transaction(name: str, command: str) -> FaultyFrame:
    """Return that there is no open transaction of a name."""
    return FaultyFrame(Fault.UNKNOWN_TRANSACTION, f"there is no open transaction {shown(name)} ({command})")


def _name(key: str) -> str:
    return f"{'on ' if key[0] == '@' else ''}{shown(key[1:])}"


class ProtocolSide:
    """The common part of client and broker: the state, version and grammar of a session, the ids in use, the parser.

    Args:
        versions: of this side; `(Version.DRAFT,)` means the 1.0-draft.
        leniency: deviations of the peer to tolerate.
        limits: limits of a frame of the peer.

    Raises:
        LocalProtocolError: `versions` is empty, or holds the 1.0-draft and others.
    """

    def __init__(self, versions: Sequence[Version], leniency: Leniency, limits: FrameLimits) -> None:
        self._versions = checked_versions(versions)
        self._draft = self._versions == (Version.DRAFT,)
        self._leniency = leniency
        self._ids = SessionIds()
        self.state = State.NEW
        self.version: Version | None = None
        """The negotiated version; `None` before CONNECTED."""
        self.heartbeats = Heartbeats()
        """The negotiated heartbeat intervals."""
        self.grammar: Grammar = grammar_of(Version.DRAFT) if self._draft else handshake_grammar(leniency)
        self.parser = Parser(self.grammar, limits, single=True)

    def end(self) -> None:
        """Record the end of the stream."""
        self.state = TRANSITIONS[self.state][ProtocolEvent.END]
