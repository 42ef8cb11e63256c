"""Base class of stompy's threads: named, daemonic, joinable with a deadline from any thread."""

from __future__ import annotations

import gc
import logging
import sys
import traceback
from collections.abc import Callable

from stompy.deadline import Deadline
from stompy.errors import ConnectError
from stompy.forks import Owner
from stompy.locks import SafeEvent
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.link")


def must_propagate(error: BaseException) -> bool:
    """Return whether an exception from user code must reach the caller: Ctrl-C or `sys.exit` in the main thread.

    In other threads, where signals never arrive, such exceptions are logged like any other.
    """
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


SAME_WITHIN = 0.5
"""Seconds within which a signal that comes again is one: GNU timeout sends it to the process, then to its group."""


class Repeats:
    """Recognises a signal that was sent twice."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def __call__(self, number: int) -> bool:
        """Return whether a signal is the one before once more; it then starts no new period."""
        now = time.monotonic()
        if self._last is not None and self._last[0] == number and now - self._last[1] < SAME_WITHIN:
            return True
        self._last = number, now
        return False


class DaemonThread:
    """A daemon thread, so that an unclosed connection cannot keep a program running.

    Args:
        name: begins with `stompy-`.
        job: the function that `run` calls; subclasses may override `run` instead.
    """

    def __init__(self, name: str, job: Callable[[], object] | None = None) -> None:
        self._job = job
        self._thread = threading.Thread(target=self._run_logged, name=name, daemon=True)
        # Not `Thread.ident`: it is set before `threading` allows to join the thread.
        self._start_requested = False
        self._running = SafeEvent()
        self.failed = False
        """Whether it has ended by a bug in stompy."""
        self._made_in = Owner("thread")

    def start(self) -> None:
        """Start the thread.

        Raises:
            ConnectError: the system cannot start another thread.
        """
        self._start_requested = True
        try:
            self._thread.start()
        except BaseException as error:
            self._start_requested = False
            if isinstance(error, RuntimeError | MemoryError):
                raise ConnectError(f"the thread {self._thread.name} cannot be started: {error}") from error
            raise

    def run(self) -> None:
        """Run the job of the thread."""
        if self._job is None:
            raise NotImplementedError
        self._job()

    def _run_logged(self) -> None:
        self._running.set()
        try:
            self.run()
        except BaseException:
            self.failed = True
            _LOG.exception("%s ended by a bug in stompy", self._thread.name)

    def is_current(self) -> bool:
        """Return whether the caller is this thread."""
        return threading.current_thread() is self._thread

    @property
    def started(self) -> bool:
        """Whether the thread was started."""
        return self._start_requested

    @property
    def ended(self) -> bool:
        """Whether the thread has run and ended."""
        return self._running.is_set() and not self._thread.is_alive()

    def stack(self) -> str:
        """Return where the thread is now, as a traceback shows it."""
        # Before CPython 3.11.9 and 3.12.3, a garbage collection inside `_current_frames` can stop all threads for good.
        collects = gc.isenabled()
        gc.disable()
        try:
            frame = sys._current_frames().get(self._thread.ident or -1)
        finally:
            if collects:
                gc.enable()
        if frame is None:
            return "(the thread has ended)" if self.ended else "(not known, as with greenlets)"
        return "".join(traceback.format_stack(frame))

    def join_until(self, deadline: Deadline) -> bool:
        """Wait for the thread to end; return whether it has.

        Return `True` immediately in the thread itself, in a forked child, and if it was not started.
        """
        if self._made_in.forked or self.is_current() or not self._start_requested:
            return True
        if not self._running.wait(deadline.remaining()):
            return False
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()
