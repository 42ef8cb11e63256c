"""Waits that end: where stomp.py waits forever, stompy.compat waits for `limit` seconds and then raises."""

from __future__ import annotations

from collections.abc import Callable

from stompy.compat.exception import StompException
from stompy.world import threading

limit = 60.0
"""Seconds."""


def wait_for(condition: threading.Condition, predicate: Callable[[], bool], what: str) -> None:
    """Wait with a condition; called without its lock.

    Raises:
        StompException: `predicate` was still false after `limit` seconds.
    """
    with condition:
        if not condition.wait_for(predicate, limit):
            raise StompException(f"{what} within {limit:g} s")
