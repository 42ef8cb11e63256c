"""Threads of the house: named, daemonic, joinable by a deadline from anywhere."""

from __future__ import annotations

import logging
import threading

from stompy.deadline import Deadline
from stompy.errors import ConnectError
from stompy.locks import Event

_LOG = logging.getLogger("stompy.link")


def is_for_caller(error: BaseException) -> bool:
    """Return whether an exception from user code must reach the caller: Ctrl-C and `sys.exit` in the main thread.

    Signals arrive there alone. In any other thread such an exception has nobody to end, and is reported like others.
    """
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


class DaemonThread:
    """A thread with one job.

    Daemonic, so that a forgotten connection cannot keep a program from ending.

    Args:
        name: begins with `stompy-`.
    """

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run_reported, name=name, daemon=True)
        # `threading` gives a thread its identity before it calls it started, and between the two refuses to join it.
        self._asked = False
        self._running = Event()

    def start(self) -> None:
        """Start it.

        Raises:
            ConnectError: the system has no room for another thread.
        """
        self._asked = True
        try:
            self._thread.start()
        except BaseException as error:
            self._asked = False
            if isinstance(error, RuntimeError | MemoryError):
                raise ConnectError(f"the thread {self._thread.name} cannot be started: {error}") from error
            raise

    def run(self) -> None:
        """Do the job; overridden."""
        raise NotImplementedError

    def _run_reported(self) -> None:
        self._running.set()
        try:
            self.run()
        except BaseException:
            _LOG.exception("%s ended by a bug in stompy", self._thread.name)

    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self._thread

    @property
    def started(self) -> bool:
        """Whether it was started, and the system had room for it."""
        return self._asked

    @property
    def ended(self) -> bool:
        """Whether it ran and is over."""
        return self._running.is_set() and not self._thread.is_alive()

    def join_until(self, deadline: Deadline) -> bool:
        """Wait for its end; return whether it has ended.

        `True` at once from the thread itself, and before its start.
        """
        if self.is_current() or not self._asked:
            return True
        if not self._running.wait(deadline.remaining()):
            return False
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()
