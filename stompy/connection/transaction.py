"""Transactions (STOMP 1.2, BEGIN, COMMIT, ABORT)."""

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
    """A transaction, returned by `Connection.transaction` and used as a context manager. One thread at a time.

    The end of the block commits and waits for the broker's receipt; an exception aborts. Frames are written in batches,
    at the latest with the commit. A transaction ends with the session that it began in.

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
        self._end: str | None = None

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
        if self._end is not None:
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except StompError as abort_error:
            # The error of the block says more; the session has ended, and the transaction with it.
            assert error is not None
            error.__context__ = error.__context__ or abort_error

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        content_length: bool | None = None,
        persistent: bool | None = None,
        priority: int | None = None,
        expires: float | None = None,
        delay: float | None = None,
        group: str | None = None,
        dedupe_id: str | None = None,
    ) -> None:
        """Send a message in the transaction; for the arguments see `Connection.send`.

        Raises:
            ConfigurationError: the broker does not support an option; nothing was sent.
            TransactionError: the transaction has ended.
            LocalProtocolError: the frame cannot be encoded.
            ConnectionLost: the connection was lost, and the transaction with it.
        """
        self._check()
        values = (persistent, priority, expires, delay, group, dedupe_id)
        options = None if values == NOTHING_ASKED else SendOptions(*values)
        length = self._content_length if content_length is None else content_length
        self._buffer.add(self._encoder.send(destination, body, content_type, headers, options, length, self._line))

    def ack(self, message: Message) -> None:
        """Acknowledge a message when the transaction commits; also raises as `Message.ack` does.

        Raises:
            ConfigurationError: the broker (Artemis) would not wait for the commit; nothing was sent.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Reject a message when the transaction commits; also raises as `Message.nack` does.

        Raises:
            ConfigurationError: the broker (ActiveMQ, Artemis) does not support this; nothing was sent.
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
            timeout: seconds; `None` uses the receipt timeout.

        Raises:
            TransactionError: the transaction has ended.
            ReceiptTimeout: the broker did not confirm in time.
            ConnectionLost: the connection was lost; `outcome` says whether the broker may have committed.
        """
        check_seconds(timeout)
        self._check()
        try:
            self._buffer.flush()
            receipt = self._link.writer.request(
                "COMMIT", {"transaction": self.id}, receipt=True, on_written=self._committed
            )
        except BaseException:
            if self._end is None:
                self._abort_quietly()
            raise
        assert receipt is not None
        receipt.wait(timeout)
        for message in self._acked:
            message._cover()

    def _committed(self) -> None:
        self._end = "committed"

    def _abort_quietly(self) -> None:
        with contextlib.suppress(StompError):
            self.abort()

    def abort(self) -> None:
        """Abort the transaction; messages acknowledged in it can be acknowledged again.

        Raises:
            TransactionError: the transaction has ended.
            ConnectionLost: the connection was lost, which also aborts the transaction.
        """
        self._check()
        self._end = "aborted"
        for message in self._acked:
            self._acker.give_back(message, self)
        if not self._buffer.flushed:
            # The broker does not know it, but our record of open transactions does.
            self._link.writer.encode("ABORT", {"transaction": self.id})
            return
        self._link.writer.request("ABORT", {"transaction": self.id})

    def _check(self) -> None:
        if not self._begun:
            raise LocalProtocolError(f"transaction {self.id!r} is not open: use it in a `with` block")
        if self._end is not None:
            raise TransactionError(f"transaction {self.id!r} is already {self._end}")

    def __repr__(self) -> str:
        return f"<Transaction {self.id!r} {self._end or 'open'}>"
