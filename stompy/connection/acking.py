"""Acknowledging: which message may still be settled, and by which frame.

Any thread; a claim is taken under a leaf lock, so that two threads cannot settle one message twice.
"""

from __future__ import annotations

import logging

from stompy.connection.message import Message
from stompy.dialects.dialect import Dialect
from stompy.errors import AckError
from stompy.frames.encoder import encode_head, encode_lines
from stompy.frames.grammar import Version
from stompy.link.receipts import Receipt
from stompy.locks import Rank, make_lock
from stompy.protocol.ack import ack_headers

_LOG = logging.getLogger("stompy.connection")


class Acker:
    """Sends ACK and NACK for messages of one connection, each message once and over the link it came by."""

    def __init__(self) -> None:
        self._warned = False
        self.claims = make_lock(Rank.LEAF, "claims")

    def acknowledge(
        self, message: Message, command: str, *, receipt: bool = False, requeue: bool | None = None
    ) -> Receipt | None:
        """Send ACK or NACK for a message over the link it came by; raises as `claim` and `Writer.write` do."""
        link, waiting = message._link, [message]

        def left() -> None:
            waiting.clear()
            if command == "ACK" or not message._link.dialect.nack_is_individual:
                message._cover()

        try:
            head = self.claim(message, command, waiting, requeue=requeue)
            handle = link.receipts.make() if receipt else None
            more = b"" if handle is None else handle._line
            link.writer.write(b"%b%b\n\0" % (head, more), receipt=handle, on_left=left)
            return handle
        except BaseException:
            if waiting:
                self.give_back(message, waiting)
            raise

    def refuse(self, message: Message) -> None:
        """Send NACK for a message whose work failed, if the broker then keeps it and refuses no other with it.

        Raises:
            AckError: it stays unacknowledged, for the reason given.
            StompError: as `acknowledge`.
        """
        dialect = message._link.dialect
        why = dialect.why_nack_loses(message.headers.peek)
        if why is None and not dialect.nack_is_individual and not message._is_first:
            why = "in mode 'client' a NACK would refuse earlier messages with it, which are not settled"
        if why is not None:
            raise AckError(why)
        # Said in so many words, as what RabbitMQ does without them is a setting of its own.
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

        `claimant` is who may give it back; also after this has raised, as a signal may strike when the claim is made.

        Raises:
            AckError: it needs none, has had one, was covered by a later one, its link is gone, or the frame would cover
                a message whose handler raised.
            LocalProtocolError: the version has no NACK.
            ConfigurationError: the broker would do another thing than was asked.
        """
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK: it was consumed when the broker sent it")
        link = message._link
        if not link.alive:
            raise AckError("the link that this message came by is gone; the broker will deliver it again")
        head, alone = _head(message, command), False
        if transaction or command == "NACK" or message._orphaned:
            dialect = link.dialect
            if message._orphaned and not dialect.ack_after_unsubscribe:
                raise AckError("the subscription of this message has ended; the broker will deliver it again")
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
        """Say, once a connection, that what seems a dead letter is a lost one."""
        lost = dialect.why_nack_loses(message.headers.peek) if dialect.nack == "dead letter" else None
        if lost is not None and requeue is None and not self._warned:
            self._warned = True
            _LOG.warning(
                "refusing %r of %r drops it (requeue=False says that this is meant): %s",
                message.message_id,
                message.destination,
                lost,
            )

    def give_back(self, message: Message, claimant: object) -> None:
        """Undo a claim, if there is one: the frame never left, or its transaction was aborted."""
        with self.claims:
            if message._claimant is claimant:
                message._claim(None, None)


def _head(message: Message, command: str) -> bytes:
    """Return the command of an ACK or NACK and the lines that name a message; raises as `ack_headers` does."""
    link = message._link
    grammar = link.protocol.grammar
    if link.version is Version.V1_2:
        # Escaped as it came, the token means the same on its way back.
        token = message.headers.wire("ack")
        if token is not None and "\r" not in token:
            return f"{command}\nid:{token}\n".encode("utf-8", grammar.utf8_errors)
    headers = ack_headers(command, message.headers.peek, link.version)
    if grammar.draft:
        headers["content-length"] = "0"  # every frame has one there
    return encode_head(command, headers.items(), grammar=grammar)
