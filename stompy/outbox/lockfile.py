"""The lock file: one owner at a time, and a mark of what must be there.

It lies beside the outbox and is locked as long as the outbox is open; the kernel frees the lock when the process dies,
however it dies. It says which outbox it belongs to and how many transactions had been committed. SQLite takes a file of
length 0 for a new database, and a write-ahead log that is gone or cut for one that never held more; the mark tells.

The mark is written after each commit and not synced: a mark that is old lets more pass, and never raises an alarm
about a sound outbox. It survives the death of the process; after a power cut it may be some seconds old.
"""

from __future__ import annotations

import errno
import logging
import os
from hashlib import blake2b
from typing import TYPE_CHECKING

from stompy.errors import OutboxBusy, OutboxError
from stompy.outbox.faults import LOCK, damaged

if TYPE_CHECKING:
    from types import ModuleType

_LOG = logging.getLogger("stompy.outbox")

_MAGIC = b"stompy outbox 1\n"
_SIZE = len(_MAGIC) + 16 + 8 + 8
"""Bytes: magic, identity, commits, checksum; far less than a sector, so that a write is never torn."""


class LockFile:
    """The lock file of an outbox, held locked.

    Args:
        path: of the outbox.
        create: make the file if it is not there.

    Raises:
        OutboxBusy: another outbox has it, in this process or another.
        OutboxError: it cannot be used.
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

    def _lock(self) -> None:
        fcntl = _fcntl(self._path)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise OutboxBusy("it is open already, in this process or another", path=self._path) from None
            raise OutboxError(f"{self._path + LOCK} cannot be locked: {error.strerror}", path=self._path) from error

    def read(self) -> tuple[bytes, int] | None:
        """Return the outbox's identity and the number of commits; `None` where no outbox was ever made.

        Raises:
            OutboxDamaged: it is not what was written.
        """
        data = os.pread(self._file, _SIZE + 1, 0)
        if not data:
            return None
        content, check = data[:-8], data[-8:]
        if len(data) != _SIZE or not content.startswith(_MAGIC) or _check(content) != check:
            raise damaged(self._path, f"its lock file {self._path + LOCK} is damaged")
        return content[16:32], int.from_bytes(content[32:40], "big")

    def mark(self, identity: bytes, commits: int, *, sync: bool = False) -> None:
        """Write down how many transactions are on disk."""
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
        """Let another have the outbox. The file stays: who removes a lock file takes it from under the next owner."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


def _check(content: bytes) -> bytes:
    return blake2b(content, digest_size=8).digest()


def _fcntl(path: str) -> ModuleType:
    try:
        import fcntl
    except ImportError:
        raise OutboxError("this platform has no file locks that stompy knows how to use", path=path) from None
    return fcntl
