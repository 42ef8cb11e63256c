"""Acknowledgements: the headers of ACK and NACK in each version, and the ledger of unacknowledged messages.

Source: STOMP 1.2, 1.1 and 1.0, ACK, NACK, SUBSCRIBE ack Header.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Generic, TypeVar

from stompy.errors import LocalProtocolError, RemoteProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.rules import Fault, FaultyFrame, Lookup, shown

T = TypeVar("T")


def ack_headers(command: str, message: Lookup, version: Version) -> dict[str, str]:
    """Return the headers of an ACK or NACK that identify the message.

    In 1.0 they name the subscription, too, if the broker did.

    Args:
        command: `"ACK"` or `"NACK"`.
        message: looks up a header of the MESSAGE.
        version: the version of the session.

    Raises:
        LocalProtocolError: NACK in 1.0, or the MESSAGE lacks a header that the version requires.
    """
    if command == "NACK" and not version.has_heartbeats:
        raise LocalProtocolError(f"STOMP {version} has no NACK (NACK)")
    if version is Version.V1_2:
        return {"id": _value(message, "ack")}
    if version is Version.V1_1:
        return {"message-id": _value(message, "message-id"), "subscription": _value(message, "subscription")}
    headers = {"message-id": _value(message, "message-id")}
    subscription = message("subscription")
    if version is Version.V1_0 and subscription is not None:
        # Not in 1.0's text, but else ActiveMQ takes the first subscription that knows the id, even if it has ended.
        headers["subscription"] = subscription
    return headers


def _value(message: Lookup, name: str) -> str:
    value = message(name)
    if value is None:
        raise LocalProtocolError(f"the message has no {name!r} header, so it cannot be acknowledged (ACK)")
    return value


class Entry(Generic[T]):
    """A delivery that waits for its ACK or NACK.

    Attributes:
        token: the value that identifies it in an ACK: of the `ack` header in 1.2, of `message-id` in older versions.
        subscription: the key of its subscription.
        order: its number among the deliveries of the session.
        item: the delivered object.
    """

    __slots__ = ("item", "order", "subscription", "token")

    def __init__(self, token: str, subscription: str, order: int, item: T) -> None:
        self.token, self.subscription, self.order, self.item = token, subscription, order, item


class Ledger(Generic[T]):
    """The unacknowledged deliveries of a session, by subscription and in order."""

    def __init__(self) -> None:
        self._by_token: dict[str, Entry[T]] = {}
        # Unlike a dict, an OrderedDict finds its first entry in constant time after many deletions at the front.
        self._by_subscription: dict[str, OrderedDict[str, Entry[T]]] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._by_token)

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._by_token.values())

    def add(self, token: str, subscription: str, item: T) -> None:
        """Add a delivery."""
        self._order += 1
        self._insert(Entry(token, subscription, self._order, item))

    def count(self, subscription: str) -> int:
        """Return the number of unacknowledged deliveries of a subscription."""
        return len(self._by_subscription.get(subscription, ()))

    def find(self, token: str, *, subscription: str | None = None) -> Entry[T]:
        """Return the delivery that an ACK or NACK refers to.

        Args:
            token: the token in the frame.
            subscription: the key of the subscription in the frame, which 1.1 requires; `None` for any subscription.

        Raises:
            RemoteProtocolError: there is no unacknowledged delivery with this token, or it belongs to another
                subscription.
        """
        named = self._by_token.get(token)
        if named is None:
            raise FaultyFrame(Fault.UNKNOWN_MESSAGE, f"there is no unacknowledged message {shown(token)} (ACK)")
        if subscription is not None and subscription != named.subscription:
            raise RemoteProtocolError(
                f"message {shown(token)} does not belong to the subscription in the same frame (ACK)"
            )
        return named

    def take(self, token: str, *, cumulative: bool) -> list[Entry[T]]:
        """Remove the delivery with this token and, if `cumulative`, all earlier ones of its subscription.

        Returns:
            The removed entries, in the order of delivery.

        Raises:
            RemoteProtocolError: there is no unacknowledged delivery with this token.
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
        """Add entries again in their old order, for an aborted transaction."""
        touched = set()
        for entry in entries:
            self._insert(entry)
            touched.add(entry.subscription)
        for subscription in touched:
            waiting = self._by_subscription[subscription]
            self._by_subscription[subscription] = OrderedDict(sorted(waiting.items(), key=lambda pair: pair[1].order))

    def take_subscription(self, subscription: str) -> list[Entry[T]]:
        """Remove the entries of a subscription and return them, in the order of delivery."""
        entries = list(self._by_subscription.pop(subscription, {}).values())
        for entry in entries:
            del self._by_token[entry.token]
        return entries

    def take_all(self) -> list[Entry[T]]:
        """Remove all entries and return them, in the order of delivery."""
        entries = sorted(self._by_token.values(), key=lambda entry: entry.order)
        self._by_token.clear()
        self._by_subscription.clear()
        return entries

    def _insert(self, entry: Entry[T]) -> None:
        self._by_token[entry.token] = entry
        waiting = self._by_subscription.get(entry.subscription)
        if waiting is None:
            self._by_subscription[entry.subscription] = waiting = OrderedDict()
        waiting[entry.token] = entry
