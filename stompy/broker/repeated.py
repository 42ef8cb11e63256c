"""A fast path for SEND and ACK: heads that come again and again are turned into the head of their MESSAGE once.

Most producers send thousands of messages whose headers differ in the receipt and the content length at most. What such
a SEND means is found by a dictionary; a head that is new is rewritten as bytes. Whatever is odd, or asks for more than
delivery to one queue or topic, is left to `Commands`, which alone reports errors. Guarded by the router's lock.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.broker.destinations import is_topic
from stompy.broker.message import NOT_PASSED_ON, Message, MessageHead
from stompy.broker.options import PLAIN, SEND_HEADERS, send_options
from stompy.broker.profile import OWN
from stompy.errors import LimitExceeded, ProtocolError
from stompy.frames.frame import Headers
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompy.broker.destinations import Target
    from stompy.broker.router import Router
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import Settings
    from stompy.frames.grammar import Grammar
    from stompy.frames.learned import Row

_REMEMBERED = 16_384
"""Heads of each version that are remembered."""
_LONGEST = 512
"""Bytes of the longest head among them."""
_SPAN = 256
"""Messages that are put into a queue at once."""

_STATIC = frozenset(("priority", "persistent"))
"""Options that depend on the head alone."""


def _lines(names: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?:%b):[^\n]*" % b"|".join(re.escape(name.encode()) for name in sorted(names)))


_DROPPED = _lines(NOT_PASSED_ON)
_ODD = _lines((SEND_HEADERS - _STATIC) | {"transaction"})
_OPTIONS = _lines(_STATIC)
_RECEIPT = re.compile(rb"\nreceipt:([!-9;-\[\]-~]+)(?=\n)")
"""A receipt that is answered as it is, without escape sequences."""
_ACK = re.compile(rb"\nid:([!-9;-\[\]-~]+)\n")
_PADDED = re.compile(rb": | \n")


class RepeatedFrames:
    """Publishes messages of SENDs with learned heads, and settles what ACKs name.

    Args:
        router: whose lock is held around every call.
        settings: limits, and the profile, without which only it is used.
        read: returns what a destination names.
    """

    def __init__(
        self, router: Router, settings: Settings, read: Callable[[str, SessionState], tuple[Target, ...]]
    ) -> None:
        self._router = router
        self._read = read
        self._on = settings.profile is OWN
        self._known: dict[Version, dict[bytes, MessageHead]] = {}

    def publish(self, session: SessionState, rows: Sequence[Row], at: int) -> int:
        """Publish the messages of rows from `at` on; return where it ends, at the first that is left to `Commands`.

        Args:
            session: whose they are; it is connected.
            rows: checked frames.
            at: the first one.
        """
        if not self._on:
            return at
        known = self._known.setdefault(session.protocol.grammar.version, {})
        receipts: list[bytes] = []
        while at < len(rows):
            taken = self._publish_span(session, rows, at, known, receipts)
            if not taken or session.ended:
                break
            at += taken
        if receipts:
            session.write_queue.answer(b"".join(receipts))
        return at

    def settle(self, session: SessionState, rows: Sequence[Row], at: int) -> int:
        """Settle what ACKs name, from `at` on; return where it ends, at the first that is left to `Commands`."""
        if not self._on or session.protocol.version is not Version.V1_2:
            return at
        for raw, _, _ in rows[at:]:
            assert isinstance(raw, bytes)
            found = _ACK.fullmatch(raw)
            if found is None:
                break
            try:
                entries = session.take(found[1].decode("ascii"), subscription=None)
            except ProtocolError:
                break
            self._router.settle(entries, refused=False)
            at += 1
        return at

    def _publish_span(
        self,
        session: SessionState,
        rows: Sequence[Row],
        at: int,
        known: dict[bytes, MessageHead],
        receipts: list[bytes],
    ) -> int:
        """Publish messages to one destination; return how many."""
        span: list[tuple[MessageHead, bytes]] = []
        confirmed: list[bytes] = []
        name, size, extra = None, 0, 0
        for raw, _, body in rows[at : at + _SPAN]:
            assert isinstance(raw, bytes)
            head, receipt = known.get(raw), None
            if head is None or head.body_size != len(body):
                if b"\nreceipt:" in raw:
                    found = _RECEIPT.search(raw)
                    if found is None:
                        break
                    raw, receipt = raw[: found.start()] + raw[found.end() :], found[1]
                head = self._find(session, raw, body, known)
                if head is None:
                    break
            if head.target != name:
                if name is not None:
                    break
                name = head.target
            if receipt is not None:
                confirmed.append(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt)
            span.append((head, body))
            size += len(head.data) + len(body)
            extra += head.excess
        if name is None or not self._may(session, name):
            return 0
        published = self._put(session, name, span, size, extra)
        receipts += confirmed if published == len(span) else ()
        return published

    def _may(self, session: SessionState, name: str) -> bool:
        return session.user is None or session.user._may("write", name)

    def _put(
        self, session: SessionState, name: str, span: list[tuple[MessageHead, bytes]], size: int, extra: int
    ) -> int:
        """Publish messages, all or none; return how many."""
        router = self._router
        queue = None if is_topic(name) else router.topology.queues.get(name)
        if queue is None:
            if not is_topic(name):
                return 0  # it is to be made
        elif not queue.fits(len(span), size):
            return 0
        try:
            router.budget.take(size, extra)
        except LimitExceeded:
            return 0
        messages = [Message.sharing(head, body, router.budget) for head, body in span]
        if queue is None:
            for message in messages:
                if not session.ended:  # as too slow for its own topic
                    router.publisher.publish(message, session.name)
        else:
            router.publisher.append_all(queue, messages)
        return len(span)

    def _find(
        self, session: SessionState, raw: bytes, body: bytes, known: dict[bytes, MessageHead]
    ) -> MessageHead | None:
        """Return the head of a SEND without a receipt, as it is known or from now on."""
        key = raw if b"\ncontent-length:" in raw else b"%b%d" % (raw, len(body))
        head = known.get(key)
        if head is None:
            head = self._head(session, raw, body)
            if head is not None and len(raw) <= _LONGEST:
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[key] = head
        return head

    def _head(self, session: SessionState, raw: bytes, body: bytes) -> MessageHead | None:
        """Return the head of the MESSAGE for a SEND without a receipt; `None` if it is odd."""
        grammar = session.protocol.grammar
        if not _is_canonical(raw, grammar) or _ODD.search(raw):
            return None
        start = raw.find(b"\ndestination:") + len(b"\ndestination:")
        destination = raw[start : raw.index(b"\n", start)].decode("utf-8", grammar.utf8_errors)
        try:
            options = PLAIN
            if _OPTIONS.search(raw):
                options = send_options(Headers._from_head(raw, grammar, "SEND")._peek, 0.0)
            (target,) = self._read(destination, session) if destination else ()
        except (ProtocolError, ValueError):
            return None
        if target.pattern or target.owner is not None:
            return None
        length = b"content-length:%d\n" % len(body) if body else b""
        shown = target.shown.encode("utf-8", grammar.utf8_errors)
        data = b"destination:%b%b%b\n" % (shown, _DROPPED.sub(b"", raw), length)
        return MessageHead(
            data, grammar, destination=target.shown, target=target.name, options=options, body_size=len(body)
        )


def _is_canonical(raw: bytes, grammar: Grammar) -> bool:
    """Whether the lines are written as the broker would write them."""
    return (
        raw.count(b":") == raw.count(b"\n") - 1
        and b"\ndestination:" in raw
        and b"\\" not in raw
        and b"\r" not in raw
        and not (grammar.trim and _PADDED.search(raw))
    )
