"""Dispatchers: threads that run user code, in order.

| thread | owns | may block on | never |
|---|---|---|---|
| dispatcher | the order of callbacks | its queue, user code | holds a lock in user code |
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence

from stompy.deadline import Deadline
from stompy.forks import ChildEnds
from stompy.locks import Event, make_condition
from stompy.threads import DaemonThread, must_propagate

_LOG = logging.getLogger("stompy.connection")


class Dispatcher(DaemonThread):
    """Runs jobs in order; exceptions are logged.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._condition = make_condition("dispatcher")
        self._jobs: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._busy = False

    def put(self, job: Callable[[], None]) -> bool:
        """Queue a job; return `False` after `stop`."""
        with self._condition:
            if self._stopping:
                return False
            self._jobs.append(job)
            self._condition.notify()
            return True

    def stop(self, last: Sequence[Callable[[], None]] = ()) -> None:
        """End after the jobs that are queued now and those in `last`; accept no more."""
        with self._condition:
            if not self._stopping:
                self._jobs.extend(last)
            self._stopping = True
            self._condition.notify_all()

    def wait_idle(self, deadline: Deadline) -> bool:
        """Wait until nothing is queued or running; return `False` at the deadline.

        Called on the dispatcher itself, it returns immediately.
        """
        if self.is_current():
            return True
        with self._condition:
            return self._condition.wait_for(lambda: not self._jobs and not self._busy, deadline.remaining())

    def wait_passed(self, deadline: Deadline) -> bool:
        """Wait until the jobs that are queued now have run; return `False` at the deadline.

        Called on the dispatcher itself, it returns immediately.
        """
        passed = Event()
        if self.is_current():
            return True
        return passed.wait(deadline.remaining()) if self.put(passed.set) else self.wait_idle(deadline)

    def run(self) -> None:
        """Run jobs until stopped and empty."""
        while True:
            with self._condition:
                self._busy = False
                if not self._jobs:
                    self._condition.notify_all()
                    self._condition.wait_for(lambda: self._jobs or self._stopping)
                    if not self._jobs:
                        return
                job = self._jobs.popleft()
                self._busy = True
            run_logged(job)
            del job  # it may hold the last reference to the connection


def run_logged(job: Callable[[], object]) -> BaseException | None:
    """Run user code; log and return what it raises, including `SystemExit`; see `must_propagate` for the exception."""
    try:
        with ChildEnds():
            job()
        return None
    except BaseException as error:
        if must_propagate(error):
            raise
        with contextlib.suppress(BaseException):  # of a handler of logging, which may be why the callback raised
            _LOG.exception("a callback raised")
        return error
