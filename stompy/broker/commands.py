"""What each command of a client does. Runs on its session's reader, in a turn of the router."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from stompy.broker.message import Message
from stompy.broker.transactions import Transaction
from stompy.errors import LimitExceeded, ProtocolError, RemoteProtocolError
from stompy.frames.grammar import Version
from stompy.protocol.rules import shown
from stompy.protocol.state import subscription_key

if TYPE_CHECKING:
    from stompy.broker.account import Account
    from stompy.broker.router import Router
    from stompy.broker.settings import Settings
    from stompy.broker.users import Right
    from stompy.frames.frame import Frame
    from stompy.protocol.rules import Lookup

_RABBITMQ = "prefetch-count"
PREFETCH_HEADERS = (_RABBITMQ, "activemq.prefetchSize")
"""RabbitMQ's and ActiveMQ's names for the same wish; 0 is no bound at the one, and room for nothing at the other."""

_OBJECTS = 1024
"""About how many bytes a transaction takes, whatever its id."""

_NUMBER = re.compile(r"-?0*[0-9]{1,9}")


class Commands:
    """Turns the frames of a connected client into changes of the router's state.

    Args:
        router: whose lock is held around every call.
        settings: limits.
    """

    def __init__(self, router: Router, settings: Settings) -> None:
        self._router = router
        self._settings = settings
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

    def process(self, account: Account, frame: Frame) -> None:
        """Do what a frame asks for, then answer with a RECEIPT where it asks for that too (STOMP 1.2, RECEIPT).

        Args:
            account: whose frame it is; its protocol object has accepted the frame.
            frame: any but CONNECT.

        Raises:
            ProtocolError: it cannot be done, is not allowed, or would pass a limit; the session must be ended with an
                ERROR.
        """
        self._handlers[frame.command](account, frame)
        receipt = frame.headers.peek("receipt")
        if receipt is not None:
            account.outbox.answer(account.protocol.send("RECEIPT", {"receipt-id": receipt}))

    def _send(self, account: Account, frame: Frame) -> None:
        self._destination(account, "write", frame)
        message = Message.of(frame, account.protocol.grammar, self._router.pool)
        name = frame.headers.peek("transaction")
        if name is None:
            self._router.publish(message)
        else:
            self._open(account, name, adding=message.size).send(message)

    def _subscribe(self, account: Account, frame: Frame) -> None:
        header = frame.headers.peek
        if header("selector") is not None:
            raise RemoteProtocolError("this broker has no selectors")
        most = self._settings.max_session_subscriptions
        if len(account.consumers) >= most:
            raise LimitExceeded(
                "too many subscriptions in one session", limit_name="max_session_subscriptions", limit=most
            )
        destination = self._destination(account, "read", frame)
        self._router.subscribe(
            account,
            subscription_key(header),
            destination=destination,
            identity=header("id"),
            mode=header("ack") or "auto",
            prefetch=self._prefetch(header, destination),
        )

    def _destination(self, account: Account, right: Right, frame: Frame) -> str:
        """Return the destination of a frame that the user may use so.

        Raises:
            RemoteProtocolError: it is empty, or access is refused.
        """
        destination = frame.headers.peek("destination")
        if not destination:
            raise RemoteProtocolError(f"a {frame.command} frame needs a destination that is not empty")
        account.check_right(right, destination)
        if account.user is not None and not self._router.knows(destination):
            account.check_right("admin", destination)
        return destination

    def _prefetch(self, header: Lookup, destination: str) -> int:
        """Return how many messages may wait for their ACK; 0 or less where none is ever delivered."""
        for name in PREFETCH_HEADERS:
            value = header(name)
            if value is None:
                continue
            if not _NUMBER.fullmatch(value):
                raise RemoteProtocolError(f"{name} must be a number of at most nine digits, not {value[:40]!r}")
            number = int(value)
            if number == 0 and name == _RABBITMQ:
                return sys.maxsize
            if number <= 0:
                asked = f"{name}:{value}"
                self._router.warn(f"a subscription to {shown(destination)} gets nothing, as it asked for {asked}")
            return number
        return self._settings.prefetch

    def _unsubscribe(self, account: Account, frame: Frame) -> None:
        self._router.unsubscribe(account, subscription_key(frame.headers.peek))

    def _ack(self, account: Account, frame: Frame) -> None:
        header = frame.headers.peek
        version = account.protocol.version
        entries = account.take(
            header("id" if version is Version.V1_2 else "message-id") or "",
            subscription=header("subscription") if version is Version.V1_1 else None,
        )
        refused = frame.command == "NACK"
        name = header("transaction")
        if name is None:
            self._router.settle(entries, refused=refused)
            return
        try:
            self._open(account, name).settle(entries, refused=refused)
        except ProtocolError:
            account.ledger.restore(entries)
            raise
        self._router.freed(entries[-1].item.consumer)

    def _begin(self, account: Account, frame: Frame) -> None:
        most = self._settings.max_session_transactions
        if len(account.transactions) >= most:
            raise LimitExceeded(
                "too many open transactions in one session", limit_name="max_session_transactions", limit=most
            )
        name = _transaction(frame)
        kept = 3 * sys.getsizeof(name) + _OBJECTS  # here, in the protocol object, and what reading it leaves of holes
        account.share.take(kept)
        account.transactions[name] = Transaction(kept)

    def _commit(self, account: Account, frame: Frame) -> None:
        self._router.commit(account, _transaction(frame))

    def _abort(self, account: Account, frame: Frame) -> None:
        self._router.abort(account, account.transactions.pop(_transaction(frame)))

    def _disconnect(self, account: Account, frame: Frame) -> None:
        self._router.detach(account)

    def _open(self, account: Account, name: str, *, adding: int = 0) -> Transaction:
        """Return an open transaction that may take one more frame, with `adding` octets."""
        transactions = account.transactions.values()
        frames = sum(transaction.frames for transaction in transactions)
        size = sum(transaction.size for transaction in transactions)
        settings, what = self._settings, f"transaction {name[:80]!r} is too large"
        if frames >= settings.max_transaction_frames:
            most = settings.max_transaction_frames
            raise LimitExceeded(what, limit_name="max_transaction_frames", limit=most)
        if size + adding > settings.max_transaction_bytes:
            raise LimitExceeded(what, limit_name="max_transaction_bytes", limit=settings.max_transaction_bytes)
        return account.transactions[name]


def _transaction(frame: Frame) -> str:
    return frame.headers.peek("transaction") or ""
