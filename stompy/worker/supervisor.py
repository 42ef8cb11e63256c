"""Child processes: started again with the program's own command line, supervised, stopped together.

The parent runs no task and has no connection. A child knows that it is one by its environment, and takes orders from
its parent alone: a pipe, whose other end the parent closes when the child is to stop, and the system closes when the
parent dies. Signals that others send to a child (systemd to all processes of a service, a shell to a process group) are
ignored once it runs tasks, so that no child gets two of them for one stop.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from stompy.deadline import Deadline
from stompy.locks import Rank, make_lock
from stompy.threads import Repeats
from stompy.worker.crashes import Crashes, collect, prepare
from stompy.worker.service import TaskHealth, WorkerExit, WorkerHealth, stacks_on_request, stop_signals
from stompy.world import os, signal, subprocess, tempfile, threading, time

_LOG = logging.getLogger("stompy.worker")

_CHILD = "STOMPY_WORKER_CHILD"
"""Environment of a child: its number, its end of the pipe, and the parent's folder."""

_POLL = 0.1
_QUICK = 10.0
"""Seconds: a child that lived shorter than this, and handled no message, did not get far."""

_MAX_FAILED_STARTS = 5
"""Deaths in a row of children that did not get far, of every child, after which the parent gives up."""

_LONGEST_DELAY = 10.0
_GRACE = 10.0
"""Seconds beyond `close_timeout` after which a child is killed."""

_SILENT = 10.0
"""Seconds without a report after which a child counts as hung."""

_HUNG = 60.0
"""Seconds without a report after which a child is killed and replaced."""

_TERMINATED = tuple(code for number in (signal.SIGTERM, signal.SIGINT) for code in (-number, 128 + number))
"""Exit codes of a child that a signal ended, before it ran tasks or after."""

_HOPELESS = (WorkerExit.USAGE, WorkerExit.BROKER)
"""Exit codes of a child that would only come again."""


class ChildRole:
    """What a child process knows of its parent.

    Args:
        number: from 1 on.
        orders: descriptor of the pipe from the parent.
        folder: of the parent.
    """

    def __init__(self, number: int, orders: int, folder: Path) -> None:
        self.number = number
        self._orders = orders
        self._folder = folder
        os.set_inheritable(orders, False)
        os.set_blocking(orders, False)

    @classmethod
    def of_environment(cls) -> ChildRole | None:
        """Return the role of this process, or `None` if it is no child; its own children are none."""
        value = os.environ.pop(_CHILD, None)
        if value is None:
            return None
        number, orders, folder = value.split(" ", 2)
        return cls(int(number), int(orders), Path(folder))

    def crashes(self) -> Crashes:
        """Return the notes about crashes."""
        return Crashes(self._folder, self.number)

    @property
    def told_to_stop(self) -> bool:
        """Whether the parent has closed its end of the pipe, or is dead."""
        try:
            return os.read(self._orders, 1) == b""
        except BlockingIOError:
            return False

    def report(self, health: WorkerHealth) -> None:
        """Tell the parent how this child is doing."""
        path = _report_path(self._folder, self.number)
        new = path.with_suffix(".new")
        try:
            new.write_text(health.as_json(), encoding="utf-8")
            new.replace(path)
        except OSError as error:
            _LOG.debug("health was not reported: %s", error)


def _report_path(folder: Path, child: int) -> Path:
    return folder / f"health-{child}"


