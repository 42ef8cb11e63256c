"""The file: lock it, create it atomically, and check all of an existing one before anything is written to it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from stompy.errors import OutboxBusyError, OutboxDamagedError, OutboxError, OutboxFullError
from stompy.locks import FileLock
from stompy.outbox.record import DEAD_LETTERS, WAITING, OutboxLedger, Row, ledger_of, row_of
from stompy.world import os, secrets, sqlite3

_LOG = logging.getLogger("stompy.outbox")

WAL = "-wal"
"""Suffix of SQLite's write-ahead log, which holds the newest messages."""

SHARED = "-shm"
"""Suffix of SQLite's index of the log, which is rebuilt when the file is opened."""

LOCK = "-lock"
"""Suffix of the lock file, which also holds the number of commits; see `LockFile`."""

_ADVICE = (
    "Nothing more is sent from it or written to it. Restore the file and those beside it whose names begin with its "
    "name from a backup, or move them all away together to begin with an empty outbox"
)
_FULL = "full"
_LOCKED = "locked"
_PERMITTED = ("unable to open", "readonly", "permission", "authorization")
_DECODING = "could not decode"


APPLICATION_ID = 0x73746F78
"""`stox` in the header of the SQLite file: it is an outbox."""

SCHEMA_VERSION = 1

_NEW = "-new"
_INDEX_SIZE = 64 * 1024
"""Bytes; twice the size of one region of the log's index."""

_MAGIC = b"SQLite format 3\0"

_MESSAGES = (
    "seq INTEGER PRIMARY KEY, id TEXT NOT NULL, destination TEXT NOT NULL, headers TEXT NOT NULL, body BLOB NOT NULL, "
    "put_ms INTEGER NOT NULL, tries INTEGER NOT NULL, error_message TEXT NOT NULL, options TEXT NOT NULL, "
    "checksum INTEGER NOT NULL"
)
_LEDGER = (
    "key INTEGER PRIMARY KEY, identity BLOB NOT NULL, commits INTEGER NOT NULL, opens INTEGER NOT NULL, "
    "next_seq INTEGER NOT NULL, waiting INTEGER NOT NULL, dead_letters INTEGER NOT NULL, size INTEGER NOT NULL, "
    "digest INTEGER NOT NULL, checksum INTEGER NOT NULL"
)
_TABLES = {
    "ledger": f"CREATE TABLE ledger ({_LEDGER})",
    DEAD_LETTERS: f"CREATE TABLE {DEAD_LETTERS} ({_MESSAGES})",
    WAITING: f"CREATE TABLE {WAITING} ({_MESSAGES})",
}

_SETTINGS = {
    # One process with one handle, so the log needs no shared memory, which could be corrupted too.
    "locking_mode": ("EXCLUSIVE", "exclusive"),
    "journal_mode": ("WAL", "wal"),
    "synchronous": ("FULL", 2),
    # On macOS a plain fsync may leave the data in the disk's cache; no effect elsewhere.
    "fullfsync": ("ON", 1),
    "checkpoint_fullfsync": ("ON", 1),
    "cell_size_check": ("ON", 1),
}
"""PRAGMA to its value and to the value read back, as SQLite silently ignores unsupported settings."""


_LOCK_MAGIC = b"stompy outbox 1\n"
_LOCK_SIZE = len(_LOCK_MAGIC) + 16 + 8 + 8
"""Bytes of magic, identity, commits and checksum; far less than a sector, so a write is never torn."""


def damaged(path: str, what: str) -> OutboxDamagedError:
    """Return the error for a corrupt file, with advice."""
    return OutboxDamagedError(f"{what}. {_ADVICE}", path=path)


