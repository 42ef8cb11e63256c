"""The stored messages of an outbox. Every method may be called from any thread, and waits for the disk."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from stompy.deadline import Deadline
from stompy.errors import OutboxError, OutboxFullError
from stompy.outbox.record import DEAD_LETTERS, WAITING, OutboxLedger, Row
from stompy.outbox.schema import LOCK, WAL, damaged, open_outbox, read_rows
from stompy.outbox.writer import DiskWriter, Refused
from stompy.world import os, shutil, sqlite3, time

_LOG = logging.getLogger("stompy.outbox")

KEEP_FREE = 16 * 1024 * 1024
"""Bytes; several times the size at which SQLite moves its log into the file."""


@dataclass(frozen=True, slots=True)
class Room:
    """Limits of the stored messages; `None` for no limit.

    Attributes:
        messages: number of messages, including dead letters.
        size: bytes of their bodies, headers and destinations.
        keep_free: bytes of the disk that must stay free, as deleting messages temporarily needs space too.
    """

    messages: int | None = None
    size: int | None = None
    keep_free: int = KEEP_FREE


class Store:
    """The messages of one outbox, on disk.

    Args:
        path: of the file; created if it does not exist.
        room: limits of the stored messages.
        name: prefix of the thread's name.
        on_commit: called on the writer thread after each change on disk; must not block.

    Raises:
        OutboxBusyError: the file is already open.
        OutboxDamagedError: the file is corrupt.
        OutboxError: the file cannot be used.
    """

    def __init__(self, path: str, *, room: Room, name: str, on_commit: Callable[[OutboxLedger], None]) -> None:
        self.path = path
        self._room = room
        self._folder = os.path.dirname(path)
        self.writer = DiskWriter(path, open_outbox(path), name=f"{name}-writer", on_commit=on_commit)
        self._identity = self.writer.ledger.identity
        self.writer.start()
        try:
            self.writer.call(_note_opening)
        except OutboxFullError as error:
            _LOG.warning("%s; what is in it is sent all the same", error)
        except BaseException:
            self.writer.close(Deadline(None))
            raise
        self._files = {file: _which(file) for file in (path, path + WAL, path + LOCK)}

    @property
    def ledger(self) -> OutboxLedger:
        """The totals as of the last transaction."""
        return self.writer.ledger

    def put(self, row: Row) -> None:
        """Add a message, with the next sequence number.

        Raises:
            OutboxFullError: a limit is reached; nothing was added.
            OutboxError: a file is no longer where it was opened; nothing was added.
        """

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            self._check_place()
            self._check_room(ledger, row)
            self._append(db, ledger, row)

        self.writer.call(job)

    def read(self, *, after: int, limit: int, max_bytes: int, without: Collection[str] = ()) -> list[Row]:
        """Return the oldest waiting messages.

        Args:
            after: the sequence number after which to start.
            limit: maximum number of messages.
            max_bytes: maximum size of the messages; a first message that is larger is returned alone.
            without: destinations to leave out.

        Raises:
            OutboxDamagedError: a message is corrupt.
        """

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> list[Row]:
            found: list[Row] = []
            size = 0
            where = "WHERE seq > ? AND destination NOT IN (SELECT value FROM json_each(?))"
            values = after, json.dumps([*without])
            rows = read_rows(db, WAITING, self._identity, self.path, where, values)
            for row in itertools.islice(rows, limit):
                size += row.size
                if found and size > max_bytes:
                    break
                found.append(row)
            return found

        return self.writer.call(job)

    def first_of(self, destination: str, *, since: int) -> Row | None:
        """Return the oldest waiting message to a destination from sequence number `since` on."""
        where = "WHERE seq >= ? AND destination = ?"

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> Row | None:
            return next(read_rows(db, WAITING, self._identity, self.path, where, (since, destination)), None)

        return self.writer.call(job)

    def remove(self, rows: Sequence[Row]) -> None:
        """Delete messages that the broker has confirmed."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            for row in rows:
                self._delete(db, ledger, row, WAITING)

        self.writer.call(job)

    def remove_numbers(self, numbers: Iterable[int]) -> None:
        """Delete confirmed messages by their sequence numbers."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            for number in numbers:
                for row in list(read_rows(db, WAITING, self._identity, self.path, "WHERE seq = ?", (number,))):
                    self._delete(db, ledger, row, WAITING)

        self.writer.call(job)

    def refuse_all(self, destination: str, error_message: str, *, limit: int) -> int:
        """Make dead letters of the oldest waiting messages to a destination; return how many, at most `limit`."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> int:
            rows = read_rows(db, WAITING, self._identity, self.path, "WHERE destination = ?", (destination,))
            found = list(itertools.islice(rows, limit))
            for row in found:
                self._delete(db, ledger, row, WAITING)
                self._insert(db, ledger, replace(row, error_message=error_message), DEAD_LETTERS)
            return len(found)

        return self.writer.call(job)

    def refuse(self, row: Row, error_message: str, *, final: bool) -> None:
        """Record that a waiting message was rejected; `final` makes it a dead letter."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            self._delete(db, ledger, row, WAITING)
            refused = replace(row, tries=row.tries + 1, error_message=error_message)
            self._insert(db, ledger, refused, DEAD_LETTERS if final else WAITING)

        self.writer.call(job)

    def dead_letters(self, *, limit: int) -> list[Row]:
        """Return the oldest dead letters, at most `limit`."""
        return self.writer.call(
            lambda db, ledger: list(
                itertools.islice(read_rows(db, DEAD_LETTERS, self._identity, self.path), limit),
            )
        )

    def retry(self, identity: str) -> None:
        """Queue a dead letter again, after all other messages.

        Raises:
            OutboxError: there is no such dead letter.
        """

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            row = self._find(db, identity)
            self._delete(db, ledger, row, DEAD_LETTERS)
            self._append(db, ledger, replace(row, tries=0, error_message="", put_ms=now_ms()))

        self.writer.call(job)

    def discard(self, identity: str) -> None:
        """Delete a dead letter; raises as `retry` does."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
            self._delete(db, ledger, self._find(db, identity), DEAD_LETTERS)

        self.writer.call(job)

    def oldest_ms(self) -> int | None:
        """Return the time of the oldest waiting message in milliseconds since the epoch, or `None` if there is none."""

        def job(db: sqlite3.Connection, ledger: OutboxLedger) -> int | None:
            found = db.execute(f"SELECT put_ms FROM {WAITING} ORDER BY seq LIMIT 1").fetchone()  # noqa: S608 - names of our own
            return found[0] if found else None

        return self.writer.call(job)

    def close(self, deadline: Deadline) -> bool:
        """Close the file after the queued jobs; return whether that was done in time."""
        return self.writer.close(deadline)

    # Parts of jobs: on the writer thread.

    def _check_place(self) -> None:
        """Check that no file was removed: SQLite would go on writing to it, and no program would find it again."""
        for file, opened in self._files.items():
            if opened is not None and _which(file) != opened:
                raise Refused(OutboxError(f"{file} was removed or replaced while it was open", path=self.path))

    def _check_room(self, ledger: OutboxLedger, row: Row) -> None:
        room = self._room
        if room.messages is not None and ledger.waiting + ledger.dead_letters >= room.messages:
            raise Refused(OutboxFullError(f"it holds {room.messages} messages (limit max_messages)", path=self.path))
        if room.size is not None and ledger.size + row.size > room.size:
            raise Refused(
                OutboxFullError(f"it would hold more than {room.size} bytes (limit max_bytes)", path=self.path)
            )
        free = shutil.disk_usage(self._folder).free
        if free < room.keep_free + row.size:
            message = f"the disk has {free} bytes free: too few for {row.size} bytes and keep_free={room.keep_free}"
            raise Refused(OutboxFullError(message, path=self.path))

    def _append(self, db: sqlite3.Connection, ledger: OutboxLedger, row: Row) -> None:
        self._insert(db, ledger, replace(row, seq=ledger.next_seq), WAITING)
        ledger.next_seq += 1

    def _insert(self, db: sqlite3.Connection, ledger: OutboxLedger, row: Row, table: str) -> None:
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * 10)})", row.columns(table, self._identity))  # noqa: S608 - names of our own
        ledger.count(row, table, times=1)

    def _delete(self, db: sqlite3.Connection, ledger: OutboxLedger, row: Row, table: str) -> None:
        # With its checksum, so that the ledger matches the row that is really deleted.
        key = (row.seq, row.checksum(table, self._identity))
        if db.execute(f"DELETE FROM {table} WHERE seq = ? AND checksum = ?", key).rowcount != 1:  # noqa: S608 - names of our own
            raise damaged(self.path, f"message {row.id!r} (row {row.seq} of {table}) is missing or was changed")
        ledger.count(row, table, times=-1)

    def _find(self, db: sqlite3.Connection, identity: str) -> Row:
        rows = list(read_rows(db, DEAD_LETTERS, self._identity, self.path, "WHERE id = ?", (identity,)))
        if not rows:
            raise Refused(OutboxError(f"there is no dead letter {identity!r}", path=self.path))
        return rows[0]


def now_ms() -> int:
    """Return the milliseconds since the epoch; the wall clock, as other processes must understand the value."""
    return round(time.time() * 1000)


def _which(file: str) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name, or `None` if it cannot be found."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _note_opening(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
    """Write once, so that a file that cannot be written fails now, not at the first `put`."""
    ledger.opens += 1
