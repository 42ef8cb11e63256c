"""The ids that the frames of a client make and use up: its subscriptions and its open transactions."""

from __future__ import annotations

from stompy.errors import LimitExceeded
from stompy.protocol.rules import Lookup, shown

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
