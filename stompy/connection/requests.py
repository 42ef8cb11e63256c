"""Request and reply: one reply inbox per connection, replies matched by correlation id.

| thread | does here | lock |
|---|---|---|
| any caller | `RequestReply.request` | pending requests (leaf); waits on an event without a lock |
| reader | `ReplyInbox._offer` | pending requests (leaf) |
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from stompy.connection.codec import check_destination, check_headers
from stompy.connection.message import Message
from stompy.connection.sending import Sender
from stompy.connection.subscription import Subscription
from stompy.connection.subscriptions import SubscriptionTable
from stompy.deadline import Deadline
from stompy.dialects.options import SendOptions
from stompy.errors import (
    ConfigurationError,
    NotConnectedError,
    ReceiptTimeoutError,
    ReceiveTimeoutError,
    StompError,
)
from stompy.locks import Event, Rank, make_lock
from stompy.world import os


class _PendingRequest:
    __slots__ = ("arrived", "error", "reply")

    def __init__(self) -> None:
        self.arrived = Event()
        self.reply: Message | None = None
        self.error: StompError | None = None


class ReplyInbox(Subscription):
    """The subscription to the connection's temporary queue; the reader resolves requests through it."""

    def __init__(self, subscriptions: SubscriptionTable, *, name: str) -> None:
        super().__init__(
            subscriptions, id=name, destination=name, ack="auto", handler=None, headers={}, dispatcher=None
        )
        self._has_reader = True
        self.late = 0
        """Number of replies that came after their timeout."""
        self._lock = make_lock(Rank.LEAF, "pending requests")
        self.pending: dict[str, _PendingRequest] = {}
        """Requests by correlation id."""

    def expect(self, correlation: str, request: _PendingRequest) -> None:
        """Register a request before it is sent."""
        with self._lock:
            self.pending[correlation] = request

    def _offer(self, messages: Sequence[Message]) -> None:
        """Resolve the requests that these messages answer; drop and count late replies."""
        for message in messages:
            message._link.flow.taken(message)
            correlation = message.headers.get("correlation-id")
            with self._lock:
                request = self.pending.pop(correlation, None) if correlation is not None else None
            if request is None:
                self.late += 1
                continue
            request.reply = message
            request.arrived.set()

    def _link_lost(self, reason: StompError) -> bool:
        """End: a temporary queue exists only in its session."""
        self._end(reason)
        return True

    def _end(self, reason: StompError | None) -> None:
        """End, and fail all pending requests."""
        super()._end(reason)
        with self._lock:
            unanswered = list(self.pending.values())
            self.pending.clear()
        for request in unanswered:
            request.error = reason or NotConnectedError("the connection was closed before the reply came")
            request.arrived.set()


_OWN_HEADERS = frozenset(("reply-to", "correlation-id"))


class RequestReply:
    """Sends requests and waits for their replies.

    Args:
        subscriptions: to subscribe to the reply queue.
        sender: to send the requests.
    """

    def __init__(self, subscriptions: SubscriptionTable, sender: Sender) -> None:
        self._subscriptions = subscriptions
        self._sender = sender
        self._opening = make_lock(Rank.CALL, "opening the reply inbox")
        self._inbox: ReplyInbox | None = None
        self._numbers = itertools.count(1)

    @property
    def late(self) -> int:
        """Replies that came after their timeout."""
        return 0 if self._inbox is None else self._inbox.late

    def request(self, destination: str, body: object, options: SendOptions, *, timeout: float | None) -> Message:
        """Send a request and return its reply; see `Connection.request`."""
        check_destination(destination)
        headers = options.get("headers") or {}
        check_headers(headers)
        for name in _OWN_HEADERS.intersection(headers):
            raise ConfigurationError(f"header {name!r} is set by request, to recognise the reply")
        deadline = Deadline(timeout)
        link = self._sender.live_link(deadline.remaining())
        inbox = self._open_inbox(deadline)
        correlation = f"{inbox.id.rpartition('/')[2]}-{next(self._numbers)}"
        request, flow = _PendingRequest(), link.flow
        try:
            inbox.expect(correlation, request)
            own = {"reply-to": inbox.destination, "correlation-id": correlation}
            self._sender.send(destination, body, {**options, "headers": {**headers, **own}})
            self._sender.flush_batch(timeout=deadline.remaining())
            flow.hold(request)
            request.arrived.wait(deadline.remaining())
        finally:
            flow.holders.discard(request)
            inbox.pending.pop(correlation, None)
        if request.reply is not None:
            return request.reply
        if request.error is not None:
            raise request.error
        raise ReceiveTimeoutError(f"no reply from {destination!r} within {timeout:g} s", outcome="unknown")

    def _open_inbox(self, deadline: Deadline) -> ReplyInbox:
        """Return the reply inbox; subscribe at the first request, with the lock held until the deadline at most."""
        remaining = deadline.remaining()
        try:
            if not self._opening.acquire(timeout=-1 if remaining is None else remaining):
                raise ReceiveTimeoutError("the reply queue could not be subscribed to in time")
            if self._inbox is None or self._inbox.closed:
                dialect = self._subscriptions.links.link.dialect
                inbox = ReplyInbox(self._subscriptions, name=f"/temp-queue/{os.urandom(8).hex()}")
                try:
                    self._subscriptions.add(inbox, timeout=deadline.remaining(), announce=dialect.subscribes_temporary)
                except ReceiptTimeoutError as error:
                    raise ReceiveTimeoutError("the reply queue could not be subscribed to in time") from error
                self._inbox = inbox
            return self._inbox
        finally:
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may arrive first
                self._opening.release()
            except RuntimeError:
                pass  # it was not acquired
