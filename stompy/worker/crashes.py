"""Which messages a child process was running when it died, so that one that kills processes does not do so forever.

A child notes each message that it runs in a file that is mapped into its memory and outlives it. When a child has died,
the parent makes a record of each message in its notes, then starts another child in its place. The child that gets the
message again takes the record:

- If one message was running, it crashed the child. That is a failed attempt.
- If several were running, they are suspects. None has failed, but each is run alone: its child first finishes what it
  runs, and starts nothing else meanwhile. So a suspect that kills its child is the only one that ran.

A record belongs to one delivery. A redelivered message is recognised by its content and its id. If the broker changes
the id, one of several messages with equal content takes the record, and the others are not affected.

A record that was taken is in the notes of its new child until the message is settled, so that it outlives that child.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stompy.connection.message import Message, delivery_of
from stompy.locks import SafeEvent, make_condition
from stompy.worker.failure import ATTEMPT, CRASHED, fingerprint
from stompy.world import mmap, os, time

_SIZE = 32
"""Bytes of a note: the state, the number of the attempt (two bytes), the mark of the message."""

_MARK = 3
"""Where the mark begins."""

_NOTHING = bytes(_SIZE - 1)

_PLACES = 1_024
"""More messages than these are not noted."""

_DYING = 1.0
"""Seconds for a child to die after its session has ended."""

_COLLECTING = 10.0
"""Seconds for the parent to notice that a child is dead."""

_FORGOTTEN = 86_400.0
"""Seconds after which nobody waits for a message to be redelivered."""

_LOOK = 0.01
_TURN = 0.1
"""Seconds between two looks for a record; between two looks whether the worker stops."""


class CrashState(enum.IntEnum):
    """What a note or a record says about a message."""

    FREE = 0
    """The note is not used."""
    RUNNING = 1
    SUSPECT = 2
    """It was running beside others when a child died, and waits to be run alone."""
    CRASHED = 3
    """It was the only one that was running when a child died; the failed attempt is not settled yet."""


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """What is known of a message that a dead child had.

    Attributes:
        state: `SUSPECT` or `CRASHED`.
        attempt: the number of the attempt that crashed.
    """

    state: CrashState
    attempt: int


def identity(message: Message) -> bytes:
    """Return a hash of a message that is the same when it is redelivered, and its own if the broker keeps the id."""
    content = fingerprint(message)
    if not delivery_of(message).link.dialect.keeps_message_id:
        return content
    # Artemis begins the id with that of the consumer, which changes with the session.
    return hashlib.sha256(content + message.message_id.rpartition(",")[2].encode()).digest()


class Crashes:
    """The notes of this child, and its view of the records and of the notes of the other children.

    Args:
        folder: of the parent.
        child: number of this child.
    """

    def __init__(self, folder: Path, child: int) -> None:
        self._folder = folder
        own = _notes_path(folder, child)
        self._file = own.open("r+b")
        _lock(self._file)
        self._map = mmap.mmap(self._file.fileno(), 0)
        self._others = {path: _mapped(path) for path in folder.glob(_ALL_NOTES) if path != own}
        self._free = list(range(_PLACES))
        self._lock = make_condition("crashes")
        self._running = 0
        self._alone = 0
        """Messages that are run alone or wait for that."""

    def note(self, message: Message) -> Note:
        """Return a note for a message to run. If a child that had it is dying, wait until the parent knows."""
        mark = identity(message)[: _SIZE - _MARK]
        record = self._find(message, mark)
        try:
            place = self._free.pop()  # a step that no other thread divides, as is `append`
        except IndexError:
            place = None
        return Note(self, message, mark, place, record)

    def close(self) -> None:
        """Clear the notes of what still runs, as this process ends in order and nothing has crashed it."""
        for place in range(_PLACES):
            if self._map[place * _SIZE] == CrashState.RUNNING:
                self.clear(place)

    def _find(self, message: Message, mark: bytes) -> CrashRecord | None:
        """Take the record of a message, if there is one."""
        dialect = delivery_of(message).link.dialect
        # A retry may have been copied twice, and the second copy is not redelivered.
        again = message.redelivered or ATTEMPT in message.headers
        # Of a topic's message, which each child has with the same id, only what is marked can be redelivered.
        if not again and (dialect.marks_redelivered or not message.destination.startswith("/queue/")):
            return None
        others = self._others if again or dialect.keeps_message_id else {}
        started = time.monotonic()
        while True:
            # First the notes, then the records, as the parent makes the record before it clears the note.
            noted = [path for path, notes in others.items() if mark in notes[:]]
            record = _take(self._folder, mark)
            if record is not None or not noted:
                return record
            # Another child has a message like this. It is dead; or it is dying, as the system ends its session before
            # it frees the lock; or it runs this one still, as only its session was lost; or that is another message.
            if time.monotonic() - started > (_COLLECTING if any(map(_is_dead, noted)) else _DYING):
                return None
            time.sleep(_LOOK)

    # For notes.

    def begin(self, stopping: SafeEvent, *, alone: bool) -> bool:
        """Wait until a message may run, and count it as running; return `False` if the worker stops meanwhile."""
        with self._lock:
            self._alone += alone
            while not self._lock.wait_for(lambda: not (self._running if alone else self._alone), _TURN):
                if stopping.is_set():
                    self._alone -= alone
                    return False
            self._running += 1
            return True

    def finish(self, *, alone: bool) -> None:
        """Count a message as no longer running."""
        with self._lock:
            self._running -= 1
            if self._alone:
                self._alone -= alone
                self._lock.notify_all()

    def write(self, place: int | None, state: CrashState, attempt: int, mark: bytes) -> None:
        """Write a note."""
        if place is not None:
            start = place * _SIZE
            # The process may die at any byte: the state says last that there is a note, and first that there is none.
            self._map[start + 1 : start + _SIZE] = min(attempt, 65_535).to_bytes(2, "big") + mark
            self._map[start] = state

    def clear(self, place: int | None) -> None:
        """Clear a note."""
        if place is not None:
            start = place * _SIZE
            self._map[start] = CrashState.FREE
            self._map[start + 1 : start + _SIZE] = _NOTHING

    def free(self, place: int | None) -> None:
        """Clear a note for another message."""
        if place is not None:
            self.clear(place)
            self._free.append(place)

    def keep(self, mark: bytes, record: CrashRecord) -> None:
        """Leave a record for the next child that gets the message."""
        with contextlib.suppress(OSError):  # without it, the message is run as any other
            _keep(self._folder, mark, record)


class Note:
    """One message in the notes of this child; used by one slot.

    Attributes:
        crashed: the number of the attempt that crashed a child, which is to be settled as failed; or `None`.
    """

    def __init__(
        self, crashes: Crashes, message: Message, mark: bytes, place: int | None, record: CrashRecord | None
    ) -> None:
        self._crashes = crashes
        self._message = message
        self._mark = mark
        self._place = place
        self._alone = record is not None or CRASHED in message.headers
        self._begun = False
        self._record = record
        self.crashed: int | None = None
        if record is not None:
            crashes.write(place, record.state, record.attempt, mark)
            self.crashed = record.attempt if record.state is CrashState.CRASHED else None

    def begin(self, attempt: int, stopping: SafeEvent) -> bool:
        """Wait until the message may run, and note that it does; return `False` if the worker stops meanwhile."""
        self._begun = self._crashes.begin(stopping, alone=self._alone)
        if self._begun:
            self._crashes.write(self._place, CrashState.RUNNING, attempt, self._mark)
        return self._begun

    def pause(self) -> None:
        """Note that the message does not run, and may later."""
        if self._record is None:
            self._crashes.clear(self._place)
        else:
            self._crashes.write(self._place, self._record.state, self._record.attempt, self._mark)
        self._finish()

    def end(self) -> None:
        """Note that this child is done with the message. If it was not settled, its record is kept."""
        if self._record is not None and self._message.settled is None:
            self._crashes.keep(self._mark, self._record)
        self._crashes.free(self._place)
        self._finish()

    def _finish(self) -> None:
        if self._begun:
            self._begun = False
            self._crashes.finish(alone=self._alone)


# The parent.

_ALL_NOTES = "running-*"
_numbers = itertools.count()


def prepare(folder: Path, child: int) -> None:
    """Make the notes of a child; before the first child is started."""
    _notes_path(folder, child).write_bytes(bytes(_SIZE * _PLACES))


def collect(folder: Path, child: int) -> int:
    """Make records of what a dead child had, clear its notes, and return the number of messages that it was running."""
    _forget(folder)
    with _notes_path(folder, child).open("r+b") as file:
        data = file.read()
        notes = [data[start : start + _SIZE] for start in range(0, len(data), _SIZE) if data[start]]
        running = sum(note[0] == CrashState.RUNNING for note in notes)
        for note in notes:
            state = CrashState(note[0])
            if state is CrashState.RUNNING:
                state = CrashState.CRASHED if running == 1 else CrashState.SUSPECT
            _keep(folder, note[_MARK:], CrashRecord(state, int.from_bytes(note[1:_MARK], "big")))
        file.seek(0)
        file.write(bytes(len(data)))
    return running


def _notes_path(folder: Path, child: int) -> Path:
    return folder / _ALL_NOTES.replace("*", str(child))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


# Records are empty files: to remove one is to take it, which one process does.


def _keep(folder: Path, mark: bytes, record: CrashRecord) -> None:
    number = f"{os.getpid()}-{next(_numbers)}"
    (folder / f"{mark.hex()}.{record.state:d}.{record.attempt}.{number}").touch()


def _forget(folder: Path) -> None:
    """Remove old records, such as those of messages that were acknowledged, but not yet cleared, when a child died."""
    for path in folder.glob("*.*.*.*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN:
                path.unlink()


def _take(folder: Path, mark: bytes) -> CrashRecord | None:
    for name in os.listdir(folder):
        found, *rest = name.split(".")
        if found == mark.hex():
            with contextlib.suppress(FileNotFoundError):  # another child has taken it
                (folder / name).unlink()
                return CrashRecord(CrashState(int(rest[0])), int(rest[1]))
    return None


def _lock(file: BinaryIO, *, wait: bool = True) -> bool:
    """Lock a file as long as this process lives; without such locks (Windows), no child is known to be dead."""
    try:
        from stompy.world import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX if wait else fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_dead(notes: Path) -> bool:
    with notes.open("rb") as file:
        return _lock(file, wait=False)
