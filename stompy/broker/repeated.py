"""A fast path for SEND and ACK: heads that come again and again are turned into the head of their MESSAGE once.

Most producers send thousands of messages whose headers differ in the receipt and the content length at most. What such
a SEND means is found by a dictionary; a head that is new is rewritten as bytes. Whatever is odd, or asks for more than
delivery to one queue or topic, is left to `Commands`, which alone reports errors. Guarded by the router's lock.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from stompy.broker.budget import BoundedTable
from stompy.broker.destinations import is_topic
from stompy.broker.message import NOT_PASSED_ON, Message, MessageHead
from stompy.broker.options import PLAIN, SEND_HEADERS, send_options
from stompy.broker.profile import OWN
from stompy.errors import LimitExceededError, ProtocolError
from stompy.frames.frame import Frame, Headers
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from stompy.broker.destinations import Target
    from stompy.broker.options import SendOptions
    from stompy.broker.router import Router
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import Settings
    from stompy.frames.grammar import Grammar
    from stompy.frames.learned import Row, Run

    Content: TypeAlias = tuple[MessageHead, bytes, bytes | None]
    """The head of a message, its body, and the receipt that its SEND asked for."""

_REMEMBERED = 16 * 1024 * 1024
"""About how many bytes the remembered heads of a version take, those of all sessions."""
_SEEN = 16_384
"""Heads that were seen once, of which only the hash is kept."""
_LONGEST = 512
"""Bytes of the longest head that is remembered."""
_OBJECTS, _LINE = 512, 256
"""About how many bytes a remembered head takes beside its text, and each of its lines once a selector was asked."""
_WINDOW, _FIRST_WINDOW = 256, 16
"""Messages that are published at once; few after one that was left over, as those behind it are looked at again."""

_STATIC = frozenset(("priority", "persistent"))
"""Options that depend on the head alone."""


def _lines(names: frozenset[str]) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?:%b):[^\n]*" % b"|".join(re.escape(name.encode()) for name in sorted(names)))


_DROPPED = _lines(NOT_PASSED_ON)
_ODD = _lines((SEND_HEADERS - _STATIC) | {"transaction"})
_SPECIAL = _lines(SEND_HEADERS | {"transaction"})
_DESTINATION = b"\ndestination:"
_RECEIPT_NAME = b"\nreceipt:"
_RECEIPT = re.compile(rb"\nreceipt:([!-9;-\[\]-~]+)(?=\n)")
"""A receipt that is answered as it is, without escape sequences."""
_ACK = re.compile(rb"\nid:([!-9;-\[\]-~]+)\n")
_PADDED = re.compile(rb": | \n")


class RepeatedFrames:
    """Publishes messages of SENDs with learned heads, and settles what ACKs name.

    Args:
        router: whose lock is held around every call.
        settings: limits, and the profile.
        read: returns what a destination names.
    """

    def __init__(
        self, router: Router, settings: Settings, read: Callable[[str, SessionState], tuple[Target, ...]]
    ) -> None:
        self._router = router
        self._read = read
        self._profile = profile = settings.profile
        self._shows_receipts = "receipt" in profile.own_headers
        self._stamped = "timestamp" in dict(profile.added(PLAIN, 0.0))
        self._known: dict[Version, BoundedTable[bytes, MessageHead]] = {}
        self._seen: set[int] = set()  # hashes of heads, as most of those that are seen once are not seen again

    def publish(self, session: SessionState, run: Run, at: int) -> int:
        """Publish the messages of SENDs from `at` on; return where it ends, at the first that is left to `Commands`.

        Args:
            session: whose they are; it is connected.
            run: checked frames.
            at: the first one.
        """
        router, window = self._router, _FIRST_WINDOW if at else _WINDOW
        while at < len(run) and not session.ended and not session.refused and not router.piece_done:
            rows = run.rows[at : at + window]
            window = min(2 * window, _WINDOW)
            contents = self._contents(session, rows)
            groups = _by_name(contents)
            # What a queue or a user's rights do not allow is refused by `Commands`.
            refused = [group[0] for name, group in groups.items() if not self._allows(session, name, group)]
            if refused:
                del contents[min(map(contents.index, refused)) :]
                groups = _by_name(contents)
            if any(map(is_topic, groups)):
                taken = self._publish_each(session, run, at, contents)
            else:
                taken = self._append(session, contents, groups)
            at += taken
            if taken < len(rows):
                break
        return at

    def settle(self, session: SessionState, run: Run, at: int) -> int:
        """Settle what ACKs name, from `at` on; return where it ends, at the first that is left to `Commands`."""
        profile = self._profile
        if session.protocol.version is not Version.V1_2:
            return at
        for raw, _, _ in run.rows[at:]:
            assert isinstance(raw, bytes)
            found = _ACK.fullmatch(raw)
            if found is None:
                break
            token = found[1].decode("ascii")
            try:
                if session.ledger.find(token).item.consumer.over:
                    break
                entries = session.take(token, subscription=None, whole=profile.ack_reaches_connection)
            except ProtocolError:
                break
            self._router.settle(entries, refused=False)
            at += 1
            if self._router.piece_done:
                break
        return at

    def _contents(self, session: SessionState, rows: Sequence[Row]) -> list[Content]:
        """Return what is to be published, up to the first row that is left to `Commands`."""
        version = session.protocol.grammar.version
        known = self._known.get(version)
        if known is None:
            known = self._known[version] = BoundedTable(_REMEMBERED)
        stamp = b"\ntimestamp:%d\n" % round(self._router.clock.now() * 1000) if self._stamped else b""
        contents: list[Content] = []
        for raw, _, body in rows:
            assert isinstance(raw, bytes)
            head, receipt = known.get(raw), None
            if head is None or head.body_size != len(body):
                if (first := raw.find(_RECEIPT_NAME)) >= 0:
                    found = _RECEIPT.match(raw, first)
                    if found is None:
                        break
                    receipt = found[1]
                    if not self._shows_receipts:
                        raw = raw[: found.start()] + raw[found.end() :]
                head = self._find(session, raw, body, known)
                if head is None:
                    break
            if head.stamp != stamp and head.stamp:
                head = _stamped(head, stamp)
            contents.append((head, body, receipt))
        return contents

    def _allows(self, session: SessionState, name: str, group: list[Content]) -> bool:
        """Whether all messages for one destination can be published."""
        if session.user is not None and not session.user._may("write", name):
            return False
        queue = self._router.topology.queues.get(name)
        if queue is None:
            return is_topic(name)
        return not queue.checks_messages and queue.fits(len(group), _size(group))

    def _append(self, session: SessionState, contents: list[Content], groups: dict[str, list[Content]]) -> int:
        """Put messages into their queues, which have room for them; return how many."""
        router = self._router
        try:
            router.budget.take(_size(contents), sum([head.excess for head, _, _ in contents]))
        except LimitExceededError:
            return 0
        queues, budget, sharing = router.topology.queues, router.budget, Message.sharing
        for name, group in groups.items():
            router.publisher.append_all(queues[name], [sharing(head, body, budget) for head, body, _ in group])
        receipts = [_receipt(receipt) for _, _, receipt in contents if receipt is not None]
        if receipts:
            session.write_queue.answer(*receipts)
        return len(contents)

    def _publish_each(self, session: SessionState, run: Run, at: int, contents: list[Content]) -> int:
        """Publish messages one by one, as any may end the session, as too slow for its own topic; return how many."""
        budget, done = self._router.budget, 0
        for head, body, receipt in contents:
            try:
                budget.take(head.size + len(body), head.excess)
            except LimitExceededError:
                break
            try:
                self._router.publisher.publish(Message.sharing(head, body, budget), session.name)
            except ProtocolError as error:
                self._router.fail(session, error, run.frame(run.rows[at + done]))
                return done + 1
            if session.ended:
                break
            done += 1
            if (unfinished := self._router.unfinished) is not None:
                frame = run.frame(run.rows[at + done - 1])
                unfinished.refuse = functools.partial(self._router.fail, session, offender=frame)
                if receipt is not None:
                    unfinished.finish = functools.partial(session.write_queue.answer, _receipt(receipt))
            elif receipt is not None:
                session.write_queue.answer(_receipt(receipt))
            if self._router.piece_done:
                break
        return done

    def _find(
        self, session: SessionState, raw: bytes, body: bytes, known: BoundedTable[bytes, MessageHead]
    ) -> MessageHead | None:
        """Return the head of a SEND without a receipt that is not shown; one that is seen again is remembered."""
        if self._profile.text and b"\ncontent-length:" not in raw and not _is_utf8(body):
            return None
        key = raw if b"\ncontent-length:" in raw else b"%b%d" % (raw, len(body))
        head = known.get(key)
        if head is not None:
            return head
        head = self._head(session, raw, body)
        # Not one with a receipt: `_contents` looks for no receipt in a head that is known.
        if head is not None and len(raw) <= _LONGEST and _RECEIPT_NAME not in raw:
            if (mark := hash(key)) in self._seen:
                known.remember(key, head, 4 * len(raw) + _LINE * raw.count(b"\n") + _OBJECTS)
            else:
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen.add(mark)
        return head

    def _head(self, session: SessionState, raw: bytes, body: bytes) -> MessageHead | None:
        """Return the head of the MESSAGE for a SEND without a receipt; `None` if it is odd."""
        grammar, options = session.protocol.grammar, PLAIN
        start = raw.find(_DESTINATION) + len(_DESTINATION)
        if start < len(_DESTINATION) or not _is_canonical(raw, grammar):
            return None
        end = raw.index(b"\n", start)
        destination = raw[start:end].decode("utf-8", grammar.utf8_errors)
        try:
            if _SPECIAL.search(raw):
                if _ODD.search(raw):
                    return None
                options = send_options(Headers._from_head(raw, grammar, "SEND")._peek, 0.0, self._profile)
            (target,) = self._read(destination, session) if destination else ()
        except (ProtocolError, ValueError):
            return None
        if target.pattern or target.owner is not None:
            return None
        if self._profile is not OWN:
            return self._head_of_profile(raw, body, grammar, target, options)
        length = b"content-length:%d\n" % len(body) if body else b""
        shown = target.shown.encode("utf-8", grammar.utf8_errors)
        data = b"destination:%b%b%b\n" % (shown, _DROPPED.sub(b"", raw), length)
        return MessageHead(
            data, grammar, destination=target.shown, target=target.name, options=options, body_size=len(body)
        )

    def _head_of_profile(
        self, raw: bytes, body: bytes, grammar: Grammar, target: Target, options: SendOptions
    ) -> MessageHead | None:
        headers = Headers._from_head(raw, grammar, "SEND")
        added = self._profile.added(options, self._router.clock.now())
        try:
            head = Message.of(
                Frame("SEND", headers, body),
                grammar,
                destination=target.shown,
                target=target.name,
                options=options,
                profile=self._profile,
                added=added,
            ).shared
        except ProtocolError:
            return None
        if self._stamped and b"\ntimestamp:" not in raw:
            head.stamp = b"\ntimestamp:%b\n" % dict(added)["timestamp"].encode()
        return head


def _stamped(head: MessageHead, stamp: bytes) -> MessageHead:
    """Return a head at another moment."""
    if head.later is None or head.later.stamp != stamp:
        before, _, after = head.data.rpartition(head.stamp)
        head.later = MessageHead(
            before + stamp + after,
            head.grammar,
            destination=head.destination,
            target=head.target,
            options=head.options,
            body_size=head.body_size,
            length=head.length,
        )
        head.later.stamp = stamp
    return head.later


def _by_name(contents: list[Content]) -> dict[str, list[Content]]:
    groups: dict[str, list[Content]] = {}
    for content in contents:
        name = content[0].target
        if name in groups:
            groups[name].append(content)
        else:
            groups[name] = [content]
    return groups


def _size(contents: Iterable[Content]) -> int:
    return sum([head.size + len(body) for head, body, _ in contents])


def _receipt(receipt: bytes) -> bytes:
    return b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_canonical(raw: bytes, grammar: Grammar) -> bool:
    """Whether the lines are written as the broker would write them."""
    return (
        raw.count(b":") == raw.count(b"\n") - 1
        and b"\\" not in raw
        and b"\r" not in raw
        and not (grammar.trim and _PADDED.search(raw))
    )
