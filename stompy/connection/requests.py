"""Request and reply: one reply inbox for the connection, answers matched by correlation id.

| thread | does here | lock |
|---|---|---|
| any caller | `Replies.request` | waiting (leaf); waits on an event without a lock |
| reader | `ReplyInbox.offer` | waiting (leaf) |
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

from stompy.connection.message import Message
from stompy.connection.sending import Sender
from stompy.connection.subscription import Subscription
from stompy.connection.subscriptions import SubscriptionTable
from stompy.deadline import Deadline
from stompy.errors import NotConnected, ReceiptTimeout, ReceiveTimeout, StompError
from stompy.locks import Event, Rank, make_lock


class _Waiting:
    __slots__ = ("arrived", "error", "reply")

    def __init__(self) -> None:
        self.arrived = Event()
        self.reply: Message | None = None
        self.error: StompError | None = None


class ReplyInbox(Subscription):
    """The subscription to the connection's own temporary queue; the reader settles requests through it."""

    def __init__(self, subscriptions: SubscriptionTable, *, name: str) -> None:
        super().__init__(
            subscriptions, id=name, destination=name, ack="auto", handler=None, headers={}, dispatcher=None
        )
        self.late = 0
        """Replies that nobody waited for any more."""
        self._lock = make_lock(Rank.LEAF, "waiting")
        self.waiting: dict[str, _Waiting] = {}
        """The requests under way, by correlation id."""

    def expect(self, correlation: str, waiting: _Waiting) -> None:
        """Register a request before it is sent."""
        with self._lock:
            self.waiting[correlation] = waiting

    def _offer(self, messages: Sequence[Message]) -> None:
        """Settle the requests that these messages answer; the rest is late and dropped."""
        for message in messages:
            message._link.flow.taken(message)
            correlation = message.headers.peek("correlation-id")
            with self._lock:
                waiting = self.waiting.pop(correlation, None) if correlation is not None else None
            if waiting is None:
                self.late += 1
                continue
            waiting.reply = message
            waiting.arrived.set()

    def _lost(self, reason: StompError) -> bool:
        """End for good: a temporary queue lives as long as its session."""
        self._end(reason)
        return True

    def _end(self, reason: StompError | None) -> None:
        """Fail every request under way."""
        super()._end(reason)
        with self._lock:
            left = list(self.waiting.values())
            self.waiting.clear()
        for waiting in left:
            waiting.error = reason or NotConnected("the connection was closed before the reply came")
            waiting.arrived.set()


class RequestReply:
    """Requests of one connection.

    Args:
        subscriptions: subscribes.
        sender: sends.
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

    def request(
        self,
        destination: str,
        body: object,
        *,
        content_type: str | None,
        headers: Mapping[str, object] | None,
        timeout: float,
    ) -> Message:
        """Send a request and return its reply; see `Connection.request`."""
        deadline = Deadline(timeout)
        link = self._sender.live_link(deadline.remaining())
        inbox = self._open_inbox(deadline)
        correlation = f"{inbox.id.rpartition('/')[2]}-{next(self._numbers)}"
        waiting, gate = _Waiting(), link.flow
        try:
            inbox.expect(correlation, waiting)
            fields = {**(headers or {}), "reply-to": inbox.destination, "correlation-id": correlation}
            self._sender.send(destination, body, content_type=content_type, headers=fields)
            self._sender.flush_batch(timeout=deadline.remaining())
            gate.hold(waiting)
            waiting.arrived.wait(deadline.remaining())
        finally:
            gate.holders.discard(waiting)
            inbox.waiting.pop(correlation, None)
        if waiting.reply is not None:
            return waiting.reply
        if waiting.error is not None:
            raise waiting.error
        raise ReceiveTimeout(f"no reply from {destination!r} within {timeout:g} s")

    def _open_inbox(self, deadline: Deadline) -> ReplyInbox:
        """Return the reply inbox, subscribing at the first request.

        The lock is held over that one exchange with the broker, by a caller who holds no other, and only until the
        deadline.
        """
        remaining = deadline.remaining()
        try:
            if not self._opening.acquire(timeout=-1 if remaining is None else remaining):
                raise ReceiveTimeout("the reply queue could not be subscribed to in time")
            if self._inbox is None or self._inbox.closed:
                dialect = self._subscriptions.links.link.dialect
                inbox = ReplyInbox(self._subscriptions, name=f"/temp-queue/{os.urandom(8).hex()}")
                try:
                    self._subscriptions.add(inbox, timeout=deadline.remaining(), tell=dialect.subscribes_temporary)
                except ReceiptTimeout as error:
                    raise ReceiveTimeout("the reply queue could not be subscribed to in time") from error
                self._inbox = inbox
            return self._inbox
        finally:
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may strike first
                self._opening.release()
            except RuntimeError:
                pass  # it was not taken
