"""The writer thread, which alone uses the file.

| thread | owns | may block on | never |
|---|---|---|---|
| `…-writer` | the SQLite handle, the ledger, the lock file's mark | its queue, the disk | the network, user code |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 5 | outbox writer (leaf) | the jobs that wait | no |

Callers queue a job and wait for it. All queued jobs share one transaction, and so one sync of the disk.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from stompy.deadline import Deadline
from stompy.errors import OutboxDamagedError, OutboxError, OutboxFullError
from stompy.forks import never_free, when_forked
from stompy.locks import make_condition
from stompy.outbox.record import OutboxLedger
from stompy.outbox.schema import LockFile, has_room, refused, write_ledger
from stompy.threads import DaemonThread
from stompy.world import sqlite3, threading, time

_LOG = logging.getLogger("stompy.outbox")

T = TypeVar("T")
Job = Callable[[sqlite3.Connection, OutboxLedger], T]

# A value that is too large raises either one.
_REFUSALS = (sqlite3.Error, OverflowError)

_PATIENCE = 0.1
"""The part of a transaction's time that the next one may wait for the callers of the last ones."""


class Refused(Exception):
    """Raised by a job that has written nothing: its caller gets the error, and the other jobs continue."""

    def __init__(self, error: OutboxError) -> None:
        super().__init__(str(error))
        self.error = error


class _Task(Generic[T]):
    """A job and its outcome."""

    def __init__(self, job: Job[T]) -> None:
        self.job = job
        self.value: T | None = None
        self.error: OutboxError | None = None
        self.done = threading.Event()

    def result(self) -> T:
        # Without a deadline: a put that timed out would not know whether the message is on disk. Closing runs all jobs.
        self.done.wait()
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


class DiskWriter(DaemonThread):
    """Runs jobs in shared transactions.

    Args:
        path: of the outbox.
        opened: the result of `open_outbox`; closed at the end.
        name: of the thread.
        on_commit: called on the writer thread after each transaction that changed something; must not block.
    """

    def __init__(
        self,
        path: str,
        opened: tuple[sqlite3.Connection, OutboxLedger, LockFile],
        *,
        name: str,
        on_commit: Callable[[OutboxLedger], None],
    ) -> None:
        super().__init__(name)
        self._path = path
        self._db, self.ledger, self._lock_file = opened
        self._on_commit = on_commit
        self._jobs = make_condition("outbox writer")
        self._tasks: list[_Task[Any]] = []
        self._stopping = False
        self._together = 1
        """How many callers are expected to share the next transaction."""
        self._took = 0.0
        """Seconds of the last transaction."""
        self.failure: OutboxError | None = None
        """The error that ended all work, as the file is corrupt, or `None`."""
        when_forked(self)

    def call(self, job: Job[T]) -> T:
        """Run a job on the writer thread, in a transaction with others; return its result after the commit.

        Raises:
            OutboxError: the outbox is closed or corrupt, or the disk failed; nothing of the job was done.
        """
        task = _Task(job)
        with self._jobs:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            if self._stopping:
                raise OutboxError("it is closed", path=self._path)
            self._tasks.append(task)
            self._jobs.notify()
        return task.result()

    def stop(self) -> None:
        """End after the jobs that are queued now; later ones are rejected."""
        with self._jobs:
            self._stopping = True
            self._jobs.notify()

    def run(self) -> None:
        """Run jobs until stopped, then close the file."""
        try:
            while (tasks := self._next()) is not None:
                began = time.monotonic()
                self._transact(tasks)
                self._took = time.monotonic() - began
        finally:
            self.stop()  # also after a bug
            self._close()

    def _next(self) -> list[_Task[Any]] | None:
        with self._jobs:
            # Without a pause callers form two groups: those whose jobs are written, and those who put the next ones
            # meanwhile. So the callers that were just released may join them, for a fraction of what a sync costs.
            if self._tasks:
                self._together += len(self._tasks)
            self._jobs.wait_for(lambda: self._tasks or self._stopping)
            if len(self._tasks) < self._together:
                self._jobs.wait_for(
                    lambda: len(self._tasks) >= self._together or self._stopping, _PATIENCE * self._took
                )
            tasks, self._tasks = self._tasks, []
            self._together = len(tasks)
            return tasks or None

    def _transact(self, tasks: Sequence[_Task[Any]]) -> None:
        """Run jobs in one transaction; if that fails, each in its own, so that each gets its own outcome."""
        try:
            ledger = self._attempt(tasks)
        except _REFUSALS as error:
            if len(tasks) == 1:
                self._fail_all(tasks, self._outbox_error(error))
            else:
                for task in tasks:
                    self._transact([task])
        except OutboxError as error:
            self._fail_all(tasks, error)
        except BaseException as error:
            self._fail_all(tasks, OutboxError(f"a bug in stompy: {error!r}", path=self._path))
            raise
        else:
            if ledger != self.ledger:
                self._lock_file.mark(ledger.identity, ledger.commits)
                self.ledger = ledger
                self._on_commit(ledger)
            for task in tasks:
                task.done.set()

    def _attempt(self, tasks: Sequence[_Task[Any]]) -> OutboxLedger:
        ledger = copy.copy(self.ledger)
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for task in tasks:
                try:
                    task.value = task.job(self._db, ledger)
                except Refused as refusal:
                    task.error = refusal.error
            if ledger != self.ledger:
                ledger.commits += 1
                write_ledger(self._db, ledger)
            self._db.execute("COMMIT")
        except BaseException:
            for task in tasks:
                task.error = None  # another attempt follows, or one error for all
            # If the disk is full, SQLite has already rolled back.
            if self._db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
            raise
        return ledger

    def _outbox_error(self, error: Exception) -> OutboxError:
        if not isinstance(error, sqlite3.Error) or isinstance(error, sqlite3.DataError):
            outbox_error: OutboxError = OutboxFullError("it is larger than SQLite can store", path=self._path)
        else:
            outbox_error = refused(error, self._path)
            if type(outbox_error) is OutboxError and not has_room(self._path):
                outbox_error = OutboxFullError("the disk is full", path=self._path)
        outbox_error.__cause__ = error
        if isinstance(outbox_error, OutboxFullError):
            # SQLite moves the log into the file only after a successful commit.
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return outbox_error

    def _fail_all(self, tasks: Sequence[_Task[Any]], error: OutboxError) -> None:
        if isinstance(error, OutboxDamagedError):
            with self._jobs:
                self.failure = self.failure or error
        for task in tasks:
            task.error = error
            task.done.set()

    def _close(self) -> None:
        with self._jobs:
            tasks, self._tasks = self._tasks, []
        self._fail_all(tasks, OutboxError("it is closed", path=self._path))
        try:
            self._db.close()
        except sqlite3.Error as error:
            _LOG.warning("closing %s: %s", self._path, error)
        self._lock_file.close()

    def after_fork(self) -> None:
        """Make the copy in a forked child harmless."""
        # Leaked on purpose: freeing this copy of the handle would delete the log that the parent still writes to.
        never_free(self._db)

    def close(self, deadline: Deadline) -> bool:
        """Stop and wait for the thread to end; return whether it has."""
        self.stop()
        return self.join_until(deadline)
