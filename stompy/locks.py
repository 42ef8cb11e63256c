"""Ranked locks: a thread may only acquire a lock of a higher rank than its other locks.

| rank | lock | guards | held over I/O |
|---|---|---|---|
| 0 | call | opening the reply inbox, closing the connection | yes, up to the caller's deadline |
| 1 | link manager | the current link, the closing flag | no |
| 2 | subscriptions | id to Subscription | no |
| 3 | write | the order of written bytes | yes, bounded by the send timeout |
| 4 | protocol | the protocol object | no |
| 5 | leaf | receipts, flow control, inbox, dispatcher queue | no, and it calls nothing |
| 6 | broker start | starting the embedded broker | no |
| 7 | broker entrance | whose turn at the router is next | no |
| 8 | broker router | destinations, sessions, protocol objects of the broker | no |
| 9 | broker leaf | sessions, admission, state of a session, write queue | no |

The order is asserted if `checked` is set before the locks are made, as the tests do; otherwise a lock is a plain
`threading.RLock`.

**Signals.** A signal handler may raise in the main thread wherever CPython checks for signals: at the start of a Python
function, after a call, and at the end of a loop iteration. So a Python `__exit__`, or a `finally` that begins with a
call of a Python function, may be interrupted before it has released anything. Therefore:

- A block releases with one call into C: `with lock`, or a `finally` whose first call is `lock.release()`,
  `holders.discard(holder)` or `pending.pop(name, None)`.
- A resource is named first and acquired inside the `try`, as the acquiring call may succeed and still raise. A lock is
  named by its owner thread: releasing a lock that the thread does not own only raises `RuntimeError`.
- Locks are reentrant, so a signal handler may call stompy while its thread holds one.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from stompy.deadline import Deadline
from stompy.forks import free_when_forked, when_forked
from stompy.world import os, threading

T = TypeVar("T")

checked = os.environ.get("STOMPY_CHECK_LOCKS", "") not in ("", "0")
"""Whether new locks assert their order."""


_LOOK = 1.0
"""Seconds after which a checked wait looks whether a wake-up was lost."""

_GRACE = 2.0
"""Seconds that whoever changed a value has to notify those that wait for it."""

_LOOKS = 40
"""How often a checked wait looks in that time whether the value has changed back, as nobody is to be notified then."""

_BETWEEN_SIGNALS = 1.0
"""Seconds after which the main thread looks for signals that the system gave to another thread."""


class Rank(enum.IntEnum):
    """The order in which locks may be acquired."""

    CALL = 0
    LINK_MANAGER = 1
    SUBSCRIPTIONS = 2
    WRITE = 3
    PROTOCOL = 4
    LEAF = 5
    BROKER_START = 6
    BROKER_ENTRANCE = 7
    BROKER_ROUTER = 8
    BROKER_LEAF = 9


class LockOrderError(AssertionError):
    """A thread acquired a lock out of order."""


lost_wakeups: list[str] = []
"""Where checked conditions were waited for by threads of this process, came true, and nobody was notified."""


_held = threading.local()


def held_ranks() -> list[tuple[Rank, str]]:
    """Return the checked locks that this thread holds, outermost first."""
    stack: list[tuple[Rank, str]] | None = getattr(_held, "stack", None)
    if stack is None:
        stack = _held.stack = []
    return stack


if TYPE_CHECKING:

    class _RLock(threading.Condition):
        def _is_owned(self) -> bool: ...
        def _release_save(self) -> Any: ...
        def _acquire_restore(self, state: Any) -> None: ...

else:
    _RLock = type(threading.RLock())


_LOCKS_IN_PYTHON = _RLock.__init__ is not object.__init__
"""Whether `threading` was patched by gevent before."""


class Condition(_RLock):
    """Like `threading.Condition`, but `with` enters and exits with one call into C each."""

    def __init__(self) -> None:
        if _LOCKS_IN_PYTHON:
            super().__init__()
        self._waiters: set[Any] = set()
        free_when_forked(self)

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait until notified, and acquire it again; return `False` after the timeout or sooner.

        The lock must be held, once. It is acquired again whatever was raised, with no check for signals in between.
        The main thread returns after a second at the latest: the system may give a signal to any thread, and nothing
        wakes the main one, which alone runs the handler.
        """
        waiter = threading.Lock()
        waiter.acquire()
        owner = (1, threading.get_ident())
        if owner[1] == threading.main_thread().ident:
            timeout = _BETWEEN_SIGNALS if timeout is None else min(timeout, _BETWEEN_SIGNALS)
        try:
            self._waiters.add(waiter)
            try:
                self._release_save()
                return waiter.acquire(True, -1 if timeout is None else max(0.0, timeout))
            finally:
                self._acquire_restore(owner)
        finally:
            self._waiters.discard(waiter)

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until `predicate()` is true, or the timeout; return its last value.

        Code that makes it true must notify afterwards: the limits of waits are no way of looking again.
        """
        deadline = Deadline(timeout)
        while not (result := predicate()) and not deadline.expired:
            self.wait(deadline.remaining())
        return result

    def notify_all(self) -> None:
        """Wake all waiting threads; called with the lock held."""
        if not self._is_owned():
            raise RuntimeError("notify called without the lock")
        for waiter in tuple(self._waiters):
            if waiter.locked():
                waiter.release()

    def notify(self, n: int = 1) -> None:
        """Wake all waiting threads, as a signal might interrupt a single one before it acts."""
        self.notify_all()


class CheckedLock(Condition):
    """A lock, and a condition, that asserts the order at every `acquire` and that no wake-up is lost.

    Args:
        rank: of the lock; `None` if others may be acquired while it is held, and it while they are.
        name: for the errors.
    """

    def __new__(cls, rank: Rank | None, name: str) -> CheckedLock:
        """Return a lock; that of `threading` is made without arguments."""
        return super().__new__(cls)

    def __init__(self, rank: Rank | None, name: str) -> None:
        super().__init__()
        self._rank = rank
        self._name = name
        self._notified = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock.

        Raises:
            LockOrderError: this thread holds a lock of the same or a higher rank.
        """
        if self._rank is None:
            return super().acquire(blocking, timeout)
        stack = held_ranks()
        if stack and stack[-1][0] >= self._rank:
            raise LockOrderError(f"{self._name} (rank {self._rank}) requested while holding {stack[-1][1]}")
        acquired = super().acquire(blocking, timeout)
        if acquired:
            stack.append((self._rank, self._name))
        return acquired

    def release(self) -> None:
        """Release the lock; `RuntimeError` if this thread does not hold it."""
        super().release()
        if self._rank is not None:
            held_ranks().remove((self._rank, self._name))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as without the check."""
        if self._rank is None:
            return super().wait(timeout)
        held_ranks().remove((self._rank, self._name))
        try:
            return super().wait(timeout)
        finally:
            held_ranks().append((self._rank, self._name))

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        super().notify_all()
        self._notified += 1

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait as without the check, but look every second, and note in `lost_wakeups` what was not notified."""
        deadline = Deadline(timeout)
        while not (result := predicate()) and not deadline.expired:
            before, looks = self._notified, 0
            self.wait(deadline.sooner(_LOOK).remaining())
            while self._notified == before and predicate() and looks < _LOOKS:
                looks += 1
                self.wait(_GRACE / _LOOKS)  # some change a value first, and notify when they have the lock
            if looks == _LOOKS and self._notified == before and predicate():
                lost_wakeups.append(f"{self._name}, in {threading.current_thread().name}")
        return result


