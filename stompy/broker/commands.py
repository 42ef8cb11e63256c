"""What each command of a client does. Runs on its session's reader, in a turn of the router."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from stompy.broker.budget import BoundedTable
from stompy.broker.destinations import Target, least_of, reply_target, targets_of
from stompy.broker.message import Message
from stompy.broker.options import (
    PLAIN,
    SEND_HEADERS,
    check_combination,
    check_routing,
    durable_name,
    send_options,
    subscribe_options,
)
from stompy.broker.repeated import RepeatedFrames
from stompy.broker.transactions import Transaction
from stompy.errors import LimitExceededError, ProtocolError, RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.rules import Fault, FaultyFrame, shown
from stompy.protocol.state import subscription_key, unknown_transaction

if TYPE_CHECKING:
    from stompy.broker.router import Router
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import Settings
    from stompy.broker.users import Right

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

    def __init__(self, router: Router, settings: Settings) -> None:
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
        receipt = frame.headers._peek("receipt")
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
        name = frame.headers._peek("transaction") if self._profile.late_receipts and frame.command == "SEND" else None
        if name is not None and name in session.transactions:
            session.transactions[name].receipts.append(data)
        else:
            session.write_queue.answer(data)
            if frame.command == "COMMIT":
                session.write_queue.answer(*session.late_receipts)
                session.late_receipts.clear()

    def _send(self, session: SessionState, frame: Frame) -> None:
        header, router = frame.headers._peek, self._router
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
            message = Message.of(
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
        header = frame.headers._peek
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
        destination = frame.headers._peek("destination")
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
        header = frame.headers._peek
        key = subscription_key(header)
        if key in session.consumers:
            self._router.subscriptions.unsubscribe(session, key, delete=header("durable") == "true")
        name = durable_name(self._profile.translate("SUBSCRIBE", header))
        if name is not None:
            self._router.topology.delete_durable(session.client_id, name)

    def _ack(self, session: SessionState, frame: Frame) -> None:
        header, profile = frame.headers._peek, self._profile
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
        session.transactions[name] = Transaction(kept)

    def _commit(self, session: SessionState, frame: Frame) -> None:
        self._router.commit(session, _transaction(frame))

    def _abort(self, session: SessionState, frame: Frame) -> None:
        self._router.abort(session, session.transactions.pop(_transaction(frame)))

    def _disconnect(self, session: SessionState, frame: Frame) -> None:
        self._router.detach(session)

    def _open(self, session: SessionState, name: str, *, adding: int = 0) -> Transaction:
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
            raise FaultyFrame(*unknown_transaction(name, "SEND"))
        return found


def _transaction(frame: Frame) -> str:
    return frame.headers._peek("transaction") or ""
