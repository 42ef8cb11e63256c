"""The lock file: allows one owner at a time, and records how many transactions were committed.

It is next to the outbox and locked while the outbox is open; the kernel releases the lock when the process ends, for
whatever reason. It holds the identity of the outbox and the number of committed transactions. SQLite treats a file of
length 0 as a new database, and a missing or truncated write-ahead log as one that never held more; the number of
commits detects both.

The number is written after each commit without a sync: an old number detects less, but never rejects a valid outbox. It
survives the end of the process; after a power cut it may be some seconds old.
"""

from __future__ import annotations

import errno
import logging
from hashlib import blake2b
from typing import TYPE_CHECKING

from stompy.errors import OutboxBusyError, OutboxError
from stompy.forks import when_forked
from stompy.outbox.faults import LOCK, damaged
from stompy.world import os

if TYPE_CHECKING:
    from types import ModuleType

_LOG = logging.getLogger("stompy.outbox")

_MAGIC = b"stompy outbox 1\n"
_SIZE = len(_MAGIC) + 16 + 8 + 8
"""Bytes of magic, identity, commits and checksum; far less than a sector, so a write is never torn."""


class LockFile:
    """The locked lock file of an outbox.

    Args:
        path: of the outbox.
        create: whether to create a missing file.

    Raises:
        OutboxBusyError: another outbox holds the lock, in this process or another.
        OutboxError: the file cannot be used.
    """

    def __init__(self, path: str, *, create: bool) -> None:
        self._path = path
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            self._file = os.open(path + LOCK, flags, 0o600)
        except OSError as error:
            raise OutboxError(f"the file {path + LOCK} cannot be opened: {error.strerror}", path=path) from error
        try:
            self._lock()
        except BaseException:
            self.close()
            raise
        when_forked(self)

    def after_fork(self) -> None:
        """Close the copy in a forked child, which would keep the lock longer than its owner lives."""
        self.close()

    def _lock(self) -> None:
        fcntl = _fcntl(self._path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OutboxBusyError("it is open already, in this process or another", path=self._path) from None
            raise OutboxError(f"{self._path + LOCK} cannot be locked: {error.strerror}", path=self._path) from error

    def read(self) -> tuple[bytes, int] | None:
        """Return the outbox's identity and the number of commits; `None` if no outbox was created yet.

        Raises:
            OutboxDamagedError: the lock file is corrupt.
        """
        data = os.pread(self._file, _SIZE + 1, 0)
        if not data:
            return None
        content, check = data[:-8], data[-8:]
        if len(data) != _SIZE or not content.startswith(_MAGIC) or _check(content) != check:
            raise damaged(self._path, f"its lock file {self._path + LOCK} is damaged")
        return content[16:32], int.from_bytes(content[32:40], "big")

    def mark(self, identity: bytes, commits: int, *, sync: bool = False) -> None:
        """Write the number of committed transactions."""
        content = _MAGIC + identity + commits.to_bytes(8, "big")
        try:
            os.pwrite(self._file, content + _check(content), 0)
            if sync:
                os.fsync(self._file)
        except OSError as error:
            if sync:
                raise OutboxError(
                    f"{self._path + LOCK} cannot be written: {error.strerror}", path=self._path
                ) from error
            _LOG.warning("%s cannot be written: %s", self._path + LOCK, error)

    def close(self) -> None:
        """Release the lock. The file stays: removing it would let two processes each lock a file of this name."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()


def _fcntl(path: str) -> ModuleType:
    try:
        from stompy.world import fcntl
    except ImportError:
        raise OutboxError("this platform has no file locks that stompy knows how to use", path=path) from None
    return fcntl
