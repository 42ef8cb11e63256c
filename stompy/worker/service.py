"""A worker as a process: its exit code, its signals, its health, the metrics, the HTTP endpoint, systemd."""

from __future__ import annotations

import contextlib
import enum
import faulthandler
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

from stompy.deadline import Deadline
from stompy.errors import REFUSALS, ConfigurationError, StompError
from stompy.forks import Owner, when_forked
from stompy.threads import DaemonThread, Repeats
from stompy.world import os, signal, socket, threading, time

_LOG = logging.getLogger("stompy.worker")


class WorkerExit(enum.IntEnum):
    """The exit codes of a worker."""

    OK = 0
    """It ended in order: after a signal, `close`, `max_messages` or `max_seconds`."""
    FAILED = 1
    """A child process could not be kept running, or a thread ended by a bug."""
    USAGE = 2
    """A setting is wrong, or the broker does not support it."""
    CONNECTION = 3
    """No session with the broker, and no further attempt."""
    BROKER = 4
    """The broker refused the login or a subscription."""
    UNFINISHED = 6
    """Tasks did not finish within the close timeout; their messages are redelivered."""
    STUCK = 7
    """More tasks than `max_stuck` ran beyond their time limit."""


def exit_of(error: StompError | None) -> WorkerExit:
    """Return the exit code for an error that ended the worker."""
    if isinstance(error, ConfigurationError):
        return WorkerExit.USAGE
    if isinstance(error, REFUSALS):
        return WorkerExit.BROKER
    return WorkerExit.CONNECTION


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealth:
    """How a task is doing.

    Attributes:
        running: messages that are being handled.
        queued: messages that wait for a thread.
        stuck: threads that run beyond the time limit.
        counts: since the start: `processed`, `failed` (attempts), `retried`, `deferred`, `dead_lettered`, `duplicate`,
            `unsettled` (messages that are redelivered as the session was lost), `stuck`, and `errors`: how often
            code around the task raised, such as a middleware, a store of ids or a handler of logging.
    """

    running: int
    queued: int
    stuck: int
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHealth:
    """How a worker is doing; returned by `Worker.health`.

    Attributes:
        state: `"stopped"`, `"starting"`, `"running"` or `"stopping"`.
        connected: whether there is a session.
        parked: messages that wait for their retry in this process.
        tasks: by name.
        last_error: the last refusal of the broker, or the last error around a task (`errors`); or `None`.
        processes: number of child processes that run; 0 without `processes=`.
        hung: number of child processes that run and have not been heard from for 10 seconds.
        overdue: parked messages whose time has come and that were not moved yet.
        outage: why there is no session and when the next attempt is made, such as
            `localhost:61613: connection refused; attempt 7 in 3.2 s`; `None` if there is one.
    """

    state: str
    connected: bool = False
    parked: int = 0
    tasks: Mapping[str, TaskHealth] = field(default_factory=dict)
    last_error: str | None = None
    processes: int = 0
    hung: int = 0
    overdue: int = 0
    outage: str | None = None

    @property
    def ready(self) -> bool:
        """Whether the worker takes messages."""
        return self.state == "running" and self.connected and not self.hung

    def as_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> WorkerHealth:
        """Return the health that `as_json` wrote."""
        values = json.loads(text)
        tasks = {name: TaskHealth(**task) for name, task in values.pop("tasks").items()}
        return cls(**values, tasks=tasks)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """The samples of one metric, by the values of its labels.

    Attributes:
        name: of the metric; a sample of a counter ends with `_total`.
        kind: `"gauge"` or `"counter"`.
        help: a sentence about it.
        labels: their names.
        samples: the values of the labels, and the value.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: Sequence[tuple[tuple[str, ...], int]]


_OF_WORKERS = {
    "connected": "Whether there is a session.",
    "parked": "Messages that wait in this process for their retry.",
    "overdue": "Messages that wait there though their time has come.",
}
_OF_TASKS = {
    "running": "Messages that are being handled.",
    "queued": "Messages that wait for a thread.",
    "stuck": "Threads that run beyond the time limit.",
}


def metric_families(health: WorkerHealth, name: str) -> list[MetricFamily]:
    """Return the metrics of a worker."""
    tasks = [((name, task), values) for task, values in health.tasks.items()]
    prefix = "stompy_worker"
    of_workers = [
        MetricFamily(f"{prefix}_{each}", "gauge", text, ("worker",), [((name,), int(getattr(health, each)))])
        for each, text in _OF_WORKERS.items()
    ]
    of_tasks = [
        MetricFamily(
            f"{prefix}_{each}",
            "gauge",
            text,
            ("worker", "task"),
            [(labels, getattr(values, each)) for labels, values in tasks],
        )
        for each, text in _OF_TASKS.items()
    ]
    counts = [((*labels, event), n) for labels, values in tasks for event, n in sorted(values.counts.items())]
    outcomes = "Messages and attempts, by outcome."
    of_events = MetricFamily(f"{prefix}_messages", "counter", outcomes, ("worker", "task", "outcome"), counts)
    return [*of_workers, *of_tasks, of_events]


def metrics(health: WorkerHealth, name: str) -> str:
    """Return the metrics in the text format of Prometheus."""
    lines = []
    for family in metric_families(health, name):
        sample = family.name + "_total" * (family.kind == "counter")
        lines += [f"# HELP {sample} {family.help}", f"# TYPE {sample} {family.kind}"]
        lines += [f"{sample}{{{_labels(family.labels, values)}}} {value}" for values, value in family.samples]
    return "\n".join(lines) + "\n"


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in zip(names, values, strict=True))


def http_address(address: str | int) -> tuple[str, int]:
    """Return the host and the port in `host:port`, or in a port of this machine.

    Raises:
        ConfigurationError: the address has no port.
    """
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"http must be 'host:port' or a port, such as 8080, not {address!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


class HttpEndpoint(DaemonThread):
    """Serves `/live`, `/ready` and `/metrics`.

    Args:
        address: `host:port`, or a port of this machine; port 0 takes a free one.
        health: returns the state of the worker.
        name: of the worker.

    Raises:
        ConfigurationError: the address is invalid, or cannot be listened on.
    """

    def __init__(self, address: str | int, health: Callable[[], WorkerHealth], name: str) -> None:
        super().__init__(f"stompy-{name}-http")
        self._owner = Owner("endpoint")
        import http.server  # slow to import, and most programs never need it

        host, port = http_address(address)
        endpoint = self
        self._health = health
        self._name = name

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 10.0
            server_version = "stompy"
            sys_version = ""

            def do_GET(self) -> None:
                code, kind, text = endpoint.answer(self.path.partition("?")[0])
                body = text.encode()
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                _LOG.debug("http: " + format, *args)

        try:
            self._server = http.server.ThreadingHTTPServer((host, port), Handler)
        except (ValueError, OSError, OverflowError) as error:
            raise ConfigurationError(f"http={address!r} cannot be listened on: {error}") from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        when_forked(self)

    def after_fork(self) -> None:
        """Close the copy of the socket in a forked child."""
        self._server.socket.close()

    def answer(self, path: str) -> tuple[int, str, str]:
        """Return the status, the type and the body for a path."""
        health = self._health()
        if path == "/live":
            return 503 if health.hung else 200, "application/json", health.as_json()
        if path == "/ready":
            return 200 if health.ready else 503, "application/json", health.as_json()
        if path == "/metrics":
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics(health, self._name)
        return 404, "text/plain", "/live, /ready and /metrics are here\n"

    def run(self) -> None:
        """Serve."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """Stop serving."""
        if self._owner.forked:
            return
        if self.started:
            self._server.shutdown()
        self._server.server_close()
        self.join_until(Deadline(5.0))


class Systemd:
    """Tells systemd when the worker is ready and that it lives, if systemd started it with `Type=notify`."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._path = "\0" + path[1:] if path.startswith("@") else path
        mine = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        usec = environ.get("WATCHDOG_USEC", "")
        self._interval = int(usec) / 2e6 if usec.isdecimal() and mine and path else 0.0
        self._next = 0.0

    def notify(self, text: str) -> None:
        """Send a message such as `READY=1`; an error is logged."""
        if not self._path:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix:
                unix.connect(self._path)
                unix.send(text.encode())
        except OSError as error:
            _LOG.warning("systemd was not notified: %s", error)

    def tick(self) -> None:
        """Reset the watchdog, twice per interval."""
        now = time.monotonic()
        if self._interval and now >= self._next:
            self._next = now + self._interval
            self.notify("WATCHDOG=1")


