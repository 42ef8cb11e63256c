"""What a client has announced inside one transaction. Guarded by the router's lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, is_topic

if TYPE_CHECKING:
    from stompy.broker.message import Delivery, Message
    from stompy.errors import ProtocolError
    from stompy.protocol.ack import Entry


class Transaction:
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
        self.messages: list[Message] = []
        """In the order of their SENDs."""
        self.settled: list[tuple[list[Entry[Delivery]], bool]] = []
        """What each ACK or NACK took out of the ledger, and whether it was a NACK."""
        self.receipts: list[bytes] = []
        """RECEIPTs of SENDs that come after that of COMMIT."""
        self.has_duplicate = False
        """Whether it cannot be committed, as it has a message that was sent before."""
        self.rollback_only = False
        """Whether it cannot be committed, as a frame without a receipt was refused."""
        self.failure: ProtocolError | None = None
        """What is found wrong at COMMIT, after what it holds; frames after that have no effect."""
        self.lost: list[list[Entry[Delivery]]] = []
        """What those of them settled."""
        self.delayed = 0
        """How many of the messages are to be delivered later."""
        self.to_topics: list[Message] = []
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

    def send(self, message: Message) -> None:
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

    def settle(self, entries: list[Entry[Delivery]], *, refused: bool) -> None:
        """Hold an ACK or NACK."""
        if self.failure is None:
            self.settled.append((entries, refused))
        else:
            self.lost.append(entries)
