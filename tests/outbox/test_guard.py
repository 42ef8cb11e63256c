from __future__ import annotations

from pathlib import Path

import pytest

from stompy.errors import OutboxBusy, OutboxDamaged, OutboxError
from stompy.outbox.guard import Guard

KEY = b"k" * 16


def test_one_at_a_time_has_the_guard(path: str) -> None:
    first = Guard(path, create=True)
    with pytest.raises(OutboxBusy, match="open already") as caught:
        Guard(path, create=True)
    assert caught.value.path == path
    first.close()
    Guard(path, create=False).close()


def test_the_mark_is_read_as_it_was_written(path: str) -> None:
    guard = Guard(path, create=True)
    assert guard.read() is None
    for commits in (1, 2**40, 3):
        guard.mark(KEY, commits, sync=commits == 1)
        assert guard.read() == (KEY, commits)
    guard.close()


@pytest.mark.parametrize("place", range(48))
def test_a_mark_with_one_bit_changed_is_damage(path: str, place: int) -> None:
    guard = Guard(path, create=True)
    guard.mark(KEY, 5)
    file = Path(path + "-guard")
    octets = bytearray(file.read_bytes())
    octets[place] ^= 1
    file.write_bytes(octets)
    with pytest.raises(OutboxDamaged, match="guard file"):
        guard.read()
    guard.close()


@pytest.mark.parametrize("octets", [b"\0" * 48, b"x", b"x" * 49])
def test_a_mark_of_another_kind_is_damage(path: str, octets: bytes) -> None:
    Path(path + "-guard").write_bytes(octets)
    guard = Guard(path, create=True)
    with pytest.raises(OutboxDamaged):
        guard.read()
    guard.close()


def test_a_guard_that_cannot_be_opened_is_an_error_that_says_why(path: str) -> None:
    with pytest.raises(OutboxError, match="No such file"):
        Guard(path, create=False)
    Path(path + "-guard").mkdir()
    with pytest.raises(OutboxError, match="directory"):
        Guard(path, create=True)


def test_closing_twice_does_not_close_the_file_of_somebody_else(path: str, tmp_path: Path) -> None:
    guard = Guard(path, create=True)
    guard.close()
    with (tmp_path / "other").open("w") as other:
        guard.close()
        other.write("still open")
