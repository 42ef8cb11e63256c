"""One subscription: what it takes, and how its MESSAGE frames begin. Guarded by the router's lock."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from stompy.broker.message import Item, OutgoingMessage
from stompy.broker.profile import OWN, Profile
from stompy.errors import LocalProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.profile import SubscribeRequest
    from stompy.broker.queues import Queue
    from stompy.broker.session_state import SessionState
    from stompy.broker.topology import Feed
    from stompy.frames.grammar import Grammar

_OBJECTS = 2048
"""About how many bytes a subscription takes, whatever its id and destination."""


class Consumer:
    """A subscription of one session.

    Args:
        session: the session it belongs to.
        identity: the `id` header; `None` where a 1.0 client gave none.
        destination: the header of that name.
        options: what its SUBSCRIBE asked for.
        key: unique among all subscriptions of the broker.
        profile: how its frames begin.
    """

    __slots__ = (
        "_again",
        "_count",
        "_counts",
        "_first",
        "_grammar",
        "_new",
        "_session",
        "_token",
        "_two_ids",
        "backlog",
        "destination",
        "durable",
        "exclusive",
        "feeds",
        "identity",
        "kept",
        "key",
        "ledger",
        "mode",
        "no_local",
        "over",
        "pattern",
        "prefetch",
        "queues",
        "selector",
        "starting",
        "waits_at",
    )

    def __init__(
        self,
        session: SessionState,
        *,
        identity: str | None,
        destination: str,
        options: SubscribeRequest,
        key: str,
        profile: Profile = OWN,
    ) -> None:
        self._session = session
        self.identity = identity
        self.destination = destination
        self.mode = options.mode
        self.prefetch = options.prefetch
        self.selector = options.selector
        self.exclusive = options.exclusive
        self.no_local = options.no_local
        self.key = key
        self.queues: dict[Queue, None] = {}
        """Where it takes part: queues that it shares with others, or its own backlog."""
        self.backlog: Queue | None = None
        """What waits for it alone, of topics or as a browser."""
        self.feeds: list[Feed] = []
        """Its topics."""
        self.pattern: str | None = None
        """The queues that it takes part in as they come to be."""
        self.durable: Feed | None = None
        """The durable subscription that it serves."""
        self.waits_at: dict[Queue, None] = {}
        """The queues that pass it over until it has room."""
        self.ledger = None if options.mode == "auto" else session.ledger
        """Where its deliveries wait for their ACK; `None` in auto mode."""
        self._grammar = session.protocol.grammar
        self._count = 0
        # STOMP 1.2, MESSAGE: an `ack` header in the client modes; earlier versions acknowledge by message-id.
        self._two_ids = self.ledger is not None and session.protocol.version is Version.V1_2
        self._token = f"ack-{key}-%d"
        lead = self._template(b"%b-%d")
        self._first = lead + profile.first
        self._new = self._template(key.encode().replace(b"%", b"%%") + b"-%d") + profile.first + b"%b"
        self._again = lead + b"redelivered:true\n" + (b"redelivery-count:%d\n" if profile.counts else b"")
        self._counts = profile.counts
        self.starting = False
        """Whether it gets nothing yet, as its SUBSCRIBE is not done."""
        self.over = False
        """Whether it has ended; what it was given may still be acknowledged."""
        ids = 3 * sys.getsizeof(identity or destination)  # here, in the session, in the protocol object
        self.kept = ids + sum(map(sys.getsizeof, (destination, self._first, self._new, self._again))) + _OBJECTS
        """Bytes that it counts for in its session."""

    def _template(self, name: bytes) -> bytes:
        """Return the first lines of each MESSAGE, in which `%b` and `%d` stand for the parts of its ids.

        Args:
            name: the message-id.
        """
        pairs = [] if self.identity is None else [("subscription", self.identity)]
        lead = encode("MESSAGE", pairs, grammar=self._grammar)[: -len(b"\n\0")]
        if self._grammar.draft:  # it has a content-length everywhere, and here it would be that of no body
            lead = lead[: lead.rindex(b"content-length:")]
        lead = lead.replace(b"%", b"%%") + b"message-id:" + name + b"\n"
        return lead + b"ack:%b\n" % self._token.encode("ascii") if self._two_ids else lead

    @property
    def session(self) -> SessionState:
        """The session it belongs to."""
        return self._session

    @property
    def grammar(self) -> Grammar:
        """How its frames are written."""
        return self._grammar

    def wait_for_room(self, queue: Queue) -> None:
        """Note that a queue passes it over from now on."""
        self.waits_at[queue] = None
        self._session.parked[self] = None

    def give_back(self) -> None:
        """Count it no more, as it is over, once nothing that it was given waits for its ACK."""
        if self.ledger is None or not self.ledger.count(self.key):
            self._session.budget.take(-self.kept)
            self.kept = 0

    def deliver_all(self, items: Iterable[Item], most: int = sys.maxsize) -> list[Item]:
        """Deliver messages as `deliver` does, as many as there is room for, and `most` at most; return them.

        It ends at the first one that needs a look: it has a group or a time, was delivered before, or cannot be written
        in the session's version.
        """
        count, room = self._room()
        count = min(count, most)
        delivered: list[Item] = []
        if count <= 0 or self.prefetch <= 0:
            return delivered
        deliveries, grammar, lead, ledger = [], self._grammar, self._new, self.ledger
        before, size = self._count, 0
        for number, item in enumerate(items, before + 1):
            if number - before > count or size >= room or item.group is not None or item.expires is not None:
                break
            message = item.message
            if item.named is not None or item.deliveries:
                break
            try:
                head = message.shared.encoded(grammar, message.body)
            except LocalProtocolError:
                break
            item.named = self.key, number
            item.deliveries = 1
            delivery = OutgoingMessage(lead % ((number, number, head) if self._two_ids else (number, head)), item, self)
            size += len(delivery.head) + len(message.body)
            if ledger is not None:
                ledger.add(self._token % number if self._two_ids else f"{self.key}-{number}", self.key, delivery)
                item.queue.unacked += 1
            deliveries.append(delivery)
            delivered.append(item)
        if deliveries:
            self._count += len(deliveries)
            self._session.write_queue.deliver_all(deliveries, size)
        return delivered

    def _room(self) -> tuple[int, int]:
        """Return how many messages it may get now, and about how many bytes."""
        if self.starting or self._session.ended:
            return 0, 0
        count, size = self._session.write_queue.room()
        if self.ledger is not None and count > 0:
            unacked = self.ledger.count(self.key)
            count = min(count, self.prefetch - unacked, self._session.max_unacked - len(self.ledger))
        return count, size

    def has_room(self) -> bool:
        """Whether it may get one more message now."""
        if self.starting or self._session.ended:
            return False
        if self.ledger is None:
            if self.prefetch <= 0:
                return False
        elif self.ledger.count(self.key) >= self.prefetch or len(self.ledger) >= self._session.max_unacked:
            return False
        return self._session.write_queue.has_room()

    def deliver(self, item: Item) -> None:
        """Put a MESSAGE frame into the session's write queue, and a line into its ledger where an ACK must come.

        Raises:
            LocalProtocolError: the message has a header that the session's version cannot write; nothing happened.
        """
        head = item.message.head(self._grammar)
        self._count = count = self._count + 1
        if item.named is None:
            item.named = self.key, count
        # The message-id is the message's: it stays the same when the message is delivered again.
        key, number = item.named
        ids: tuple[object, ...] = (key.encode(), number, count) if self._two_ids else (key.encode(), number)
        if not item.deliveries:
            lead = self._first % ids
        else:
            lead = self._again % ((*ids, item.deliveries) if self._counts else ids)
        item.deliveries += 1
        delivery = OutgoingMessage(lead + head, item, self)
        if self.ledger is not None:
            self.ledger.add(self._token % count if self._two_ids else f"{key}-{number}", self.key, delivery)
            item.queue.unacked += 1
        self._session.write_queue.deliver(delivery)
