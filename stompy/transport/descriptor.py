"""When a file descriptor may be released.

Locks (rank 5, a leaf): `DescriptorUse._lock` guards a counter and a flag; it is never held over I/O and calls nothing.
Threads: any.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class DescriptorUse:
    """Counts the threads that are using a descriptor and puts its release off until the last one has left.

    A number released while another thread polls it may be given at once to an unrelated file: that thread would then
    wait for, or read, a stranger's bytes.

    Args:
        release: gives the descriptor back; called exactly once, outside the lock.
    """

    __slots__ = ("_closed", "_lock", "_release", "_users")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called; the release itself may still be waiting for a user."""
        return self._closed

    def enter(self) -> bool:
        """Begin to use the descriptor; `False` means that it is closed, and then `leave` must not be called."""
        with self._lock:
            if self._closed:
                return False
            self._users += 1
            return True

    def leave(self) -> None:
        """End a use that `enter` allowed; the last one to leave a closed descriptor releases it."""
        with self._lock:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._release()

    def close(self) -> None:
        """Let nobody in any more and release the descriptor, now or when the last user leaves. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = self._users == 0
        if idle:
            self._release()
