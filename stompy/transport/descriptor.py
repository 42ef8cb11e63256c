"""When a file descriptor may be released.

Locks (rank 5, a leaf): `DescriptorUse._lock` guards the release alone, which it does not hold over; it calls nothing.
Threads: any. Who enters notes itself first and looks whether the descriptor is closed afterwards; who closes says so
first and looks for users afterwards, behind a lock: so at least one of them sees the other. A set takes and gives up a
member in one step, with the GIL and without it.
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

    __slots__ = ("_lock", "_release", "_released", "closed", "users")

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = threading.RLock()
        self._released = False
        self.closed = False
        """Whether `close` was called; the release itself may still be waiting for a user."""
        self.users: set[object] = set()
        """Who is using it; see `enter`."""

    def enter(self, user: object) -> bool:
        """Begin to use the descriptor; `False` means that it is closed.

        The end of the use is `users.discard(user)` and then `left()`, in a `finally` whose `try` begins before this
        call: the first is one call into C, so that no signal handler can raise in front of it.
        """
        self.users.add(user)
        return not self.closed

    def left(self) -> None:
        """Release a closed descriptor behind its last user."""
        if self.closed:
            self._release_if_idle()

    def close(self) -> None:
        """Let nobody in any more and release the descriptor, now or when the last user leaves. Idempotent."""
        self.closed = True
        self._release_if_idle()

    def _release_if_idle(self) -> None:
        with self._lock:
            if self.users or self._released:
                return
            self._released = True
        self._release()
