"""Transactions (STOMP 1.2, BEGIN, COMMIT, ABORT)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.connection.encoding import Body
from stompy.connection.message import Acker, Message, options_to_forward
from stompy.connection.resend_buffer import FrameBuffer
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.dialects.options import OtherSendOptions, SendOptions
from stompy.errors import (
    ConnectionLostError,
    LimitExceededError,
    LocalProtocolError,
    ReceiptTimeoutError,
    SessionError,
    StompError,
    TransactionError,
)
from stompy.frames.encoder import Encoded, encode
from stompy.link.link import for_caller
from stompy.link.receipts import Receipt, commit_left, receipt_line

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.sending import Sender
    from stompy.dialects.options import show_send_options


class Transaction:
    """A transaction, returned by `Connection.transaction` and used as a context manager. One thread at a time.

    The end of the block commits and waits for the broker's receipts; an exception aborts. Frames are written in
    batches, at the latest with the commit. A transaction ends with the session that it began in.

    Attributes:
        id: the `transaction` header.
    """

    def __init__(self, sender: Sender, acker: Acker) -> None:
        self.id = sender.new_transaction_id()
        self._line = b"transaction:%b\n" % self.id.encode("ascii")
        self._acker = acker
        self._link = sender.links.live()
        self._dialect = self._link.dialect
        limit = self._dialect.max_transaction_frames
        self._most = sys.maxsize if limit is None else limit
        self._each = self._dialect.transacted_receipts != "later"
        """Whether each frame needs a receipt of its own."""
        self._encoder = sender.links.encoder(self._link)
        self._buffer = FrameBuffer(self._link)
        self._acked: list[Message] = []
        self._receipts: list[Receipt] = []
        """Of its frames, where the broker does not answer for them by a receipt of a later one."""
        self._later: list[bytes] = []
        """ACKs and NACKs, without their last lines, which are committed after the broker has confirmed the SENDs."""
        self._last: Receipt | None = None
        """Of what is written before COMMIT."""
        self._frames = 0
        self._second = False
        """Whether a second transaction, of `_later`, is open."""
        self._begun = False
        self._end: str | None = None

    def __enter__(self) -> Transaction:
        if self._begun:
            raise TransactionError(f"transaction {self.id!r} is already {self._end or 'open'}")
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
        **options: Unpack[OtherSendOptions],
    ) -> None:
        """Send a message in the transaction.

        Args:
            destination: as in `Connection.send`.
            body: as in `Connection.send`.
            content_type: a MIME type; text is encoded with its charset. By default that of the body.
            headers: additional headers; values are `str`, `int` (decimal) or `bool` (`true`, `false`).
            options: the others of `Connection.send`.

        Raises:
            ConfigurationError: an option is wrong, given twice, or not supported by the broker; nothing was sent.
            TransactionError: the transaction has ended.
            LocalProtocolError: the frame cannot be encoded.
            LimitExceededError: the broker takes no more frames in a transaction, or too many receipts are pending;
                nothing was sent.
            ConnectionLostError: the connection was lost, and the transaction with it.
        """
        if self._frames >= self._most or self._end is not None or not self._begun:
            self._check_room()
        if not self._each:
            self._buffer.add(self._encoder.send(destination, body, content_type, headers, options, self._line))
            self._frames += 1
        else:
            if TYPE_CHECKING:
                show_send_options(**options)
            receipt = self._link.receipts.make(deferred=True)
            line = self._line + receipt_line(receipt)
            self._add(self._encoder.send(destination, body, content_type, headers, options, line), receipt)

    def forward(self, message: Message, destination: str, **options: Unpack[SendOptions]) -> None:
        """Send a message on in the transaction, as `Message.forward` does; raises as `send` does."""
        self.send(destination, message.body, **options_to_forward(message, self._dialect, **options))

    def ack(self, message: Message) -> None:
        """Acknowledge a message when the transaction commits; also raises as `Message.ack` and `send` do.

        Raises:
            ConfigurationError: the broker (Artemis) would not wait for the commit; nothing was sent.
        """
        self._settle(message, "ACK")

    def nack(self, message: Message) -> None:
        """Reject a message when the transaction commits; also raises as `Message.nack` and `send` do.

        Raises:
            ConfigurationError: the broker (ActiveMQ, Artemis) does not support this; nothing was sent.
        """
        self._settle(message, "NACK")

    def _settle(self, message: Message, command: str) -> None:
        self._check_room()
        self._acked.append(message)
        try:
            head = self._acker.claim(message, command, self, transaction=True)
            if self._dialect.atomic_commit:
                if self._each:
                    receipt = self._link.receipts.make(deferred=True)
                    self._add(b"%b%b%b\n\0" % (head, self._line, receipt_line(receipt)), receipt)
                    return
                self._buffer.add(b"%b%b\n\0" % (head, self._line))
            else:
                self._later.append(head)
            self._frames += 1
        except StompError:
            self._acked.remove(message)
            self._acker.give_back(message, self)
            raise

    def _add(self, data: Encoded, receipt: Receipt) -> None:
        self._receipts.append(receipt)  # first, so that one that a signal interrupts is forgotten with the others
        try:
            self._buffer.add(data, receipt)
        except StompError:
            self._receipts.remove(receipt)
            raise
        self._frames += 1

    def commit(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Commit and wait for the broker's receipts.

        COMMIT leaves when the broker has taken every frame before it. Where COMMIT does not take effect as a whole
        (RabbitMQ), acknowledgements are committed when the broker has confirmed every message. An error with the
        outcome `"not-sent"` says that nothing took effect; one with `"unknown"`, that the broker may have committed.

        Args:
            timeout: seconds in total; by default the receipt timeout.

        Raises:
            TransactionError: the transaction has ended.
            BrokerError: the broker refused a frame.
            ReceiptTimeoutError: the broker did not confirm in time.
            ConnectionLostError: the connection was lost.
        """
        check_seconds(given(timeout, None))
        self._check()
        deadline = Deadline(given(timeout, self._link.receipt_timeout))
        try:
            for receipt in self._write_all():
                receipt.result(deadline.remaining())
        except BaseException as error:
            self._abort_quietly()
            if isinstance(error, (SessionError, ReceiptTimeoutError)):
                raise for_caller(error, "not-sent", f"nothing of the transaction took effect: {error}") from error
            raise
        done = self._unknown
        try:
            committed = self._link.receipts.make()
            fields = {"transaction": self.id}
            self._link.writer.request("COMMIT", fields, receipt=committed, on_written=self._committed)
            for receipt in (committed, *self._receipts):
                receipt.result(deadline.remaining())
            if self._second:
                done = "its messages are stored, and its acknowledgements may have taken effect"
                receipt = self._link.receipts.make()
                self._link.writer.write(self._frame_of_second("COMMIT", receipt), receipt=receipt)
                self._second = False
                receipt.result(deadline.remaining())
        except BaseException as error:
            if self._end is None and getattr(error, "outcome", "not-sent") == "not-sent":
                self._abort_quietly()  # COMMIT was not written
                raise
            if self._second:
                with contextlib.suppress(StompError):
                    self._drop_second()
            if not isinstance(error, StompError):
                raise
            text = f"the outcome of the transaction is unknown, {done}: {error}"
            if isinstance(error, (SessionError, ReceiptTimeoutError)):
                raise for_caller(error, "unknown", text) from error
            raise ConnectionLostError(text) from error
        for message in self._acked:
            self._acker.cover(message)

    def _write_all(self) -> list[Receipt]:
        """Write the buffer; return the receipts by which the broker confirms that it has taken the frames."""
        link, buffer = self._link, self._buffer
        receipts = self._receipts
        if self._frames and self._dialect.transacted_receipts != "at once":
            # The receipt of one more frame: of the last acknowledgement, if they have a transaction of their own, or of
            # the BEGIN of an empty one, as the receipt of a SEND may not come before COMMIT. The record of the session
            # does not have this second transaction, which must not meet the limit of those that are open.
            check = self._last = link.receipts.make()
            receipts = [check]
            if self._later:
                *others, last = [b"%btransaction:%b-2\n" % (head, self.id.encode("ascii")) for head in self._later]
                self._second = True
                buffer.add(self._frame_of_second("BEGIN"))
                for each in others:
                    buffer.add(each + b"\n\0")
                buffer.add(b"%b%b\n\0" % (last, receipt_line(check)), check)
            else:
                buffer.add(self._frame_of_second("BEGIN", check), check)
                buffer.add(self._frame_of_second("ABORT"))
        buffer.flush()
        return receipts

    def _frame_of_second(self, command: str, receipt: Receipt | None = None) -> bytes:
        own = [] if receipt is None else [("receipt", receipt.id)]
        return encode(command, [("transaction", f"{self.id}-2"), *own], grammar=self._link.protocol.grammar)

    def _drop_second(self) -> None:
        """Abort the transaction of the acknowledgements; raises as `Writer.write` does."""
        self._second = False
        for message in self._acked:
            self._acker.give_back(message, self)
        self._link.writer.write(self._frame_of_second("ABORT"))

    @property
    def _unknown(self) -> str:
        """The possible effects of a COMMIT that was not confirmed."""
        if not self._dialect.atomic_commit:
            return "some or all of its messages may be stored, and none of its acknowledgements took effect"
        if self._dialect.transacted_receipts == "after commit":
            return "all, some or none of its frames took effect"
        return "all of its frames took effect, or none"

    def _committed(self) -> None:
        self._end = "committed"
        commit_left(self._receipts)

    def _abort_quietly(self) -> None:
        with contextlib.suppress(StompError):
            self.abort()

    def abort(self) -> None:
        """Abort the transaction; messages acknowledged in it can be acknowledged again.

        Raises:
            TransactionError: the transaction has ended.
            ConnectionLostError: the connection was lost, which also aborts the transaction.
        """
        self._check()
        self._end = "aborted"
        for message in self._acked:
            self._acker.give_back(message, self)
        for receipt in (*self._receipts, self._last):
            if receipt is not None:
                self._link.receipts.forget(receipt)
        if not self._buffer.flushed:
            # The broker does not know it, but our record of open transactions does.
            self._link.writer.encode("ABORT", {"transaction": self.id})
            return
        if self._second:
            self._buffer.flush()  # its BEGIN may not have left
            self._drop_second()
        self._link.writer.request("ABORT", {"transaction": self.id})

    def _check(self) -> None:
        if not self._begun:
            raise LocalProtocolError(f"transaction {self.id!r} is not open: use it in a `with` block")
        if self._end is not None:
            raise TransactionError(f"transaction {self.id!r} is already {self._end}")

    def _check_room(self) -> None:
        self._check()
        if self._frames >= self._most:
            what = f"{self._dialect.product} takes no more frames in transaction {self.id!r}"
            raise LimitExceededError(what, limit_name="max_transaction_frames", limit=self._most)

    def __repr__(self) -> str:
        return f"<Transaction {self.id!r} {self._end or 'open'}>"


def was_written(transaction: Transaction) -> bool:
    """Return whether the broker may have received any frame of a transaction."""
    return transaction._buffer.flushed
