"""Threads of the house: named, daemonic, joinable by a deadline from anywhere."""

from __future__ import annotations

import logging
import threading

from stompy.deadline import Deadline

_LOG = logging.getLogger("stompy.link")


class HouseThread:
    """A thread with one job.

    Daemonic, so that a forgotten connection cannot keep a program from ending.

    Args:
        name: begins with `stompy-`.
    """

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run_reported, name=name, daemon=True)

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def run(self) -> None:
        """Do the job; overridden."""
        raise NotImplementedError

    def _run_reported(self) -> None:
        try:
            self.run()
        except Exception:
            _LOG.exception("%s ended by a bug in stompy", self._thread.name)

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        """Whether it ran and is over."""
        return self._thread.ident is not None and not self._thread.is_alive()

    def join_until(self, deadline: Deadline) -> bool:
        """Wait for its end; return whether it has ended.

        `True` at once from the thread itself, and before its start.
        """
        if self.is_current() or self._thread.ident is None:
            return True
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()
