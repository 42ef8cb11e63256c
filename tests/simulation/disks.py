"""Disks in a simulated world: power failures, full disks, errors, and operations that take long.

Operations on files go through stompy's seam to real files, and are noted here: which bytes and which names are on the
disk, as they were synced, and which only the system has. At a power failure the seed draws of each of these whether it
is there, of bytes also a part. SQLite writes its files itself: of its log, what a COMMIT appends may be there in part
until that COMMIT has returned with `PRAGMA synchronous` at FULL, and beyond that without.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

from stompy.testing.world import current_world

Kind = Literal["power", "EIO", "ENOSPC", "stall"]
_SECTOR = 512
"""Bytes that a disk writes whole or not at all."""
_WRITES = frozenset({"open", "write", "pwrite", "link", "replace", "rename", "makedirs"})
"""What needs room."""
_NAMING = frozenset({"link", "replace", "rename"})
"""What has a path and another one."""
_COUNTED = _WRITES | {"fsync", "unlink"}
"""At what there are faults."""
_UNLIMITED = 2**30
"""Pages of a database."""
_HEADER = 32
"""Bytes of a log of SQLite's, which are others when it begins anew."""
_FULL = 2
"""The level of `PRAGMA synchronous` from which on a COMMIT syncs the log."""


@dataclass(frozen=True)
class DiskFault:
    """What happens at an operation of a disk.

    Attributes:
        kind: the power fails, or the operation fails, or everything that needs room does, or it takes long.
        of: the operations, by the beginning of their names and files, such as `replace seg-`; all of them if empty.
        at: the number of the operation among these.
        seconds: how long the disk is full, the operation takes, or its effect is seen before the power fails.
    """

    kind: Kind
    at: int
    seconds: float
    of: str = ""

    @classmethod
    def drawn(cls, random: Random, most: int, deciding: tuple[str, ...]) -> DiskFault:
        """Return a fault at one of the first `most` operations, or at one of those that decide what is kept."""
        decides = random.random() < 0.5
        kinds: tuple[Kind, ...] = ("power", "EIO", "stall", "stall") if decides else ("power", "power", "EIO", "ENOSPC")
        kind, seconds = random.choice(kinds), random.choice((0.1, 2.0, 8.0))
        if decides:
            return cls(kind, random.randrange(random.choice((1, 6))), seconds, random.choice(deciding))
        return cls(kind, random.randrange(random.choice((most // 5, most))), seconds)


class _File:
    """A file or a folder that was made through the seam."""

    data: bytes | None = None
    """What was written to it through the seam."""
    synced = b""
    folder = False

    def left(self, random: Random) -> bytes:
        """Return what a power failure leaves of its bytes."""
        data = self.data or b""
        if data == self.synced or random.random() < 0.3:
            return data
        part = random.choice((0, random.randrange(len(data) + 1) // _SECTOR * _SECTOR))
        return data[:part] + self.synced[part:]


_Opened = dict[int, tuple[str, _File | None]]


class Disk:
    """The disk of a folder.

    Args:
        folder: that the processes of one machine use.
        faults: of it.
        random: draws what a power failure leaves.
        opened: files that are open, on any disk.
        hang_up: ends the sessions of a process, which a machine loses whose disk stands still.
    """

    def __init__(
        self,
        folder: Path,
        faults: tuple[DiskFault, ...],
        random: Random,
        opened: _Opened,
        hang_up: Callable[[str], object],
    ) -> None:
        self.folder = str(folder)
        self.off = False
        """Whether the power has failed, and nothing goes on until `restore`."""
        self.raised: list[BaseException] = []
        """The errors that it gave."""
        self._faults, self._random = faults, random
        self._counts: Counter[str] = Counter()
        self._calm = False
        self._full_until = 0.0
        self._open, self._hang_up = opened, hang_up
        self._files: dict[str, _File] = {}
        self._names: dict[str, list[_File | None]] = {}
        """By path, what it was when its folder was synced, and since."""
        self._logs: dict[str, tuple[bytes, bytes]] = {}
        """Of a log of SQLite's, its header, and what of it is synced; those of which all is synced are not there."""
        self._limited: set[sqlite3.Connection] = set()

    def calm(self) -> None:
        """Have no faults any more."""
        self._calm, self._faults, self._full_until = True, (), 0.0

    def gave(self, error: BaseException) -> bool:
        """Return whether this disk is the cause of an error."""
        return error in self.raised or any(
            self.gave(cause) for cause in (error.__cause__, error.__context__) if cause is not None
        )

    def has(self, path: object) -> bool:
        """Return whether a path, an open file or a database is on it."""
        if isinstance(path, int):
            path = self._open[path][0] if path in self._open else ""
        return str(getattr(path, "path", path)).startswith(self.folder)

    def __call__(self, name: str, operate: Callable[..., Any], *arguments: Any) -> Any:
        """Do an operation, unless it fails, and note what is synced."""
        if name == "open" and not arguments[1] & os.O_CREAT:
            found = operate(*arguments)
            self._note(name, found, *arguments)
            return found
        if name == "execute" and arguments[1] not in ("BEGIN IMMEDIATE", "COMMIT"):
            with self._noting(arguments[0] in self._limited):
                return operate(*arguments)
        fault = self._next(f"{name} {self._file_of(name, *arguments)}")
        world = current_world()
        if fault is not None and fault.kind == "ENOSPC":
            self._full_until = world.now + fault.seconds
        if fault is not None and fault.kind == "stall":
            self._hang_up(world.current.process)
            world.switch(lambda: False, fault.seconds, "the disk")
        full, fails = world.now < self._full_until, fault is not None and fault.kind == "EIO"
        if name == "execute":
            return self._execute(partial(operate, arguments[0]), *arguments, fault=fault, full=full)
        if fails or (full and name in _WRITES):
            if name == "write":
                self._note(name, operate(arguments[0], arguments[1][: len(arguments[1]) // 2]), *arguments)
            number = errno.EIO if fails else errno.ENOSPC
            error = OSError(number, os.strerror(number))
            self.raised.append(error)
            raise error
        found = operate(*arguments)
        if name != "fsync" or fault is None or fault.kind != "power":  # a sync that a power failure cuts off is none
            self._note(name, found, *arguments)
        self._end(fault)
        return found

    def _next(self, what: str) -> DiskFault | None:
        """Count an operation; return its fault, if it has one."""
        met = None
        for of in sorted({fault.of for fault in self._faults}):
            if what.startswith(of):
                at = self._counts[of]
                met = next((fault for fault in self._faults if (fault.of, fault.at) == (of, at)), met)
                self._counts[of] += 1
        return met

    def _file_of(self, name: str, first: Any, *arguments: Any) -> str:
        if name == "execute":
            return str(arguments[0])
        path = self._open[first][0] if isinstance(first, int) else arguments[0] if name in _NAMING else first
        return os.path.basename(path)

    @contextlib.contextmanager
    def _noting(self, gives: bool) -> Iterator[None]:
        """Note an error of SQLite in the block as one that this disk gave, if it gives any."""
        try:
            yield
        except sqlite3.Error as error:
            if gives:
                self.raised.append(error)
            raise

    def _end(self, fault: DiskFault | None) -> None:
        """End an operation; where the power fails, what it did has been seen for some time, and it does not end."""
        if fault is not None and fault.kind == "power":
            current_world().switch(lambda: False, fault.seconds, "the disk")
            if not self._calm:
                self.off = True
                current_world().switch(lambda: False, None, "power")

    def _note(self, name: str, found: Any, first: Any, *arguments: Any) -> None:
        if name == "open":
            if arguments[0] & os.O_CREAT and first not in self._files:
                self._change(first, _File())
            self._open[found] = first, self._files.get(first)
        elif name in ("write", "pwrite"):
            file = self._open[first][1]
            assert file is not None
            before = file.data or b""
            at = arguments[1] if name == "pwrite" else len(before)
            file.data = before[:at] + bytes(arguments[0][:found]) + before[at + found :]
        elif name == "fsync":
            path, file = self._open[first]
            if file is not None and not file.folder:
                file.synced = file.data or b""
            else:
                for each in [each for each in self._names if os.path.dirname(each) == path]:
                    del self._names[each]
        elif name == "unlink":
            self._change(first, None)
        elif name == "makedirs":
            if first not in self._files:
                self._change(first, _File())
                self._files[first].folder = True
        else:
            self._change(arguments[0], self._files.get(first))
            if name != "link":
                self._change(first, None)

    def _change(self, path: str, file: _File | None) -> None:
        self._names.setdefault(path, [self._files.get(path)]).append(file)
        if file is None:
            self._files.pop(path, None)
        else:
            self._files[path] = file

    def _execute(
        self, operate: Callable[..., Any], database: Any, statement: str, *, fault: DiskFault | None, full: bool
    ) -> Any:
        """Begin or commit a transaction of a database, whose pages have a limit while the disk is full."""
        if full or database in self._limited:
            most = 1 if full else _UNLIMITED
            sqlite3.Cursor(database).execute(f"PRAGMA max_page_count={most}").fetchall()
            (self._limited.add if full else self._limited.discard)(database)
        if statement != "COMMIT":
            return operate(statement)
        log = f"{database.path}-wal"
        before = _bytes_of(log)
        header, synced = self._logs.pop(log, (b"", b""))
        fails = fault is not None and fault.kind == "EIO"
        room = _most(len(before) + self._random.randrange(5_000)) if fails else contextlib.nullcontext()
        with self._noting(fails or full), room:
            found = operate(statement)
        after = _bytes_of(log)[:_HEADER]
        self._logs[log] = after, synced if header == after else before
        self._end(fault)
        (level,) = sqlite3.Cursor(database).execute("PRAGMA synchronous").fetchone()
        if level >= _FULL:
            del self._logs[log]
        return found

    def cut(self) -> dict[str, bytes]:
        """Return what SQLite's files have; called before the processes end, as closing a database changes them."""
        return {str(path): path.read_bytes() for path in Path(self.folder).rglob("*") if path.is_file()}

    def restore(self, ours: dict[str, bytes]) -> None:
        """Leave what a power failure leaves.

        Args:
            ours: what `cut` returned.
        """
        for path, data in ours.items():
            header, synced = self._logs.get(path, (b"", data))
            if path.endswith("-shm"):
                Path(path).unlink(missing_ok=True)
            elif path not in self._files or self._files[path].data is None:
                if data.startswith(header) and data.startswith(synced):
                    data = data[: self._random.randint(len(synced), len(data))]
                self._write(path, data)
        for path in sorted(self._names):
            file = self._random.choice(self._names[path])
            if file is not None:
                self._files[path] = file
            elif self._files.pop(path, None) is not None:
                shutil.rmtree(path) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
        self._files = {path: file for path, file in self._files.items() if os.path.isdir(os.path.dirname(path))}
        for path, file in sorted(self._files.items()):
            if file.data is not None and (path in self._names or file.data != file.synced):
                file.data = file.left(self._random)
                self._write(path, file.data)
        for file in self._files.values():
            file.synced = file.data or b""
        self._names, self._logs, self._limited = {}, {}, set()
        self.off = False

    def _write(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)
        now = current_world().now
        os.utime(path, (now, now))


class Disks:
    """The disks of a world, each with a folder of its own."""

    def __init__(self, hang_up: Callable[[str], object]) -> None:
        self.all: list[Disk] = []
        self._opened: _Opened = {}
        self._hang_up = hang_up

    def add(self, folder: Path, faults: tuple[DiskFault, ...], random: Random) -> Disk:
        """Return a new one."""
        self.all.append(Disk(folder, faults, random, self._opened, self._hang_up))
        return self.all[-1]

    def __call__(self, name: str, operate: Callable[..., Any], *arguments: Any) -> Any:
        """Do an operation on the disk that it concerns."""
        for disk in self.all:
            if name in _COUNTED | {"execute"} and disk.has(arguments[0]):
                return disk(name, operate, *arguments)
        found = operate(*arguments)
        if name == "open":
            self._opened.pop(found, None)  # the number of a file that was closed
        return found


def smaller(faults: tuple[DiskFault, ...]) -> Iterator[tuple[DiskFault, ...]]:
    """Yield faults with one less."""
    for number, _ in enumerate(faults):
        yield faults[:number] + faults[number + 1 :]


def _bytes_of(path: str) -> bytes:
    return Path(path).read_bytes() if os.path.exists(path) else b""


@contextlib.contextmanager
def _most(size: int) -> Iterator[None]:
    """Let no file of this process grow past a size in the block: the system writes a part, and then fails."""
    import resource  # Windows lacks it

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
