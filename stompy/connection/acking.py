"""Acknowledging: which message may still be settled, and by which frame.

Any thread; a claim is taken under a leaf lock, so that two threads cannot settle one message twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from stompy.connection.dialects.dialect import Dialect
from stompy.connection.message import Message
from stompy.errors import AckError, LocalProtocolError
from stompy.link.link import Link
from stompy.link.locks import Rank, make_lock
from stompy.link.receipts import Receipt
from stompy.protocol.ack import ack_headers

_LOG = logging.getLogger("stompy.connection")


class Acker:
    """Sends ACK and NACK for messages of one connection, each message once and over the link it came by.

    Args:
        dialect_of: tells what the broker behind a link makes of them.
    """

    def __init__(self, dialect_of: Callable[[Link], Dialect]) -> None:
        self._dialect_of = dialect_of
        self._warned = False
        self._claims = make_lock(Rank.LEAF, "claims")

    def acknowledge(
        self, message: Message, command: str, *, receipt: bool = False, requeue: bool | None = None
    ) -> Receipt | None:
        """Send ACK or NACK for a message over the link it came by; raises as `claim` and `Link.request` do."""
        headers = self.claim(message, command, requeue=requeue)
        try:
            handle = message.link.request(command, headers, receipt=receipt)
        except LocalProtocolError:
            self.give_back(message)
            raise
        if command == "ACK" or not self._dialect_of(message.link).nack_alone:
            message.cover()
        return handle

    def claim(
        self, message: Message, command: str, *, requeue: bool | None = None, transaction: bool = False
    ) -> dict[str, str]:
        """Claim a message for ACK or NACK and return the headers that name it.

        Raises:
            AckError: it needs none, has had one, was covered by a later one, or its link is gone.
            LocalProtocolError: the version has no NACK.
            ConfigurationError: the broker would do another thing than was asked.
        """
        if message.ack_mode == "auto":
            raise AckError("a message of an 'auto' subscription needs no ACK: it was consumed when the broker sent it")
        link = message.link
        if not link.alive:
            raise AckError("the link that this message came by is gone; the broker will deliver it again")
        version = link.protocol.version
        assert version is not None
        headers = ack_headers(command, message.headers.peek, version)
        if transaction or command == "NACK" or message.orphaned:
            dialect = self._dialect_of(link)
            if message.orphaned and not dialect.ack_after_unsubscribe:
                raise AckError("the subscription of this message has ended; the broker will deliver it again")
            if transaction:
                dialect.check_transacted(command)
            if command == "NACK":
                headers.update(dialect.nack_headers(requeue))
                self._warn(message, dialect, requeue)
        with self._claims:
            if message.settled is not None:
                raise AckError(f"{message.settled} was already sent for message {message.message_id!r}")
            message.claim(command)
        return headers

    def _warn(self, message: Message, dialect: Dialect, requeue: bool | None) -> None:
        """Say, once a connection, that what seems a dead letter is a lost one."""
        lost = dialect.nack == "dead letter" and message.headers.peek("persistent") != "true"
        if lost and requeue is None and not self._warned:
            self._warned = True
            _LOG.warning(
                "%s keeps no dead letter of a message that is not persistent, unless it is set up to: refusing %r of %r"
                " drops it (requeue=False says that this is meant)",
                dialect.product,
                message.message_id,
                message.destination,
            )

    def give_back(self, message: Message) -> None:
        """Undo a claim: the frame never left, or its transaction was aborted."""
        with self._claims:
            message.claim(None)
