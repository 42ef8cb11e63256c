"""A ready store of the ids of processed messages, on SQLite."""

from __future__ import annotations

from stompy.arguments import check_arguments
from stompy.forks import Owner, never_free, when_forked
from stompy.locks import Rank, make_lock
from stompy.world import os, sqlite3, time


class SqliteSeen:
    """Remembers ids in an SQLite file, for `Worker.task(seen=...)`. Thread-safe; several processes may share the file.

    Args:
        path: of the file, which is created.
        keep: seconds after which an id may be forgotten; by default 7 days.
    """

    _CLEAN_EVERY = 1_000

    def __init__(self, path: str | os.PathLike[str], *, keep: float = 7 * 86_400.0) -> None:
        check_arguments(SqliteSeen.__init__, {"keep": keep})
        self._keep = keep
        self._added = 0
        self._lock = make_lock(Rank.LEAF, "seen")
        self._owner = Owner("store of ids")
        self._database = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID")
        when_forked(self)

    def after_fork(self) -> None:
        """Leave the file to the parent, in a forked child."""
        never_free(self._database)

    def __contains__(self, identity: str) -> bool:
        self._owner.check()
        with self._lock:
            row = self._database.execute("SELECT 1 FROM seen WHERE id = ?", (identity,)).fetchone()
        return row is not None

    def add(self, identity: str) -> None:
        """Remember an id."""
        self._owner.check()
        now = time.time()
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (identity, now))
            self._added += 1
            if self._added % self._CLEAN_EVERY == 0:
                self._database.execute("DELETE FROM seen WHERE at < ?", (now - self._keep,))

    def close(self) -> None:
        """Close the file."""
        if self._owner.forked:
            return
        with self._lock:
            self._database.close()
