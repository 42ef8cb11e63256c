from __future__ import annotations

from pathlib import Path

import pytest

from stompy.errors import OutboxBusyError, OutboxDamagedError, OutboxError
from stompy.outbox.schema import LockFile

KEY = b"k" * 16


def test_one_at_a_time_has_the_lock_file(path: str) -> None:
    first = LockFile(path, create=True)
    with pytest.raises(OutboxBusyError, match="open already") as caught:
        LockFile(path, create=True)
    assert caught.value.path == path
    first.close()
    LockFile(path, create=False).close()


def test_the_mark_is_read_as_it_was_written(path: str) -> None:
    lock_file = LockFile(path, create=True)
    assert lock_file.read() is None
    for commits in (1, 2**40, 3):
        lock_file.mark(KEY, commits, sync=commits == 1)
        assert lock_file.read() == (KEY, commits)
    lock_file.close()


@pytest.mark.parametrize("place", range(48))
def test_a_mark_with_one_bit_changed_is_damage(path: str, place: int) -> None:
    lock_file = LockFile(path, create=True)
    lock_file.mark(KEY, 5)
    file = Path(path + "-lock")
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(OutboxDamagedError, match="lock file"):
        lock_file.read()
    lock_file.close()


@pytest.mark.parametrize("data", [b"\0" * 48, b"x", b"x" * 49])
def test_a_mark_of_another_kind_is_damage(path: str, data: bytes) -> None:
    Path(path + "-lock").write_bytes(data)
    lock_file = LockFile(path, create=True)
    with pytest.raises(OutboxDamagedError):
        lock_file.read()
    lock_file.close()


def test_a_lock_file_that_cannot_be_opened_is_an_error_that_says_why(path: str) -> None:
    with pytest.raises(OutboxError, match="No such file"):
        LockFile(path, create=False)
    Path(path + "-lock").mkdir()
    with pytest.raises(OutboxError, match="directory"):
        LockFile(path, create=True)


def test_closing_twice_does_not_close_the_file_of_somebody_else(path: str, tmp_path: Path) -> None:
    lock_file = LockFile(path, create=True)
    lock_file.close()
    with (tmp_path / "other").open("w") as other:
        lock_file.close()
        other.write("still open")
