"""Which messages the broker may redeliver, and how long their ids must be remembered, in memory and on disk.

A receiver has one session at a time. The messages that it received are written, then acknowledged with a receipt: a
`StoredRange`. The broker sends a message to another session only after it has ended the one that had it. So when the
receipt for a delivery arrives at time T, the broker has deleted the message, and another copy can only be in the inbox
of a session that the broker ended before T. Such a session gets no receipt for any frame that it sends after T. Hence,
each id of that delivery is needed

- **on disk** until T: a later process has only new sessions, and the broker has nothing left to send.
- **in memory** until each *other* session that was open at T has ended, or has received the receipt for a frame that it
  sent after T.

Time is a count of confirmed deliveries (`turn`). The tests search the state space of `Redelivery`, which is pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompy.spark.spool.files import Files, dump, read_document
from stompy.spark.spool.record import Identity
from stompy.world import secrets, time


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The messages that one ACK covers.

    Attributes:
        receiver: the number of the receiver that got them.
        ids: of its messages, including recognised duplicates.
        start: the sequence number of the first message that was written.
        end: the number after the last one; `start` if none was written.
        turn: the time before its ACK was sent.
    """

    receiver: int
    ids: Sequence[Identity]
    start: int
    end: int
    turn: int


@dataclass(slots=True)
class Redelivery:
    """The remembered ids, and which deliveries the broker has confirmed. One thread at a time.

    Attributes:
        known: the ids; at first those of earlier processes that may be redelivered.
        turn: the current time.
        receipts: by receiver with an open session, the latest turn for which a receipt has arrived.
        confirmed: deliveries whose ids are still needed in memory, with the turn of their receipt, oldest first.
        open: deliveries without a receipt.
    """

    known: set[Identity] = field(default_factory=set)
    turn: int = 0
    receipts: dict[int, int] = field(default_factory=dict)
    confirmed: list[tuple[int, StoredRange]] = field(default_factory=list)
    open: list[StoredRange] = field(default_factory=list)

    @property
    def settled(self) -> int | None:
        """The lowest sequence number whose receipt is pending; `None` if there is none."""
        return min((delivery.start for delivery in self.open if delivery.end > delivery.start), default=None)

    def begin(self, receiver: int) -> None:
        """Record that a receiver is about to open a session; called before it connects."""
        self.receipts[receiver] = self.turn

    def wrote(self, receiver: int, ids: Sequence[Identity], start: int, end: int) -> StoredRange:
        """Record that messages are durable; called before their ACK is sent."""
        delivery = StoredRange(receiver, ids, start, end, self.turn)
        self.known.update(ids)
        self.open.append(delivery)
        return delivery

    def confirm(self, delivery: StoredRange) -> list[Identity]:
        """Record the receipt for an ACK; return the ids that are no longer needed."""
        self.open.remove(delivery)
        self.turn += 1
        self.confirmed.append((self.turn, delivery))
        return self.note_receipt(delivery.receiver, delivery.turn)

    def note_receipt(self, receiver: int, turn: int) -> list[Identity]:
        """Record a receipt for a frame that was sent at `turn` or later; return the ids that are no longer needed."""
        self.receipts[receiver] = max(self.receipts[receiver], turn)
        return self._forget()

    def needs_receipt(self, receiver: int) -> bool:
        """Return whether a receipt for a frame that this session sends now would make ids unnecessary."""
        receipts = self.receipts[receiver]
        return any(turn > receipts and delivery.receiver != receiver for turn, delivery in self.confirmed)

    def end(self, receiver: int) -> tuple[list[Identity], list[Identity]]:
        """Record that a session has ended, and its inbox with it.

        Returns:
            The ids that are no longer needed, and those that the broker may send to another session; when these are on
            disk, call `leave`.
        """
        self.receipts.pop(receiver, None)
        forgotten = self._forget()
        ours = (delivery for delivery in self.open if delivery.receiver == receiver)
        ids = [one for delivery in ours for one in delivery.ids if one in self.known]
        return forgotten, ids

    def leave(self, receiver: int) -> None:
        """Stop waiting for the receipts of a session that has ended."""
        self.open = [delivery for delivery in self.open if delivery.receiver != receiver]

    def _forget(self) -> list[Identity]:
        forgotten: list[Identity] = []
        while self.confirmed and self._is_over(*self.confirmed[0]):
            forgotten += self.confirmed.pop(0)[1].ids
        self.known.difference_update(forgotten)
        return forgotten

    def _is_over(self, turn: int, delivery: StoredRange) -> bool:
        return all(receipts >= turn for receiver, receipts in self.receipts.items() if receiver != delivery.receiver)


SUSPECTS = "suspects"
"""The folder of the ids on disk."""
KEPT_FOR = 24 * 3600.0
"""Seconds; the broker may detect a half-open connection, and redeliver its messages, hours later."""


def write_ids(files: Files, folder: str, ids: Iterable[Identity], name: str | None = None, **more: object) -> str:
    """Write a file of ids, durably, and return its name; `name` is a file that it replaces."""
    name = name or f"{folder}/{time.time_ns():020d}-{secrets.token_hex(4)}.ids"
    files.write(name, dump({"saved": time.time(), "ids": sorted(ids), **more}))
    return name


def ids_of(document: Mapping[str, Any]) -> set[Identity]:
    """Return the ids in a file that `write_ids` wrote."""
    return set(map(tuple, document["ids"]))


def kept_ids(files: Files, folder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the document of each file of ids, and remove the old ones; make the folder if it is missing.

    Raises:
        SpoolDamagedError: a file is corrupt.
    """
    files.make_folder(folder)
    for name in [f"{folder}/{file}" for file in files.list(folder)]:
        document = read_document(files, name) or {"saved": -math.inf}
        if document["saved"] + KEPT_FOR < time.time():
            files.remove(name)
        else:
            yield name, document


class Suspects:
    """Ids of durable messages whose ACK was not confirmed, kept on disk for a later process. One thread at a time.

    Args:
        files: of the spool.

    Raises:
        SpoolDamagedError: a file with ids is corrupt.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sets = {name: ids_of(document) for name, document in kept_ids(files, SUSPECTS)}

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._sets)

    def ids(self) -> set[Identity]:
        """Return all ids."""
        return set().union(*self._sets.values())

    def save(self, identities: Iterable[Identity]) -> None:
        """Add suspects, durably."""
        ids = set(identities)
        if not ids:
            return
        self._sets[write_ids(self._files, SUSPECTS, ids)] = ids

    def forget(self, identities: Iterable[Identity]) -> None:
        """Remove ids of messages that cannot be redelivered; a file is removed with its last id."""
        gone = set(identities)
        for name, ids in list(self._sets.items()):
            ids -= gone
            if not ids:
                self._files.remove(name)
                del self._sets[name]