def refused(error: sqlite3.Error, path: str, *, opening: bool = False) -> OutboxError:
    """Return the error to raise for an error of SQLite.

    Args:
        error: as raised; its text decides, as Python 3.10 has no `sqlite_errorcode`.
        path: of the outbox.
        opening: whether the file is being opened and checked; an error of any other kind then means that it is corrupt.
    """
    text = str(error).lower()
    if _FULL in text:
        return OutboxFullError("the disk is full", path=path)
    if _LOCKED in text:
        return OutboxBusyError("another process has the file open", path=path)
    if any(sign in text for sign in _PERMITTED):
        return OutboxError(f"the file cannot be used: {error}", path=path)
    # SQLite reports a malformed file as the base class itself.
    if opening or type(error) is sqlite3.DatabaseError or _DECODING in text:
        return damaged(path, f"SQLite cannot read it: {error}")
    return OutboxError(f"the disk reported an error: {error}", path=path)


class LockFile:
    """The lock file: allows one owner at a time, and records how many transactions were committed.

    It is next to the outbox and locked while the outbox is open; the kernel releases the lock when the process ends,
    for any reason. It holds the identity of the outbox and the number of committed transactions. SQLite treats a
    file of length 0 as a new database, and a missing or truncated write-ahead log as one that never held more; the
    number of commits detects both.

    The number is written after each commit without a sync: an old number detects less, but never rejects a valid
    outbox. It survives the end of the process; after a power cut it may be some seconds old.

    Args:
        path: of the outbox.
        create: whether to create a missing file.

    Raises:
        OutboxBusyError: another outbox holds the lock, in this process or another.
        OutboxError: the file cannot be used.
    """

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            handle = os.open(path + LOCK, flags, 0o600)
        except OSError as error:
            raise OutboxError(f"the file {path + LOCK} cannot be opened: {error.strerror}", path=path) from error
        try:
            self._lock = FileLock(handle)
        except (BlockingIOError, PermissionError):
            raise OutboxBusyError("it is open already, in this process or another", path=path) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise OutboxError(f"{path + LOCK} cannot be locked: {reason}", path=path) from error

    def read(self) -> tuple[bytes, int] | None:
        """Return the outbox's identity and the number of commits; `None` if no outbox was created yet.

        Raises:
            OutboxDamagedError: the lock file is corrupt.
        """
        data = os.pread(self._lock.handle, _LOCK_SIZE + 1, 0)
        if not data:
            return None
        content, check = data[:-8], data[-8:]
        if len(data) != _LOCK_SIZE or not content.startswith(_LOCK_MAGIC) or _check(content) != check:
            raise damaged(self._path, f"its lock file {self._path + LOCK} is damaged")
        return content[16:32], int.from_bytes(content[32:40], "big")

    def mark(self, identity: bytes, commits: int, *, sync: bool = False) -> None:
        """Write the number of committed transactions."""
        content = _LOCK_MAGIC + identity + commits.to_bytes(8, "big")
        try:
            os.pwrite(self._lock.handle, content + _check(content), 0)
            if sync:
                os.fsync(self._lock.handle)
        except OSError as error:
            if sync:
                raise OutboxError(
                    f"{self._path + LOCK} cannot be written: {error.strerror}", path=self._path
                ) from error
            _LOG.warning("%s cannot be written: %s", self._path + LOCK, error)

    def close(self) -> None:
        """Release the lock. The file stays, see `FileLock`."""
        self._lock.release()


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()


def open_outbox(path: str) -> tuple[sqlite3.Connection, OutboxLedger, LockFile]:
    """Lock and check an outbox, creating it if it does not exist; return its handle, ledger and lock file.

    Raises:
        OutboxBusyError: it is already open.
        OutboxDamagedError: it is corrupt.
        OutboxError: it cannot be used.
    """
    there = _exists(path)
    if there and not _exists(path + LOCK):
        raise damaged(path, f"the file exists and its lock file {path + LOCK} does not, or it is not an outbox")
    lock_file = LockFile(path, create=not there)
    try:
        marked = lock_file.read()
        if marked is None and not _exists(path):
            _make(path, lock_file)
        db, ledger = _open_checked(path, lock_file, marked)
        return db, ledger, lock_file
    except OSError as error:
        lock_file.close()
        raise OutboxError(f"the file cannot be used: {error.strerror}", path=path) from error
    except BaseException:
        lock_file.close()
        raise


