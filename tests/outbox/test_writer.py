from __future__ import annotations

import functools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from stompy.deadline import Deadline
from stompy.errors import OutboxDamagedError, OutboxError, OutboxFullError
from stompy.outbox.record import WAITING, OutboxLedger
from stompy.outbox.schema import damaged, open_outbox
from stompy.outbox.writer import DiskWriter, Refused
from tests.outbox.conftest import a_row
from tests.support.peer import WITHIN, until


@pytest.fixture
def commits() -> list[OutboxLedger]:
    return []


@pytest.fixture
def writer(path: str, commits: list[OutboxLedger]) -> Iterator[DiskWriter]:
    writer = DiskWriter(path, open_outbox(path), name="stompy-test-writer", on_commit=commits.append)
    writer.start()
    yield writer
    assert writer.close(Deadline(WITHIN))


def insert(db: sqlite3.Connection, ledger: OutboxLedger, id: str = "id-1") -> int:
    """Add a message, as a job."""
    row = a_row(seq=ledger.next_seq, id=id)
    ledger.next_seq += 1
    columns = row.columns(WAITING, ledger.identity)
    db.execute(f"INSERT INTO {WAITING} VALUES ({', '.join('?' * len(columns))})", columns)
    ledger.count(row, WAITING, times=1)
    return row.seq


def count(db: sqlite3.Connection, ledger: OutboxLedger) -> int:
    return int(db.execute(f"SELECT count(*) FROM {WAITING}").fetchone()[0])


class Crowd:
    """Callers whose jobs pile up while the writer is held."""

    def __init__(self, writer: DiskWriter) -> None:
        self._writer = writer
        self._release = threading.Event()
        self._held = threading.Event()
        self.outcomes: dict[int, object] = {}
        self._threads = [threading.Thread(target=writer.call, args=(self._hold,), daemon=True)]
        self._threads[0].start()
        assert self._held.wait(WITHIN)

    def _hold(self, db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        self._held.set()
        self._release.wait(WITHIN)

    def add(self, job: Callable[[sqlite3.Connection, OutboxLedger], object]) -> None:
        number = len(self._threads)

        def call() -> None:
            try:
                self.outcomes[number] = self._writer.call(job)
            except OutboxError as error:
                self.outcomes[number] = error

        thread = threading.Thread(target=call, daemon=True)
        self._threads.append(thread)
        thread.start()
        until(lambda: len(self._writer._tasks) == number)

    def go(self) -> list[object]:
        """Let the writer go on; return the outcomes."""
        self._release.set()
        for thread in self._threads:
            thread.join(WITHIN)
            assert not thread.is_alive()
        return [self.outcomes[number] for number in sorted(self.outcomes)]


def test_a_job_is_done_when_the_call_returns(writer: DiskWriter, commits: list[OutboxLedger]) -> None:
    assert writer.call(insert) == 1
    assert writer.call(count) == 1
    assert [(ledger.commits, ledger.waiting) for ledger in commits] == [(1, 1)]


def test_jobs_that_come_together_share_a_transaction(writer: DiskWriter) -> None:
    crowd = Crowd(writer)
    for _ in range(5):
        crowd.add(insert)
    assert sorted(map(int, map(str, crowd.go()))) == [1, 2, 3, 4, 5]
    assert (writer.ledger.waiting, writer.ledger.commits) == (5, 1)


def test_callers_that_go_on_at_once_share_the_next_transaction_too(path: str) -> None:
    callers, rounds = 4, 8
    writer = DiskWriter(path, open_outbox(path), name="stompy-test-writer", on_commit=lambda _: time.sleep(0.05))
    writer.start()

    def call(caller: int) -> None:
        for number in range(rounds):
            writer.call(functools.partial(insert, id=f"id-{caller}-{number}"))

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close(Deadline(WITHIN))
    assert writer.ledger.waiting == callers * rounds
    # In two groups that take turns there would be 16.
    assert writer.ledger.commits < 2 * rounds - 2


def test_a_job_that_is_refused_does_not_touch_the_others(writer: DiskWriter) -> None:
    def refuse(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        raise Refused(OutboxFullError("enough", path="/a"))

    crowd = Crowd(writer)
    for job in (insert, refuse, insert):
        crowd.add(job)
    first, refused, last = crowd.go()
    assert (first, last) == (1, 2)
    assert isinstance(refused, OutboxFullError)
    assert writer.ledger.commits == 1


def test_a_job_that_the_disk_refuses_does_not_take_the_others_with_it(writer: DiskWriter) -> None:
    def insert_and_fail(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        insert(db, ledger)
        raise sqlite3.OperationalError("database or disk is full")

    crowd = Crowd(writer)
    for job in (insert, insert_and_fail, insert):
        crowd.add(job)
    first, failed, last = crowd.go()
    assert (first, last) == (1, 2)
    assert isinstance(failed, OutboxFullError)
    assert writer.call(count) == writer.ledger.waiting == 2


def test_a_body_too_large_for_sqlite_is_refused(writer: DiskWriter) -> None:
    def too_large(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        raise sqlite3.DataError("string or blob too big")

    with pytest.raises(OutboxFullError, match="larger than SQLite can store"):
        writer.call(too_large)
    assert writer.call(insert) == 1


@pytest.mark.parametrize("how", ["by SQLite", "by a checksum"])
def test_damage_ends_everything(writer: DiskWriter, how: str) -> None:
    def find_damage(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        if how == "by SQLite":
            raise sqlite3.DatabaseError("database disk image is malformed")
        raise damaged("/a", "message 'x' is damaged")

    with pytest.raises(OutboxDamagedError):
        writer.call(find_damage)
    with pytest.raises(OutboxDamagedError):
        writer.call(insert)
    assert isinstance(writer.failure, OutboxDamagedError)


def test_a_change_without_a_job_that_changes_is_no_transaction(writer: DiskWriter, commits: list[OutboxLedger]) -> None:
    writer.call(count)
    assert commits == []
    assert writer.ledger.commits == 0


def test_closing_works_the_waiting_jobs_off_and_refuses_later_ones(writer: DiskWriter) -> None:
    crowd = Crowd(writer)
    crowd.add(insert)
    writer.stop()
    with pytest.raises(OutboxError, match="closed"):
        writer.call(insert)
    assert crowd.go() == [1]


def test_a_bug_in_a_job_is_told_to_its_caller_and_ends_the_thread(
    writer: DiskWriter, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(db: sqlite3.Connection, ledger: OutboxLedger) -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(OutboxError, match="a bug in stompy"):
        writer.call(wrong)
    assert writer.join_until(Deadline(WITHIN))
    with pytest.raises(OutboxError, match="closed"):
        writer.call(insert)
    assert "ended by a bug" in caplog.text


def test_each_transaction_is_marked_in_the_lock_file(path: str, commits: list[OutboxLedger]) -> None:
    db, ledger, lock_file = open_outbox(path)
    writer = DiskWriter(path, (db, ledger, lock_file), name="stompy-test-writer", on_commit=commits.append)
    writer.start()
    for _ in range(3):
        writer.call(insert)
    assert lock_file.read() == (ledger.identity, 3)
    assert writer.close(Deadline(WITHIN))
