"""Map the errors of SQLite to `stompy.errors`."""

from __future__ import annotations

from stompy.errors import OutboxBusyError, OutboxDamagedError, OutboxError, OutboxFullError
from stompy.world import sqlite3

WAL = "-wal"
"""Suffix of SQLite's write-ahead log, which holds the newest messages."""

SHARED = "-shm"
"""Suffix of SQLite's index of the log, which is rebuilt when the file is opened."""

LOCK = "-lock"
"""Suffix of the lock file, which also holds the number of commits; see `lockfile.py`."""

_ADVICE = (
    "Nothing more is sent from it or written to it. Restore the file and those beside it whose names begin with its "
    "name from a backup, or move them all away together to begin with an empty outbox"
)
_FULL = "full"
_LOCKED = "locked"
_PERMITTED = ("unable to open", "readonly", "permission", "authorization")
_DECODING = "could not decode"


def damaged(path: str, what: str) -> OutboxDamagedError:
    """Return the error for a corrupt file, with what to do."""
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
