"""ACK and NACK: which message may still be acknowledged, and with which frame.

Any thread. A message is claimed under a leaf lock, so that two threads cannot acknowledge it twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompy.connection.message import Message, log_fields
from stompy.dialects.dialect import Dialect
from stompy.errors import AckError
from stompy.frames.encoder import encode_head, encode_lines
from stompy.frames.grammar import Version
from stompy.link.receipts import FailedFrames, Receipt
from stompy.locks import Rank, make_lock
from stompy.protocol.ack import ack_headers

if TYPE_CHECKING:
    from stompy.connection.connection import Connection

_LOG = logging.getLogger("stompy.connection")


class Acker:
    """Sends ACK and NACK for the messages of one connection, once per message and on the link that delivered it."""

    def __init__(self) -> None:
        self._warned = False
        self.failed = FailedFrames()
        """Counts the frames of the connection that fail after the call that sent them."""
        self.claims = make_lock(Rank.LEAF, "claims")
        self.connection: Callable[[], Connection | None] = lambda: None
        """Returns the connection, for what is sent because of a message."""

    def acknowledge(
        self,
        message: Message,
        command: str,
        *,
        receipt: bool = False,
        requeue: bool | None = None,
        shared: bool = False,
    ) -> Receipt | None:
        """Send ACK or NACK for a message; raises as `claim` and `Writer.write` do.

        Args:
            message: to settle.
            command: `"ACK"` or `"NACK"`.
            receipt: request a receipt and return it.
            requeue: of `Message.nack`.
            shared: without a receipt; see `Delivery.write_shared`.
        """
        link, unsent = message._link, [message]

        def written() -> None:
            unsent.clear()
            if command == "ACK" or not message._link.dialect.nack_is_individual:
                message._cover()

        try:
            head = self.claim(message, command, unsent, requeue=requeue)
            if shared:
                message._delivery.write_shared(head + b"\n\0")
                written()
                return None
            handle = link.receipts.make() if receipt else None
            extra = b"" if handle is None else handle._line
            # Checked again with the write lock: another thread may have ended the subscription since, and some brokers
            # end the session at an ACK that comes after its UNSUBSCRIBE.
            check = message._delivery.check_subscribed
            link.writer.write(b"%b%b\n\0" % (head, extra), receipt=handle, check=check, on_written=written)
            if handle is not None:
                self.failed.watch(handle)
            return handle
        except BaseException:
            if unsent:
                self.give_back(message, unsent)
            raise

    def refuse(self, message: Message) -> None:
        """Send NACK for a message whose handler failed, unless the broker would drop it or refuse others with it.

        Raises:
            AckError: the message stays unacknowledged, for the reason given.
            StompError: as `acknowledge`.
        """
        dialect = message._link.dialect
        reason = dialect.why_nack_loses(message.headers._peek)
        if reason is None and not dialect.nack_is_individual and not message._is_first:
            reason = "in mode 'client' a NACK would also reject earlier unacknowledged messages"
        if reason is not None:
            raise AckError(reason)
        # Explicit, as RabbitMQ's default depends on its configuration.
        self.acknowledge(message, "NACK", requeue=True if dialect.nack == "requeued" else None)

    def claim(
        self,
        message: Message,
        command: str,
        claimant: object,
        *,
        requeue: bool | None = None,
        transaction: bool = False,
    ) -> bytes:
        """Claim a message for ACK or NACK and return the command and header lines that name it.

        `claimant` may give it back, even if this raised, as a signal may arrive after the claim was made.

        Raises:
            AckError: the message needs no acknowledgement, already has one, its link has ended, or the frame would also
                acknowledge a message whose handler raised.
            LocalProtocolError: the version has no NACK.
            ConfigurationError: the broker would not do what was requested.
        """
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK: it was consumed when the broker sent it")
        link = message._link
        if not link.alive:
            raise AckError("the session that delivered this message has ended; the broker will deliver it again")
        head, alone = _head(message, command), False
        if transaction or command == "NACK" or message._unsubscribed:
            dialect = link.dialect
            message._delivery.check_subscribed()
            if transaction:
                dialect.check_transacted(command)
            if command == "NACK":
                alone = dialect.nack_is_individual
                head += encode_lines(command, dialect.nack_headers(requeue).items(), grammar=link.protocol.grammar)
                self._warn(message, dialect, requeue)
        with self.claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            failed = None if alone else message._failed_before
            if failed is not None:
                raise AckError(
                    f"in mode 'client' this {command} would settle message {failed.message_id!r} too, whose handler"
                    " raised: settle that one first, by an ack() or nack() of its own"
                )
            message._claim(command, claimant)
        return head

    def _warn(self, message: Message, dialect: Dialect, requeue: bool | None) -> None:
        """Warn once per connection if the broker will drop the message instead of dead-lettering it."""
        lost = dialect.why_nack_loses(message.headers._peek) if dialect.nack == "dead letter" else None
        if lost is not None and requeue is None and not self._warned:
            self._warned = True
            _LOG.warning(
                "NACK of %.200r from %.200r drops the message (requeue=False silences this warning): %s",
                message.message_id,
                message.destination,
                lost,
                extra=log_fields(message),
            )

    def give_back(self, message: Message, claimant: object) -> None:
        """Undo a claim, if there is one: the frame was not written, or its transaction was aborted.

        From then on only the caller knows whether the message was handled, so it is not acknowledged by itself.
        """
        with self.claims:
            message._unclaim(claimant)


def _head(message: Message, command: str) -> bytes:
    """Return the command of an ACK or NACK and the lines that name a message; raises as `ack_headers` does."""
    link = message._link
    grammar = link.protocol.grammar
    if link.version is Version.V1_2:
        # Sent back as received, still escaped.
        token = message.headers._wire("ack")
        if token is not None and "\r" not in token:
            return f"{command}\nid:{token}\n".encode("utf-8", grammar.utf8_errors)
    headers = ack_headers(command, message.headers._peek, link.version)
    if grammar.draft:
        headers["content-length"] = "0"  # every frame has one there
    return encode_head(command, headers.items(), grammar=grammar)
