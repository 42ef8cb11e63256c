"""The state of one session: subscriptions, unacknowledged deliveries, transactions.

Guarded by the router's lock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, TEMPORARY, Target, is_topic
from stompy.errors import LocalProtocolError, ProtocolError
from stompy.frames.encoder import encode_lines
from stompy.frames.grammar import Grammar, Version
from stompy.protocol.ack import Entry, Ledger
from stompy.protocol.rules import Fault, FaultyFrame, shown
from stompy.world import time

if TYPE_CHECKING:
    from stompy.broker.message import StoredMessage
    from stompy.broker.profile import Profile, SubscribeRequest
    from stompy.broker.queues import Item, Queue
    from stompy.broker.selector import Lookup, Selector
    from stompy.broker.settings import SessionBudget
    from stompy.broker.users import User
    from stompy.broker.write_queue import WriteQueue
    from stompy.protocol.heartbeat import HeartbeatTimer
    from stompy.protocol.server import ServerProtocol

_OBJECTS = 2048
"""About how many bytes a subscription takes, whatever its id and destination."""


@dataclass(eq=False, slots=True)
class Feed:
    """A subscription to a topic, and the queue where its messages wait.

    Attributes:
        target: the topic, or a pattern of topics.
        queue: where it waits.
        selector: the condition for messages; `None` for all of them.
        consumer: whose it is; `None` where it is a durable subscription, which outlives its consumers.
        no_local: the session whose messages it does not get.
    """

    target: Target
    queue: Queue
    selector: Selector | None = None
    consumer: Consumer | None = None
    no_local: str | None = None

    def wants(self, lookup: Lookup, sender: str | None) -> bool:
        """Whether it gets a message of that session; `lookup` returns the value of a header."""
        selected = self.selector is None or self.selector.matches(lookup)
        return selected and (self.no_local is None or self.no_local != sender)


class OutgoingMessage:
    """One MESSAGE frame on its way to a subscriber.

    Attributes:
        head: everything before the body; empty once it was written.
        body: the body.
        size: bytes of the whole frame, with the NUL and a line end after it.
    """

    __slots__ = ("body", "consumer", "head", "item", "size")

    def __init__(self, head: bytes, item: Item, consumer: Consumer) -> None:
        self.head = head
        self.body = item.message.body
        self.size = len(head) + len(self.body) + 2
        self.item = item
        self.consumer = consumer

    @property
    def transient(self) -> bool:
        """Whether it is gone where it does not arrive, as a copy for one subscriber of a topic is."""
        return self.item.queue is self.consumer.backlog


@dataclass(eq=False, slots=True, kw_only=True)
class Consumer:
    """A subscription of one session.

    Args:
        session: the session it belongs to.
        name: its key in the protocol object.
        identity: the `id` header; `None` where a 1.0 client gave none.
        destination: the header of that name.
        options: the requests of its SUBSCRIBE.
        key: unique among all subscriptions of the broker.
        rules: how its frames are written.
    """

    session: SessionState
    name: str
    identity: str | None
    destination: str
    options: SubscribeRequest
    key: str
    rules: Profile
    queues: dict[Queue, None] = field(default_factory=dict, init=False)
    """Where it takes part: queues that it shares with others, or its own backlog."""
    backlog: Queue | None = field(default=None, init=False)
    """What waits for it alone, of topics or as a browser."""
    feeds: list[Feed] = field(default_factory=list, init=False)
    """Its topics."""
    pattern: str | None = field(default=None, init=False)
    """The queues that it takes part in as they come to be."""
    waits_at: dict[Queue, None] = field(default_factory=dict, init=False)
    """The queues that pass it over until it has room."""
    starting: bool = field(default=False, init=False)
    """Whether it gets nothing yet, as its SUBSCRIBE is not done."""
    over: bool = field(default=False, init=False)
    """Whether it has ended and gets nothing more; what it was given may still be acknowledged."""
    selector: Selector | None = field(init=False)
    no_local: str | None = field(default=None, init=False)
    """Its session, where queues do not give it the messages of that."""
    ledger: Ledger[OutgoingMessage] | None = field(init=False)
    """Where its deliveries wait for their ACK; `None` in auto mode."""
    grammar: Grammar = field(init=False)
    """How its frames are written."""
    waits_since: int = field(default=0, init=False)
    """Since which turn it waits at a queue; the consumer that waits longest gets the next message."""
    credit: int = field(init=False)
    """How many bytes of frames it may get before the last one."""
    kept: int = field(init=False)
    """Bytes that it counts for in its session."""
    _replies: list[tuple[bytes, bytes]] = field(default_factory=list, init=False)
    """How `reply-to` begins for temporary destinations of its session, for others and for the session itself."""
    _two_ids: bool = field(init=False)
    _message_id: bytes = field(init=False)
    _token: str = field(init=False)
    _first: bytes = field(init=False)
    _again: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.selector = self.options.selector
        self.credit = self.options.window
        self.ledger = None if self.options.mode == "auto" else self.session.ledger
        self.grammar = self.session.protocol.grammar
        # STOMP 1.2, MESSAGE: an `ack` header in the client modes; earlier versions acknowledge by message-id.
        self._two_ids = self.ledger is not None and self.session.protocol.version is Version.V1_2
        own, ack = f"{self.key}-", "" if self.rules.one_id else "ack-"
        self._token = f"{ack}{own}%d"
        if self.rules.message_id is not None:
            own, ack, self._token = self.rules.message_id(self.identity, self.destination, self.session.name), "", "%d"
        pairs = [] if self.identity is None else [("subscription", self.identity)]
        lead = b"MESSAGE\n" + encode_lines("MESSAGE", pairs, grammar=self.grammar).replace(b"%", b"%%")
        line = encode_lines("MESSAGE", [("ack", own)], grammar=self.grammar)
        # RabbitMQ escapes nothing in it; a line end would damage the frame.
        written = line[4:-1] if self.rules.message_id is None or not own.isprintable() else own.encode()
        self._message_id = written.replace(b"%", b"%%") + b"%d"
        lead += b"message-id:%b\n" + (b"ack:%b%b\n" % (ack.encode(), self._message_id) if self._two_ids else b"")
        self._first = lead + self.rules.first_lines
        counted = b"redelivery-count:%d\n" if self.rules.counts_redeliveries else b""
        self._again = lead + b"redelivered:true\n" + counted
        # Here, in the session, in the protocol object, and as the beginning of message-ids.
        ids = 4 * sys.getsizeof(self.identity or self.destination)
        self.kept = ids + sum(map(sys.getsizeof, (self.destination, self._first, self._again))) + _OBJECTS

    def wait_for_room(self, queue: Queue) -> None:
        """Note that a queue passes it over from now on."""
        self.waits_at[queue] = None
        self.session.parked[self] = None

    def give_back(self) -> None:
        """Count it no more, as it is over, once nothing that it was given waits for its ACK."""
        if self.ledger is None or not self.ledger.count(self.key):
            self.session.budget.take(-self.kept)
            self.kept = 0

    def has_room(self) -> bool:
        """Whether it may get one more message now."""
        return self._acceptable() > 0 and self.session.write_queue.has_room()

    def _acceptable(self) -> int:
        """Return how many messages it may get now, if there is room for them in the write queue."""
        session = self.session
        if self.over or self.starting or session.ended or self.options.prefetch <= 0 or self.credit <= 0:
            return 0
        if self.ledger is None:
            return sys.maxsize
        return min(self.options.prefetch - self.ledger.count(self.key), session.max_unacked - len(self.ledger))

    def deliver_all(self, items: Iterable[Item], most: int) -> list[OutgoingMessage]:
        """Deliver messages, as many as there is room for and `most` at most; return their frames.

        It ends at the first message that its queue has to look at: it has a group or a time, or cannot be written in
        the session's version.
        """
        count, room = self.session.write_queue.room()
        count, room, size = min(count, most, self._acceptable()), min(room, self.credit), 0
        deliveries: list[OutgoingMessage] = []
        for item in items:
            if len(deliveries) >= count or size >= room or item.group is not None or item.expires is not None:
                break
            try:
                delivery = self._outgoing(item)
            except LocalProtocolError:
                break
            size += delivery.size
            deliveries.append(delivery)
        if deliveries:
            self.session.write_queue.deliver(deliveries, size)
        return deliveries

    def deliver(self, item: Item) -> None:
        """Deliver a message, for which there is room.

        Raises:
            LocalProtocolError: the message has a header that the session's version cannot write; nothing happened.
        """
        delivery = self._outgoing(item)
        self.session.write_queue.deliver([delivery], delivery.size)

    def _outgoing(self, item: Item) -> OutgoingMessage:
        """Return a MESSAGE frame, which has its line in the ledger where an ACK must come."""
        head = item.message.shared.encoded(self.grammar)
        self.session.delivered = count = self.session.delivered + 1
        named = item.named or self._message_id % count
        # Else the message-id is the message's: it stays the same when the message is delivered again.
        item.named = None if self.rules.message_id else named
        ids: tuple[object, ...] = (named, count) if self._two_ids else (named,)
        if not item.deliveries:
            lead = self._first % ids
        else:
            lead = self._again % ((*ids, item.deliveries) if self.rules.counts_redeliveries else ids)
        item.deliveries += 1
        head = lead + head
        if self.rules.arrange is not None or self.session.owned:
            head = self._as_seen(head, item.message)
        delivery = OutgoingMessage(head, item, self)
        self.credit -= delivery.size
        if self.ledger is not None:
            token = self._token % count if self._two_ids or item.named is None else named.decode()
            self.ledger.add(token, self.key, delivery)
            item.queue.unacked += 1
        return delivery

    def _reply_to(self, name: str) -> bytes:
        return b"\n" + encode_lines("MESSAGE", [("reply-to", name)], grammar=self.grammar)[:-1]

    def _as_seen(self, head: bytes, message: StoredMessage) -> bytes:
        """Return a head in the broker's order, and with the session's own names of its temporary queues."""
        if not self._replies:
            remote = [self._reply_to(f"{kind}{self.session.name}/") for kind in REMOTE]
            self._replies = list(zip(remote, map(self._reply_to, TEMPORARY), strict=True))
        for old, new in self._replies:
            head = head.replace(old, new)
        if self.rules.arrange is None:
            return head
        command, *lines = head[:-2].split(b"\n")
        if self._two_ids and b"browser:end\n" in message.shared.route.start:
            lines = [line for line in lines if not line.startswith(b"ack:")]
        if not message.shared.route.length:
            message.transformation = self.options.transformation or message.transformation
            if message.transformation is not None:
                lines = [line for line in lines if not line.startswith(b"transformation:")]
                lines.append(b"transformation:" + message.transformation.encode())
        names = [line.partition(b":")[0].decode("utf-8", "replace") for line in lines]
        places = self.rules.arrange(names, message.shared.route.length)
        lines = [lines[place] for place in places]
        if self.rules.doubled_headers and self.session.protocol.version is Version.V1_0:
            lines = list({line.partition(b":")[0]: line for line in lines}.values())
        return b"\n".join([command, *lines, b"", b""])


@dataclass(eq=False, slots=True)
class SessionTransaction:
    """SENDs and settled deliveries that take effect together at COMMIT, or not at all."""

    kept: int = 0
    """Bytes that its id counts for in its session."""
    messages: list[StoredMessage] = field(default_factory=list)
    """In the order of their SENDs."""
    settled: list[tuple[list[Entry[OutgoingMessage]], bool]] = field(default_factory=list)
    """What each ACK or NACK took out of the ledger, and whether it was a NACK."""
    receipts: list[bytes] = field(default_factory=list)
    """RECEIPTs of SENDs that come after that of COMMIT."""
    implied: bool = False
    """Whether a SEND began it that named it; it cannot be ended before a BEGIN."""
    spoiled: str | None = None
    """Why COMMIT is refused and aborts it, as one of its messages is a duplicate; `None` if it may be committed."""
    failure: ProtocolError | None = None
    """What is found wrong at COMMIT, after what it holds; frames after that have no effect."""
    lost: list[list[Entry[OutgoingMessage]]] = field(default_factory=list)
    """What those of them settled."""
    delayed: int = 0
    """How many of the messages are to be delivered later."""
    to_topics: list[StoredMessage] = field(default_factory=list)
    """The messages for topics that are to be delivered at once."""
    needed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many messages and bytes are meant for each queue."""
    size: int = 0
    """Bytes of the messages."""

    @property
    def frames(self) -> int:
        """How many frames it holds."""
        return len(self.messages) + len(self.settled)

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
            count, size = self.needed.get(message.target, (0, 0))
            self.needed[message.target] = (count + 1, size + message.size)

    def settle(self, entries: list[Entry[OutgoingMessage]], *, refused: bool) -> None:
        """Hold an ACK or NACK."""
        if self.failure is None:
            self.settled.append((entries, refused))
        else:
            self.lost.append(entries)


