"""Buffers of frames: of frames that are written together, and of frames that are resent until the broker confirms them.

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

from stompy.connection.reconnect import ResendLimits
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default
from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    LocalProtocolError,
    ReceiptTimeoutError,
    SessionError,
    StompError,
    UnconfirmedFullError,
)
from stompy.frames.encoder import Encoded, encode_head, finish
from stompy.link.link import Link, for_caller
from stompy.link.receipts import Receipt, is_resendable, receipt_line, reported, resolve, write_before_wait
from stompy.locks import Rank, make_condition, make_lock
from stompy.world import os, threading

_FLUSH_AT = 64 * 1024
"""Bytes at which a buffer is written."""


class FrameBuffer:
    """Encoded frames that are waiting to be written to one link. One thread at a time.

    Args:
        link: to write to; the buffer ends with it.
        owner: returns the `Batch`, or `None` once its block is over, however it ended; for a buffer without a `Batch`,
            any object.
    """

    def __init__(self, link: Link, owner: Callable[[], object] = object) -> None:
        self.link = link
        self.owner = owner
        self._data: list[bytes] = []
        self._receipts: list[Receipt] = []
        self._size = 0
        self._thread = threading.get_ident()
        self.flushed = False
        """Whether anything was written, or will be resent."""
        self._failed = False

    @property
    def replaceable(self) -> bool:
        """Whether the link has ended and everything in the buffer will be resent on the next one."""
        return not self.link.alive and not self._failed and self._all_resendable()

    def successor(self, link: Link) -> FrameBuffer:
        """Return the buffer that takes the place of a replaceable one."""
        buffer = FrameBuffer(link, self.owner)
        buffer.flushed = self.flushed or bool(self._data)
        return buffer

    def add(self, data: Encoded, receipt: Receipt | None = None) -> None:
        """Add a frame; write the buffer when it is large enough.

        Args:
            data: the frame.
            receipt: of the frame.

        Raises:
            LimitExceededError: too many receipts are pending; nothing was added.
            NotConnectedError: the connection was closed.
            ConnectionLostError: the link was lost.
        """
        link = self.link
        if not isinstance(data, bytes):
            data = b"".join(data)
        if not link.alive:
            link.check_open()
        if receipt is None:
            self._data.append(data)
        else:
            try:
                link.receipts.register(receipt)
                write_before_wait(receipt, self._flush_in_own_thread)
                self._receipts.append(receipt)
                self._data.append(data)
            except BaseException:
                link.receipts.forget(receipt)
                self._receipts = [each for each in self._receipts if each is not receipt]
                raise
        self._size += len(data)
        if self._size >= _FLUSH_AT:
            try:
                self._write(DEFAULT)
            except SessionError:
                if self.link.alive and not (receipt is not None and is_resendable(receipt)):
                    self._take_back(data, receipt)
                raise

    def _take_back(self, data: bytes, receipt: Receipt | None) -> None:
        """Remove the newest frame, as the error says that it was not sent."""
        self._data.pop()
        self._size -= len(data)
        if receipt is not None:
            self._receipts.remove(receipt)
            self.link.receipts.forget(receipt)

    def flush(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Write the buffer now, unless all of it will be resent on the next link.

        Raises:
            SendTimeoutError: another thread was writing for too long. The frames stay in the buffer and may be written
                later, so the outcome is unknown.
            ConnectionLostError: as `Writer.write`, or unknown if some frames were written; the others are dropped.
        """
        before = self.flushed
        try:
            self._write(timeout)
        except SessionError as error:
            if before or self._data:
                error.outcome = "unknown"
            raise

    def close(self) -> None:
        """Write the buffer for the last time; raises as `flush`, but drops frames that could not be written in time."""
        before = self.flushed
        try:
            self._write(DEFAULT)
        except StompError as error:
            if before and isinstance(error, SessionError):
                error.outcome = "unknown"
            self._abandon(error)
            raise

    def _write(self, timeout: float | Default | None) -> None:
        """Write the buffer; raises as `Writer.write` does, about all that is in it."""
        if not self._data:
            return
        receipts, all_resendable = self._receipts, self._all_resendable()
        try:
            self.link.writer.write(self._data, frames=len(self._data), on_written=self._written, timeout=timeout)
        except SessionError as error:
            if self.link.alive:  # another thread was writing for too long: the buffer can still be written
                raise
            self._written()
            if not all_resendable:
                self._failed = True
                for receipt in receipts:
                    if is_resendable(receipt):
                        error.outcome = "unknown"  # it will be resent
                    else:
                        reported(receipt)
                raise
        for receipt in receipts:
            write_before_wait(receipt, None)

    def _written(self) -> None:
        self._data, self._receipts, self._size, self.flushed = [], [], 0, True

    def _abandon(self, error: StompError) -> None:
        """Drop the unwritten frames, and resolve their receipts as unknown with `error`."""
        receipts = self._receipts
        self._data, self._receipts, self._size = [], [], 0
        for receipt in receipts:
            reported(receipt)
            resolve(receipt, error)
            self.link.receipts.forget(receipt)

    def _flush_in_own_thread(self, timeout: float | Default | None) -> None:
        if threading.get_ident() == self._thread:
            self.flush(timeout=timeout)

    def _all_resendable(self) -> bool:
        return len(self._receipts) == len(self._data) and all(map(is_resendable, self._receipts))


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
        "_headers", "body", "content_length", "copies", "failures_alone", "identity", "receipt", "registered", "size",
    )  # fmt: skip

    def __init__(
        self, identity: str, receipt: Receipt, headers: dict[str, str], body: bytes, *, content_length: bool
    ) -> None:
        self.identity = identity
        self.receipt = receipt
        self._headers = headers
        self.body = body
        self.content_length = content_length
        self.size = len(body) + sum([len(name) + len(value) for name, value in headers.items()])
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
        self.size = 0
        """Bytes of the bodies and headers."""
        self._last: Link | None = None
        """The link of the last replay, whether or not it was published."""
        self._first = ""
        """The receipt id of the first send of the last replay."""
        self._end_error: StompError | None = None

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
        if self._take_room(send):
            return
        flush()
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

    def drop(self, send: PendingSend) -> None:
        """Remove a send that failed."""
        with self._changed:
            self._remove(send.receipt)

    def _await_change(self, send: PendingSend, link: Link, deadline: Deadline) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(send) or self._last is not link, deadline.remaining())

    def _full(self) -> UnconfirmedFullError:
        which = "max_messages" if len(self._prepared) >= self._limits.max_messages else "max_bytes"
        limit = self._limits.max_messages if which == "max_messages" else self._limits.max_bytes
        held = f"{len(self._prepared)} messages of {self.size} bytes are waiting for the broker's confirmation"
        return UnconfirmedFullError(f"nothing was sent: {held}", limit_name=which, limit=limit)

    def _take_room(self, send: PendingSend) -> bool:
        with self._changed:
            if not self._has_room(send):
                return False
            self._prepared[send.receipt.id] = send
            self.size += send.size
            return True

    def _has_room(self, send: PendingSend) -> bool:
        fits = self.size + send.size <= self._limits.max_bytes
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
        if (send := self._prepared.pop(receipt.id, None)) is not None:
            self.size -= send.size
        self._changed.notify_all()

    # For the link manager.

    def replay(self, link: Link) -> None:
        """Resend the pending sends, in order, before `link` is published.

        Receipts are not waited for, with two exceptions. If the previous link ended by an ERROR without `receipt-id`,
        one of the messages may have caused it, so each is sent after the receipt of the previous one. If none was
        confirmed since the last replay, the first is sent alone, then, each after the receipts of those before, two,
        four and so on: all of them at once might end each link before its first receipt.

        Raises:
            ConnectionLostError: the link was lost; its unconfirmed messages will be resent on the next one.
            ReceiptTimeoutError: a receipt that was waited for did not arrive in time.
        """
        suspected = self._last is not None and _names_no_receipt(self._last.end_reason)
        with self._changed:
            self._last = link
            self._changed.notify_all()
            pending = list(self._pending.values())
        if not pending:
            return
        first, self._first = self._first, pending[0].receipt.id
        _LOG.info("resending %d unconfirmed messages to %s", len(pending), link.address)
        try:
            link.flow.hold(self)
            if suspected or first == self._first:
                self._send_in_turn(link, pending, growth=1 if suspected else 2)
            else:
                self._send_together(link, pending)
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

    def _send_in_turn(self, link: Link, pending: list[PendingSend], *, growth: int) -> None:
        """Send one alone, then always `growth` times as many, each time after the receipt of the one before."""
        size = 1
        while pending:
            together, pending = pending[:size], pending[size:]
            size *= growth
            self._send_together(link, together)
            send = together[-1]
            receipt = send.receipt
            with self._changed:
                self._changed.wait_for(lambda: receipt.done() or link.end_reason is not None, link.receipt_timeout)  # noqa: B023
            if receipt.done():
                continue
            if link.end_reason is None:
                raise ReceiptTimeoutError("a resent message was not confirmed in time", receipt_id=send.receipt.id)
            if len(together) == 1 and _names_no_receipt(link.end_reason):
                send.failures_alone += 1
                if send.failures_alone >= _MAX_FAILURES_ALONE:
                    resolve(send.receipt, self.rejected(send.receipt, link.end_reason))
            link.check_open()

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


def _names_no_receipt(reason: StompError | None) -> bool:
    return isinstance(reason, BrokerError) and reason.receipt_id is None