def _make(path: str, lock_file: LockFile) -> None:
    """Create an empty outbox under a temporary name, and rename it, so that no incomplete one is ever found."""
    if _exists(path + WAL):
        raise damaged(path, f"the file is missing, and its log {path + WAL} is there")
    new = path + _NEW
    for left in (new, new + WAL, new + "-journal", new + SHARED):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            db.execute("BEGIN IMMEDIATE")
            for table in _TABLES.values():
                db.execute(table)
            write_ledger(db, OutboxLedger(secrets.token_bytes(16)))
            db.execute("COMMIT")
            db.execute("PRAGMA journal_mode=WAL")
    except sqlite3.Error as error:
        raise refused(error, path) from error
    _sync(new)
    # After a power cut, an outbox whose lock file is missing would count as damaged: its name is on disk first.
    _sync(os.path.dirname(path))
    os.rename(new, path)
    _sync(os.path.dirname(path))


def _open_checked(
    path: str, lock_file: LockFile, marked: tuple[bytes, int] | None
) -> tuple[sqlite3.Connection, OutboxLedger]:
    _check_header(path)
    try:
        try:
            ledger = _check_untouched(path, marked)
        except sqlite3.Error:
            if has_room(path):
                raise
            return _open_without_room(path, marked)
        if marked is None or not marked[1]:  # the first process may have ended before its mark was on disk
            # The name before the mark that counts on it: that process may have ended before it was on disk, too.
            _sync(os.path.dirname(path))
            lock_file.mark(ledger.identity, ledger.commits, sync=True)
        db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    except sqlite3.Error as error:
        raise refused(error, path, opening=True) from error
    try:
        _settle(db, path)
    except sqlite3.Error as error:
        db.close()
        raise refused(error, path) from error
    except BaseException:
        db.close()
        raise
    return db, ledger


def _open_without_room(path: str, marked: tuple[bytes, int] | None) -> tuple[sqlite3.Connection, OutboxLedger]:
    """Open and check an outbox on a full disk, where a reader cannot create the index of the log.

    An exclusive handle keeps the index in memory. Closing it would move the log into the file and delete the log; so a
    corrupt outbox is left untouched by never closing the handle, and the process that meets one ends soon.
    """
    db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(db))
    try:
        _settle(db, path)
        ledger = _check_all(db, path, marked)
    except sqlite3.OperationalError as error:
        raise OutboxFullError("the disk is too full to open it", path=path) from error
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(db))
    return db, ledger


def _check_untouched(path: str, marked: tuple[bytes, int] | None) -> OutboxLedger:
    """Check everything read-only, as a handle for writing would move the log into the file and delete the log."""
    beside = [name for name in (path + WAL, path + SHARED) if not _exists(name)]
    try:
        with contextlib.closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)) as db:
            return _check_all(db, path, marked)
    finally:
        # A reader creates these and, unlike a writer, does not delete them.
        for name in beside:
            with contextlib.suppress(FileNotFoundError):
                if name.endswith(SHARED) or not os.path.getsize(name):
                    os.unlink(name)


def has_room(path: str) -> bool:
    """Return whether there is space for the index that SQLite needs for reading.

    SQLite reports an I/O error if there is none, and also where a quota is used up.
    """
    try:
        with open(path + _NEW, "wb") as file:
            file.write(bytes(_INDEX_SIZE))
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path + _NEW)
    return True


def _settle(db: sqlite3.Connection, path: str) -> None:
    """Apply the settings, and check that SQLite accepted them."""
    for name, (value, answer) in _SETTINGS.items():
        db.execute(f"PRAGMA {name}={value}")
        if (found := db.execute(f"PRAGMA {name}").fetchone()) != (answer,):
            raise OutboxError(f"SQLite answered {found} for {name}, and {answer!r} is needed", path=path)