class _Child:
    """A place for a child process, which is started again when it dies.

    Attributes:
        process: `None` while there is none.
        not_before: when it may be started, by the monotonic clock.
        failed_starts: number of processes in a row that did not get far; see `got_far`.
        report: what the process reported last; `None` before its first report.
        silence: seconds since then.
    """

    def __init__(self, number: int, name: str, folder: Path) -> None:
        self.name = f"{name}-{number}"
        self.process: subprocess.Popen[bytes] | None = None
        self.not_before = 0.0
        self.failed_starts = 0
        self.report: WorkerHealth | None = None
        self.silence = 0.0
        self._number = number
        self._folder = folder
        self._orders = -1
        self._started = 0.0
        self._version: object = None
        """Of the report that was read."""
        prepare(folder, number)

    def start(self) -> None:
        """Start a process.

        Raises:
            OSError: the system cannot.
        """
        _report_path(self._folder, self._number).unlink(missing_ok=True)
        orders, self._orders = os.pipe()
        try:
            # A session of its own, so that Ctrl-C in a terminal does not reach it while it is being imported.
            self.process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, _CHILD: f"{self._number} {orders} {self._folder}"},
                pass_fds=(orders,),
                start_new_session=True,
            )
        except BaseException:
            self._close_orders()
            raise
        finally:
            os.close(orders)
        self._started = time.monotonic()
        _LOG.info("%s: started as process %d", self.name, self.process.pid)

    def look(self, elapsed: float = 0.0) -> None:
        """Read the report if there is a new one, else add `elapsed` seconds to the silence."""
        path = _report_path(self._folder, self._number)
        try:
            status = path.stat()
            version = status.st_ino, status.st_mtime_ns
            if version == self._version:
                self.silence += elapsed
            else:
                self.report = WorkerHealth.of_json(path.read_text(encoding="utf-8"))
                self.silence, self._version = 0.0, version
        except FileNotFoundError:
            pass  # it is still being imported

    def order_to_stop(self) -> None:
        """Close the pipe, and send a signal so that the child looks there now."""
        if self.process is not None:
            self._close_orders()
            self.process.terminate()  # ends it if it is still being imported

    def ended(self) -> tuple[int, int]:
        """Wait for the process; return its exit code and the number of messages that it was running."""
        assert self.process is not None
        code = self.process.wait()
        self.process = None
        self.look()
        self.silence = 0.0
        self._close_orders()
        return code, collect(self._folder, self._number)

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def got_far(self, running: int) -> bool:
        """Return whether the process that has ended was more than a start that failed.

        Args:
            running: number of messages that it was running.
        """
        if running:
            return True
        if self.report is None or not self.report.tasks:
            return False
        counted = any(any(task.counts.values()) for task in self.report.tasks.values())
        return counted or time.monotonic() - self._started >= _QUICK

    def _close_orders(self) -> None:
        if self._orders >= 0:
            os.close(self._orders)
            self._orders = -1


