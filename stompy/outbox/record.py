"""The rows of the file: messages, and a ledger with their number and checksum.

SQLite detects corruption of its own structure, but not of the stored values, and it silently drops the end of a corrupt
write-ahead log. So each message has a checksum, and the ledger, which every transaction rewrites, has their number and
the sum of their checksums: a changed, lost or resurrected message is detected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from stompy.dialects.options import SendOptions

WAITING = "waiting"
"""The table of messages that are to be sent."""

DEAD_LETTERS = "dead_letters"
"""The table of messages that were rejected too often or cannot be sent."""

Column = int | str | bytes
_WRAP = 1 << 64
_ROW_TYPES = (int, str, str, str, bytes, int, int, str, str, int)
_LEDGER_TYPES = (int, bytes, int, int, int, int, int, int, int, int)


@dataclass(frozen=True, slots=True)
class Row:
    """One message.

    Attributes:
        seq: the sequence number; messages are sent in this order.
        id: the id that `put` returned, and the dedupe id; unlike `seq`, it never changes.
        destination: as given to `put`.
        headers: a JSON object, including `content-type`.
        body: bytes.
        put_ms: the time of `put` or `retry`, in milliseconds since the epoch.
        tries: how often the broker rejected it.
        error_message: the broker's last error message.
        options: a JSON object of the other options, if any was given.
    """

    seq: int
    id: str
    destination: str
    headers: str
    body: bytes
    put_ms: int
    tries: int = 0
    error_message: str = ""
    options: str = ""

    @property
    def size(self) -> int:
        """The bytes that count towards `max_bytes`."""
        return len(self.body) + len(self.headers) + len(self.destination) + len(self.options)

    def header_map(self) -> dict[str, str]:
        """Return the headers."""
        headers: dict[str, str] = json.loads(self.headers)
        return headers

    def send_options(self) -> SendOptions:
        """Return the options but for `headers` and `content_type`."""
        options: SendOptions = json.loads(self.options) if self.options else {}
        return options

    def checksum(self, table: str, identity: bytes) -> int:
        """Return the checksum of the message as stored in `table` of the outbox `identity`."""
        head = (
            table, self.seq, self.id, self.destination, self.headers, self.put_ms, self.tries, self.error_message,
            self.options,
        )  # fmt: skip
        return _checksum(identity, json.dumps(head).encode(), self.body)

    def columns(self, table: str, identity: bytes) -> tuple[Column, ...]:
        """Return the values to write to `table`."""
        return (
            self.seq, self.id, self.destination, self.headers, self.body, self.put_ms, self.tries, self.error_message,
            self.options, self.checksum(table, identity),
        )  # fmt: skip


def row_of(columns: tuple[object, ...], table: str, identity: bytes) -> Row:
    """Return the message in a row that was read from `table`.

    Raises:
        ValueError: the row is corrupt.
    """
    if tuple(map(type, columns)) != _ROW_TYPES:
        raise ValueError("a column has a wrong type")
    row = Row(*columns[:-1])  # type: ignore[arg-type]  # the types were just looked at
    if row.checksum(table, identity) != columns[-1]:
        raise ValueError("the checksum is wrong")
    return row


def as_json(pairs: Mapping[str, object]) -> str:
    """Return headers or options as JSON, as stored."""
    return json.dumps(dict(pairs), separators=(",", ":"))


@dataclass(slots=True)
class StoredLedger:
    """Totals of the stored messages; one row, which every transaction rewrites.

    Attributes:
        identity: 16 random bytes, created with the file.
        commits: number of transactions; also in the lock file.
        opens: how often the outbox was opened.
        next_seq: the sequence number of the next message; never reused.
        waiting: number of messages in that table.
        dead_letters: number of messages in that table.
        size: bytes of all messages.
        digest: sum of all checksums, modulo 2**64.
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
        """Update the totals for a message that is added (`times=1`) or removed (`times=-1`)."""
        if table == WAITING:
            self.waiting += times
        else:
            self.dead_letters += times
        self.size += times * row.size
        self.digest = _signed(self.digest + times * row.checksum(table, self.identity))

    def columns(self) -> tuple[Column, ...]:
        """Return the values to write; the first one is the key of the only row, the last one a checksum."""
        numbers = (
            self.commits, self.opens, self.next_seq, self.waiting, self.dead_letters, self.size, self.digest,
        )  # fmt: skip
        return (1, self.identity, *numbers, _checksum(self.identity, json.dumps(numbers).encode()))


def ledger_of(columns: tuple[object, ...]) -> StoredLedger:
    """Return the ledger in a row that was read.

    Raises:
        ValueError: the row is corrupt.
    """
    if tuple(map(type, columns)) != _LEDGER_TYPES or len(columns[1]) != 16:  # type: ignore[arg-type]  # bytes by then
        raise ValueError("a column has a wrong type")
    ledger = StoredLedger(*columns[1:-1])  # type: ignore[arg-type]  # the types were just looked at
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
    """Return a number modulo 2**64 as a signed 64-bit integer, the largest type of SQLite."""
    wrapped = number % _WRAP
    return wrapped - _WRAP if wrapped >= _WRAP // 2 else wrapped
