"""What the broker holds for one session: subscriptions, unacknowledged deliveries, transactions.

Guarded by the router's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, is_topic
from stompy.errors import ProtocolError, RemoteProtocolError
from stompy.protocol.ack import Entry, Ledger
from stompy.protocol.rules import shown
from stompy.world import time

if TYPE_CHECKING:
    from stompy.broker.consumer import Consumer
    from stompy.broker.message import OutgoingMessage, StoredMessage
    from stompy.broker.settings import SessionBudget
    from stompy.broker.users import Right, User
    from stompy.broker.write_queue import WriteQueue
    from stompy.errors import ProtocolError
    from stompy.protocol.ack import Entry
    from stompy.protocol.heartbeat import HeartbeatTimer
    from stompy.protocol.server import ServerProtocol


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
        if self.user is not None and not self.user._may(right, destination):
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
