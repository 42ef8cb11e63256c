"""What is in the file: messages, and the ledger that says which messages must be there.

SQLite finds damage to its own structure, not to what is stored in it, and from a damaged write-ahead log it drops the
end silently. So each message carries a checksum, and the ledger, which every transaction rewrites, carries their
number and sum: a message that was changed, lost or brought back shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

WAITING = "waiting"
"""The table of messages that are to be sent."""

DEAD_LETTERS = "dead_letters"
"""The table of messages that the broker refused too often."""

Column = int | str | bytes
_WRAP = 1 << 64
_ROW_TYPES = (int, str, str, str, bytes, int, int, str, int)
_LEDGER_TYPES = (int, bytes, int, int, int, int, int, int, int, int)


@dataclass(frozen=True, slots=True)
class Row:
    """One message.

    Attributes:
        seq: its place; messages are sent in this order.
        id: what `put` returned, and the dedupe id; it stays when the place changes.
        destination: as given to `put`.
        headers: as JSON, a `content-type` among them.
        body: bytes.
        put_ms: when it began to wait, in milliseconds of the wall clock.
        tries: how often the broker refused it.
        error_message: what the broker said the last time.
    """

    seq: int
    id: str
    destination: str
    headers: str
    body: bytes
    put_ms: int
    tries: int = 0
    error_message: str = ""

    @property
    def size(self) -> int:
        """The bytes that count towards limits."""
        return len(self.body) + len(self.headers) + len(self.destination)

    def header_map(self) -> dict[str, str]:
        """Return the headers."""
        headers: dict[str, str] = json.loads(self.headers)
        return headers

    def checksum(self, table: str, identity: bytes) -> int:
        """Return the checksum of the message in `table` of the outbox `identity`."""
        head = (table, self.seq, self.id, self.destination, self.headers, self.put_ms, self.tries, self.error_message)
        return _checksum(identity, json.dumps(head).encode(), self.body)

    def columns(self, table: str, identity: bytes) -> tuple[Column, ...]:
        """Return what is written to `table`."""
        return (
            self.seq, self.id, self.destination, self.headers, self.body, self.put_ms, self.tries, self.error_message,
            self.checksum(table, identity),
        )  # fmt: skip


def row_of(columns: tuple[object, ...], table: str, identity: bytes) -> Row:
    """Return the message that was read from `table`.

    Raises:
        ValueError: it is not what was written.
    """
    if tuple(map(type, columns)) != _ROW_TYPES:
        raise ValueError("a column has a wrong type")
    row = Row(*columns[:-1])  # type: ignore[arg-type]  # the types were just looked at
    if row.checksum(table, identity) != columns[-1]:
        raise ValueError("the checksum is wrong")
    return row


def headers_json(headers: Mapping[str, str]) -> str:
    """Return headers as they are stored."""
    return json.dumps(dict(headers), separators=(",", ":"))


@dataclass(slots=True)
class Ledger:
    """What every transaction rewrites; one row.

    Attributes:
        identity: 16 random bytes, made with the file.
        commits: transactions so far; the lock file knows the number too.
        opens: how often the outbox was opened.
        next_seq: the place of the next message; places are never used again.
        waiting: messages in that table.
        dead_letters: messages in that table.
        size: bytes of all messages together.
        digest: sum of all checksums.
    """

    identity: bytes
    commits: int = 0
    opens: int = 0
    next_seq: int = 1
    waiting: int = 0
    dead_letters: int = 0
    size: int = 0
    digest: int = 0

    def count(self, row: Row, table: str, *, times: int) -> None:
        """Book a message that comes (`times=1`) or goes (`times=-1`)."""
        if table == WAITING:
            self.waiting += times
        else:
            self.dead_letters += times
        self.size += times * row.size
        self.digest = _signed(self.digest + times * row.checksum(table, self.identity))

    def columns(self) -> tuple[Column, ...]:
        """Return what is written; the first column is the key of the only row, the last a checksum."""
        numbers = (
            self.commits, self.opens, self.next_seq, self.waiting, self.dead_letters, self.size, self.digest,
        )  # fmt: skip
        return (1, self.identity, *numbers, _checksum(self.identity, json.dumps(numbers).encode()))


def ledger_of(columns: tuple[object, ...]) -> Ledger:
    """Return the ledger that was read.

    Raises:
        ValueError: it is not what was written.
    """
    if tuple(map(type, columns)) != _LEDGER_TYPES or len(columns[1]) != 16:  # type: ignore[arg-type]  # bytes by then
        raise ValueError("a column has a wrong type")
    ledger = Ledger(*columns[1:-1])  # type: ignore[arg-type]  # the types were just looked at
    if ledger.columns() != columns:
        raise ValueError("the checksum is wrong")
    return ledger


def _checksum(identity: bytes, *parts: bytes) -> int:
    sums = blake2b(digest_size=8, key=identity)
    for part in parts:
        sums.update(len(part).to_bytes(8, "big"))
        sums.update(part)
    return int.from_bytes(sums.digest(), "big", signed=True)


def _signed(number: int) -> int:
    """Return a number wrapped into what SQLite can hold."""
    wrapped = number % _WRAP
    return wrapped - _WRAP if wrapped >= _WRAP // 2 else wrapped
