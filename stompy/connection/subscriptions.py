"""The subscriptions of a connection: which there are, and that each link's broker knows them.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 2 | subscriptions | id to subscription, the link by which a broker took each, the newest link | no |

A subscription may be made, ended and replayed by three threads at once, over different links. Each looks under the lock
what the others have made of it meanwhile: `add` begins anew where the next link was replayed to without it, `replay`
takes back what is leaving, and `remove` tells the link that `replay` has noted.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConfigurationError, ConnectionLost, LocalProtocolError, StompError
from stompy.link.link import Link
from stompy.locks import Rank, make_lock

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.link_manager import LinkManager


class SubscriptionTable:
    """The live subscriptions of one connection. Any thread.

    Args:
        config: timeouts, and who the broker was told that we are.
    """

    links: LinkManager
    """The current link and its successors, which sets this."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.receive_timeout = config.receipt_timeout
        """The default of `Subscription.receive` in seconds."""
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._subscriptions: dict[str, Subscription] = {}
        self._taken: dict[str, Link] = {}
        self._newest: Link | None = None
        self._ids = itertools.count(1)
        self.changes = 0
        """How often a subscription came or went; what was found before that may not be so any more."""

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

    def add(self, subscription: Subscription, *, timeout: float | None, tell: bool = True) -> None:
        """Register a subscription, then tell the broker and wait until it has taken it.

        A link that dies meanwhile takes the subscription with it, so it is made on the next one.

        Args:
            subscription: registered first, as its messages may come before the receipt.
            timeout: seconds for all of it; `None` takes the receipt timeout.
            tell: whether the broker must be told.
        """
        try:
            with self._lock:
                if subscription.id in self._subscriptions:
                    raise LocalProtocolError(f"there is already a subscription with id {subscription.id!r}")
                _check_reach(subscription, self._subscriptions.values())
                self._subscriptions[subscription.id] = subscription
                self.changes += 1
            subscription._announced = tell
            if not tell:
                return
            self._make(subscription, Deadline(self.receive_timeout if timeout is None else timeout))
        except BaseException:
            self.forget(subscription)
            subscription._end(None)
            raise

    def _make(self, subscription: Subscription, deadline: Deadline) -> None:
        link = self.links.live(deadline.remaining())
        while True:
            try:
                self._ask(subscription, link, deadline.remaining())
                if self._note_taken(subscription, link):
                    return
            except BrokerError:
                raise
            except ConnectionLost as error:
                if link.alive or deadline.expired:
                    raise
                lost = error
            else:
                lost = ConnectionLost("the link died as the broker took the subscription")
            try:
                link = self.links.live(deadline.remaining())
            except StompError:
                raise lost from None

    def _ask(self, subscription: Subscription, link: Link, timeout: float | None) -> None:
        asked: list[Link] = []
        try:
            receipt = link.writer.request(
                "SUBSCRIBE", subscription._subscribe_headers(), receipt=True, on_left=lambda: asked.append(link)
            )
            assert receipt is not None
            receipt.wait(timeout)
        except BaseException:
            # Only what was asked for: an UNSUBSCRIBE out of the blue is an error to the broker.
            if asked:
                self._take_back(link, subscription)
            raise

    def _note_taken(self, subscription: Subscription, link: Link) -> bool:
        """Note on which link the broker has a subscription; `False` if the next one has begun without it."""
        with self._lock:
            if self._newest not in (None, link):
                return False
            self._taken[subscription.id] = link
            return True

    def remove(self, subscription: Subscription, *, timeout: float | None, delete: bool = False) -> None:
        """End a subscription at the broker; a dead link has ended it already.

        Args:
            subscription: an unknown one is passed over.
            timeout: seconds for each UNSUBSCRIBE; `None` takes the receipt timeout.
            delete: give up a durable one for good.

        Raises:
            ConfigurationError: there is nothing durable to delete, or no way to.
        """
        link = self.links.link
        farewell = link.dialect.unsubscribe_headers(
            subscription.id, subscription._options, delete=delete, client_id=self._config.client, version=link.version
        )
        with self._lock:
            # Of several callers one tells the broker, to which a second UNSUBSCRIBE would be an error.
            if not self._knows(subscription) or subscription._leaving:
                return
            subscription._leaving = True
            link = self._taken.get(subscription.id, link)
        try:
            for headers in farewell if link.alive and subscription._announced else ():
                receipt = link.writer.request("UNSUBSCRIBE", headers, receipt=True)
                assert receipt is not None
                receipt.wait(timeout)
        finally:
            # Only now: until the receipt came, messages of it were still on their way.
            if self.forget(subscription):
                subscription._end(None)

    def replay(self, link: Link) -> None:
        """Make the subscriptions on a new link, before anybody else uses it.

        One that no broker has taken yet is still its caller's, who makes it when the link is there for all.
        """
        with self._lock:
            self._newest = link
            wanted = [one for one in self._subscriptions.values() if one.id in self._taken and not one._leaving]
        receipts = [link.writer.request("SUBSCRIBE", one._subscribe_headers(), receipt=True) for one in wanted]
        for receipt in receipts:
            assert receipt is not None
            receipt.wait()
        for one in wanted:
            if not self._still_wanted(one, link):
                self._take_back(link, one)

    def _still_wanted(self, subscription: Subscription, link: Link) -> bool:
        """Note that a subscription is on a new link, for its `remove` to come; `False` if that has begun already."""
        with self._lock:
            wanted = self._knows(subscription) and not subscription._leaving
            if wanted:
                self._taken[subscription.id] = link
            return wanted

    def lost(self, reason: StompError | None) -> None:
        """Tell subscriptions that the session is over; `None` where it was closed from this side."""
        for subscription in self.all():
            if reason is not None and subscription._lost(reason):
                self.forget(subscription)

    def finish(self, reason: StompError | None) -> None:
        """End all of them: there will be no other session."""
        for subscription in self.all():
            subscription._end(reason)

    def forget(self, subscription: Subscription) -> bool:
        """Drop a subscription without a word; return whether it was there."""
        with self._lock:
            if not self._knows(subscription):
                return False
            del self._subscriptions[subscription.id]
            self.changes += 1
            self._taken.pop(subscription.id, None)
            return True

    def withdraw(self, subscription: Subscription) -> None:
        """End a subscription whose caller was struck by a signal, or never had it."""
        with self._lock:
            link = self._taken.get(subscription.id) if self._knows(subscription) else None
        self.forget(subscription)
        if link is not None:
            self._take_back(link, subscription)
        subscription._end(None)

    def _knows(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.id) is subscription

    def _take_back(self, link: Link, subscription: Subscription) -> None:
        """End a subscription that the broker has not confirmed, and may have made all the same."""
        with contextlib.suppress(StompError):
            # With its time: a frame that must leave at once would end a link whose window is just full.
            link.writer.request("UNSUBSCRIBE", {"id": subscription.id})


def _check_reach(new: Subscription, others: Iterable[Subscription]) -> None:
    """Refuse to mix a subscription whose ACK settles messages of all with others that wait for their own ACK."""
    if new.ack == "auto":
        return
    for other in others:
        if other.ack != "auto" and (new._acks_all or other._acks_all):
            raise ConfigurationError(
                "at this broker an ACK in mode 'client' settles the messages of every subscription of the connection,"
                f" so {new.destination!r} and {other.destination!r} need 'client-individual' or a connection each"
            )
