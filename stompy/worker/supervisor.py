"""Child processes: started again with the program's own command line, supervised, stopped together.

The parent runs no task and has no connection. A child knows that it is one by its environment.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from stompy.deadline import Deadline
from stompy.worker.crashes import Crashes, collect
from stompy.worker.engine import WorkerExit
from stompy.worker.service import TaskHealth, WorkerHealth

_LOG = logging.getLogger("stompy.worker")

_CHILD = "STOMPY_WORKER_CHILD"
"""Environment of a child: its number, the parent's process id, and the parent's folder."""

_POLL = 0.1
_QUICK = 10.0
"""Seconds: a child that lived shorter than this did not get far."""

_MAX_QUICK = 5
"""Quick deaths in a row, of every child, after which the parent gives up."""

_LONGEST_DELAY = 10.0
_GRACE = 10.0
"""Seconds beyond `stop_timeout` after which a child is killed."""

_STOPPED = (WorkerExit.OK, -signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a child that was stopped in order; the last two while it was still being imported."""

_HOPELESS = (WorkerExit.USAGE, WorkerExit.BROKER)
"""Exit codes of a child that would only come again."""


@dataclass(frozen=True, slots=True)
class ChildRole:
    """What a child process knows of its parent.

    Attributes:
        number: from 1 on.
        parent: process id.
        folder: of the parent.
    """

    number: int
    parent: int
    folder: Path

    @classmethod
    def of_environment(cls) -> ChildRole | None:
        """Return the role of this process, or `None` if it is no child; its own children are none."""
        value = os.environ.pop(_CHILD, None)
        if value is None:
            return None
        number, parent, folder = value.split(" ", 2)
        return cls(int(number), int(parent), Path(folder))

    def crashes(self) -> Crashes:
        """Return the notes about crashes."""
        return Crashes(self.folder, self.number)

    @property
    def orphaned(self) -> bool:
        """Whether the parent has died."""
        return os.getppid() != self.parent

    def report(self, health: WorkerHealth) -> None:
        """Tell the parent how this child is doing."""
        path = self.folder / f"health-{self.number}"
        new = path.with_suffix(".new")
        try:
            new.write_text(health.as_json(), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            _LOG.debug("health was not reported: %s", error)


class _Child:
    """A place for a child process, which is started again when it dies."""

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = f"{name}-{number}"
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.quick_deaths = 0
        self.not_before = 0.0
        self.code: int | None = None
        """Of the last process, if it is not to be started again."""

    def start(self, folder: Path) -> None:
        environment = {**os.environ, _CHILD: f"{self.number} {os.getpid()} {folder}"}
        # A session of its own, so that Ctrl-C in a terminal reaches the parent only, which passes it on once.
        self.process = subprocess.Popen(  # noqa: S603 - our own command line
            [sys.executable, *sys.orig_argv[1:]], env=environment, start_new_session=True
        )
        self.started = time.monotonic()
        _LOG.info("%s: started as process %d", self.name, self.process.pid)


class Supervisor:
    """Keeps child processes running.

    Args:
        name: of the worker.
        processes: number of children.
        stop_timeout: seconds that the tasks of a child get to finish.
        on_poll: called several times per second.
    """

    def __init__(
        self, name: str, processes: int, stop_timeout: float, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        self._name = name
        self._stop_timeout = stop_timeout
        self._on_poll = on_poll
        self._children = [_Child(number, name) for number in range(1, processes + 1)]
        self._signal: int | None = None
        self._signals = 0
        self._folder: Path | None = None
        self.restarts = 0

    def run(self) -> int:
        """Run the children until a signal comes or all have ended; return the exit code."""
        before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            with tempfile.TemporaryDirectory(prefix="stompy-worker-") as folder:
                self._folder = Path(folder)
                try:
                    code = self._supervise(self._folder)
                    return self._stop(code)
                finally:
                    self._kill()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def health(self) -> WorkerHealth:
        """Return the sum of what the children report."""
        reports = list(filter(None, map(self._report_of, self._children)))
        tasks: dict[str, TaskHealth] = {}
        for report in reports:
            for name, task in report.tasks.items():
                tasks[name] = _sum(tasks[name], task) if name in tasks else task
        running = sum(child.process is not None for child in self._children)
        all_ready = len(reports) == len(self._children) and all(report.ready for report in reports)
        return WorkerHealth(
            state="stopping" if self._signal else "running" if all_ready else "starting",
            connected=all_ready,
            parked=sum(report.parked for report in reports),
            overdue=sum(report.overdue for report in reports),
            tasks=tasks,
            last_error=next((report.last_error for report in reports if report.last_error), None),
            processes=running,
        )

    def _report_of(self, child: _Child) -> WorkerHealth | None:
        if child.process is None or self._folder is None:
            return None
        try:
            return WorkerHealth.of_json((self._folder / f"health-{child.number}").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def _handle(self, number: int, frame: object) -> None:
        self._signals += 1
        self._signal = number

    def _supervise(self, folder: Path) -> WorkerExit | None:
        """Start and restart children; return the exit code, or `None` if a signal came."""
        while self._signal is None:
            for child in self._children:
                if child.process is None and child.code is None and time.monotonic() >= child.not_before:
                    child.start(folder)
                elif child.process is not None and child.process.poll() is not None:
                    self._died(child, child.process.returncode, folder)
            hopeless = [child.code for child in self._children if child.code in _HOPELESS]
            if hopeless:
                return WorkerExit(hopeless[0] or 0)
            if all(child.code is not None for child in self._children):
                return WorkerExit.OK
            if all(child.quick_deaths >= _MAX_QUICK for child in self._children):
                _LOG.error("%s: every process died %d times at its start", self._name, _MAX_QUICK)
                return WorkerExit.FAILED
            self._on_poll()
            time.sleep(_POLL)
        return None

    def _died(self, child: _Child, code: int, folder: Path) -> None:
        child.process = None
        (folder / f"health-{child.number}").unlink(missing_ok=True)
        if code == WorkerExit.OK or code in _HOPELESS:
            child.code = code
            return
        crashed = collect(folder, child.number)
        quick = time.monotonic() - child.started < _QUICK
        child.quick_deaths = child.quick_deaths + 1 if quick else 0
        delay = min(_LONGEST_DELAY, _POLL * 2**child.quick_deaths) if quick else 0.0
        child.not_before = time.monotonic() + delay
        self.restarts += 1
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        _LOG.error("%s: died by %s while it ran %d messages; restarted in %.1f s", child.name, how, crashed, delay)

    def _stop(self, code: WorkerExit | None) -> int:
        """Stop the children in order, and return the exit code."""
        live = [child for child in self._children if child.process is not None]
        for child in live:
            assert child.process is not None
            child.process.terminate()
        deadline = Deadline(self._stop_timeout + _GRACE)
        worst = code or WorkerExit.OK
        for child in live:
            process = child.process
            assert process is not None
            while process.poll() is None and not deadline.expired and self._signals < 2:
                self._on_poll()
                time.sleep(_POLL)
            if process.poll() is None:
                process.kill()
                process.wait()
                _LOG.error("%s: was killed, as it did not stop in time", child.name)
            if process.returncode not in _STOPPED and worst is WorkerExit.OK:
                known = process.returncode in set(WorkerExit)
                worst = WorkerExit(process.returncode) if known else WorkerExit.UNFINISHED
            child.process = None
        if self._signals >= 2 and self._signal is not None:
            return 128 + self._signal
        return worst

    def _kill(self) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.process.kill()
                child.process.wait()


def _sum(one: TaskHealth, other: TaskHealth) -> TaskHealth:
    counts: Mapping[str, int] = {
        name: one.counts.get(name, 0) + other.counts.get(name, 0) for name in {*one.counts, *other.counts}
    }
    return replace(
        one, running=one.running + other.running, queued=one.queued + other.queued,
        stuck=one.stuck + other.stuck, counts=counts,
    )  # fmt: skip
