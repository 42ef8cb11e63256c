"""What the broker holds for one session: subscriptions, unacknowledged deliveries, transactions.

Guarded by the router's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, is_topic
from stompy.broker.message import Item, OutgoingMessage
from stompy.broker.profile import OWN, Profile
from stompy.broker.users import is_allowed
from stompy.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import Version
from stompy.protocol.ack import Entry, Ledger
from stompy.protocol.rules import shown
from stompy.world import time

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.message import StoredMessage
    from stompy.broker.profile import SubscribeRequest
    from stompy.broker.queues import Queue
    from stompy.broker.settings import SessionBudget
    from stompy.broker.topology import Feed
    from stompy.broker.users import Right, User
    from stompy.broker.write_queue import WriteQueue
    from stompy.frames.grammar import Grammar
    from stompy.protocol.heartbeat import HeartbeatTimer
    from stompy.protocol.server import ServerProtocol

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


class SessionTransaction:
    """SENDs and settled deliveries that take effect together at COMMIT, or not at all."""

    __slots__ = (
        "_needed",
        "delayed",
        "failure",
        "has_duplicate",
        "kept",
        "lost",
        "messages",
        "receipts",
        "rollback_only",
        "settled",
        "size",
        "to_topics",
    )

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        """Bytes that its id counts for in its session."""
        self.messages: list[StoredMessage] = []
        """In the order of their SENDs."""
        self.settled: list[tuple[list[Entry[OutgoingMessage]], bool]] = []
        """What each ACK or NACK took out of the ledger, and whether it was a NACK."""
        self.receipts: list[bytes] = []
        """RECEIPTs of SENDs that come after that of COMMIT."""
        self.has_duplicate = False
        """Whether it cannot be committed, as it has a message that was sent before."""
        self.rollback_only = False
        """Whether it cannot be committed, as a frame without a receipt was refused."""
        self.failure: ProtocolError | None = None
        """What is found wrong at COMMIT, after what it holds; frames after that have no effect."""
        self.lost: list[list[Entry[OutgoingMessage]]] = []
        """What those of them settled."""
        self.delayed = 0
        """How many of the messages are to be delivered later."""
        self.to_topics: list[StoredMessage] = []
        """The messages for topics that are to be delivered at once."""
        self._needed: dict[str, tuple[int, int]] = {}
        self.size = 0
        """Bytes of the messages."""

    @property
    def frames(self) -> int:
        """How many frames it holds."""
        return len(self.messages) + len(self.settled)

    def needed(self) -> dict[str, tuple[int, int]]:
        """Return how many messages and bytes are meant for each queue."""
        return self._needed

    def send(self, message: StoredMessage) -> None:
        """Hold a SEND."""
        if self.failure is not None:
            return
        self.messages.append(message)
        self.size += message.size
        if message.options.due is not None:
            self.delayed += 1
        elif is_topic(message.target):
            self.to_topics.append(message)
        if not is_topic(message.target) and not message.target.startswith(REMOTE):
            count, size = self._needed.get(message.target, (0, 0))
            self._needed[message.target] = (count + 1, size + message.size)

    def settle(self, entries: list[Entry[OutgoingMessage]], *, refused: bool) -> None:
        """Hold an ACK or NACK."""
        if self.failure is None:
            self.settled.append((entries, refused))
        else:
            self.lost.append(entries)


class SessionState:
    """The in-memory state of one session.

    Args:
        name: unique among the sessions of the broker; the `session` header of CONNECTED.
        peer: the client's address.
        protocol: what the client may say; guarded by the router's lock too, but for its parser.
        write_queue: what waits to be written to the client.
        budget: counts what else it makes the broker keep.
        abort: ends the connection at once; called without the router's lock.
        watch: lets these hooks see every frame, from now until the next call; from any thread.
        max_unacked: deliveries that may wait for their ACK, of all its subscriptions.
    """

    def __init__(
        self,
        name: str,
        *,
        peer: str,
        protocol: ServerProtocol,
        write_queue: WriteQueue,
        budget: SessionBudget,
        max_unacked: int,
        abort: Callable[[], None] = lambda: None,
        watch: Callable[..., None] = lambda *hooks: None,
    ) -> None:
        self.name = name
        self.peer = peer
        self.protocol = protocol
        self.write_queue = write_queue
        self.budget = budget
        self.max_unacked = max_unacked
        self.abort = abort
        self.watch = watch
        self.pulse: HeartbeatTimer | None = None
        """Knows when the client was last heard; `None` before CONNECTED."""
        self.last_frame = ("CONNECT", time.monotonic())
        """The command of the last frame of the client, and when it came; set by the session's reader."""
        self.calls: list[Callable[[], None]] = []
        """What the session's reader is to do after its turn, without the router's lock."""
        self.login: str | None = None
        self.user: User | None = None
        """Who it is; `None` where the broker does not ask."""
        self.client_id: str | None = None
        """By what its durable subscriptions are known."""
        self.temporary: dict[str, None] = {}
        """The names of the temporary queues that end with it."""
        self.refused = False
        """Whether the next frame ends the session, after an ERROR that left the connection open."""
        self.ended = False
        """Whether the session is over: nothing that the client says counts any more."""
        self.follows_topics = False
        """Whether it has, or had, a subscription that others can overrun."""
        self.consumers: dict[str, Consumer] = {}
        """The live subscriptions by their key in the protocol."""
        self.parked: dict[Consumer, None] = {}
        """The subscriptions that wait for room."""
        self.transactions: dict[str, SessionTransaction] = {}
        self.late_receipts: list[bytes] = []
        """RECEIPTs that follow that of the current COMMIT."""
        self.failure: ProtocolError | None = None
        """What ends the session after the RECEIPT of the current COMMIT."""
        self.ledger: Ledger[OutgoingMessage] = Ledger()
        """What was delivered and waits for its ACK; the keys of its subscriptions are those of the consumers."""

    def check_right(self, right: Right, destination: str) -> None:
        """Refuse what the user may not do.

        Raises:
            RemoteProtocolError: access is refused.
        """
        if self.user is not None and not is_allowed(self.user, right, destination):
            raise RemoteProtocolError(f"access refused: no right to {right} {shown(destination)}")

    def take(
        self, token: str, *, subscription: str | None, alone: bool = False, whole: bool = False
    ) -> list[Entry[OutgoingMessage]]:
        """Take out what an ACK or NACK settles, the named delivery last.

        Args:
            token: what the frame names.
            subscription: the `subscription` header, where the version asks for it.
            alone: it is about this one delivery, whatever the mode.
            whole: in the mode `client` it reaches the deliveries of all subscriptions.

        Raises:
            RemoteProtocolError: nothing with that token waits, or it went to another subscription.
        """
        named = self.ledger.find(token)
        consumer = named.item.consumer
        if subscription is not None and subscription != consumer.identity:
            raise RemoteProtocolError(f"message {shown(token)} was not sent to the subscription named with it (ACK)")
        cumulative = consumer.mode == "client" and not alone
        if not cumulative or not whole:
            return self.ledger.take(token, cumulative=cumulative)
        entries = self.ledger.take_all()
        self.ledger.restore(entry for entry in entries if entry.order > named.order)
        return [entry for entry in entries if entry.order <= named.order]
