"""Transactions: frames that the broker takes as a whole or not at all (STOMP 1.2, BEGIN, COMMIT, ABORT)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.connection.acking import Acker
from stompy.connection.buffer import FrameBuffer
from stompy.connection.codec import Body
from stompy.connection.message import Message
from stompy.deadline import check_seconds
from stompy.dialects.options import NOTHING_ASKED, SendOptions
from stompy.errors import LocalProtocolError, StompError, TransactionError

if TYPE_CHECKING:
    from stompy.connection.sending import Sender


class Transaction:
    """One transaction; made by `Connection.transaction` and used as a context manager.

    The block's end commits and waits for the broker's receipt; an exception in the block aborts. Frames are coalesced:
    they leave when enough has come together, at the latest with the commit. It belongs to the link it began on and dies
    with it. One thread at a time; several transactions of one connection are independent.

    Attributes:
        id: the `transaction` header.
    """

    def __init__(self, sender: Sender, acker: Acker, *, content_length: bool) -> None:
        self.id = sender.new_transaction_id()
        self._line = b"transaction:%b\n" % self.id.encode("ascii")
        self._acker = acker
        self._content_length = content_length
        self._link = sender.live_link()
        self._encoder = sender.encoder(self._link)
        self._buffer = FrameBuffer(self._link)
        self._acked: list[Message] = []
        self._begun = False
        self._over: str | None = None

    def __enter__(self) -> Transaction:
        try:
            self._begun = True
            self._buffer.add(self._link.writer.encode("BEGIN", {"transaction": self.id}))
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
        self._check()
        asked = (persistent, priority, expires, delay, group, dedupe_id)
        options = None if asked == NOTHING_ASKED else SendOptions(*asked)
        self._buffer.add(
            self._encoder.send(destination, body, content_type, headers, options, self._content_length, self._line)
        )

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
            head = self._acker.claim(message, command, self, transaction=True)
            self._buffer.add(b"%b%b\n\0" % (head, self._line))
        except StompError:
            self._acked.remove(message)
            self._acker.give_back(message, self)
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
            receipt = self._link.writer.request(
                "COMMIT", {"transaction": self.id}, receipt=True, on_left=self._committed
            )
        except BaseException:
            if self._over is None:
                self._abort_quietly()
            raise
        assert receipt is not None
        receipt.wait(timeout)
        for message in self._acked:
            message._cover()

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
            self._acker.give_back(message, self)
        if not self._buffer.flushed:
            # The broker never heard of it, but our own record of open transactions did.
            self._link.writer.encode("ABORT", {"transaction": self.id})
            return
        self._link.writer.request("ABORT", {"transaction": self.id})

    def _check(self) -> None:
        if not self._begun:
            raise LocalProtocolError(f"there is no open transaction {self.id!r}: it begins with its `with` block")
        if self._over is not None:
            raise TransactionError(f"transaction {self.id!r} is already {self._over}")

    def __repr__(self) -> str:
        return f"<Transaction {self.id!r} {self._over or 'open'}>"
