from __future__ import annotations

import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from stompy.errors import OutboxBusyError, OutboxDamagedError, OutboxError, OutboxFullError
from stompy.outbox.record import Row
from stompy.outbox.store import Store
from tests.outbox.conftest import Opens, a_row, close


def read(store: Store, *, after: int = 0, limit: int = 1_000, max_bytes: int = 10**9) -> list[Row]:
    return store.read(after=after, limit=limit, max_bytes=max_bytes)


def bodies(store: Store) -> list[bytes]:
    return [row.body for row in read(store)]


def fill(store: Store, *contents: bytes) -> list[Row]:
    for number, body in enumerate(contents):
        store.put(a_row(body, id=f"id-{number}"))
    return read(store)


def test_messages_are_there_in_order_when_the_file_is_opened_again(opens: Opens) -> None:
    store = opens()
    fill(store, b"1", b"", b"\x00" * 100_000)
    close(store)
    assert bodies(opens()) == [b"1", b"", b"\x00" * 100_000]


def test_reading_begins_behind_a_place_and_ends_at_the_limit(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1", b"2", b"3", b"4")
    assert read(store, after=rows[0].seq, limit=2) == rows[1:3]
    assert read(store, after=rows[-1].seq) == []


def test_reading_stops_at_the_bytes_but_gives_one_message_whatever_its_size(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"x" * 1_000, b"x" * 1_000, b"x" * 1_000)
    assert len(read(store, max_bytes=2 * rows[0].size)) == 2
    assert len(read(store, max_bytes=1)) == 1


def test_what_was_removed_is_gone_and_its_place_is_not_used_again(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1", b"2")
    store.remove(rows)
    assert read(store) == []
    close(store)
    store = opens()
    assert fill(store, b"3")[0].seq > rows[-1].seq


def test_removing_what_is_not_there_is_damage_and_stops_everything(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1")
    store.remove(rows)
    with pytest.raises(OutboxDamagedError, match=r"message 'id-0' \(row 1 of waiting\) is missing or was changed"):
        store.remove(rows)
    with pytest.raises(OutboxDamagedError):
        store.put(a_row())


def test_a_message_as_it_was_before_cannot_be_removed(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1")
    store.refuse(rows[0], "no", final=False)
    with pytest.raises(OutboxDamagedError, match="changed"):
        store.remove(rows)


def test_a_refused_message_keeps_its_place_and_counts(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1", b"2")
    store.refuse(rows[0], "no", final=False)
    assert [(row.body, row.tries, row.error_message) for row in read(store)] == [(b"1", 1, "no"), (b"2", 0, "")]


def test_a_message_refused_for_good_becomes_a_dead_letter_and_can_wait_again(opens: Opens) -> None:
    store = opens()
    rows = fill(store, b"1", b"2")
    store.refuse(rows[0], "never", final=True)
    assert bodies(store) == [b"2"]
    (aside,) = store.dead_letters(limit=10)
    assert (aside.id, aside.body, aside.tries, aside.error_message) == ("id-0", b"1", 1, "never")
    store.retry("id-0")
    assert [(row.id, row.body, row.tries, row.error_message) for row in read(store)] == [
        ("id-1", b"2", 0, ""),
        ("id-0", b"1", 0, ""),
    ]
    assert store.dead_letters(limit=10) == []
    close(store)
    assert bodies(opens()) == [b"2", b"1"]


def test_a_message_that_is_a_dead_letter_can_be_discarded(opens: Opens) -> None:
    store = opens()
    store.refuse(fill(store, b"1")[0], "never", final=True)
    store.discard("id-0")
    assert store.ledger.dead_letters == store.ledger.size == 0
    for call in (store.discard, store.retry):
        with pytest.raises(OutboxError, match="there is no dead letter 'id-0'"):
            call("id-0")


def test_dead_letters_gives_the_first_ones(opens: Opens) -> None:
    store = opens()
    for row in fill(store, b"1", b"2", b"3"):
        store.refuse(row, "never", final=True)
    assert [row.body for row in store.dead_letters(limit=2)] == [b"1", b"2"]


def test_a_full_outbox_refuses_by_number_of_messages(opens: Opens) -> None:
    store = opens(messages=2)
    rows = fill(store, b"1", b"2")
    with pytest.raises(OutboxFullError, match="max_messages"):
        store.put(a_row(b"3"))
    store.refuse(rows[0], "never", final=True)
    with pytest.raises(OutboxFullError):
        store.put(a_row(b"3"))
    store.remove(rows[1:])
    store.put(a_row(b"3"))
    assert bodies(store) == [b"3"]


def test_a_full_outbox_refuses_by_bytes(opens: Opens) -> None:
    size = a_row(b"x" * 100).size
    store = opens(size=2 * size)
    fill(store, b"x" * 100, b"x" * 100)
    with pytest.raises(OutboxFullError, match="max_bytes"):
        store.put(a_row(b""))


def test_the_oldest_is_the_first_that_waits(opens: Opens) -> None:
    store = opens()
    assert store.oldest_ms() is None
    fill(store, b"1")
    assert store.oldest_ms() == a_row().put_ms


def test_one_store_at_a_time_has_the_file(opens: Opens) -> None:
    first = opens()
    with pytest.raises(OutboxBusyError):
        opens()
    close(first)
    opens()


def test_a_file_that_another_program_has_open_is_busy(opens: Opens, path: str) -> None:
    close(opens())
    other = sqlite3.connect(path)
    other.execute("SELECT * FROM waiting").fetchall()
    with pytest.raises(OutboxBusyError, match="another process"):
        opens()
    other.close()
    opens()


def test_a_message_that_changed_on_disk_is_named_and_not_skipped(opens: Opens, path: str) -> None:
    store = opens()
    fill(store, b"first", b"second message", b"third")
    close(store)
    file = Path(path)
    file.write_bytes(re.sub(b"second message", b"secund message", file.read_bytes()))
    with pytest.raises(
        OutboxDamagedError, match=r"message 'id-1' \(row 2 of waiting\) is damaged: the checksum is wrong"
    ):
        opens()


def test_a_message_that_changes_under_an_open_outbox_is_found_when_it_is_read(opens: Opens) -> None:
    store = opens()
    fill(store, b"first", b"second")
    store.writer.call(lambda db, ledger: db.execute("UPDATE waiting SET body = ? WHERE seq = 2", (b"secund",)))
    with pytest.raises(OutboxDamagedError, match="'id-1'"):
        read(store)
    with pytest.raises(OutboxDamagedError):
        store.put(a_row())


def test_a_full_disk_refuses_the_put_and_keeps_what_was_there(opens: Opens) -> None:
    store = opens()
    fill(store, b"1")
    pages = store.writer.call(lambda db, ledger: db.execute("PRAGMA page_count").fetchone()[0])
    store.writer._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OutboxFullError, match="the disk is full"):
        store.put(a_row(b"x" * 50_000))
    assert bodies(store) == [b"1"]
    store.put(a_row(b"small"))
    close(store)
    assert bodies(opens()) == [b"1", b"small"]


def test_the_last_of_the_disk_is_left_alone(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opens(keep_free=1_000_000)
    disk = shutil.disk_usage("/")
    monkeypatch.setattr("shutil.disk_usage", lambda path: disk._replace(free=1_000_000 + a_row().size))
    store.put(a_row())
    monkeypatch.setattr("shutil.disk_usage", lambda path: disk._replace(free=1_000_000))
    with pytest.raises(OutboxFullError, match=r"too few for \d+ bytes and keep_free=1000000"):
        store.put(a_row())
    store.remove(read(store))
    assert read(store) == []


def test_after_a_full_disk_the_log_is_moved_into_the_file(opens: Opens, path: str) -> None:
    store = opens()
    fill(store, b"x" * 10_000)
    pages = store.writer.call(lambda db, ledger: db.execute("PRAGMA page_count").fetchone()[0])
    store.writer._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(OutboxFullError):
        store.put(a_row(b"x" * 50_000))
    assert Path(path + "-wal").stat().st_size == 0


@pytest.mark.parametrize("suffix", ["", "-wal", "-lock"])
@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_put_into_a_file_that_is_no_longer_in_its_place(
    opens: Opens, path: str, suffix: str, replaced: bool
) -> None:
    store = opens()
    fill(store, b"1")
    file = Path(path + suffix)
    file.rename(path + "-elsewhere")
    if replaced:
        shutil.copy(path + "-elsewhere", file)
    with pytest.raises(OutboxError, match=f"{file} was removed or replaced while it was open"):
        store.put(a_row(b"2", id="id-2"))
    assert bodies(store) == [b"1"]
    store.remove(read(store))
    assert bodies(store) == []
