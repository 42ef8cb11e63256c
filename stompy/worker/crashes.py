"""Which messages a child process was handling when it died, so that one that kills processes does not do so forever.

A child notes the messages that it runs in a file that is mapped into its memory, survives it, and is locked as long as
it lives. Before the parent starts another one in its place, it moves the notes of a dead child to a list. A redelivered
message that is in the list, or in the notes of a dead child, is not run: that it crashed counts as a failed attempt.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import BinaryIO

from stompy.connection.message import Message
from stompy.locks import Rank, make_lock
from stompy.worker.failure import ATTEMPT, fingerprint

_SIZE = 32
"""Bytes of a fingerprint."""

_SLOTS = 1_024
"""More messages than these run at one time are not noted."""


class Crashes:
    """The notes of one child, and the list of the parent.

    Args:
        folder: of the parent.
        child: number of this child.
    """

    def __init__(self, folder: Path, child: int) -> None:
        self._folder = folder
        self._path = notes_path(folder, child)
        self._path.write_bytes(bytes(_SIZE * _SLOTS))
        # Opened before any connection, so that the lock of a dead process ends before its session does.
        self._file = self._path.open("r+b")
        _lock(self._file)
        self._map = mmap.mmap(self._file.fileno(), 0)
        self._free = list(range(_SLOTS))
        self._lock = make_lock(Rank.LEAF, "crashes")

    def enter(self, message: Message) -> int | None:
        """Note that a message is run; the result is for `leave`."""
        mark = fingerprint(message)
        with self._lock:
            place = self._free.pop() if self._free else None
        if place is not None:
            self._map[place * _SIZE : (place + 1) * _SIZE] = mark
        return place

    def leave(self, place: int | None) -> None:
        """Note that a message is settled."""
        if place is not None:
            self._map[place * _SIZE : (place + 1) * _SIZE] = bytes(_SIZE)
            with self._lock:
                self._free.append(place)

    def crashed(self, message: Message) -> bool:
        """Return whether a child died while it ran this message."""
        # A retry may have been copied twice, and the second copy is not redelivered.
        if not message.redelivered and ATTEMPT not in message.headers:
            return False
        mark = fingerprint(message)
        if mark in _marks(crash_list(self._folder)):
            return True
        others = (path for path in self._folder.glob("running-*") if path != self._path)
        # Once more in the list, as the parent may just have moved them.
        return any(mark in _marks_of_dead(path) for path in others) or mark in _marks(crash_list(self._folder))


def notes_path(folder: Path, child: int) -> Path:
    """Return the file of a child's notes."""
    return folder / f"running-{child}"


def crash_list(folder: Path) -> Path:
    """Return the file with the messages that crashed a child."""
    return folder / "crashed"


def collect(folder: Path, child: int) -> int:
    """List what a dead child was running, and return the number of messages; called by the parent."""
    found = _marks(notes_path(folder, child)) - {bytes(_SIZE)}
    if found:
        with crash_list(folder).open("ab") as file:
            file.write(b"".join(found))
            file.flush()
            os.fsync(file.fileno())
    return len(found)


def _lock(file: BinaryIO) -> bool:
    """Lock a file, if no other process has; without such locks (Windows), only the list of the parent counts."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _marks_of_dead(path: Path) -> set[bytes]:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        if _lock(file):
            return _marks(path)
    return set()


def _marks(path: Path) -> set[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return set()
    return {data[start : start + _SIZE] for start in range(0, len(data) - _SIZE + 1, _SIZE)}
