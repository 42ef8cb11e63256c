from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from stompy.errors import SpoolError, SpoolFullError
from stompy.spark.spool.files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(str(tmp_path / "spool"))
    found.make_folder("folder/epoch")
    return found


def names_in(files: Files, folder: str = "") -> list[str]:
    return sorted(os.listdir(files.path(folder)))


def test_what_was_written_is_read(files: Files) -> None:
    files.write("folder/low", b"1")
    files.write("folder/low", b"2")
    assert files.read("folder/low") == b"2"
    assert files.read("folder/none") is None
    assert names_in(files, "folder") == ["epoch", "low"]


def test_create_leaves_what_is_there(files: Files) -> None:
    files.create("a", b"1")
    files.create("a", b"2")
    assert files.read("a") == b"1"
    assert names_in(files) == ["a", "folder"]


def test_the_name_of_a_file_that_another_process_has_just_created_is_synced(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(files.path("a")).write_bytes(b"1")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    files.create("a", b"2")
    assert files.url in synced


def test_the_listing_passes_over_unfinished_files(files: Files) -> None:
    Path(files.path("folder/.tmp-seg-1")).write_bytes(b"torn")
    files.write("folder/low", b"12")
    assert sorted(files.list("folder")) == ["epoch", "low"]
    assert files.list("nowhere") == []


def test_the_state_of_a_file_is_its_size_and_time(files: Files) -> None:
    files.write("folder/a", b"12")
    os.utime(files.path("folder/a"), (5, 7))
    assert files.state("folder/a") == (2, 7.0)
    assert files.state("folder/b") is None


def test_sweep_removes_torn_segments_only(files: Files) -> None:
    for name in (".tmp-seg-1", ".tmp-low-2"):
        Path(files.path(name)).write_bytes(b"torn")
    files.sweep()
    assert [name for name in names_in(files, "") if name.startswith(".tmp-")] == [".tmp-low-2"]


def test_a_lock_is_one_holders(files: Files) -> None:
    lock = files.lock("folder/lock")
    assert lock is not None
    assert files.lock("folder/lock") is None
    lock.release()
    lock.release()
    again = files.lock("folder/lock")
    assert again is not None
    again.release()


def test_removing_what_is_gone_is_no_error(files: Files) -> None:
    files.write("a", b"")
    assert files.read("a") is not None
    files.remove("a")
    files.remove("a")
    files.touch("a")
    assert files.read("a") is None


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_full_disk_is_an_error_and_leaves_nothing(files: Files, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(SpoolFullError, match=r"folder/low.*no space left on the disk"):
        files.write("folder/low", b"1")
    monkeypatch.undo()
    assert names_in(files, "folder") == ["epoch"]


def test_another_fault_of_the_disk_names_the_file(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(SpoolError, match=r"folder/low: it cannot be used: Input/output error"):
        files.write("folder/low", b"1")


def test_a_short_write_is_gone_on_with(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:3]))
    files.write("a", b"0123456789")
    assert files.read("a") == b"0123456789"


def test_bytes_folder_and_name_are_synced_in_that_order(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file")
        fsync(handle)

    def moved(source: str, target: str) -> None:
        steps.append("name")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    files.write("a", b"1")
    assert steps == ["file", "name", "folder"]


@pytest.mark.parametrize("made", [0, 1, 2])
def test_folders_are_synced_by_name_also_where_another_process_has_just_made_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    folders = [tmp_path / "a", tmp_path / "a" / "b"]
    for folder in folders[:made]:
        folder.mkdir()
    synced: list[os.stat_result] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle)))
    Files(str(tmp_path)).make_folder("a/b")
    # A process that has made the last one has synced the names of those before.
    for folder in folders[max(0, made - 1) :]:
        assert any(os.path.samestat(os.stat(folder.parent), one) for one in synced)
