"""Which messages a child process was handling when it died, so that one that kills processes does not do so forever.

A child notes the messages that it runs in a file that is mapped into its memory, survives it, and is locked as long as
it lives. Before the parent starts another one in its place, it moves the notes of a dead child to a list. A redelivered
message that is in the list, or in the notes of a dead child, is not run: that it crashed counts as a failed attempt.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from pathlib import Path
from typing import BinaryIO

from stompy.connection.message import Message
from stompy.locks import Rank, make_lock
from stompy.worker.failure import ATTEMPT, fingerprint

_SIZE = 32
"""Bytes of a fingerprint."""

_SLOTS = 1_024
"""More messages than these run at one time are not noted."""

_DYING = 1.0
"""Seconds for a child to die after its session has ended."""


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
        mark, given_up = fingerprint(message), time.monotonic() + _DYING
        while True:
            others = [path for path in self._folder.glob("running-*") if path != self._path and mark in _marks(path)]
            # The list last, as the parent may just have moved the notes.
            if any(map(_is_dead, others)) or mark in _marks(crash_list(self._folder)):
                return True
            if not others or time.monotonic() > given_up:
                return False
            # It runs it still, as its session was lost, or is dying: the system ends its session before its lock.
            time.sleep(0.01)


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


def _is_dead(notes: Path) -> bool:
    """Return whether the child of these notes is dead and the parent has not started another one in its place."""
    with contextlib.suppress(FileNotFoundError), notes.open("rb") as file:
        return _lock(file)
    return False


def _marks(path: Path) -> set[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return set()
    return {data[start : start + _SIZE] for start in range(0, len(data) - _SIZE + 1, _SIZE)}
