"""Transactions: frames that the broker takes as a whole or not at all (STOMP 1.2, BEGIN, COMMIT, ABORT)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from stompy.connection.acking import Acker
from stompy.connection.buffer import FrameBuffer
from stompy.connection.codec import Body
from stompy.connection.composing import Composer
from stompy.connection.dialects.options import send_options
from stompy.connection.message import Message
from stompy.deadline import check_seconds
from stompy.errors import StompError, TransactionError
from stompy.link.link import Link


class Transacting(Protocol):
    """The connection's core, as a transaction sees it."""

    @property
    def acker(self) -> Acker:
        """Acknowledges messages."""
        ...

    def new_transaction_id(self) -> str:
        """Return an id that no other transaction of the connection has."""
        ...

    def live_link(self) -> Link:
        """Return the link to use now."""
        ...

    @property
    def composer(self) -> Composer:
        """Composes frames."""
        ...

    @property
    def default_content_length(self) -> bool:
        """Whether SEND carries `content-length`."""
        ...


class Transaction:
    """One transaction; made by `Connection.transaction` and used as a context manager.

    The block's end commits and waits for the broker's receipt; an exception in the block aborts. Frames are coalesced:
    they leave when enough has come together, at the latest with the commit. It belongs to the link it began on and dies
    with it. One thread at a time; several transactions of one connection are independent.

    Attributes:
        id: the `transaction` header.
    """

    def __init__(self, core: Transacting, *, content_length: bool | None = None) -> None:
        self.id = core.new_transaction_id()
        self._core = core
        self._link = core.live_link()
        self._content_length = core.default_content_length if content_length is None else content_length
        self._buffer = FrameBuffer(self._link)
        self._acked: list[Message] = []
        self._over: str | None = None

    def __enter__(self) -> Transaction:
        try:
            self._put("BEGIN", {"transaction": self.id})
        except BaseException:
            self._abort_quietly()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._over is not None:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except StompError as failed:
            # The block's own error says more; the link is over, and with it the transaction.
            assert error is not None
            error.__context__ = error.__context__ or failed

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        persistent: bool | None = None,
        priority: int | None = None,
        expires: float | None = None,
        delay: float | None = None,
        group: str | None = None,
        dedupe_id: str | None = None,
    ) -> None:
        """Send within the transaction; arguments as `Connection.send`.

        Raises:
            ConfigurationError: the broker has no way to do what was asked; nothing was sent.
            TransactionError: it is over.
            LocalProtocolError: the frame cannot be written.
            ConnectionLost: the link died; nothing of the transaction will be done.
        """
        options = send_options(persistent, priority, expires, delay, group, dedupe_id)
        fields, octets = self._core.composer.send(
            destination, body, content_type=content_type, headers=headers, options=options
        )
        fields["transaction"] = self.id
        self._put("SEND", fields, octets)

    def ack(self, message: Message) -> None:
        """Acknowledge within the transaction, which takes effect with the commit; raises as `Message.ack` does.

        Raises:
            ConfigurationError: the broker (Artemis) would not wait for the commit; nothing was sent.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Refuse within the transaction, which takes effect with the commit; raises as `Message.nack` does.

        Raises:
            ConfigurationError: the broker (ActiveMQ, Artemis) has no such thing; nothing was sent.
        """
        self._settle(message, "NACK")

    def _settle(self, message: Message, command: str) -> None:
        self._check()
        self._acked.append(message)
        try:
            fields = self._core.acker.claim(message, command, self, transaction=True)
            fields["transaction"] = self.id
            self._put(command, fields)
        except StompError:
            self._acked.remove(message)
            self._core.acker.give_back(message, self)
            raise

    def commit(self, *, timeout: float | None = None) -> None:
        """Commit and wait for the broker's receipt.

        Args:
            timeout: seconds; `None` takes the receipt timeout.

        Raises:
            TransactionError: it is over.
            ReceiptTimeout: the broker did not confirm in time.
            ConnectionLost: the link died; `outcome` tells whether the broker may have committed.
        """
        check_seconds(timeout)
        self._check()
        try:
            self._buffer.flush()
            receipt = self._link.request("COMMIT", {"transaction": self.id}, receipt=True, on_left=self._committed)
        except BaseException:
            if self._over is None:
                self._abort_quietly()
            raise
        assert receipt is not None
        receipt.wait(timeout)
        for message in self._acked:
            message.cover()

    def _committed(self) -> None:
        self._over = "committed"

    def _abort_quietly(self) -> None:
        with contextlib.suppress(StompError):
            self.abort()

    def abort(self) -> None:
        """Abort: nothing of it happens, and messages acknowledged in it wait for their ACK again.

        Raises:
            TransactionError: it is over.
            ConnectionLost: the link died, which aborts it all the same.
        """
        self._check()
        self._over = "aborted"
        for message in self._acked:
            self._core.acker.give_back(message, self)
        if not self._buffer.flushed:
            # The broker never heard of it, but our own record of open transactions did.
            self._link.encode("ABORT", {"transaction": self.id})
            return
        self._link.request("ABORT", {"transaction": self.id})

    def _put(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self._check()
        self._buffer.add(command, headers, body, content_length=self._content_length)

    def _check(self) -> None:
        if self._over is not None:
            raise TransactionError(f"transaction {self.id!r} is already {self._over}")

    def __repr__(self) -> str:
        return f"<Transaction {self.id!r} {self._over or 'open'}>"
