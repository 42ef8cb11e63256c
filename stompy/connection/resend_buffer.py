"""The resend buffer: sends that are kept until the broker confirms them, and resent on the next link.

| thread | calls | may block on |
|---|---|---|
| any caller | `make_room`, before it sends | a full buffer, until its deadline; without a lock |
| reader | `will_resend`, `resolved` | nothing |
| reconnect thread | `replay`, before the link is published | `sendall`; in doubt, receipts |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 5 | resend buffer (leaf) | the pending sends, in order, and their size | no, and it calls nothing |

A send is pending once a link has registered its receipt, which is before its bytes are written. A link's reader calls
`will_resend` for each receipt before the link manager learns of the end, so `replay` finds all of them. A send that no
link registered stays with its caller, which uses the next link after the replay.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from stompy.connection.buffer import FrameBuffer
from stompy.connection.reconnect import ResendLimits
from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    StompError,
    UnconfirmedFullError,
)
from stompy.frames.encoder import Encoded, encode_head, finish
from stompy.link.link import Link, for_caller
from stompy.link.receipts import Receipt, receipt_line, resolve
from stompy.locks import Rank, make_condition, make_lock
from stompy.world import os

_LOG = logging.getLogger("stompy.connection")

_MAX_FAILURES_ALONE = 3
"""Consecutive links that ended by an ERROR without `receipt-id` after this message alone, until it is rejected."""


class PendingSend:
    """One send, with all that is needed to resend it.

    Args:
        identity: the dedupe id, the same on every copy.
        receipt: the caller's.
        headers: of the SEND, without the dedupe headers, whose names depend on the broker.
        body: bytes.
        content_length: whether to add that header.
    """

    __slots__ = (
        "_headers",
        "body",
        "content_length",
        "copies",
        "failures_alone",
        "identity",
        "receipt",
        "registered",
        "size",
    )

    def __init__(
        self, identity: str, receipt: Receipt, headers: dict[str, str], body: bytes, *, content_length: bool
    ) -> None:
        self.identity = identity
        self.receipt = receipt
        self._headers = headers
        self.body = body
        self.content_length = content_length
        self.size = size_of(headers, body)
        self.registered = False
        """Whether a link registered its receipt, so that it will be resent if necessary."""
        self.copies = 0
        """How often it was encoded to be sent."""
        self.failures_alone = 0

    def frame(self, link: Link) -> Encoded:
        """Return the frame for a link; dedupe headers that the caller set explicitly are unchanged.

        Raises:
            LocalProtocolError: it cannot be encoded in the link's version.
        """
        self.copies += 1
        headers = {**link.dialect.dedupe_headers(self.identity), **self._headers}
        grammar = link.protocol.grammar
        head = encode_head("SEND", headers.items(), grammar=grammar) + receipt_line(self.receipt)
        return finish(head, self.body, grammar=grammar, content_length=self.content_length)


class ResendBuffer:
    """The unconfirmed sends of one connection, in order.

    Args:
        limits: of the buffer.
        name: of the connection; part of receipt ids.
    """

    def __init__(self, limits: ResendLimits, *, name: str) -> None:
        self._limits = limits
        self._prefix = f"{name}-resend-"
        self._origin = os.urandom(12).hex()
        self._numbers = itertools.count(1)
        self._receipt_lock = make_lock(Rank.LEAF, "resend receipts")
        self._changed = make_condition("resend buffer")
        self._pending: dict[str, PendingSend] = {}
        self._prepared: dict[str, PendingSend] = {}
        self._size = 0
        self._last: Link | None = None
        """The link of the last replay, whether or not it was published."""
        self._end_error: StompError | None = None

    def __len__(self) -> int:
        return len(self._prepared)

    @property
    def size(self) -> int:
        """Bytes of the bodies and headers."""
        return self._size

    def receipts(self) -> list[Receipt]:
        """Return the pending receipts."""
        with self._changed:
            return [send.receipt for send in self._pending.values()]

    # For senders.

    def prepare(
        self,
        link: Link,
        headers: dict[str, str],
        body: bytes,
        *,
        content_length: bool,
        identity: str | None,
    ) -> PendingSend:
        """Return a new send, for `make_room`.

        Args:
            link: the newest.
            headers: of the SEND.
            body: bytes.
            content_length: whether to add that header.
            identity: the dedupe id; `None` generates a unique one.

        Raises:
            LocalProtocolError: the message alone exceeds the limit.
        """
        number = next(self._numbers)
        receipt = Receipt(f"{self._prefix}{number}", link, self._receipt_lock, self)
        send = PendingSend(
            identity or f"{self._origin}-{number}", receipt, headers, body, content_length=content_length
        )
        if send.size > self._limits.max_bytes:
            limit = f"the limit of resend_unconfirmed is max_bytes={self._limits.max_bytes}"
            raise LocalProtocolError(f"a message of {send.size} bytes is too large to be kept for a resend: {limit}")
        return send

    def make_room(self, send: PendingSend, link: Link, deadline: Deadline, flush: Callable[[], None]) -> None:
        """Wait until there is room for a send; the caller must `drop` it if this or the send fails.

        Args:
            send: from `prepare`.
            link: the newest.
            deadline: for waiting.
            flush: writes the caller's batch, whose receipts may be needed to make room.

        Raises:
            UnconfirmedFullError: no room in time; nothing was sent.
        """
        if not self._take_room(send):
            flush()
            self._await_room(send, link, deadline)

    def drop(self, send: PendingSend) -> None:
        """Remove a send that failed."""
        with self._changed:
            self._remove(send.receipt)

    def _await_room(self, send: PendingSend, link: Link, deadline: Deadline) -> None:
        while not self._take_room(send):
            if deadline.expired:
                raise self._full()
            link = self._last or link
            # The receipts that make room may come after the messages that filled the inbox.
            try:
                link.flow.hold(send)
                self._await_change(send, link, deadline)
            finally:
                link.flow.holders.discard(send)

    def _await_change(self, send: PendingSend, link: Link, deadline: Deadline) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(send) or self._last is not link, deadline.remaining())

    def _full(self) -> UnconfirmedFullError:
        which = "max_messages" if len(self._prepared) >= self._limits.max_messages else "max_bytes"
        limit = self._limits.max_messages if which == "max_messages" else self._limits.max_bytes
        held = f"{len(self._prepared)} messages of {self._size} bytes are waiting for the broker's confirmation"
        return UnconfirmedFullError(f"nothing was sent: {held}", limit_name=which, limit=limit)

    def _take_room(self, send: PendingSend) -> bool:
        with self._changed:
            if not self._has_room(send):
                return False
            self._prepared[send.receipt.id] = send
            self._size += send.size
            return True

    def _has_room(self, send: PendingSend) -> bool:
        fits = self._size + send.size <= self._limits.max_bytes
        return fits and len(self._prepared) < self._limits.max_messages

    # `receipts.ResendStore`.

    def registered(self, receipt: Receipt) -> None:
        """Append the send of a receipt that a link is registering to the pending ones."""
        with self._changed:
            send = self._prepared.get(receipt.id)
            if send is not None and not send.registered:
                send.registered = True
                self._pending[receipt.id] = send

    def will_resend(self, receipt: Receipt) -> bool:
        """Return whether the send of a receipt whose link has ended will be resent."""
        self.registered(receipt)  # the link may have ended right after registering it
        with self._changed:
            self._changed.notify_all()
            return self._end_error is None and receipt.id in self._pending

    def rejected(self, receipt: Receipt, error: StompError) -> StompError:
        """Return the error of a send whose copy was rejected: a copy of an earlier session may have arrived."""
        send = self._prepared.get(receipt.id)
        if send is None or send.copies == 1:
            return error
        return for_caller(
            error, "unknown", f"the broker rejected a copy of the message, and may have the first: {error}"
        )

    def resolved(self, receipt: Receipt) -> None:
        """Remove a send whose outcome is known."""
        with self._changed:
            self._remove(receipt)

    def _remove(self, receipt: Receipt) -> None:
        self._pending.pop(receipt.id, None)
        send = self._prepared.pop(receipt.id, None)
        if send is not None:
            self._size -= send.size
        self._changed.notify_all()

    # For the link manager.

    def replay(self, link: Link) -> None:
        """Resend the pending sends, in order, before `link` is published.

        Receipts are not waited for, unless the previous link ended by an ERROR without `receipt-id`. As one of the
        messages may have caused it, each is then sent after the receipt of the previous one.

        Raises:
            ConnectionLostError: the link was lost; what it did not confirm will be resent on the next one.
            ReceiptTimeoutError: a receipt that was waited for did not arrive in time.
        """
        one_by_one = self._last is not None and _names_no_receipt(self._last.end_reason)
        with self._changed:
            self._last = link
            self._changed.notify_all()
            pending = list(self._pending.values())
        if not pending:
            return
        _LOG.info("resending %d unconfirmed messages to %s", len(pending), link.address)
        try:
            link.flow.hold(self)
            self._send_alone(link, pending) if one_by_one else self._send_together(link, pending)
            link.check_open()
        except BrokerError as error:
            # It is about one of the messages, so no reason to give up.
            raise ConnectionLostError(f"while resending messages: {error}") from error
        finally:
            link.flow.holders.discard(self)

    def _send_together(self, link: Link, pending: list[PendingSend]) -> None:
        buffer = FrameBuffer(link)
        for send in pending:
            self._add(buffer, send)
        buffer.flush()

    def _send_alone(self, link: Link, pending: list[PendingSend]) -> None:
        for send in pending:
            self._send_together(link, [send])
            self._await_answer(link, send.receipt)
            if send.receipt.done():
                continue
            if link.end_reason is None:
                raise ReceiptTimeoutError("a resent message was not confirmed in time", receipt_id=send.receipt.id)
            self._suspect(send, link.end_reason)
            link.check_open()

    def _await_answer(self, link: Link, receipt: Receipt) -> None:
        with self._changed:
            self._changed.wait_for(lambda: receipt.done() or link.end_reason is not None, link.receipt_timeout)

    def _suspect(self, send: PendingSend, reason: StompError) -> None:
        if not _names_no_receipt(reason):
            return
        send.failures_alone += 1
        if send.failures_alone >= _MAX_FAILURES_ALONE:
            resolve(send.receipt, self.rejected(send.receipt, reason))

    def _add(self, buffer: FrameBuffer, send: PendingSend) -> None:
        if send.receipt.done():
            return
        try:
            buffer.add(send.frame(buffer.link), send.receipt)
        except LocalProtocolError as error:
            # Such as in another STOMP version than that of the first copy.
            lost = ConnectionLostError(f"the connection was lost, and the message cannot be resent: {error}")
            lost.__cause__ = error
            resolve(send.receipt, lost)

    def finish(self, reason: StompError | None) -> None:
        """Resolve all receipts as unknown: there will be no other link."""
        message = "the connection was closed before the broker confirmed"
        over = ConnectionLostError(message if reason is None else f"the connection is lost for good: {reason}")
        over.__cause__ = reason
        with self._changed:
            if self._end_error is not None:
                return
            self._end_error = over
            unresolved = list(self._pending.values())
            self._changed.notify_all()
        for send in unresolved:
            resolve(send.receipt, over)


def size_of(headers: dict[str, str], body: bytes) -> int:
    """Return the bytes that a send counts for."""
    return len(body) + sum([len(name) + len(value) for name, value in headers.items()])


def _names_no_receipt(reason: StompError | None) -> bool:
    return isinstance(reason, BrokerError) and reason.receipt_id is None