def _check_header(path: str) -> None:
    """Check the file's header before SQLite opens it, as SQLite treats an empty file as a new database."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        raise damaged(path, f"the file is missing, and its lock file {path + LOCK} records one") from None
    if len(header) < 100:
        raise damaged(
            path, "the file is empty or truncated" if not header.strip(b"\0") else "the file is not an outbox"
        )
    application, version = int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
    if not header.startswith(_MAGIC) or application != APPLICATION_ID:
        raise damaged(path, "the file is not an outbox, or its first bytes are damaged")
    if version != SCHEMA_VERSION:
        raise damaged(path, f"the file is of version {version}, this program knows version {SCHEMA_VERSION}")


def _check_all(db: sqlite3.Connection, path: str, marked: tuple[bytes, int] | None) -> OutboxLedger:
    db.execute("PRAGMA cell_size_check=ON")
    tables = dict(db.execute("SELECT name, sql FROM sqlite_master"))
    if tables != _TABLES:
        raise damaged(path, "its tables are not an outbox's")
    faults = db.execute("PRAGMA quick_check(1)").fetchall()
    if faults != [("ok",)]:
        raise damaged(path, f"SQLite finds it malformed: {str(faults[0][0])[:200]}")
    ledger = _read_ledger(db, path)
    _check_mark(ledger, marked, path)
    _check_rows(db, ledger, path)
    return ledger


def _read_ledger(db: sqlite3.Connection, path: str) -> OutboxLedger:
    rows = db.execute("SELECT * FROM ledger").fetchall()
    try:
        (columns,) = rows
        return ledger_of(columns)
    except ValueError as error:
        raise damaged(path, f"its ledger is damaged: {error}") from None


def _check_mark(ledger: OutboxLedger, marked: tuple[bytes, int] | None, path: str) -> None:
    identity, commits = marked or (ledger.identity, 0)
    if identity != ledger.identity:
        raise damaged(path, f"its lock file {path + LOCK} belongs to another outbox")
    if ledger.commits < commits:
        raise damaged(path, f"of {commits} transactions that were confirmed to be on disk, {ledger.commits} are there")
    if marked is None and ledger.commits:
        raise damaged(path, f"its lock file {path + LOCK} is empty")


def _check_rows(db: sqlite3.Connection, ledger: OutboxLedger, path: str) -> None:
    found = OutboxLedger(ledger.identity, ledger.commits, ledger.opens, ledger.next_seq)
    for table in (WAITING, DEAD_LETTERS):
        for row in read_rows(db, table, ledger.identity, path):
            found.count(row, table, times=1)
    if found != ledger:
        raise damaged(
            path,
            f"{found.waiting} waiting messages and {found.dead_letters} dead letters are in it, and its ledger says "
            f"{ledger.waiting} and {ledger.dead_letters}, or has others in their place",
        )


def read_rows(
    db: sqlite3.Connection, table: str, identity: bytes, path: str, where: str = "", values: tuple[object, ...] = ()
) -> Iterator[Row]:
    """Yield the messages of a table in order, checking each.

    Raises:
        OutboxDamagedError: a message is corrupt; the error names it.
    """
    for columns in db.execute(f"SELECT * FROM {table} {where} ORDER BY seq", values):  # noqa: S608 - names of our own
        try:
            yield row_of(columns, table, identity)
        except ValueError as error:
            raise damaged(path, f"message {columns[1]!r} (row {columns[0]} of {table}) is damaged: {error}") from None


def write_ledger(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
    """Replace the ledger, in the transaction that changed it."""
    columns = ledger.columns()
    db.execute(f"INSERT OR REPLACE INTO ledger VALUES ({', '.join('?' * len(columns))})", columns)  # noqa: S608 - names of our own


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
