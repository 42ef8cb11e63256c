"""A directory whose files are created atomically, whose listing shows every earlier write, and that has locks.

A spool keeps small JSON documents in it, each with a checksum: a corrupt one raises, and is never treated as missing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stompy.errors import SpoolDamagedError, SpoolError, SpoolFullError
from stompy.locks import FileLock
from stompy.world import os, secrets

TEMPORARY = ".tmp-"
"""Prefix of the names of unfinished files; hidden, as those are that NFS makes."""

IDENTITY = "spool.json"
"""The file that identifies the spool."""
RETIRED = "retired"
"""A file that a person makes: the spool is not filled any more, and leaves its source when it is read."""
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


class Files:
    """A directory of this machine, or one that several machines share. Names are relative to it.

    Every method raises `SpoolError`, and `SpoolFullError` if there is no space left.

    A file is written under a temporary name, synced and renamed, then the folder is synced; so no file is ever
    incomplete, even after a power cut. NFS is experimental and untested: the directory must be mounted with `noac`, so
    that a listing is never out of date.

    Args:
        url: a path or a `file://` URL; the directory need not exist.

    Raises:
        SpoolError: it is another URL.
    """

    def __init__(self, url: str) -> None:
        path = url.removeprefix("file://")
        if "://" in path:
            raise SpoolError(
                "it is not a directory: only a directory has the locks and atomic files of a spool", path=url
            )
        self.url = os.path.abspath(path)
        """The path of the directory."""

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return os.path.join(self.url, name) if name else self.url

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or `None` if it does not exist."""
        with self._at(name) as path:
            try:
                with open(path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes, *, look: Callable[[], None] | None = None) -> None:
        """Write a whole file, atomically and durably; replace an existing one.

        Args:
            name: of the file.
            data: all of it.
            look: called when the file is complete, before it gets its name; what it raises prevents that.
        """
        with self._at(name) as path, _unfinished(path, data) as unfinished:
            if look is not None:
                look()
            os.replace(unfinished, path)

    def create(self, name: str, data: bytes) -> None:
        """Write a whole file as `write` does, unless it exists."""
        # A rename would silently replace an existing file.
        with self._at(name) as path, _unfinished(path, data) as unfinished, contextlib.suppress(FileExistsError):
            os.link(unfinished, path)

    def list(self, folder: str) -> list[str]:
        """Return the names in a folder without hidden files; empty if the folder does not exist."""
        with self._at(folder) as path:
            try:
                return [name for name in os.listdir(path) if not name.startswith(".")]
            except FileNotFoundError:
                return []

    def unfinished(self) -> Sequence[str]:
        """Return the names of unfinished files of segments."""
        with self._at("") as path:
            return [name for name in os.listdir(path) if name.startswith(f"{TEMPORARY}seg-")]

    def state(self, name: str) -> tuple[int, float] | None:
        """Return the bytes of a file, and when it was modified, in seconds since the epoch; `None` if it is gone."""
        with self._at(name) as path:
            try:
                found = os.stat(path)
            except FileNotFoundError:
                return None
            return found.st_size, found.st_mtime

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with self._at(name) as path, contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, name: str) -> None:
        """Create a folder and its parents, durably."""
        with self._at(name) as path:
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path)
            # The first that is there too, as another process may have made it just now; not if only others may see it.
            with contextlib.suppress(PermissionError):
                _sync_folder(os.path.dirname(path))
            for one in reversed(missing):
                os.makedirs(one, exist_ok=True)
                _sync_folder(os.path.dirname(one))

    def sync(self, folder: str) -> None:
        """Make the names in a folder durable that another process has written."""
        with self._at(folder) as path:
            _sync_folder(path)

    def sweep(self) -> None:
        """Remove unfinished files of segments; those of marks are small, and may be in use by another process."""
        for name in self.unfinished():
            self.remove(name)

    def lock(self, name: str) -> FileLock | None:
        """Take a kernel lock without waiting; return `None` if another process holds it."""
        with self._at(name) as path:
            try:
                return FileLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            except BlockingIOError:
                return None

    def touch(self, name: str) -> None:
        """Set the modification time of a file to now, if it exists."""
        with self._at(name) as path, contextlib.suppress(FileNotFoundError):
            os.utime(path)

    @contextlib.contextmanager
    def _at(self, name: str) -> Iterator[str]:
        """Yield the path of a name, and raise errors of the operating system as `SpoolError`."""
        path = self.path(name)
        try:
            yield path
        except OSError as error:
            reason = error.strerror or str(error)
            if error.errno in _NO_ROOM:
                raise SpoolFullError(
                    f"no space left on the disk ({reason}). Nothing of it was acknowledged: free some space, restart",
                    path=path,
                ) from error
            raise SpoolError(f"it cannot be used: {reason}", path=path) from error


@contextlib.contextmanager
def _unfinished(path: str, data: bytes) -> Iterator[str]:
    """Write and sync a file in the folder of `path` (W1); yield its name, under which it is gone at the end.

    Then the folder is synced, also if another process has made the file of `path`, and has not synced it yet.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f"{TEMPORARY}{name}-{secrets.token_hex(4)}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        yield unfinished
    finally:
        _forget(unfinished)
    _sync_folder(folder)


def _write_all(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


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
    return content + b"\n" + checksum_of(content).encode() + b"\n"


def load(data: bytes, path: str) -> dict[str, Any]:
    """Return the document in `data`.

    Args:
        data: the result of `dump`.
        path: of the file, for the error.

    Raises:
        SpoolDamagedError: it is corrupt.
    """
    content, _, check = data.removesuffix(b"\n").rpartition(b"\n")
    if checksum_of(content).encode() != check:
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
    return None if data is None else load(data, files.path(name))


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
        raise damaged(files.path(name), "the file belongs to another spool")
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


def checksum_of(data: bytes) -> str:
    """Return the CRC-32 of a file, as 8 hexadecimal digits; a digest costs several times as much."""
    return f"{zlib.crc32(data):08x}"
