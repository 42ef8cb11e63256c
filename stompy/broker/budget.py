"""How much the broker holds in all: messages, and what clients make it keep beside their messages.

Messages count from their making to their end, whichever queue, backlog, ledger or transaction has them. State is what
else a client can make large: unfinished frames, ids of subscriptions and transactions, names of queues, long heads of
messages. What is usual is not counted, as other limits bound how much there is of it: the first KiB of a name or a
head, and the first `ALLOWANCE` bytes of a session, which so has room whatever others have used up.

| thread | does here | lock |
|---|---|---|
| any | everything | `MemoryBudget._lock`, taken by whoever holds the router's lock, and by readers without it |
"""

from __future__ import annotations

from typing import TypeVar

from stompy.errors import LimitExceededError
from stompy.forks import free_when_forked
from stompy.world import threading

K = TypeVar("K")
V = TypeVar("V")

ALLOWANCE = 64 * 1024

_USUAL = 1024


def excess(size: int) -> int:
    """Return how much of a name or a head counts, of so many bytes."""
    return max(0, size - _USUAL)


class MemoryBudget:
    """Counts the bytes of messages and of state. Any thread.

    Args:
        limit: bytes of messages at most.
        state_limit: bytes of state at most.
    """

    def __init__(self, limit: int, state_limit: int) -> None:
        self._limit = limit
        self._state_limit = state_limit
        # Messages end where their last reference goes, which may be anywhere, also inside of these methods.
        self._lock = threading.RLock()
        free_when_forked(self._lock)
        self._held = 0
        self._state = 0

    @property
    def held(self) -> int:
        """Bytes of all messages there are."""
        return self._held

    @property
    def state(self) -> int:
        """Bytes of state."""
        return self._state

    def take(self, size: int, state: int = 0, *, force: bool = False) -> None:
        """Count a new message, or state; `force` where it takes the place of another.

        Raises:
            LimitExceededError: there is no room for it; it was not counted.
        """
        with self._lock:
            if not force:
                if size and self._held + size > self._limit:
                    raise LimitExceededError("the broker is full", limit_name="max_store_bytes", limit=self._limit)
                if state and self._state + state > self._state_limit:
                    what = "the broker keeps too much beside messages"
                    raise LimitExceededError(what, limit_name="max_state_bytes", limit=self._state_limit)
            self._held += size
            self._state += state

    def give_back(self, size: int, state: int = 0) -> None:
        """Count a message, or state, no more."""
        with self._lock:
            self._held -= size
            self._state -= state


class SessionBudget:
    """What one session makes the broker keep beside messages. Any thread.

    Args:
        budget: counts it for all sessions.
        limit: bytes at most.
    """

    def __init__(self, budget: MemoryBudget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._lock = threading.Lock()
        self._held = 0
        self._frame = 0

    @property
    def held(self) -> int:
        """Bytes of state."""
        return self._held

    def take(self, size: int) -> None:
        """Count state; a negative number gives some back.

        Raises:
            LimitExceededError: it is too much for one session, or for all of them; it was not counted.
        """
        with self._lock:
            held = self._held + size
            if size > 0 and held > self._limit:
                what = "the broker keeps too much for this client beside messages"
                raise LimitExceededError(what, limit_name="max_session_state_bytes", limit=self._limit)
            self._budget.take(0, _counted(held) - _counted(self._held), force=size < 0)
            self._held = held

    def take_frame(self, size: int) -> None:
        """Count the frame that is not whole yet, in the place of what it was before; raises as `take` does."""
        if size != self._frame:
            self.take(size - self._frame)
            self._frame = size

    def close(self) -> None:
        """Give everything back, as the session is over."""
        self.take(-self._held)
        self._frame = 0


def _counted(held: int) -> int:
    """Return how much of what a session holds counts for all sessions."""
    return max(0, held - ALLOWANCE)


class BoundedTable(dict[K, V]):
    """What is remembered because it is likely to be asked for again; it is forgotten when there is too much of it.

    Args:
        limit: bytes at most.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._held = 0

    def remember(self, key: K, value: V, size: int) -> None:
        """Add an entry that takes about so many bytes."""
        if self._held + size > self._limit:
            self.clear()
            self._held = 0
        self._held += size
        self[key] = value
