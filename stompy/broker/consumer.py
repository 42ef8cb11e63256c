"""One subscription: what it takes, and how its MESSAGE frames begin. Guarded by the router's lock."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stompy.broker.message import Delivery, Item
from stompy.frames.encoder import encode
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from stompy.broker.account import Account
    from stompy.broker.queues import Queue

_OBJECTS = 2048
"""About how many bytes a subscription takes, whatever its id and destination."""


class Consumer:
    """A subscription of one session to one destination.

    Args:
        account: the session it belongs to.
        source: the queue it takes from, shared with other consumers, or its own backlog of a topic.
        identity: the `id` header; `None` where a 1.0 client gave none.
        mode: `auto`, `client` or `client-individual`.
        prefetch: how many messages may wait for their ACK; with 0 or less nothing is ever delivered.
        key: unique among all subscriptions of the broker.
    """

    __slots__ = (
        "_account",
        "_again",
        "_count",
        "_first",
        "_grammar",
        "_token",
        "_two_ids",
        "identity",
        "kept",
        "key",
        "ledger",
        "mode",
        "of_topic",
        "over",
        "parked",
        "prefetch",
        "source",
    )

    def __init__(
        self,
        account: Account,
        source: Queue,
        *,
        identity: str | None,
        mode: str,
        prefetch: int,
        key: str,
        of_topic: bool,
    ) -> None:
        self._account = account
        self.source = source
        self.identity = identity
        self.mode = mode
        self.prefetch = prefetch
        self.key = key
        self.of_topic = of_topic
        self.ledger = None if mode == "auto" else account.ledger
        """Where its deliveries wait for their ACK; `None` in auto mode."""
        self.parked = False
        """Whether it waits for room and its queue passes it over."""
        self._grammar = account.protocol.grammar
        self._count = 0
        # STOMP 1.2, MESSAGE: an `ack` header in the client modes; earlier versions acknowledge by message-id.
        self._two_ids = self.ledger is not None and account.protocol.version is Version.V1_2
        self._token = f"ack-{key}-%d"
        self._first = self._template()
        self._again = self._first + b"redelivered:true\n"
        self.over = False
        """Whether it has ended; what it was given may still be acknowledged."""
        ids = 3 * sys.getsizeof(identity or source.name)  # here, in the account, in the protocol object
        self.kept = ids + sum(map(sys.getsizeof, (source.name, self._first, self._again))) + _OBJECTS
        """Octets that it counts for in its session."""

    def _template(self) -> bytes:
        """Return the first lines of each MESSAGE, in which `%b` and `%d` stand for the parts of its ids."""
        pairs = [] if self.identity is None else [("subscription", self.identity)]
        lead = encode("MESSAGE", pairs, grammar=self._grammar)[: -len(b"\n\0")]
        if self._grammar.draft:  # it has a content-length everywhere, and here it would be that of no body
            lead = lead[: lead.rindex(b"content-length:")]
        lead = lead.replace(b"%", b"%%") + b"message-id:%b-%d\n"
        return lead + b"ack:%b\n" % self._token.encode("ascii") if self._two_ids else lead

    @property
    def account(self) -> Account:
        """The session it belongs to."""
        return self._account

    def give_back(self) -> None:
        """Count it no more, as it is over, once nothing that it was given waits for its ACK."""
        if self.ledger is None or not self.ledger.count(self.key):
            self._account.share.take(-self.kept)
            self.kept = 0

    def has_room(self) -> bool:
        """Whether it may get one more message now."""
        if self.ledger is None:
            if self.prefetch <= 0:
                return False
        elif self.ledger.count(self.key) >= self.prefetch or len(self.ledger) >= self._account.max_unacked:
            return False
        return self._account.outbox.has_room()

    def deliver(self, item: Item) -> None:
        """Put a MESSAGE frame into the session's outbox, and a line into its ledger where an ACK must come.

        Raises:
            LocalProtocolError: the message has a header that the session's version cannot write; nothing happened.
        """
        head = item.message.head(self._grammar)
        self._count = count = self._count + 1
        template = self._again if item.deliveries else self._first
        if item.named is None:
            item.named = self.key, count
        # The message-id is the message's: it stays the same when the message is delivered again.
        key, number = item.named
        lead = template % ((key.encode(), number, count) if self._two_ids else (key.encode(), number))
        item.deliveries += 1
        delivery = Delivery(lead + head, item, self)
        if self.ledger is not None:
            self.ledger.add(self._token % count if self._two_ids else f"{key}-{number}", self.key, delivery)
            self.source.unacked += 1
        self._account.outbox.deliver(delivery)
