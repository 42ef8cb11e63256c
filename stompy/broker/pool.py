"""How much the broker holds in all, whichever queue, backlog, ledger or transaction has it."""

from __future__ import annotations

import threading

from stompy.errors import LimitExceeded


class Pool:
    """Counts the octets of messages from their making to their end. Any thread.

    Args:
        limit: octets at most.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Messages end where their last reference goes, which may be anywhere, also inside of these methods.
        self._lock = threading.RLock()
        self._held = 0

    @property
    def held(self) -> int:
        """Octets of all messages there are."""
        return self._held

    def take(self, octets: int, *, force: bool = False) -> None:
        """Count a new message; `force` where it takes the place of another.

        Raises:
            LimitExceeded: there is no room for it; it was not counted.
        """
        with self._lock:
            if self._held + octets > self._limit and not force:
                raise LimitExceeded("the broker is full", limit_name="max_store_bytes", limit=self._limit)
            self._held += octets

    def give_back(self, octets: int) -> None:
        """Count a message no more."""
        with self._lock:
            self._held -= octets
