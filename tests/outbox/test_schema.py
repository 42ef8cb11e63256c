from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from stompy.errors import OutboxDamagedError, OutboxError, OutboxFullError
from stompy.outbox.schema import open_outbox
from tests.outbox.conftest import Opens, a_row, close


def files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).parent.iterdir()}


def make(path: str) -> None:
    """Make an empty outbox."""
    db, _, lock_file = open_outbox(path)
    db.close()
    lock_file.close()


def test_a_new_outbox_is_a_sqlite_file_that_says_what_it_is(path: str) -> None:
    make(path)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA application_id").fetchone() == (0x73746F78,)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.close()


def test_the_settings_that_keep_messages_are_in_force(path: str) -> None:
    db, _, lock_file = open_outbox(path)
    asked = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")}
    assert asked == {"synchronous": 2, "journal_mode": "wal"}
    db.close()
    lock_file.close()


def test_a_setting_that_sqlite_does_not_take_is_an_error(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompy.outbox.schema._SETTINGS", {"synchronous": ("NORMAL", 2)})
    with pytest.raises(OutboxError, match=r"SQLite answered \(1,\) for synchronous"):
        open_outbox(path)


def test_nobody_but_the_owner_may_read_the_files(path: str) -> None:
    make(path)
    assert {os.stat(file).st_mode & 0o777 for file in (path, path + "-lock")} == {0o600}


@pytest.mark.parametrize("stage", ["lock file", "lock file and half a file", "lock file and file"])
def test_a_process_that_died_while_making_it_leaves_nothing_behind_that_hurts(path: str, stage: str) -> None:
    make(path)
    Path(path + "-lock").write_bytes(b"")
    if stage != "lock file and file":
        os.unlink(path)
    if stage == "lock file and half a file":
        Path(path + "-new").write_bytes(b"SQLite")
        Path(path + "-new-journal").write_bytes(b"x")
    make(path)
    make(path)
    assert set(files(path)) == {"a.outbox", "a.outbox-lock"}


def test_a_file_without_messages_is_not_taken_for_one_whose_lock_file_was_lost(path: str, opens: Opens) -> None:
    store = opens()
    store.put(a_row())
    close(store)
    Path(path + "-lock").write_bytes(b"")
    with pytest.raises(OutboxDamagedError, match=r"lock file .* is empty"):
        open_outbox(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(b"some text\n" * 100)


def short(path: Path) -> None:
    path.write_bytes(b"some text\n")


def other_database(path: Path) -> None:
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE a (b)")
    db.close()


def other_outbox(path: Path) -> None:
    make(str(path.with_name("b.outbox")))
    path.write_bytes(path.with_name("b.outbox").read_bytes())


def newer(path: Path) -> None:
    changed(path, "PRAGMA user_version=2")


def other_table(path: Path) -> None:
    changed(path, "CREATE TABLE more (a)")


def no_ledger(path: Path) -> None:
    changed(path, "DELETE FROM ledger")


def changed(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (Path.unlink, "is missing"),
        (empty, "empty or truncated"),
        (short, "not an outbox"),
        (foreign, "not an outbox"),
        (other_database, "not an outbox"),
        (other_outbox, "belongs to another outbox"),
        (newer, "version 2"),
        (other_table, "tables"),
        (no_ledger, "ledger"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_file_that_is_not_what_it_was_is_never_an_empty_outbox(path: str, harm: object, words: str) -> None:
    make(path)
    harm(Path(path))  # type: ignore[operator]
    before = files(path)
    for _ in range(2):
        with pytest.raises(OutboxDamagedError, match=words):
            open_outbox(path)
    assert files(path) == before


def test_a_new_outbox_has_its_lock_file_on_disk_before_it_has_its_name(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[set[str]] = []

    def fsync(handle: int, real: Callable[[int], None] = os.fsync) -> None:
        real(handle)
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            synced.append(set(files(path)))

    monkeypatch.setattr(os, "fsync", fsync)
    make(path)
    assert any("a.outbox-lock" in names and "a.outbox" not in names for names in synced)


@pytest.mark.parametrize("failing", ["folder", "lock file"])
def test_what_one_process_could_not_sync_of_a_new_outbox_the_next_one_does_and_the_name_first(
    path: str, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    synced: list[str] = []
    fails = True

    def fsync(handle: int, real: Callable[[int], None] = os.fsync) -> None:
        if os.path.exists(path):  # the new outbox has its name
            found = os.fstat(handle)
            synced.append("folder" if stat.S_ISDIR(found.st_mode) else "lock file")
            assert stat.S_ISDIR(found.st_mode) or os.path.samestat(found, os.stat(path + "-lock"))
            if fails and synced[-1] == failing:
                raise OSError(errno.EIO, "the disk fails")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutboxError, match="the disk fails"):
        make(path)
    fails = False
    synced.clear()
    make(path)
    # The lock file counts on an outbox from its mark on, so the name is on disk before.
    assert synced == ["folder", "lock file"]


def test_a_file_without_its_lock_file_is_damage_and_gets_none(path: str) -> None:
    make(path)
    os.unlink(path + "-lock")
    with pytest.raises(OutboxDamagedError, match=r"lock file .* is not"):
        open_outbox(path)
    assert set(files(path)) == {"a.outbox"}


def test_a_log_without_its_file_is_damage(path: str) -> None:
    Path(path + "-wal").write_bytes(b"x")
    with pytest.raises(OutboxDamagedError, match="log"):
        open_outbox(path)


def test_an_older_copy_of_the_file_is_damage(path: str, opens: Opens) -> None:
    close(opens())
    older = Path(path).read_bytes()
    store = opens()
    store.put(a_row())
    close(store)
    Path(path).write_bytes(older)
    with pytest.raises(OutboxDamagedError, match="transactions that were confirmed"):
        open_outbox(path)


def test_a_lost_log_is_damage(path: str, opens: Opens, tmp_path: Path) -> None:
    store = opens()
    store.put(a_row())
    copy = str(tmp_path / "copy")
    for name in ("", "-wal", "-lock"):  # as a process that is killed leaves them
        shutil.copy(path + name, copy + name)
    os.rename(copy + "-wal", copy + "-kept")
    with pytest.raises(OutboxDamagedError, match="transactions that were confirmed"):
        open_outbox(copy)
    os.rename(copy + "-kept", copy + "-wal")
    make(copy)


def test_what_sqlite_finds_malformed_is_damage(path: str, opens: Opens) -> None:
    store = opens()
    store.put(a_row(b"x" * 50_000))
    store.remove(store.read(after=0, limit=1, max_bytes=1))
    close(store)
    data = bytearray(Path(path).read_bytes())
    data[36:40] = (99).to_bytes(4, "big")  # the count of free pages
    Path(path).write_bytes(data)
    with pytest.raises(OutboxDamagedError, match="SQLite finds it malformed"):
        open_outbox(path)


@pytest.mark.parametrize("loss", ["DELETE FROM waiting WHERE seq = 2", "DELETE FROM dead_letters"])
def test_a_message_that_is_gone_without_a_trace_is_damage(path: str, opens: Opens, loss: str) -> None:
    store = opens()
    for _ in range(3):
        store.put(a_row())
    store.refuse(store.read(after=0, limit=1, max_bytes=1)[0], "no", final=True)
    close(store)
    changed(Path(path), loss)
    with pytest.raises(OutboxDamagedError, match="its ledger says 2 and 1"):
        open_outbox(path)


def test_a_damaged_outbox_keeps_its_log_for_who_repairs_it(path: str, opens: Opens, tmp_path: Path) -> None:
    store = opens()
    store.put(a_row())
    copies = tmp_path / "copies"
    copies.mkdir()
    copy = str(copies / "a.outbox")
    for name in ("", "-wal"):
        shutil.copy(path + name, copy + name)
    make(str(tmp_path / "b.outbox"))
    shutil.copy(tmp_path / "b.outbox-lock", copy + "-lock")
    before = files(copy)
    with pytest.raises(OutboxDamagedError, match="belongs to another outbox"):
        open_outbox(copy)
    assert files(copy) == before


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutboxError, match="No such file"):
        open_outbox(str(tmp_path / "none" / "a.outbox"))


@pytest.mark.parametrize("name", ["a b?c#d%41.outbox", ":memory:", "file:a"])
def test_any_name_of_a_file_will_do(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    make(path)
    make(path)
    assert Path(path).stat().st_size > 0


def test_a_disk_too_full_to_read_the_file_is_not_taken_for_damage(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path)

    def fail(*arguments: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("stompy.outbox.schema._check_all", fail)
    with pytest.raises(OutboxDamagedError):
        make(path)
    Path(path + "-new").mkdir()  # nothing can be written there
    with pytest.raises(OutboxFullError, match="the disk is too full to open it"):
        make(path)
