"""Which messages the broker may deliver again, and how long their ids must be recognised; pure.

A receiver has one session at a time. What it took is written, then acknowledged with a receipt: a `Delivery`. The
broker sends a message to another session only after it has given up the one that had it. So, when the receipt for a
delivery comes at time T, the message is gone at the broker, and a further copy can only lie in the inbox of a session
that the broker had given up before T. Such a session gets no receipt for anything that it sends after T. Hence the
rule, for every id of that delivery:

- **On disk** it is needed until T: a later process has only new sessions, and the broker has nothing left to send.
- **In memory** it is needed until each *other* session that was open at T has ended, or has received the receipt for a
  frame that it sent after T.

Time is a count of confirmed deliveries (`turn`). The state-space search in the tests drives this class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Identity = tuple[str, str]
"""An id, and a digest of what the message is besides."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one ACK covers.

    Attributes:
        receiver: whose session it is.
        ids: of its messages, those that were recognised included.
        start: the sequence number of its first message that was written.
        end: the number after the last one; `start` where nothing was.
        turn: before its ACK was sent.
    """

    receiver: int
    ids: Sequence[Identity]
    start: int
    end: int
    turn: int


@dataclass(slots=True)
class Redelivery:
    """The ids that are recognised, and how far the broker has confirmed what was written. One thread at a time.

    Attributes:
        known: the ids; at first those of earlier processes that may come again.
        turn: the current time.
        receipts: by receiver with an open session: its newest turn that a receipt has answered.
        confirmed: deliveries whose ids are still needed in memory, with the turn of their receipt; the oldest first.
        open: deliveries without a receipt.
    """

    known: set[Identity] = field(default_factory=set)
    turn: int = 0
    receipts: dict[int, int] = field(default_factory=dict)
    confirmed: list[tuple[int, Delivery]] = field(default_factory=list)
    open: list[Delivery] = field(default_factory=list)

    @property
    def settled(self) -> int | None:
        """Below this nothing that was written waits for a receipt; `None` if nothing at all does."""
        return min((delivery.start for delivery in self.open if delivery.end > delivery.start), default=None)

    def begin(self, receiver: int) -> None:
        """Note that a receiver is about to open a session; before it connects."""
        self.receipts[receiver] = self.turn

    def wrote(self, receiver: int, ids: Sequence[Identity], start: int, end: int) -> Delivery:
        """Note that messages are durable; before their ACK is sent."""
        delivery = Delivery(receiver, ids, start, end, self.turn)
        self.known.update(ids)
        self.open.append(delivery)
        return delivery

    def confirm(self, delivery: Delivery) -> list[Identity]:
        """Note the receipt for an ACK; return the ids that are needed no more."""
        self.open.remove(delivery)
        self.turn += 1
        self.confirmed.append((self.turn, delivery))
        return self.note_receipt(delivery.receiver, delivery.turn)

    def note_receipt(self, receiver: int, turn: int) -> list[Identity]:
        """Note a receipt for what a session sent at `turn` or later; return the ids that are needed no more."""
        self.receipts[receiver] = max(self.receipts[receiver], turn)
        return self._forget()

    def needs_receipt(self, receiver: int) -> bool:
        """Whether a receipt for something that this session sends now lets ids be forgotten."""
        receipts = self.receipts[receiver]
        return any(turn > receipts and delivery.receiver != receiver for turn, delivery in self.confirmed)

    def end(self, receiver: int) -> tuple[list[Identity], list[Identity]]:
        """Note that a session has ended, and its inbox with it.

        Returns:
            The ids that are needed no more, and those that the broker may send to another session; when these are on
            disk, call `leave`.
        """
        self.receipts.pop(receiver, None)
        forgotten = self._forget()
        ours = (delivery for delivery in self.open if delivery.receiver == receiver)
        ids = [one for delivery in ours for one in delivery.ids if one in self.known]
        return forgotten, ids

    def leave(self, receiver: int) -> None:
        """Wait no more for the receipts of a session that has ended."""
        self.open = [delivery for delivery in self.open if delivery.receiver != receiver]

    def _forget(self) -> list[Identity]:
        forgotten: list[Identity] = []
        while self.confirmed and self._is_over(*self.confirmed[0]):
            forgotten += self.confirmed.pop(0)[1].ids
        self.known.difference_update(forgotten)
        return forgotten

    def _is_over(self, turn: int, delivery: Delivery) -> bool:
        return all(receipts >= turn for receiver, receipts in self.receipts.items() if receiver != delivery.receiver)
