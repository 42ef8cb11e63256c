"""What each command of a client does. Runs on its session's reader, in a turn of the router.

Most producers send thousands of messages whose headers differ in the receipt and the content length at most.
`RepeatedFrames` finds what such a SEND means in a dictionary, and rewrites a head that is new as bytes. It leaves
whatever is odd, or asks for more than delivery to one queue or topic, to `Commands`, which alone reports errors.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING

from stompy.broker.destinations import Target, is_topic, least_of, reply_target, targets_of
from stompy.broker.message import NOT_PASSED_ON, MessageHead, StoredMessage
from stompy.broker.profile import (
    OWN,
    PLAIN,
    SEND_HEADERS,
    check_combination,
    check_routing,
    durable_name,
    send_options,
    subscribe_options,
)
from stompy.broker.session_state import SessionTransaction
from stompy.broker.settings import BoundedTable
from stompy.broker.users import is_allowed
from stompy.errors import LimitExceededError, ProtocolError, RemoteProtocolError
from stompy.frames.frame import Frame, headers_from_head
from stompy.frames.grammar import Version
from stompy.protocol.rules import Fault, FaultyFrame, shown
from stompy.protocol.state import subscription_key, unknown_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from stompy.broker.profile import SendRequest
    from stompy.broker.router import BrokerRouter
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import Settings
    from stompy.broker.users import Right
    from stompy.frames.grammar import Grammar
    from stompy.frames.heads import Row, Run

    Content: TypeAlias = tuple[MessageHead, bytes, bytes | None]
    """The head of a message, its body, and the receipt that its SEND asked for."""

_REMEMBERED = 16 * 1024 * 1024
"""About how many bytes the remembered heads of a version take, those of all sessions."""
_SEEN = 16_384
"""Heads that were seen once, of which only the hash is kept."""
_LONGEST = 512
"""Bytes of the longest head that is remembered."""
_HEAD_OBJECTS, _LINE = 512, 256
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
_DESTINATION_NAME = b"\ndestination:"
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
        self, router: BrokerRouter, settings: Settings, read: Callable[[str, SessionState], tuple[Target, ...]]
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
        if session.user is not None and not is_allowed(session.user, "write", name):
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
        queues, budget, sharing = router.topology.queues, router.budget, StoredMessage.sharing
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
                self._router.publisher.publish(StoredMessage.sharing(head, body, budget), session.name)
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
                known.remember(key, head, 4 * len(raw) + _LINE * raw.count(b"\n") + _HEAD_OBJECTS)
            else:
                if len(self._seen) >= _SEEN:
                    self._seen.clear()
                self._seen.add(mark)
        return head

    def _head(self, session: SessionState, raw: bytes, body: bytes) -> MessageHead | None:
        """Return the head of the MESSAGE for a SEND without a receipt; `None` if it is odd."""
        grammar, options = session.protocol.grammar, PLAIN
        start = raw.find(_DESTINATION_NAME) + len(_DESTINATION_NAME)
        if start < len(_DESTINATION_NAME) or not _is_canonical(raw, grammar):
            return None
        end = raw.index(b"\n", start)
        destination = raw[start:end].decode("utf-8", grammar.utf8_errors)
        try:
            if _SPECIAL.search(raw):
                if _ODD.search(raw):
                    return None
                options = send_options(headers_from_head(raw, grammar, "SEND").get, 0.0, self._profile)
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
        self, raw: bytes, body: bytes, grammar: Grammar, target: Target, options: SendRequest
    ) -> MessageHead | None:
        headers = headers_from_head(raw, grammar, "SEND")
        added = self._profile.added(options, self._router.clock.now())
        try:
            head = StoredMessage.of(
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


_KNOWN = 16 * 1024 * 1024
"""About how many bytes the destinations take of which it is remembered what they name."""
_LONGEST_KNOWN = 256
_DESTINATION = 512
"""About how many bytes each of them takes beside its text."""

_COMMIT = Frame("COMMIT")
"""In the place of the frame that is found wrong at COMMIT, as it gets no RECEIPT."""

_OBJECTS = 1024
"""About how many bytes a transaction takes, whatever its id."""


class Commands:
    """Turns the frames of a connected client into changes of the router's state.

    Args:
        router: whose lock is held around every call.
        settings: limits.
    """

    def __init__(self, router: BrokerRouter, settings: Settings) -> None:
        self._router = router
        self._settings = settings
        self._profile = settings.profile
        self._known: BoundedTable[str, tuple[Target, ...]] = BoundedTable(_KNOWN)
        self.repeated = RepeatedFrames(router, settings, self._read)
        """Does what most SENDs and ACKs ask for, without a frame object for each."""
        self._handlers = {
            "SEND": self._send,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "ACK": self._ack,
            "NACK": self._ack,
            "BEGIN": self._begin,
            "COMMIT": self._commit,
            "ABORT": self._abort,
            "DISCONNECT": self._disconnect,
        }

    def process(self, session: SessionState, frame: Frame) -> None:
        """Do what a frame asks for, then answer with a RECEIPT where it asks for that too (STOMP 1.2, RECEIPT).

        Args:
            session: whose frame it is; its protocol object has accepted the frame.
            frame: any but CONNECT.

        Raises:
            ProtocolError: it cannot be done, is not allowed, or would pass a limit; the session must be ended with an
                ERROR.
        """
        self._handlers[frame.command](session, frame)
        receipt = frame.headers.get("receipt")
        if receipt is None and session.failure is None:
            return
        if (unfinished := self._router.unfinished) is not None:
            unfinished.finish = functools.partial(self._finish, session, frame, receipt)
        else:
            self._finish(session, frame, receipt)

    def _finish(self, session: SessionState, frame: Frame, receipt: str | None) -> None:
        if receipt is not None:
            self._confirm(session, frame, receipt)
        if session.failure is not None:
            self._router.fail(session, session.failure, _COMMIT)

    def _confirm(self, session: SessionState, frame: Frame, receipt: str) -> None:
        data = session.protocol.send("RECEIPT", {"receipt-id": receipt})
        name = frame.headers.get("transaction") if self._profile.late_receipts and frame.command == "SEND" else None
        if name is not None and name in session.transactions:
            session.transactions[name].receipts.append(data)
        else:
            session.write_queue.answer(data)
            if frame.command == "COMMIT":
                session.write_queue.answer(*session.late_receipts)
                session.late_receipts.clear()

    def _send(self, session: SessionState, frame: Frame) -> None:
        header, router = frame.headers.get, self._router
        now = router.clock.now()
        plain = SEND_HEADERS.isdisjoint([name for name, _ in frame.headers.pairs])
        options = PLAIN if plain else send_options(header, now, self._profile)
        name = header("transaction")
        try:
            targets = self._targets(session, "write", frame)
        except FaultyFrame as error:
            if name is None or error.fault not in self._profile.found_at_commit:
                raise
            transaction = self._open(session, name)
            transaction.failure = transaction.failure or error
            return
        if not plain:
            check_routing("SEND", header, targets)
        reply_to = None if plain else header("reply-to")
        names = self._profile.names
        owned = reply_target(reply_to, session.name) if reply_to and names.temporary != "shared" else None
        replaced = () if owned is None else (("reply-to", names.reply_name(owned.name)),)
        if len(targets) > 1:
            replaced = (*replaced, ("original-destination", header("destination") or ""))
        for target in targets if owned is None else (*targets, owned):
            router.subscriptions.own(session, target)
        added = self._profile.added(options, now)
        for target in targets:
            message = StoredMessage.of(
                frame,
                session.protocol.grammar,
                router.budget,
                destination=target.shown,
                target=target.name,
                options=options,
                replaced=replaced,
                profile=self._profile,
                added=added,
            )
            if name is None:
                router.publisher.publish(message, session.name)
            else:
                if self._profile.implied_begin and name not in session.transactions:
                    self._open_new(session, name)
                transaction = self._open(session, name, adding=message.size)
                try:
                    router.publisher.check_owner(target.name)
                except RemoteProtocolError:
                    transaction.rollback_only |= self._profile.rollback_only and header("receipt") is None
                    raise
                transaction.send(message)
                if options.dedupe_id is not None and router.publisher.has_seen(target.name, options.dedupe_id):
                    transaction.has_duplicate = True

    def _subscribe(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers.get
        most = self._settings.max_session_subscriptions
        if len(session.consumers) >= most:
            raise LimitExceededError(
                "too many subscriptions in one session", limit_name="max_session_subscriptions", limit=most
            )
        options = subscribe_options(header, prefetch=self._settings.prefetch, profile=self._profile)
        targets = self._targets(session, "read", frame)
        check_combination(options, targets)
        check_routing("SUBSCRIBE", header, targets)
        for target in targets:
            if target.owner not in (None, session.name):
                raise RemoteProtocolError("a temporary destination belongs to another session")
            self._router.subscriptions.own(session, target)
        destination = header("destination") or ""
        if options.prefetch <= 0:
            self._router.warn(f"a subscription to {shown(destination)} gets nothing, as its prefetch is 0 or less")
        self._router.subscriptions.subscribe(
            session,
            subscription_key(header),
            targets=targets,
            destination=destination,
            identity=header("id"),
            options=options,
        )

    def _targets(self, session: SessionState, right: Right, frame: Frame) -> tuple[Target, ...]:
        """Return the destinations of a frame that the user may use so.

        Raises:
            RemoteProtocolError: one is empty or a pattern that cannot be sent to, or access is refused.
        """
        destination = frame.headers.get("destination")
        if not destination and (destination is None or not self._profile.names.nameless):
            message = f"a {frame.command} frame needs a destination that is not empty"
            raise FaultyFrame(Fault.EMPTY_DESTINATION, message)
        targets = self._read(destination, session)
        for target in targets:
            if target.pattern and right == "write":
                raise RemoteProtocolError(f"a message cannot be sent to a pattern, {shown(destination)}")
            name = target.name if target.owner is None else target.shown
            session.check_right(right, name)
            if target.pattern:
                session.check_right(right, least_of(name))
            if session.user is not None and not self._router.exists(target):
                session.check_right("admin", name)
        return targets

    def _read(self, destination: str, session: SessionState) -> tuple[Target, ...]:
        known = self._known.get(destination)
        if known is not None:
            return known
        targets = targets_of(destination, session.name, self._profile.names)
        if len(destination) <= _LONGEST_KNOWN and all(target.owner is None for target in targets):
            size = sum(sys.getsizeof(target.name) + sys.getsizeof(target.shown) + _DESTINATION for target in targets)
            self._known.remember(destination, targets, sys.getsizeof(destination) + size)
        return targets

    def _unsubscribe(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers.get
        key = subscription_key(header)
        if key in session.consumers:
            self._router.subscriptions.unsubscribe(session, key, delete=header("durable") == "true")
        name = durable_name(self._profile.translate("SUBSCRIBE", header))
        if name is not None:
            self._router.topology.delete_durable(session.client_id, name)

    def _ack(self, session: SessionState, frame: Frame) -> None:
        header, profile = frame.headers.get, self._profile
        version = session.protocol.version
        token = header("id" if version is Version.V1_2 else "message-id") or ""
        refused = frame.command == "NACK"
        name = header("transaction")
        if name is not None and frame.command in profile.refuses_transacted:
            raise RemoteProtocolError(profile.refuses_transacted[frame.command].format(id=token))
        if session.ledger.find(token).item.consumer.over:
            raise FaultyFrame(Fault.SUBSCRIPTION_ENDED, "the subscription of this message has ended (ACK)")
        entries = session.take(
            token,
            subscription=header("subscription") if version is Version.V1_1 else None,
            alone=refused and profile.nack_alone,
            whole=profile.ack_reaches_connection,
        )
        if name is None or frame.command not in profile.transacted:
            self._router.settle(entries, refused=refused, requeue=header("requeue") != "false")
            return
        try:
            self._open(session, name).settle(entries, refused=refused)
        except ProtocolError:
            session.ledger.restore(entries)
            raise
        for consumer in {entry.item.consumer for entry in entries}:
            self._router.freed(consumer)

    def _begin(self, session: SessionState, frame: Frame) -> None:
        name = _transaction(frame)
        if name not in session.transactions:  # it is only where the profile takes that
            self._open_new(session, name)

    def _open_new(self, session: SessionState, name: str) -> None:
        most = self._settings.max_session_transactions
        if len(session.transactions) >= most:
            raise LimitExceededError(
                "too many open transactions in one session", limit_name="max_session_transactions", limit=most
            )
        kept = 3 * sys.getsizeof(name) + _OBJECTS  # here, in the protocol object, and what reading it leaves of holes
        session.budget.take(kept)
        session.transactions[name] = SessionTransaction(kept)

    def _commit(self, session: SessionState, frame: Frame) -> None:
        self._router.commit(session, _transaction(frame))

    def _abort(self, session: SessionState, frame: Frame) -> None:
        self._router.abort(session, session.transactions.pop(_transaction(frame)))

    def _disconnect(self, session: SessionState, frame: Frame) -> None:
        self._router.detach(session)

    def _open(self, session: SessionState, name: str, *, adding: int = 0) -> SessionTransaction:
        """Return an open transaction that may take one more frame, with `adding` bytes."""
        transactions = session.transactions.values()
        self._router.work.left -= len(transactions) // 16
        frames = sum(transaction.frames for transaction in transactions)
        size = sum(transaction.size for transaction in transactions)
        settings, what = self._settings, f"transaction {name[:80]!r} is too large"
        if frames >= settings.max_transaction_frames:
            most = settings.max_transaction_frames
            raise LimitExceededError(what, limit_name="max_transaction_frames", limit=most)
        if size + adding > settings.max_transaction_bytes:
            raise LimitExceededError(what, limit_name="max_transaction_bytes", limit=settings.max_transaction_bytes)
        found = session.transactions.get(name)
        if found is None:
            raise unknown_transaction(name, "SEND")
        return found


def _transaction(frame: Frame) -> str:
    return frame.headers.get("transaction") or ""
