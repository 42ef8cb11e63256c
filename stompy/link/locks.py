"""Locks with ranks: a thread may only take a lock of a higher rank than it holds.

| rank | lock | guards | held over I/O |
|---|---|---|---|
| 1 | supervisor | the current link, the closing flag | no |
| 2 | subscriptions | id to Subscription | no |
| 3 | write | the order of bytes out | the only one, bounded by the send timeout |
| 4 | protocol | the protocol object | no |
| 5 | leaf | receipts, gate, inbox, dispatcher queue | no, and it calls nothing |

The order is asserted when `checked` is switched on before the locks are made, as the tests do; else a lock is a plain
`threading.Lock` and costs nothing more.
"""

from __future__ import annotations

import enum
import os
import threading
from typing import cast

checked = os.environ.get("STOMPY_CHECK_LOCKS", "") not in ("", "0")
"""Whether locks made from now on assert their order."""


class Rank(enum.IntEnum):
    """The order in which locks may be taken."""

    SUPERVISOR = 1
    SUBSCRIPTIONS = 2
    WRITE = 3
    PROTOCOL = 4
    LEAF = 5


class LockOrderError(AssertionError):
    """A thread took a lock out of rank."""


_held = threading.local()


def held_ranks() -> list[tuple[Rank, str]]:
    """Return the checked locks that this thread holds, outermost first."""
    stack: list[tuple[Rank, str]] | None = getattr(_held, "stack", None)
    if stack is None:
        stack = _held.stack = []
    return stack


class CheckedLock:
    """A lock that knows its rank and asserts the order at every `acquire`."""

    def __init__(self, rank: Rank, name: str) -> None:
        self._lock = threading.Lock()
        self._rank = rank
        self._name = name

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock.

        Raises:
            LockOrderError: this thread holds a lock of the same or a higher rank.
        """
        stack = held_ranks()
        if stack and stack[-1][0] >= self._rank:
            raise LockOrderError(f"{self._name} (rank {self._rank}) asked for while holding {stack[-1][1]}")
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            stack.append((self._rank, self._name))
        return taken

    def release(self) -> None:
        """Give the lock back."""
        held_ranks().remove((self._rank, self._name))
        self._lock.release()

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._lock.locked()

    def _is_owned(self) -> bool:
        """Tell a `threading.Condition` whether this thread holds the lock; else it would find out by taking it."""
        return (self._rank, self._name) in held_ranks()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


def make_lock(rank: Rank, name: str) -> threading.Lock:
    """Return a lock of `rank`; `name` is what an assertion calls it."""
    return cast("threading.Lock", CheckedLock(rank, name)) if checked else threading.Lock()


def make_condition(name: str) -> threading.Condition:
    """Return a condition on a leaf lock."""
    return threading.Condition(make_lock(Rank.LEAF, name))
