"""Forks: a child does nothing with the objects of its parent.

A child gets a copy of every object and of every descriptor, but only of the thread that forked. What the copies do to a
session, a listening socket or a file happens to the parent's. Therefore:

- An object that has locks or descriptors calls `when_forked`; in a child, before anything else runs there, its copy
  then frees its locks and closes its descriptors, without `shutdown`, TLS alerts or removed files. So a child does not
  keep the parent's sessions, ports and file locks open either, when the parent ends.
- An object that users hold has an `Owner`: in a child, ending the object does nothing, and all else raises.
- User code that runs on a thread of the package does so inside of `ChildEnds`: a child that was forked there must not
  go on with the loop of that thread.
"""

from __future__ import annotations

import sys
import traceback
import weakref
from collections import deque
from types import TracebackType
from typing import Any, NoReturn, Protocol

from stompy.errors import ConcurrencyError
from stompy.world import os

_forks = 0


def forks() -> int:
    """Return how many forks there were from the first process to this one: another number in a child."""
    return _forks


class Forkable(Protocol):
    """An object whose copy in a forked child must be released."""

    def after_fork(self) -> None:
        """Release the copy in a child, without touching the parent's resources; must not raise or wait.

        The locks of the package are free by then.
        """


class Owner:
    """The process that an object belongs to: the one that makes this owner.

    Args:
        what: the object, for the error message.
        advice: the remedy in a child.
    """

    __slots__ = ("_advice", "_forks", "_what")

    def __init__(self, what: str, advice: str = "make a new one after a fork") -> None:
        self._what = what
        self._advice = advice
        self._forks = _forks

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the owner."""
        return self._forks != _forks

    def error(self) -> ConcurrencyError:
        """Return the error that `check` raises in a child."""
        return ConcurrencyError(f"this {self._what} belongs to the parent process; {self._advice}")

    def check(self) -> None:
        """Check that this process is the owner.

        Raises:
            ConcurrencyError: it is a forked child.
        """
        if self._forks != _forks:
            raise self.error()


class ChildEnds:
    """A block that a child which was forked inside does not leave: it ends, with the exit code that a program would.

    Exit handlers do not run, as in every child that is forked in a thread.
    """

    __slots__ = ("_forks",)

    def __enter__(self) -> None:
        self._forks = _forks

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._forks != _forks:
            _end(error)


def _end(error: BaseException | None) -> NoReturn:
    code: object = 0
    try:
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code
            if not isinstance(code, int):
                print(code, file=sys.stderr)
        elif error is not None:
            code = 1
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 1)


_locks: set[weakref.ref[Any]] = set()
_objects: set[weakref.ref[Any]] = set()
_freed: deque[weakref.ref[Any]] = deque()
_kept: list[object] = []


def when_forked(thing: Forkable) -> None:
    """Call `thing.after_fork()` in each forked child, as long as the object exists."""
    _track(thing, _objects)


def never_free(thing: object) -> None:
    """Keep a copy in a child for good, as freeing it would touch the parent's file."""
    _kept.append(thing)


def free_when_forked(lock: Any) -> None:
    """Free a lock in each forked child, where the thread that may hold it does not exist."""
    _track(lock, _locks)


def _track(thing: object, where: set[weakref.ref[Any]]) -> None:
    # Not in a `WeakSet`: its callbacks are Python code, where threads may switch, and CPython 3.10 corrupts its memory
    # if they do while an `RLock` is being freed.
    where.add(weakref.ref(thing, _freed.append))
    if _freed:
        try:
            freed = _freed.popleft()
        except IndexError:
            return  # another thread was first
        _locks.discard(freed)
        _objects.discard(freed)


def be_process(number: int) -> None:
    """Be the process of so many forks, as far as `Owner` can tell; for simulated worlds."""
    global _forks
    _forks = number


def tracked() -> tuple[set[weakref.ref[Any]], set[weakref.ref[Any]], list[object]]:
    """Return what `when_forked`, `free_when_forked` and `never_free` have noted; simulated worlds take theirs out."""
    return _objects, _locks, _kept


def _in_child() -> None:
    global _forks
    _forks += 1
    for reference in list(_locks):
        if (lock := reference()) is not None:
            lock._at_fork_reinit()
    for reference in list(_objects):
        if (thing := reference()) is not None:
            thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
