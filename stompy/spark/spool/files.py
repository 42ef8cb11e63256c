"""A directory whose files are created atomically, whose listing shows every earlier write, and that has locks.

A spool keeps small JSON documents in it, each with a checksum: a corrupt one raises, and is never treated as missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from stompy.errors import SpoolDamagedError, SpoolError, SpoolFullError
from stompy.forks import when_forked
from stompy.world import os, secrets

TEMPORARY = ".tmp-"
"""Prefix of the names of unfinished files."""

LOW = "low"
"""The mark below which everything was processed; written by the reader."""
PLANNED = "planned"
"""The mark below which messages were given to Spark; written by the reader. A later writer begins above it."""
SETTLED = "settled"
"""The mark below which the broker has confirmed each ACK, or the message is a suspect; written by the writer."""
COUNTS = "counts"
"""The statistics of each receiver since its process began; written by the writer, for people to read."""

_ADVICE = (
    "Restore it from a backup; or, to discard the contents of the spool, remove the whole folder together with the "
    "checkpoint of the query that reads it"
)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class FolderEntry:
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


_NOTHING: Mapping[str, FolderEntry] = MappingProxyType({})


class Files:
    """A directory of this machine, or one that several machines share. Names are relative to it.

    Every method raises `SpoolError`, and `SpoolFullError` if there is no space left.

    A file is written under a temporary name, synced and renamed, then the folder is synced; so no file is ever
    incomplete, even after a power cut. NFS is experimental and untested: the directory must be mounted with `noac`, so
    that a listing is never out of date.

    Args:
        root: the directory; it need not exist.
    """

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
        """Return the bytes of a file, or `None` if it does not exist."""
        path = self.path(name)
        with _os_errors(path):
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, atomically and durably; replace an existing one."""
        path = self.path(name)
        with _os_errors(path):
            unfinished = _write_unfinished(path, data)
            _finish(os.replace, unfinished, path)
            _sync_folder(os.path.dirname(path))

    def create(self, name: str, data: bytes) -> bool:
        """Write a whole file as `write` does, unless it exists; return whether it was written."""
        path = self.path(name)
        with _os_errors(path):
            unfinished = _write_unfinished(path, data)
            try:
                # A rename would silently replace an existing file.
                _finish(os.link, unfinished, path)
            except FileExistsError:
                return False
            os.unlink(unfinished)
            _sync_folder(os.path.dirname(path))
        return True

    def list(self, folder: str, known: Mapping[str, FolderEntry] = _NOTHING) -> list[FolderEntry]:
        """Return the entries of a folder without unfinished files; empty if the folder does not exist.

        Args:
            folder: the folder.
            known: by name, entries of files that never change; they are returned as given if they still exist.
        """
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
                # Another process may have removed it since the listing.
                with contextlib.suppress(FileNotFoundError):
                    state = one.stat()
                    found.append(FolderEntry(one.name, state.st_size, state.st_mtime, one.is_dir()))
        return found

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        path = self.path(name)
        with _os_errors(path), contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, name: str) -> None:
        """Create a folder and its parents, durably."""
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
        """Make the names in a folder durable that another process has written."""
        path = self.path(folder)
        with _os_errors(path):
            _sync_folder(path)

    def sweep(self, folder: str) -> None:
        """Remove unfinished files of segments; those of marks are small, and may be in use by another process."""
        path = self.path(folder)
        with _os_errors(path):
            for name in os.listdir(path):
                if name.startswith(f"{TEMPORARY}seg-"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(path, name))

    def lock(self, name: str) -> FileLock | None:
        """Take a kernel lock without waiting; return `None` if another process holds it."""
        return FileLock.take(self.path(name))

    def touch(self, name: str) -> None:
        """Set the modification time of a file to now, if it exists."""
        path = self.path(name)
        with _os_errors(path), contextlib.suppress(FileNotFoundError):
            os.utime(path)


class FileLock:
    """A locked file; the kernel releases the lock when the process ends, for whatever reason."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        when_forked(self)

    def after_fork(self) -> None:
        """Close the copy in a forked child, which would keep the lock longer than its owner lives."""
        self.release()

    @classmethod
    def take(cls, path: str) -> FileLock | None:
        """Take the lock, or return `None` if another process holds it."""
        try:
            from stompy.world import fcntl
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
        """Release the lock. The file stays: removing it would let two processes each lock a file of this name."""
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
            raise SpoolFullError(
                f"no space left on the disk ({reason}). Nothing of it was acknowledged: free some space and restart",
                path=path,
            ) from error
        raise SpoolError(f"it cannot be used: {reason}", path=path) from error


def _write_unfinished(path: str, data: bytes) -> str:
    """Write and sync a file in the folder of `path` (W1), and return its name."""
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


def dump(document: dict[str, Any]) -> bytes:
    """Return a document as bytes: a line of JSON, and a line with its checksum."""
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    return content + b"\n" + _check(content) + b"\n"


def load(data: bytes, path: str) -> dict[str, Any]:
    """Return the document in `data`.

    Args:
        data: the result of `dump`.
        path: of the file, for the error.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    content, _, check = data.removesuffix(b"\n").rpartition(b"\n")
    if _check(content) != check:
        raise damaged(path, "the file is damaged or truncated" if data else "the file is empty")
    document = json.loads(content)
    assert isinstance(document, dict)
    return document


def damaged(path: str, what: str) -> SpoolDamagedError:
    """Return the error for a corrupt file, with what to do."""
    return SpoolDamagedError(f"{what}. {_ADVICE}", path=path)


def read_document(files: Files, name: str) -> dict[str, Any] | None:
    """Return a document, or `None` if it does not exist.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    data = files.read(name)
    return None if data is None else load(data, path_of(files, name))


def write_mark(files: Files, name: str, value: int) -> None:
    """Write a mark, durably."""
    files.write(name, dump({name.rpartition("/")[2]: value}))


def read_mark(files: Files, name: str) -> int | None:
    """Return a mark, or `None` if it was never written.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    document = read_document(files, name)
    if document is None:
        return None
    value = document.get(name.rpartition("/")[2])
    if not isinstance(value, int):
        raise damaged(path_of(files, name), "the file belongs to another spool")
    return value


@dataclass(slots=True)
class Counts:
    """The statistics of a receiver.

    Attributes:
        messages: messages written.
        dropped: duplicates that were recognised and dropped.
        flagged: written messages that may be duplicates (`possible_duplicate`).
        last: when the last one arrived, in seconds since the epoch; `None` before the first one.
    """

    messages: int = 0
    dropped: int = 0
    flagged: int = 0
    last: float | None = None


def write_counts(files: Files, counts: Sequence[Counts]) -> None:
    """Write the statistics of each receiver, by its number."""
    files.write(COUNTS, dump({COUNTS: [asdict(receiver) for receiver in counts]}))


def read_counts(files: Files) -> list[Counts]:
    """Return the statistics of each receiver, by its number; empty if none were written, or the file is corrupt.

    A corrupt file is ignored, as no message depends on it, and it is soon rewritten.
    """
    try:
        document = read_document(files, COUNTS)
    except SpoolDamagedError:
        return []
    return [] if document is None else [Counts(**receiver) for receiver in document[COUNTS]]


def path_of(files: Files, name: str) -> str:
    """Return the path or URL of a file, for messages."""
    return f"{files.url}/{name}" if name else files.url


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).hexdigest().encode()