class Supervisor:
    """Keeps child processes running.

    Args:
        name: of the worker.
        processes: number of children.
        close_timeout: seconds that the tasks of a child get to finish.
        on_poll: called several times per second.
        hung: seconds without a report after which a child is killed and replaced.
    """

    def __init__(
        self,
        name: str,
        processes: int,
        close_timeout: float,
        on_poll: Callable[[], None] = lambda: None,
        *,
        hung: float = _HUNG,
    ) -> None:
        self._name = name
        self._processes = processes
        self._close_timeout = close_timeout
        self._on_poll = on_poll
        self._hung = hung
        self._children: list[_Child] = []
        self._signal: int | None = None
        self._signals = 0
        self._repeats = Repeats()
        self._looked = time.monotonic()
        self._lock = make_lock(Rank.LEAF, "supervisor")
        """That a report is either of a process that runs or part of the past."""
        self._past: dict[str, TaskHealth] = {}
        """By task, what the processes counted that have ended."""

    def run(self) -> int:
        """Run the children until a signal comes or none can be kept running; return the exit code."""
        before = {}
        if threading.current_thread() is threading.main_thread():
            before = {number: signal.signal(number, self._handle) for number in stop_signals()}
        try:
            with (
                tempfile.TemporaryDirectory(prefix="stompy-worker-") as folder,
                stacks_on_request(self._ask_for_stacks),
            ):
                self._children = [_Child(n, self._name, Path(folder)) for n in range(1, self._processes + 1)]
                try:
                    code = self._supervise()
                    return self._stop(code)
                finally:
                    for child in self._children:
                        child.kill()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def health(self) -> WorkerHealth:
        """Return the sum of what the children report; the counters include processes that have ended."""
        with self._lock:
            reports = [child.report for child in self._children if child.report is not None]
            tasks = dict(self._past)
        for report in reports:
            _add(tasks, report)
        running = len(reports) == self._processes and all(report.state == "running" for report in reports)
        return WorkerHealth(
            state="stopping" if self._signal else "running" if running else "starting",
            connected=len(reports) == self._processes and all(report.connected for report in reports),
            parked=sum(report.parked for report in reports),
            overdue=sum(report.overdue for report in reports),
            tasks=tasks,
            last_error=next((report.last_error for report in reports if report.last_error), None),
            outage=next((report.outage for report in reports if report.outage), None),
            processes=sum(child.process is not None for child in self._children),
            hung=sum(child.silence >= min(_SILENT, self._hung) for child in self._children),
        )

    def _handle(self, number: int, frame: object) -> None:
        if not self._repeats(number):
            self._signals += 1
            self._signal = number

    def _ask_for_stacks(self) -> None:
        for child in self._children:
            if child.process is not None and child.report is not None:  # others may not handle the signal yet
                child.process.send_signal(signal.SIGUSR1)

    def _supervise(self) -> WorkerExit | None:
        """Start and restart children; return the exit code, or `None` if a signal came."""
        while self._signal is None:
            for child in self._children:
                if child.process is None:
                    if time.monotonic() >= child.not_before:
                        self._start(child)
                elif child.process.poll() is not None:
                    code = self._died(child)
                    if code in _HOPELESS:
                        return WorkerExit(code)
                elif child.silence >= self._hung:
                    _LOG.error("%s: killed, as nothing was heard from it for %.0f s", child.name, child.silence)
                    child.kill()
            if all(child.failed_starts >= _MAX_FAILED_STARTS for child in self._children):
                _LOG.error("%s: every process died %d times at its start", self._name, _MAX_FAILED_STARTS)
                return WorkerExit.FAILED
            self._wait()
        return None

    def _start(self, child: _Child) -> None:
        try:
            child.start()
        except OSError as error:
            delay = _put_off(child)
            _LOG.error("%s: not started: %s; tried again in %.1f s", child.name, error, delay)

    def _wait(self) -> None:
        """Wait a little, and read the reports."""
        self._on_poll()
        time.sleep(_POLL)
        now = time.monotonic()
        # While this process was stopped itself, it could not hear its children.
        elapsed, self._looked = min(now - self._looked, 2 * _POLL), now
        for child in self._children:
            if child.process is not None:
                child.look(elapsed)

    def _died(self, child: _Child) -> int:
        """Note the end of a child that was not asked to stop; return its exit code."""
        code, running = child.ended()
        got_far = child.got_far(running)
        with self._lock:
            if child.report is not None:
                _add(self._past, child.report, ended=True)
                child.report = None
        if got_far:
            child.failed_starts = 0
            child.not_before = time.monotonic() + (0.0 if code == WorkerExit.OK else _POLL)
        if got_far and code == WorkerExit.OK:
            _LOG.info("%s: reached a limit in order, and is replaced", child.name)
        elif code not in _HOPELESS:
            delay = _POLL if got_far else _put_off(child)
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            _LOG.error("%s: died by %s while it ran %d messages; restarted in %.1f s", child.name, how, running, delay)
        return code

    def _stop(self, code: WorkerExit | None) -> int:
        """Stop the children in order, and return the exit code."""
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._died(child)  # before it was asked to stop
            child.order_to_stop()
        live = [child for child in self._children if child.process is not None]
        deadline = Deadline(self._close_timeout + _GRACE)
        while any(child.process and child.process.poll() is None for child in live):
            if deadline.expired or self._signals >= 2:
                break
            self._wait()
        for child in live:
            assert child.process is not None
            killed = child.process.poll() is None
            child.kill()
            if killed:
                _LOG.error("%s: was killed, as it did not stop in time", child.name)
            code = code or _code_after_stop(child, child.ended()[0], killed=killed)
        if self._signals >= 2 and self._signal is not None:
            return 128 + self._signal
        return code or WorkerExit.OK


def _put_off(child: _Child) -> float:
    """Count a failed start; return the seconds until the next one."""
    child.failed_starts += 1
    delay = min(_LONGEST_DELAY, _POLL * 2.0**child.failed_starts)
    child.not_before = time.monotonic() + delay
    return delay


def _code_after_stop(child: _Child, code: int, *, killed: bool) -> WorkerExit:
    """Return how a child ended that was asked to stop: whether its tasks have finished."""
    if killed:
        return WorkerExit.UNFINISHED
    # One that did not report that it stops had not begun, or was dead already.
    if code in _TERMINATED or child.report is None or child.report.state != "stopping":
        return WorkerExit.OK
    if code in set(WorkerExit):
        return WorkerExit(code) if code in (WorkerExit.UNFINISHED, WorkerExit.STUCK) else WorkerExit.OK
    return WorkerExit.UNFINISHED


def _add(tasks: dict[str, TaskHealth], report: WorkerHealth, *, ended: bool = False) -> None:
    """Add a report to a sum; of a process that has ended, its counters only."""
    for name, task in report.tasks.items():
        if ended:
            task = TaskHealth(running=0, queued=0, stuck=0, counts=task.counts)
        tasks[name] = _sum(tasks[name], task) if name in tasks else task


def _sum(one: TaskHealth, other: TaskHealth) -> TaskHealth:
    counts: Mapping[str, int] = {
        name: one.counts.get(name, 0) + other.counts.get(name, 0) for name in {*one.counts, *other.counts}
    }
    return replace(
        one, running=one.running + other.running, queued=one.queued + other.queued,
        stuck=one.stuck + other.stuck, counts=counts,
    )  # fmt: skip
