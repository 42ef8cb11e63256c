"""Locks with ranks: a thread may only take a lock of a higher rank than it holds.

| rank | lock | guards | held over I/O |
|---|---|---|---|
| 0 | call | one thread at a time opens the reply inbox, or closes the connection | yes, up to the caller's deadline |
| 1 | link manager | the current link, the closing flag | no |
| 2 | subscriptions | id to Subscription | no |
| 3 | write | the order of bytes out | yes, bounded by the send timeout |
| 4 | protocol | the protocol object | no |
| 5 | leaf | receipts, gate, inbox, dispatcher queue | no, and it calls nothing |

The order is asserted when `checked` is switched on before the locks are made, as the tests do; else a lock is C's own
and costs nothing more.

**Signals.** A signal handler may raise in the main thread wherever CPython looks for signals: where a Python function
begins, after a call, and where a loop goes back; nowhere else. So a Python `__exit__`, or a `finally` that begins with
the call of a Python function, can be struck before it has released anything. Hence:

- What is released at the end of a block is released by one call into C: `with lock`, or a `finally` whose first call
  is `lock.release()`, `holders.discard(mine)`, `pending.pop(name, None)`.
- What is taken has a name before it is taken, and it is taken inside of the `try`: the call that takes it may succeed
  and still raise. For a lock the name is the thread that owns it: releasing another's raises `RuntimeError`, no more.
- A signal handler may call stompy while its thread holds a lock: locks are reentrant, so it does not wait for itself.
"""

from __future__ import annotations

import enum
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from stompy.deadline import Deadline

checked = os.environ.get("STOMPY_CHECK_LOCKS", "") not in ("", "0")
"""Whether locks made from now on assert their order."""


class Rank(enum.IntEnum):
    """The order in which locks may be taken."""

    CALL = 0
    LINK_MANAGER = 1
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
        self._lock = threading.RLock()
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
        """Give the lock back; `RuntimeError` where this thread does not hold it."""
        self._lock.release()
        held_ranks().remove((self._rank, self._name))

    def _at_fork_reinit(self) -> None:
        """Free it in a forked child."""
        self._lock = threading.RLock()

    def _is_owned(self) -> bool:
        """Tell a `threading.Condition` whether this thread holds the lock; else it would find out by taking it."""
        return (self._rank, self._name) in held_ranks()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


if TYPE_CHECKING:

    class _RLock(threading.Condition):
        def _is_owned(self) -> bool: ...
        def _release_save(self) -> Any: ...
        def _acquire_restore(self, state: Any) -> None: ...

else:
    _RLock = type(threading.RLock())


class Condition(_RLock):
    """A lock with `wait` and `notify_all`, as `threading.Condition`, whose `with` is one call into C at either end."""

    def __init__(self) -> None:
        self._sleepers: set[Any] = set()
        _remember(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock back until notified, and take it again; return `False` where the time ran out first.

        Called with the lock held, once. It is taken again whatever was raised, without asking for signals meanwhile.
        """
        sleeper = threading.Lock()
        sleeper.acquire()
        mine = (1, threading.get_ident())
        try:
            self._sleepers.add(sleeper)
            try:
                self._release_save()
                return sleeper.acquire(True, -1 if timeout is None else max(0.0, timeout))
            finally:
                self._acquire_restore(mine)
        finally:
            self._sleepers.discard(sleeper)

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait until `predicate()` is true; return what it returned last."""
        deadline = Deadline(timeout)
        while not (result := predicate()) and not deadline.expired:
            self.wait(deadline.remaining())
        return result

    def notify_all(self) -> None:
        """Wake all who wait; called with the lock held."""
        if not self._is_owned():
            raise RuntimeError("notified without the lock")
        for sleeper in tuple(self._sleepers):
            if sleeper.locked():
                sleeper.release()

    def notify(self, n: int = 1) -> None:
        """Wake all who wait: one alone might be struck by a signal, and nobody else would look."""
        self.notify_all()


class Event:
    """A flag to be waited for, as `threading.Event`, that a signal leaves usable."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._flag = False

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._flag

    def set(self) -> None:
        """Set the flag and wake all who wait."""
        with self._condition:
            self._flag = True
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""
        with self._condition:
            self._condition.wait_for(self.is_set, timeout)
        return self._flag


_all: set[weakref.ref[Any]] = set()
"""The locks that are: a forked child inherits those that other threads held, which nobody there could release."""
_gone: deque[weakref.ref[Any]] = deque()


def _remember(lock: Any) -> None:
    """Note a lock until it is freed.

    No `WeakSet`: its callbacks are Python code, where threads may switch, and CPython 3.10 corrupts its memory when
    they do so while an `RLock` is being freed.
    """
    _all.add(weakref.ref(lock, _gone.append))
    if _gone:
        try:  # noqa: SIM105 - a millionth of a second for each receipt
            _all.discard(_gone.popleft())
        except IndexError:
            pass  # another thread was first


def _free_all() -> None:
    for remembered in list(_all):
        lock = remembered()
        if lock is not None:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)


class Lock(Protocol):
    """A reentrant lock that knows the thread that owns it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it."""
        ...

    def release(self) -> None:
        """Give it back; `RuntimeError` where this thread does not own it."""
        ...

    def _is_owned(self) -> bool: ...

    def __enter__(self) -> bool: ...

    def __exit__(self, *exc: Any) -> None: ...


def make_lock(rank: Rank, name: str) -> Lock:
    """Return a lock of `rank`; `name` is what an assertion calls it."""
    lock = CheckedLock(rank, name) if checked else cast("Lock", threading.RLock())
    _remember(lock)
    return lock


def make_condition(name: str, rank: Rank = Rank.LEAF) -> threading.Condition:
    """Return a condition on a lock of `rank`."""
    return threading.Condition(cast("Any", make_lock(rank, name))) if checked else Condition()