@contextlib.contextmanager
def stacks_on_request(written: Callable[[], None] | None) -> Iterator[None]:
    """Write the stacks of all threads to standard error at SIGUSR1, unless the program handles it; main thread only.

    Args:
        written: called afterwards, in the main thread.
    """
    number = getattr(signal, "SIGUSR1", None)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if number is None or elsewhere or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return

    def write(*_: object) -> None:
        # With the GIL: `faulthandler.register` goes through the threads without it, and crashes where one just ends.
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # there is no standard error
            faulthandler.dump_traceback()
        if written is not None:
            written()

    try:
        signal.signal(number, write)
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


class Interrupted(BaseException):
    """A signal came that must not wait: while connecting, or the second one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Stops a worker at a signal, and raises `Interrupted` in the main thread, once, if that must not wait.

    It raises wherever the main thread is, also in `install`.

    Args:
        stop: called with the reason.
        started: whether the worker is past connecting.
        told_to_stop: of a child process, which ignores signals until its parent has asked it to stop.
        raises: whether it may raise.

    Attributes:
        received: the numbers of the signals.
    """

    def __init__(
        self,
        stop: Callable[[str], None] = lambda reason: None,
        *,
        started: Callable[[], bool] = lambda: True,
        told_to_stop: Callable[[], bool] | None = None,
        raises: bool = True,
    ) -> None:
        self._stop = stop
        self._started = started
        self._told_to_stop = told_to_stop
        self._before: dict[int, Any] = {}
        self._repeats = Repeats()
        self.received: list[int] = []
        self.raises = raises
        self._owner = Owner("worker")

    def install(self) -> None:
        """Begin; only in the main thread, as others get no signals."""
        if threading.current_thread() is not threading.main_thread():
            return
        numbers = [signal.SIGTERM, signal.SIGINT]
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as by `nohup`
            numbers.append(signal.SIGHUP)
        # First all, then each: a signal may come, and raise, as soon as the first handler is set.
        self._before = {number: signal.getsignal(number) for number in numbers}
        when_forked(self)
        for number in numbers:
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """End."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def after_fork(self) -> None:
        """End in a child: in that of a thread, Python 3.13 calls no handler unless a system call is interrupted."""
        self.restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._owner.forked:  # a child of a task, in which `after_fork` did not run yet
            self.restore()
            os.kill(os.getpid(), number)
            return
        if self._told_to_stop is not None and (self.received or not self._told_to_stop()):
            return
        if self._repeats(number):
            return
        self.received.append(number)
        self._stop(f"received {signal.Signals(number).name}")
        if self.raises and len(self.received) == (2 if self._started() else 1):
            raise Interrupted(number)  # the second signal, or the first one while connecting
