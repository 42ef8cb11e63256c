"""The subscriptions of a connection, and restoring them on each link.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 2 | subscriptions | id to subscription, the link that confirmed each, the newest link | no |

Three threads may add, remove and replay a subscription at once, on different links. Each checks the state under the
lock: `add` starts over if the next link was replayed without it, `replay` undoes what is being removed, and `remove`
uses the link that `replay` recorded.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompy.connection.subscription import Subscription
from stompy.deadline import Deadline
from stompy.default import Default, given
from stompy.errors import ConfigurationError, ConnectionLostError, LocalProtocolError, StompError
from stompy.link.link import Link
from stompy.locks import Rank, make_lock

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.link_manager import LinkManager
    from stompy.connection.listeners import Callbacks

_LOG = logging.getLogger("stompy.connection")


class SubscriptionTable:
    """The active subscriptions of one connection. Any thread.

    Args:
        config: timeouts, client id.
        callbacks: the listeners of the connection.
    """

    links: LinkManager
    """Set by the link manager."""

    def __init__(self, config: Config, callbacks: Callbacks) -> None:
        self._config = config
        self._callbacks = callbacks
        self.receive_timeout = config.timeouts.receipt
        """Default timeout of `Subscription.receive`, in seconds."""
        self._lock = make_lock(Rank.SUBSCRIPTIONS, "subscriptions")
        self._subscriptions: dict[str, Subscription] = {}
        self._confirmed: dict[str, Link] = {}
        self._newest: Link | None = None
        self._ids = itertools.count(1)
        self.changes = 0
        """Incremented when a subscription is added or removed, to invalidate caches."""

    def listened_to(self) -> bool:
        """Return whether a listener of the connection hears messages."""
        return bool(self._callbacks.message_listeners)

    def new_id(self) -> str:
        """Return an id that is not in use."""
        return next(identity for identity in map(str, self._ids) if identity not in self._subscriptions)

    def all(self) -> list[Subscription]:
        """Return the active subscriptions."""
        with self._lock:
            return list(self._subscriptions.values())

    def find(self, identity: str | None, destination: str | None) -> Subscription | None:
        """Return the subscription that a message names; a 1.0 broker may send its destination only."""
        if identity is not None:
            return self._subscriptions.get(identity)
        return next((each for each in self.all() if each.destination == destination), None)

    def add(self, subscription: Subscription, *, timeout: float | Default | None, announce: bool = True) -> None:
        """Register a subscription, then send SUBSCRIBE and wait for its receipt; on the next link if one is lost.

        Args:
            subscription: registered first, as its messages may arrive before the receipt.
            timeout: seconds in total; by default the receipt timeout.
            announce: whether to send SUBSCRIBE.
        """
        try:
            with self._lock:
                if subscription.id in self._subscriptions:
                    raise LocalProtocolError(f"there is already a subscription with id {subscription.id!r}")
                _check_cumulative_acks(subscription, self._subscriptions.values())
                self._subscriptions[subscription.id] = subscription
                self.changes += 1
            subscription._announced = announce
            if not announce:
                return
            self._subscribe(subscription, Deadline(given(timeout, self.receive_timeout)))
        except BaseException:
            self.forget(subscription)
            subscription._end(None)
            raise

    def _subscribe(self, subscription: Subscription, deadline: Deadline) -> None:
        link = self.links.live(deadline.remaining())
        while True:
            try:
                self._send_subscribe(subscription, link, deadline.remaining())
                if self._note_confirmed(subscription, link):
                    return
            except ConnectionLostError as error:
                if link.alive or deadline.expired:
                    raise
                lost = error
            else:
                lost = ConnectionLostError("the connection was lost while subscribing")
            try:
                link = self.links.live(deadline.remaining())
            except StompError:
                raise lost from None

    def _send_subscribe(self, subscription: Subscription, link: Link, timeout: float | None) -> None:
        sent: list[Link] = []
        try:
            receipt = link.writer.request(
                "SUBSCRIBE", subscription._subscribe_headers(), receipt=True, on_written=lambda: sent.append(link)
            )
            assert receipt is not None
            receipt.result(timeout)
        except BaseException:
            # Only if it was sent: UNSUBSCRIBE for an unknown id is an error.
            if sent:
                self._send_unsubscribe(link, subscription)
            raise

    def _note_confirmed(self, subscription: Subscription, link: Link) -> bool:
        """Record the link that confirmed a subscription; return `False` if the next link was replayed without it."""
        with self._lock:
            if self._newest not in (None, link):
                return False
            self._confirmed[subscription.id] = link
            return True

    def remove(self, subscription: Subscription, *, timeout: float | Default | None, delete: bool = False) -> None:
        """End a subscription, with UNSUBSCRIBE if its link is alive.

        Args:
            subscription: ignored if unknown.
            timeout: seconds for each UNSUBSCRIBE; by default the receipt timeout.
            delete: delete a durable subscription.

        Raises:
            ConfigurationError: it is not durable, or the broker cannot delete it.
        """
        link = self.links.link
        frames = link.dialect.unsubscribe_headers(
            subscription.id, subscription._options, delete=delete, client_id=self._config.client, version=link.version
        )
        with self._lock:
            # Only one of several callers, as a second UNSUBSCRIBE is an error.
            if not self._contains(subscription) or subscription._unsubscribing:
                return
            subscription._unsubscribing = True
            link = self._confirmed.get(subscription.id, link)
        try:
            for headers in frames if link.alive and subscription._announced else ():
                receipt = link.writer.request("UNSUBSCRIBE", headers, receipt=True)
                assert receipt is not None
                receipt.result(timeout)
        finally:
            # Only now, as messages may arrive until the receipt.
            if self.forget(subscription):
                subscription._end(None)

    def acknowledge_held(self) -> None:
        """Acknowledge what the current thread has received in mode `handled`: its block has ended."""
        for subscription in self.all():
            subscription._acknowledge_held()

    def close(self, subscription: Subscription, *, timeout: float | Default | None, drain: bool) -> None:
        """End a subscription, after its messages were handled if `drain` is true; see `Subscription.close`."""
        deadline = Deadline(given(timeout, self.receive_timeout))
        if drain and not self.links.forked:  # in a child, nobody handles what its parent received
            subscription._drain()
            if subscription.ack == "auto":
                self.remove(subscription, timeout=deadline.remaining())
            dispatcher = subscription._dispatcher or self._callbacks.dispatcher
            if not (subscription._wait_read(deadline) and dispatcher.wait_passed(deadline)):
                _LOG.warning("%r is closed before all received messages were handled", subscription)
        self.remove(subscription, timeout=deadline.remaining())

    def replay(self, link: Link) -> None:
        """Restore the confirmed subscriptions on a new link, before it is published."""
        with self._lock:
            self._newest = link
            active = [
                each for each in self._subscriptions.values() if each.id in self._confirmed and not each._unsubscribing
            ]
        receipts = [link.writer.request("SUBSCRIBE", each._subscribe_headers(), receipt=True) for each in active]
        for receipt in receipts:
            assert receipt is not None
            receipt.result()
        for subscription in active:
            if not self._note_replayed(subscription, link):
                self._send_unsubscribe(link, subscription)

    def _note_replayed(self, subscription: Subscription, link: Link) -> bool:
        """Record that a subscription is on a new link; return `False` if it is being removed."""
        with self._lock:
            active = self._contains(subscription) and not subscription._unsubscribing
            if active:
                self._confirmed[subscription.id] = link
            return active

    def link_lost(self, reason: StompError | None) -> None:
        """Called when a session has ended; `reason` is `None` if we closed it."""
        for subscription in self.all():
            if reason is not None and subscription._link_lost(reason):
                self.forget(subscription)

    def finish(self, reason: StompError | None) -> None:
        """End all subscriptions: there will be no other session."""
        for subscription in self.all():
            subscription._end(reason)

    def forget(self, subscription: Subscription) -> bool:
        """Remove a subscription without UNSUBSCRIBE; return whether it was known."""
        with self._lock:
            if not self._contains(subscription):
                return False
            del self._subscriptions[subscription.id]
            self.changes += 1
            self._confirmed.pop(subscription.id, None)
            return True

    def withdraw(self, subscription: Subscription) -> None:
        """End a subscription whose `add` was interrupted."""
        with self._lock:
            link = self._confirmed.get(subscription.id) if self._contains(subscription) else None
        self.forget(subscription)
        if link is not None:
            self._send_unsubscribe(link, subscription)
        subscription._end(None)

    def _contains(self, subscription: Subscription) -> bool:
        return self._subscriptions.get(subscription.id) is subscription

    def _send_unsubscribe(self, link: Link, subscription: Subscription) -> None:
        """Send UNSUBSCRIBE for a subscription that the broker may have, without a receipt."""
        with contextlib.suppress(StompError):
            # With the usual timeout, as a shorter one could end a link whose TCP window is full.
            link.writer.request("UNSUBSCRIBE", {"id": subscription.id})


def _check_cumulative_acks(new: Subscription, others: Iterable[Subscription]) -> None:
    """Check that no ACK for one subscription also acknowledges messages of another."""
    if new.ack == "auto":
        return
    for other in others:
        if other.ack != "auto" and (new._acks_all or other._acks_all):
            raise ConfigurationError(
                "with this broker, an ACK in mode 'client' acknowledges messages of all subscriptions of a connection,"
                f" so {new.destination!r} and {other.destination!r} need 'client-individual' or separate connections"
            )