@dataclass(eq=False)
class SessionState:
    """The in-memory state of one session.

    Args:
        name: unique among the sessions of the broker; the `session` header of CONNECTED.
        peer: the client's address.
        protocol: checks the client's frames; guarded by the router's lock too, but for its parser.
        write_queue: frames for the client.
        budget: counts its state beside messages.
        abort: ends the connection at once; called without the router's lock.
        watch: lets these hooks see every frame, from now until the next call; from any thread.
        max_unacked: deliveries that may wait for their ACK, of all its subscriptions.
    """

    name: str
    _: KW_ONLY
    peer: str
    protocol: ServerProtocol
    write_queue: WriteQueue[OutgoingMessage]
    budget: SessionBudget
    max_unacked: int
    abort: Callable[[], None] = lambda: None
    watch: Callable[..., None] = lambda *hooks: None
    pulse: HeartbeatTimer | None = None
    """Knows when the client was last heard; `None` before CONNECTED."""
    last_frame: tuple[str, float] = field(default_factory=lambda: ("CONNECT", time.monotonic()))
    """The command of the last frame of the client, and when it came; set by the session's reader."""
    calls: list[Callable[[], None]] = field(default_factory=list)
    """What the session's reader is to do after its turn, without the router's lock."""
    login: str | None = None
    user: User | None = None
    """Who it is; `None` where the broker does not ask."""
    client_id: str | None = None
    """By what its durable subscriptions are known."""
    ignored: bool = False
    """Whether nothing that it sends is read any more."""
    declared: set[str] = field(default_factory=set)
    """The queues that it has declared, which it need not again."""
    owned: dict[str, Queue] = field(default_factory=dict)
    """By name, the queues that end with it: temporary ones, and those that it alone may use."""
    refused: bool = False
    """Whether it has its last ERROR, and only a few frames that were on their way are still read."""
    ended: bool = False
    """Whether the session is over: nothing that the client says counts any more."""
    lost: bool = False
    """Whether it ended without a DISCONNECT and without an ERROR."""
    follows_topics: bool = False
    """Whether it has, or had, a subscription that others can overrun."""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    """The live subscriptions by their key in the protocol."""
    delivered: int = 0
    """How many MESSAGE frames it was given."""
    parked: dict[Consumer, None] = field(default_factory=dict)
    """The subscriptions that wait for room."""
    transactions: dict[str, SessionTransaction] = field(default_factory=dict)
    late_receipts: list[bytes] = field(default_factory=list)
    """RECEIPTs that follow that of the current COMMIT."""
    failure: ProtocolError | None = None
    """What ends the session after the RECEIPT of the current COMMIT."""
    ledger: Ledger[OutgoingMessage] = field(default_factory=Ledger)
    """What was delivered and waits for its ACK; the keys of its subscriptions are those of the consumers."""

    def take(
        self, token: str, *, subscription: str | None, alone: bool = False, whole: bool = False
    ) -> list[Entry[OutgoingMessage]]:
        """Take out the deliveries that an ACK or NACK settles, the named one last.

        Args:
            token: the id in the frame.
            subscription: the `subscription` header, where the version asks for it.
            alone: it is about this one delivery, in any mode.
            whole: in the mode `client` it reaches the deliveries of all subscriptions.

        Raises:
            RemoteProtocolError: nothing with that token waits, or it went to another subscription.
        """
        named = self.ledger.find(token)
        consumer = named.item.consumer
        if subscription is not None and (subscription != consumer.identity or consumer.name == consumer.key):
            message = f"message {shown(token)} was not sent to the subscription named with it (ACK)"
            raise FaultyFrame(Fault.UNKNOWN_MESSAGE, message)
        cumulative = consumer.options.mode == "client" and not alone
        if not cumulative or not whole:
            taken = self.ledger.take(token, cumulative=cumulative)
            if consumer.options.window < sys.maxsize:
                consumer.credit += sum(entry.item.size for entry in taken)
            return taken
        entries = self.ledger.take_all()
        self.ledger.restore(entry for entry in entries if entry.order > named.order)
        return [entry for entry in entries if entry.order <= named.order]
