"""Waiting for receivers without asking them over and over.

| who | does | blocks |
|---|---|---|
| receivers, of any thread | `ring`, when they get or lose their broker, or end | never |
| one thread | `watch` | in it |
"""

from __future__ import annotations

import threading
from collections.abc import Callable

_AT_MOST = 3600.0
"""Seconds of one wait; what is waited for is looked at again then."""


class Bell:
    """Wakes one waiting thread."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """Have the waiting thread look again, now or as soon as it waits."""
        self._rung.set()

    def watch(self, look: Callable[[], float]) -> None:
        """Return when `look` returns 0 or less; raises what it raises.

        Args:
            look: called at once, after each ring, and when the seconds that it returned are over.
        """
        while True:
            # First: what rings while it looks is looked at again.
            self._rung.clear()
            left = look()
            if left <= 0:
                return
            self._rung.wait(min(left, _AT_MOST))
