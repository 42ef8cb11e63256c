from __future__ import annotations

import sqlite3

import pytest

from stompy.errors import OutboxBusyError, OutboxDamagedError, OutboxError, OutboxFullError
from stompy.outbox.schema import damaged, refused

WORDS = "database disk image is malformed"


@pytest.mark.parametrize(
    ("error", "opening", "expected"),
    [
        (sqlite3.OperationalError("database or disk is full"), False, OutboxFullError),
        (sqlite3.OperationalError("database is locked"), True, OutboxBusyError),
        (sqlite3.OperationalError("unable to open database file"), True, OutboxError),
        (sqlite3.OperationalError("attempt to write a readonly database"), False, OutboxError),
        (sqlite3.OperationalError("disk I/O error"), False, OutboxError),
        (sqlite3.OperationalError("disk I/O error"), True, OutboxDamagedError),
        (sqlite3.OperationalError("Could not decode to UTF-8 column 'id' with text 'x'"), False, OutboxDamagedError),
        (sqlite3.DatabaseError(WORDS), False, OutboxDamagedError),
        (sqlite3.DatabaseError("file is not a database"), True, OutboxDamagedError),
    ],
    ids=lambda value: str(value),
)
def test_what_sqlite_says_is_told_as_what_it_means(
    error: sqlite3.Error, opening: bool, expected: type[OutboxError]
) -> None:
    assert type(refused(error, "/a", opening=opening)) is expected


def test_damage_names_the_file_and_what_to_do() -> None:
    error = damaged("/var/a.outbox", "the file is cut")
    assert error.path == "/var/a.outbox"
    assert "outbox /var/a.outbox: the file is cut. " in str(error)
    assert "Restore" in str(error)