class SafeEvent:
    """Like `threading.Event`, but still usable after a signal handler raised in a method."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._flag = False

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._flag

    def set(self) -> None:
        """Set the flag and wake all waiting threads."""
        with self._condition:
            self._flag = True
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set; return whether it is."""
        with self._condition:
            self._condition.wait_for(self.is_set, timeout)
        return self._flag


class Lock(Protocol):
    """A reentrant lock that knows its owner thread."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock."""

    def release(self) -> None:
        """Release the lock; `RuntimeError` if this thread does not own it."""

    def _is_owned(self) -> bool: ...

    def __enter__(self) -> bool: ...

    def __exit__(self, *exc: Any) -> None: ...


def make_lock(rank: Rank, name: str) -> Lock:
    """Return a lock of `rank`; `name` appears in assertion errors."""
    if checked:
        return CheckedLock(rank, name)
    lock = cast("Lock", threading.RLock())
    free_when_forked(lock)
    return lock


def make_condition(name: str, rank: Rank | None = Rank.LEAF) -> Condition:
    """Return a condition with a lock of `rank`; with `None`, a lock outside of the order."""
    return CheckedLock(rank, name) if checked else Condition()


class FileLock:
    """The lock of an open file; the kernel releases it when the process ends, for whatever reason.

    Args:
        handle: of the file. It is closed with the lock, and if the file cannot be locked.

    Attributes:
        handle: of the file; -1 when it is closed.

    Raises:
        BlockingIOError: it is locked already, by this process or another.
        OSError: this platform or this file system has no such locks.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle
        try:
            _flock(handle)
        except BaseException:
            self.release()
            raise
        when_forked(self)

    def after_fork(self) -> None:
        """Close the copy in a forked child, which would keep the lock longer than its owner lives."""
        self.release()

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes each lock a file of this name."""
        if self.handle >= 0:
            handle, self.handle = self.handle, -1
            os.close(handle)


def _flock(handle: int) -> None:
    try:
        from stompy.world import fcntl
    except ImportError:
        raise OSError("this platform has no file locks that stompy knows how to use") from None
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
