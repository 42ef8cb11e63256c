"""The seam to a file system, and a directory as one.

All that a spool needs of a file system: whole files that appear with their last byte or not at all, a listing that
shows what was written before it was asked for, and for a directory a lock. Object stores are in `remote.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from stompy.errors import SpoolError, SpoolFull

TEMPORARY = ".tmp-"
"""What the names of unfinished files begin with."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder.

    Attributes:
        name: without its folder.
        size: bytes; 0 for a folder.
        modified: seconds since the epoch.
        is_folder: whether it is a folder.
    """

    name: str
    size: int
    modified: float
    is_folder: bool = False


_NOTHING: Mapping[str, Entry] = MappingProxyType({})


class Lock(Protocol):
    """A lock that its holder's death frees."""

    def release(self) -> None:
        """Let another have it."""
        ...


class Files(Protocol):
    """A folder on some file system; names are relative to it, parts separated by `/`.

    Every method raises `SpoolError`, and `SpoolFull` where there is no room.
    """

    @property
    def url(self) -> str:
        """Where it is, as a person would write it, without credentials."""
        ...

    @property
    def local(self) -> bool:
        """Whether names are paths below `url` on this machine."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, `None` where there is none."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, in place of the one that may be there; it is durable when this returns."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a whole file as `write` does, unless there is one; return whether it was written."""
        ...

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def list(self, folder: str, known: Mapping[str, Entry] = _NOTHING) -> list[Entry]:
        """Return what is in a folder; nothing where there is none.

        Args:
            folder: to look into.
            known: entries by name that are taken as they were, if they are still there: of files that never change.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        ...

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it."""
        ...

    def sync(self, folder: str) -> None:
        """Make durable what another process has given a name in a folder."""
        ...

    def sweep(self, folder: str) -> None:
        """Remove unfinished files that a dead writer left in a folder."""
        ...

    def lock(self, name: str) -> Lock | None:
        """Take a lock without waiting; `None` where another has it."""
        ...

    def touch(self, name: str) -> None:
        """Make a file's time of modification now, if it is there."""
        ...


class LocalFiles:
    """A directory of this machine, or one that several machines share.

    A file is written under another name, synced, linked to its name and the folder synced; so a name never stands for
    half a file, not even after a power cut. A directory of NFS is experimental: it was not tried, and must be mounted
    with `noac`, so that a listing is never an old one.

    Args:
        root: the directory; it need not be there.
    """

    local = True

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)

    @property
    def url(self) -> str:
        """The directory."""
        return self._root

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return os.path.join(self._root, *name.split("/")) if name else self._root

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, `None` where there is none."""
        path = self.path(name)
        with _os_errors(path):
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, in place of the one that may be there."""
        path = self.path(name)
        with _os_errors(path):
            unfinished = _write_unfinished(path, data)
            _finish(os.replace, unfinished, path)
            _sync_folder(os.path.dirname(path))

    def create(self, name: str, data: bytes) -> bool:
        """Write a whole file, unless there is one; return whether it was written."""
        path = self.path(name)
        with _os_errors(path):
            unfinished = _write_unfinished(path, data)
            try:
                # A rename would take the place of another's file silently.
                _finish(os.link, unfinished, path)
            except FileExistsError:
                return False
            os.unlink(unfinished)
            _sync_folder(os.path.dirname(path))
        return True

    def exists(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return os.path.lexists(self.path(name))

    def list(self, folder: str, known: Mapping[str, Entry] = _NOTHING) -> list[Entry]:
        """Return what is in a folder, without unfinished files; only what is not known is looked at."""
        path = self.path(folder)
        found = []
        with _os_errors(path):
            try:
                scanned = list(os.scandir(path))
            except FileNotFoundError:
                return []
            for one in scanned:
                if one.name in known:
                    found.append(known[one.name])
                    continue
                if one.name.startswith(TEMPORARY):
                    continue
                # Another process may remove it between the listing and the look.
                with contextlib.suppress(FileNotFoundError):
                    state = one.stat()
                    found.append(Entry(one.name, state.st_size, state.st_mtime, one.is_dir()))
        return found

    def remove(self, name: str) -> None:
        """Remove a file; nothing happens where there is none."""
        path = self.path(name)
        with _os_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, name: str) -> None:
        """Make a folder and those above it, durably."""
        path = self.path(name)
        with _os_errors(path):
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path)
            for one in reversed(missing):
                os.makedirs(one, exist_ok=True)
                _sync_folder(os.path.dirname(one))

    def sync(self, folder: str) -> None:
        """Make durable what another process has given a name in a folder."""
        path = self.path(folder)
        with _os_errors(path):
            _sync_folder(path)

    def sweep(self, folder: str) -> None:
        """Remove unfinished files of segments; those of watermarks may be another process's, and are small."""
        path = self.path(folder)
        with _os_errors(path):
            for name in os.listdir(path):
                if name.startswith(f"{TEMPORARY}seg-"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(path, name))

    def lock(self, name: str) -> Lock | None:
        """Take a lock of the kernel's without waiting; `None` where another process has it."""
        return FileLock.take(self.path(name))

    def touch(self, name: str) -> None:
        """Make a file's time of modification now, if it is there."""
        path = self.path(name)
        with _os_errors(path), contextlib.suppress(FileNotFoundError):
            os.utime(path)


class FileLock:
    """A locked file; the kernel frees it when the process dies, however it dies."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, path: str) -> FileLock | None:
        """Take the lock, or return `None` where another has it."""
        try:
            import fcntl
        except ImportError:
            raise SpoolError("this platform has no file locks that stompy knows how to use", path=path) from None
        with _os_errors(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            except BaseException:
                os.close(handle)
                raise
        return cls(handle)

    def release(self) -> None:
        """Let another have it. The file stays: who removes a lock file takes it from under the next owner."""
        if self._handle >= 0:
            handle, self._handle = self._handle, -1
            os.close(handle)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Raise errors of the operating system as `SpoolError`."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _NO_ROOM:
            raise SpoolFull(
                f"no space left on the disk ({reason}). Nothing of it was acknowledged: free some space and restart",
                path=path,
            ) from error
        raise SpoolError(f"it cannot be used: {reason}", path=path) from error


def _write_unfinished(path: str, data: bytes) -> str:
    """Write and sync a file beside `path` (W1), and return its name."""
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f"{TEMPORARY}{name}-{secrets.token_hex(4)}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        _write_all(handle, data)
        os.fsync(handle)
    except BaseException:
        _forget(unfinished)
        raise
    finally:
        os.close(handle)
    return unfinished


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _finish(move: object, unfinished: str, path: str) -> None:
    """Give a finished file its name (W2)."""
    assert callable(move)
    try:
        move(unfinished, path)
    except BaseException:
        _forget(unfinished)
        raise


def _forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _sync_folder(path: str) -> None:
    """Make names in a folder durable (W3)."""
    handle = os.open(path or ".", os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
