"""The subscriptions of a connection: which there are, and that each link's broker knows them.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 2 | subscriptions | id to subscription | no |
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence

from stompy.connection.subscription import Subscription
from stompy.errors import ConfigurationError, LocalProtocolError, StompError
from stompy.link.link import Link
from stompy.link.locks import Rank, make_lock


class Registry:
    """The live subscriptions of one connection. Any thread."""

    def __init__(self) -> None:
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._subscriptions: dict[str, Subscription] = {}
        self._ids = itertools.count(1)

    def new_id(self) -> str:
        """Return an id that was not made before and that no caller chose for a live subscription."""
        return next(identity for identity in map(str, self._ids) if identity not in self._subscriptions)

    def all(self) -> list[Subscription]:
        """Return the live subscriptions."""
        with self._lock:
            return list(self._subscriptions.values())

    def find(self, identity: str | None, destination: str | None) -> Subscription | None:
        """Return the subscription that a message names; a 1.0 broker may name the destination only."""
        if identity is not None:
            return self._subscriptions.get(identity)
        return next((one for one in self.all() if one.destination == destination), None)

    def add(self, subscription: Subscription, link: Link, *, timeout: float | None, tell: bool = True) -> None:
        """Register a subscription, then tell the broker and wait until it has taken it.

        Args:
            subscription: registered first, as its messages may come before the receipt.
            link: the link to use now.
            timeout: seconds; `None` takes the receipt timeout.
            tell: whether the broker must be told.
        """
        with self._lock:
            if subscription.id in self._subscriptions:
                raise LocalProtocolError(f"there is already a subscription with id {subscription.id!r}")
            _check_reach(subscription, self._subscriptions.values())
            self._subscriptions[subscription.id] = subscription
        subscription.told = tell
        if not tell:
            return
        receipt = None
        try:
            receipt = link.request("SUBSCRIBE", subscription.subscribe_headers(), receipt=True)
            assert receipt is not None
            receipt.wait(timeout)
        except BaseException:
            self.forget(subscription)
            subscription.end(None)
            # Only what was asked for: an UNSUBSCRIBE out of the blue is an error to the broker.
            if receipt is not None:
                self._take_back(link, subscription)
            raise

    def remove(
        self, subscription: Subscription, link: Link, farewell: Sequence[dict[str, str]], *, timeout: float | None
    ) -> None:
        """End a subscription at the broker; a dead link has ended it already.

        Args:
            subscription: an unknown one is passed over.
            link: the link to use now.
            farewell: the headers of its UNSUBSCRIBE frames.
            timeout: seconds for each; `None` takes the receipt timeout.
        """
        with self._lock:
            # Of several callers one tells the broker, to which a second UNSUBSCRIBE would be an error.
            if not self._knows(subscription) or subscription.leaving:
                return
            subscription.leaving = True
        try:
            for headers in farewell if link.alive and subscription.told else ():
                receipt = link.request("UNSUBSCRIBE", headers, receipt=True)
                assert receipt is not None
                receipt.wait(timeout)
        finally:
            # Only now: until the receipt came, messages of it were still on their way.
            if self.forget(subscription):
                subscription.end(None)

    def replay(self, link: Link) -> None:
        """Make the subscriptions on a new link, before anybody else uses it."""
        wanted = self.all()
        receipts = [link.request("SUBSCRIBE", one.subscribe_headers(), receipt=True) for one in wanted]
        for receipt in receipts:
            assert receipt is not None
            receipt.wait()
        for one in wanted:
            if not self._knows(one):
                self._take_back(link, one)

    def forget(self, subscription: Subscription) -> bool:
        """Drop a subscription without a word; return whether it was there."""
        with self._lock:
            return self._subscriptions.pop(subscription.id, None) is not None

    def _knows(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.id) is subscription

    def _take_back(self, link: Link, subscription: Subscription) -> None:
        """End a subscription that the broker has not confirmed, and may have made all the same."""
        with contextlib.suppress(StompError):
            link.request("UNSUBSCRIBE", {"id": subscription.id}, timeout=0)


def _check_reach(new: Subscription, others: Iterable[Subscription]) -> None:
    """Refuse to mix a subscription whose ACK settles messages of all with others that wait for their own ACK."""
    if new.ack == "auto":
        return
    for other in others:
        if other.ack != "auto" and (new.acks_all or other.acks_all):
            raise ConfigurationError(
                "at this broker an ACK in mode 'client' settles the messages of every subscription of the connection,"
                f" so {new.destination!r} and {other.destination!r} need 'client-individual' or a connection each"
            )
