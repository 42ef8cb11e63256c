"""Sends that the broker has not confirmed, kept to be sent again where their link dies first.

| thread | does here | may block on |
|---|---|---|
| any caller | `make_room`, before it sends | room, up to its deadline; without a lock |
| reader | `keeps`, `settled` | nothing |
| reconnect thread | `replay`, on a link that nobody else has yet | `sendall`; in doubt, receipts |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 5 | unconfirmed (leaf) | what is kept, in order, and how much | no, and it calls nothing |

A send is kept from the moment that a link registers its receipt, which comes before its bytes leave. A link's reader
asks `keeps` for each of its receipts before the link manager hears of the end, so the next link meets them all. A
send that no link registered stays with its caller, who tries the next link by himself, behind all that is sent again.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable

from stompy.connection.buffer import FrameBuffer
from stompy.connection.reconnect import ResendLimits
from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConnectionLost,
    LocalProtocolError,
    ReceiptTimeout,
    StompError,
    UnconfirmedFull,
)
from stompy.frames.encoder import Encoded, encode_head, finish
from stompy.link.link import Link
from stompy.link.receipts import Receipt
from stompy.locks import Rank, make_condition, make_lock

_LOG = logging.getLogger("stompy.connection")

_SUSPICIONS = 3
"""Links in a row that ended by an ERROR without a name, with this message alone under way, until it is the culprit."""


class PendingSend:
    """One send: what is needed to send it again.

    Args:
        identity: the same on every copy.
        receipt: the caller's.
        headers: of the SEND, without the dedupe headers, which each broker calls as it likes.
        body: bytes.
        content_length: whether that header is written.
    """

    __slots__ = ("_headers", "admitted", "body", "content_length", "identity", "receipt", "size", "suspicions")

    def __init__(
        self, identity: str, receipt: Receipt, headers: dict[str, str], body: bytes, *, content_length: bool
    ) -> None:
        self.identity = identity
        self.receipt = receipt
        self._headers = headers
        self.body = body
        self.content_length = content_length
        self.size = size_of(headers, body)
        self.admitted = False
        """Whether a link took it, so that it will be sent again if need be."""
        self.suspicions = 0

    def frame(self, link: Link) -> Encoded:
        """Return the frame for a link; what the program gave by hand stays.

        Raises:
            LocalProtocolError: it cannot be written in the link's version.
        """
        headers = {**link.dialect.dedupe_headers(self.identity), **self._headers}
        grammar = link.protocol.grammar
        head = encode_head("SEND", headers.items(), grammar=grammar) + self.receipt._line
        return finish(head, self.body, grammar=grammar, content_length=self.content_length)


class ResendBuffer:
    """What one connection has sent and the broker has not confirmed, in the order it was sent.

    Args:
        bounds: how much that may be.
        name: of the connection; part of receipt ids.
    """

    def __init__(self, bounds: ResendLimits, *, name: str) -> None:
        self._bounds = bounds
        self._prefix = f"{name}-kept-"
        self._origin = os.urandom(12).hex()
        self._numbers = itertools.count(1)
        self._receipt_lock = make_lock(Rank.LEAF, "kept receipts")
        self._changed = make_condition("resend buffer")
        self._kept: dict[str, PendingSend] = {}
        self._prepared: dict[str, PendingSend] = {}
        self._size = 0
        self._last: Link | None = None
        """The link that was replayed to last, whether or not it came to be used."""
        self._over: StompError | None = None

    def __len__(self) -> int:
        return len(self._prepared)

    @property
    def size(self) -> int:
        """Bytes of bodies and headers of what is kept."""
        return self._size

    def receipts(self) -> list[Receipt]:
        """Return the receipts of what is kept."""
        with self._changed:
            return [one.receipt for one in self._kept.values()]

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
        """Return a send to make room for, and to be handed to a link.

        Args:
            link: the newest.
            headers: of the SEND.
            body: bytes.
            content_length: whether that header is written.
            identity: by which copies are known; `None` makes one that no other message has.

        Raises:
            LocalProtocolError: the message alone is above the bound.
        """
        number = next(self._numbers)
        receipt = Receipt(f"{self._prefix}{number}", link, self._receipt_lock, self)
        one = PendingSend(identity or f"{self._origin}-{number}", receipt, headers, body, content_length=content_length)
        if one.size > self._bounds.max_bytes:
            what = f"a message of {one.size} bytes cannot be kept to be sent again"
            raise LocalProtocolError(f"{what}: the bound of resend_unconfirmed is max_bytes={self._bounds.max_bytes}")
        return one

    def make_room(self, one: PendingSend, link: Link, deadline: Deadline, flush: Callable[[], None]) -> None:
        """Wait until there is room for a send; `drop` it if what comes next fails, or if this does.

        Args:
            one: what `prepare` gave.
            link: the newest.
            deadline: until when to wait.
            flush: writes out the caller's own batch, which may hold what there is to wait for.

        Raises:
            UnconfirmedFull: there was no room in time; nothing was sent.
        """
        if not self._take_room(one):
            flush()
            self._await_room(one, link, deadline)

    def drop(self, one: PendingSend) -> None:
        """Forget a send that did not come about."""
        with self._changed:
            self._remove(one.receipt)

    def _await_room(self, one: PendingSend, link: Link, deadline: Deadline) -> None:
        while not self._take_room(one):
            if deadline.expired:
                raise self._full()
            link = self._last or link
            # The receipts that make room may lie behind the messages of a full inbox.
            try:
                link.flow.hold(one)
                self._await_change(one, link, deadline)
            finally:
                link.flow.holders.discard(one)

    def _await_change(self, one: PendingSend, link: Link, deadline: Deadline) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(one) or self._last is not link, deadline.remaining())

    def _full(self) -> UnconfirmedFull:
        which = "max_messages" if len(self._prepared) >= self._bounds.max_messages else "max_bytes"
        bound = self._bounds.max_messages if which == "max_messages" else self._bounds.max_bytes
        held = f"{len(self._prepared)} messages of {self._size} bytes wait for the broker's confirmation"
        return UnconfirmedFull(f"nothing was sent: {held}", limit_name=which, limit=bound)

    def _take_room(self, one: PendingSend) -> bool:
        with self._changed:
            if not self._has_room(one):
                return False
            self._prepared[one.receipt.id] = one
            self._size += one.size
            return True

    def _has_room(self, one: PendingSend) -> bool:
        fits = self._size + one.size <= self._bounds.max_bytes
        return fits and len(self._prepared) < self._bounds.max_messages

    # What receipts tell (`receipts.ResendStore`).

    def admitted(self, receipt: Receipt) -> None:
        """Keep the send of a receipt that a link has just registered, behind those that are kept."""
        with self._changed:
            one = self._prepared.get(receipt.id)
            if one is not None and not one.admitted:
                one.admitted = True
                self._kept[receipt.id] = one

    def keeps(self, receipt: Receipt) -> bool:
        """Return whether the send of a receipt whose link is over will be sent again."""
        self.admitted(receipt)  # the link may have ended right behind the registration
        with self._changed:
            self._changed.notify_all()
            return self._over is None and receipt.id in self._kept

    def settled(self, receipt: Receipt) -> None:
        """Forget a send whose outcome is known, and let the next one in."""
        with self._changed:
            self._remove(receipt)

    def _remove(self, receipt: Receipt) -> None:
        self._kept.pop(receipt.id, None)
        one = self._prepared.pop(receipt.id, None)
        if one is not None:
            self._size -= one.size
        self._changed.notify_all()

    # For the link manager.

    def replay(self, link: Link) -> None:
        """Send again, in order, what no link has confirmed; before anybody else may use `link`.

        Usually it does not wait for the receipts. Where the last link ended by an ERROR that named no frame, one of
        these messages may be the reason: then they go one by one, each behind the receipt of the one before.

        Raises:
            ConnectionLost: the link died; what it did not confirm goes to the one after.
            ReceiptTimeout: in doubt, the broker did not answer in time.
        """
        suspicious = self._last is not None and _blames_nobody(self._last.end_reason)
        with self._changed:
            self._last = link
            self._changed.notify_all()
            kept = list(self._kept.values())
        if not kept:
            return
        _LOG.info("%d unconfirmed messages are sent again to %s", len(kept), link.address)
        try:
            link.flow.hold(self)
            self._send_alone(link, kept) if suspicious else self._send_together(link, kept)
            link.check_open()
        except BrokerError as error:
            # It is about one of the messages, and no reason to give the connection up.
            raise ConnectionLost(f"while messages were sent again: {error}") from error
        finally:
            link.flow.holders.discard(self)

    def _send_together(self, link: Link, kept: list[PendingSend]) -> None:
        buffer = FrameBuffer(link)
        for one in kept:
            self._put(buffer, one)
        buffer.flush()

    def _send_alone(self, link: Link, kept: list[PendingSend]) -> None:
        for one in kept:
            self._send_together(link, [one])
            self._await_answer(link, one.receipt)
            if one.receipt.done:
                continue
            if link.end_reason is None:
                raise ReceiptTimeout("a message sent again was not confirmed in time", receipt_id=one.receipt.id)
            self._suspect(one, link.end_reason)
            link.check_open()

    def _await_answer(self, link: Link, receipt: Receipt) -> None:
        with self._changed:
            self._changed.wait_for(lambda: receipt.done or link.end_reason is not None, link.receipt_timeout)

    def _suspect(self, one: PendingSend, reason: StompError) -> None:
        if not _blames_nobody(reason):
            return
        one.suspicions += 1
        if one.suspicions >= _SUSPICIONS:
            one.receipt._settle("rejected", reason)

    def _put(self, buffer: FrameBuffer, one: PendingSend) -> None:
        if one.receipt.done:
            return
        try:
            buffer.add(one.frame(buffer.link), one.receipt)
        except LocalProtocolError as error:
            # Another version than that of the first copy, say: it can never be written here.
            lost = ConnectionLost(f"its link died, and it cannot be sent again: {error}")
            lost.__cause__ = error
            one.receipt._settle("unknown", lost)

    def finish(self, reason: StompError | None) -> None:
        """End all that is open as unknown: there will be no other link."""
        words = "the connection was closed before the broker confirmed"
        over = ConnectionLost(words if reason is None else f"the connection is lost for good: {reason}")
        over.__cause__ = reason
        with self._changed:
            if self._over is not None:
                return
            self._over = over
            left = list(self._kept.values())
            self._changed.notify_all()
        for one in left:
            one.receipt._settle("unknown", over)


def size_of(headers: dict[str, str], body: bytes) -> int:
    """Return what a send counts for."""
    return len(body) + sum([len(name) + len(value) for name, value in headers.items()])


def _blames_nobody(reason: StompError | None) -> bool:
    return isinstance(reason, BrokerError) and reason.receipt_id is None
