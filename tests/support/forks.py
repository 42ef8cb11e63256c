"""Locks that another thread holds when a test forks."""

from __future__ import annotations

import threading
import types
from typing import Any

from tests.support.peer import WITHIN


def locks_of(root: object) -> list[Any]:
    """Return all locks that can be reached from an object of stompy's."""
    found: dict[int, Any] = {}
    seen: dict[int, object] = {}
    stack = [root]
    while stack:
        one = stack.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if hasattr(one, "acquire") and hasattr(one, "release"):
            found[id(one)] = one
        if isinstance(one, (list, tuple, set, frozenset)):
            stack += list(one)
        elif isinstance(one, dict):
            stack += list(one.values())
        elif isinstance(one, types.MethodType):
            stack.append(one.__self__)
        elif type(one).__module__.startswith(("stompy", "threading")) and not isinstance(one, (type, threading.Thread)):
            stack += list(getattr(one, "__dict__", {}).values())
            for kind in type(one).__mro__:
                names = kind.__dict__.get("__slots__", ())
                stack += [getattr(one, name) for name in names if isinstance(name, str) and hasattr(one, name)]
    return list(found.values())


class Held:
    """Another thread that holds locks until the block is over."""

    def __init__(self, locks: list[Any]) -> None:
        self._locks = locks
        self._holding, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, name="test-holder")

    def _hold(self) -> None:
        taken = [lock for lock in self._locks if lock.acquire(timeout=0.01)]
        self._holding.set()
        self._over.wait(WITHIN)
        for lock in reversed(taken):
            lock.release()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._holding.wait(WITHIN)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(WITHIN)
