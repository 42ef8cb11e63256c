"""Acknowledgements: the headers of ACK and NACK by version, and the ledger of what is still to be acknowledged.

Source: STOMP 1.2, ACK, NACK, SUBSCRIBE ack Header; STOMP 1.1 and 1.0, the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Generic, TypeVar

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.rules import Lookup, shown

T = TypeVar("T")


def ack_headers(command: str, message: Lookup, version: Version) -> dict[str, str]:
    """Return the headers that make an ACK or NACK name a message.

    Args:
        command: `"ACK"` or `"NACK"`.
        message: looks up the headers of the MESSAGE.
        version: the version of the session; the headers differ in each.

    Raises:
        LocalProtocolError: NACK in 1.0, or the MESSAGE lacks what the version needs.
    """
    if command == "NACK" and not version.has_heartbeats:
        raise LocalProtocolError(f"STOMP {version} has no NACK (NACK)")
    if version is Version.V1_2:
        return {"id": _value(message, "ack")}
    if version is Version.V1_1:
        return {"message-id": _value(message, "message-id"), "subscription": _value(message, "subscription")}
    return {"message-id": _value(message, "message-id")}


def _value(message: Lookup, name: str) -> str:
    value = message(name)
    if value is None:
        raise LocalProtocolError(f"the message has no {name!r} header, so it cannot be acknowledged (ACK)")
    return value


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One delivery that waits for its ACK or NACK.

    Attributes:
        token: what the client will name: the `ack` header in 1.2, the `message-id` before.
        subscription: the key of the subscription it was delivered to.
        order: its place among the deliveries of the session.
        item: what the broker delivered.
    """

    token: str
    subscription: str
    order: int
    item: T


class Ledger(Generic[T]):
    """The deliveries of one session that are not yet acknowledged, by subscription and in order."""

    def __init__(self) -> None:
        self._by_token: dict[str, Entry[T]] = {}
        # Ordered dicts find their first entry at once, however many were taken from the front before.
        self._by_subscription: dict[str, OrderedDict[str, Entry[T]]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._by_token)

    def add(self, token: str, subscription: str, item: T) -> None:
        """Note that `item` was delivered."""
        self._order += 1
        self._insert(Entry(token, subscription, self._order, item))

    def count(self, subscription: str) -> int:
        """Return how many deliveries of one subscription wait."""
        return len(self._by_subscription.get(subscription, ()))

    def find(self, token: str, *, subscription: str | None = None) -> Entry[T]:
        """Return the delivery that an ACK or NACK names.

        Args:
            token: what the frame names.
            subscription: the key of the subscription that the frame names too, as it must in 1.1.

        Raises:
            RemoteProtocolError: nothing with that token waits, or it was delivered to another subscription.
        """
        named = self._by_token.get(token)
        if named is None:
            raise RemoteProtocolError(f"no message {shown(token)} waits to be acknowledged (ACK)")
        if subscription is not None and subscription != named.subscription:
            raise RemoteProtocolError(f"message {shown(token)} was not sent to the subscription named with it (ACK)")
        return named

    def take(self, token: str, *, cumulative: bool) -> list[Entry[T]]:
        """Take out the delivery named by `token`, with all earlier ones of its subscription where `cumulative`.

        Returns:
            the entries in the order of delivery.

        Raises:
            RemoteProtocolError: nothing with that token waits.
        """
        named = self.find(token)
        waiting = self._by_subscription[named.subscription]
        earlier = takewhile(lambda entry: entry is not named, waiting.values()) if cumulative else ()
        taken = [*earlier, named]
        for entry in taken:
            del self._by_token[entry.token]
            del waiting[entry.token]
        if not waiting:
            del self._by_subscription[named.subscription]
        return taken

    def restore(self, entries: Iterable[Entry[T]]) -> None:
        """Put entries back in their place, as an aborted transaction does."""
        touched = set()
        for entry in entries:
            self._insert(entry)
            touched.add(entry.subscription)
        for subscription in touched:
            waiting = self._by_subscription[subscription]
            self._by_subscription[subscription] = OrderedDict(sorted(waiting.items(), key=lambda pair: pair[1].order))

    def take_all(self) -> list[Entry[T]]:
        """Take out everything, in the order of delivery."""
        entries = sorted(self._by_token.values(), key=lambda entry: entry.order)
        self._by_token.clear()
        self._by_subscription.clear()
        return entries

    def _insert(self, entry: Entry[T]) -> None:
        self._by_token[entry.token] = entry
        self._by_subscription.setdefault(entry.subscription, OrderedDict())[entry.token] = entry
