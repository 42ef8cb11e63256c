"""The running worker: one connection, the slots of every task, and the monitor.

| thread (named `stompy-<worker>-…`) | owns | may block on | never |
|---|---|---|---|
| the caller of `start` and `finish` | the order of start and stop | connecting, the slots | |
| monitor | time limits, `max_seconds` | its event | runs user code |
| slots (`slot.py`), parking (`parking.py`) | see there | | |

The dispatcher of the connection puts messages into the queues of the tasks.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.failover import is_failover
from stompy.connection.listeners import ConnectionListener
from stompy.connection.message import Message
from stompy.connection.reconnect import Reconnect, retry
from stompy.deadline import Deadline
from stompy.dialects.brokers import dialect_named
from stompy.errors import (
    BrokerError,
    ClientCertificateRefused,
    ConfigurationError,
    ConnectRefused,
    NotConnected,
    StompError,
    VersionMismatch,
)
from stompy.forks import Owner
from stompy.locks import Event, Rank, make_lock
from stompy.threads import DaemonThread
from stompy.worker.crashes import Crashes
from stompy.worker.failure import delays, fingerprint, parking_queue, retry_queues
from stompy.worker.parking import ParkingLot
from stompy.worker.service import TaskHealth, WorkerHealth
from stompy.worker.slot import Pool, Slot
from stompy.worker.task import Task

_LOG = logging.getLogger("stompy.worker")

_TICK = 0.2
"""Seconds between two looks of the monitor."""

_MAX_REFUSALS = 1_000
_DISCONNECT = 5.0


class WorkerExit(enum.IntEnum):
    """The exit codes of a worker."""

    OK = 0
    """It ended in order: after a signal, `stop`, `max_messages` or `max_seconds`."""
    FAILED = 1
    """A child process could not be kept running."""
    USAGE = 2
    """A setting is wrong, or the broker does not support it."""
    CONNECTION = 3
    """No session with the broker, and no further attempt."""
    BROKER = 4
    """The broker refused the login or a subscription."""
    UNFINISHED = 6
    """Tasks did not finish within `stop_timeout`; their messages are redelivered."""
    STUCK = 7
    """More tasks than `max_stuck` ran beyond their time limit."""


def exit_of(error: StompError | None) -> WorkerExit:
    """Return the exit code for an error that ended the worker."""
    if isinstance(error, ConfigurationError):
        return WorkerExit.USAGE
    if isinstance(error, (BrokerError, ConnectRefused, ClientCertificateRefused, VersionMismatch)):
        return WorkerExit.BROKER
    return WorkerExit.CONNECTION


@dataclass(frozen=True, slots=True)
class Settings:
    """What a worker does, beside its tasks; for the fields see `Worker`."""

    url: str | Sequence[str] = field(repr=False)
    concurrency: int
    stop_timeout: float
    startup_timeout: float | None
    reconnect: Reconnect | None
    max_stuck: int | None
    max_messages: int | None
    max_seconds: float | None
    name: str
    options: Mapping[str, Any] = field(repr=False)


class _Watch(ConnectionListener):
    """Logs what happens to the connection, and stops the worker when there will be no further session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def on_disconnected(self, reason: StompError | None) -> None:
        """Log it."""
        if reason is not None:
            _LOG.warning("%s: the session was lost: %s", self._engine.name, reason, extra=self._engine.log_fields)

    def on_reconnecting(self, attempt: int, delay: float) -> None:
        """Log it."""
        _LOG.info(
            "%s: reconnecting in %.1f s, attempt %d", self._engine.name, delay, attempt, extra=self._engine.log_fields
        )

    def on_closed(self, reason: StompError | None) -> None:
        """Stop the worker."""
        if reason is not None:
            self._engine.stop(exit_of(reason), f"the connection was lost for good: {reason}")


class _Monitor(DaemonThread):
    """Calls the engine's `tick` until the end."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(f"stompy-{engine.name}-monitor")
        self._engine = engine

    def run(self) -> None:
        """Tick."""
        while not self._engine.finished.wait(_TICK):
            self._engine.tick()


class Engine:
    """A worker from start to stop; used once.

    Args:
        settings: of the worker.
        tasks: to run.
        middleware: called when something happens to a message.
        on_tick: called several times per second, on the monitor.
        crashes: of a child process.
    """

    def __init__(
        self,
        settings: Settings,
        tasks: Sequence[Task],
        *,
        middleware: Sequence[object] = (),
        on_tick: Sequence[Callable[[], None]] = (),
        crashes: Crashes | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.owner = Owner("worker")
        self.log_fields = {"stompy_worker": settings.name}
        """The `extra` of log records."""
        self.tasks = tasks
        self.stopping = Event()
        self.finished = Event()
        self.crashes = crashes
        self.last_error: str | None = None
        self.started = False
        self.pools: list[Pool] = []
        self._middleware = middleware
        self._on_tick = on_tick
        self._code = WorkerExit.OK
        self._tickets = settings.max_messages
        self._lock = make_lock(Rank.LEAF, "engine")
        self._refused: set[bytes] = set()
        self._connection: Connection | None = None
        self._parking: ParkingLot | None = None
        self._monitor = _Monitor(self)
        self._ends_at = Deadline(settings.max_seconds)

    @property
    def connection(self) -> Connection:
        """The connection, once it was opened."""
        if self._connection is None:
            raise NotConnected("the worker is not connected yet")
        return self._connection

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return self._connection is not None and self._connection.connected

    # Starting.

    def start(self) -> None:
        """Connect and subscribe, as soon as the broker can be reached.

        Raises:
            StompError: the broker refused, or was not reached within `startup_timeout`; everything is closed.
        """
        policy = Reconnect(max_delay=10.0, total=self.settings.startup_timeout)
        try:
            self._monitor.start()
            retry(self._open, policy, closing=self.stopping, report=self._report_retry)
        except BaseException as error:
            self.stop(exit_of(error) if isinstance(error, StompError) else WorkerExit.OK, "")
            self.finish(0.0)
            raise
        _LOG.info("%s: started with %s", self.name, ", ".join(task.name for task in self.tasks), extra=self.log_fields)
        self.started = True
        self.notify("started")

    def _report_retry(self, attempt: int, delay: float) -> None:
        _LOG.warning("%s: no broker yet; attempt %d in %.1f s", self.name, attempt, delay, extra=self.log_fields)

    def _open(self) -> None:
        """Make the connection and its subscriptions, or nothing."""
        if self.stopping.is_set():
            raise NotConnected("the worker was stopped")
        settings = self.settings
        reconnect = settings.reconnect
        if reconnect is None and not is_failover(settings.url):
            reconnect = Reconnect()
        connection = connect(
            settings.url, reconnect=reconnect, listeners=[_Watch(self)], name=settings.name, **settings.options
        )
        try:
            self._connection = connection
            self._subscribe(connection)
        except BaseException:
            self._release(Deadline(_DISCONNECT))
            raise

    def _subscribe(self, connection: Connection) -> None:
        dialect = dialect_named(connection.dialect)
        for task in self.tasks:
            if task.transactional and "ACK" not in dialect.transacted:
                raise ConfigurationError(f"task {task.name!r}: {dialect.product} cannot acknowledge in a transaction")
            size = task.concurrency or self.settings.concurrency
            prefetch = task.prefetch or 2 * size
            limited = dialect.supports("prefetch")
            ordered = task.key is not None and dialect.supports("exclusive")
            pool = Pool(self, task, size, limit=None if limited else prefetch)
            self.pools.append(pool)
            pool.start()
            for destination in dict.fromkeys((*task.destinations, *retry_queues(task))):
                user = destination in task.destinations
                # A limit in bytes (Artemis) is no limit in messages, but several consumers with one message each are.
                shared = dialect.prefetch_as_window and destination.startswith("/queue/")
                for _ in range(prefetch if shared else 1):
                    connection.subscribe(
                        destination,
                        pool.queue.put,
                        ack="client-individual",
                        prefetch=1 if shared else prefetch if limited and not dialect.prefetch_as_window else None,
                        selector=task.selector if user else None,
                        durable=task.durable if user else None,
                        # A new session gets nothing before the broker has taken back what the lost one had.
                        exclusive=task.exclusive or (ordered and destination.startswith("/queue/")),
                        headers=task.headers if user else None,
                        own_thread=not limited,
                    )
        if not delays(dialect):
            queues = [parking_queue(task) for task in self.tasks if task.key is None]
            self._parking = ParkingLot(self, list(dict.fromkeys(queues)))
            self._parking.open(connection, prefetch=1_000 if dialect.supports("prefetch") else None)

    # Running.

    def take_ticket(self) -> bool:
        """Return whether one more message may be started; the last one stops the worker."""
        if self._tickets is None:
            return True
        with self._lock:
            self._tickets -= 1
            left = self._tickets
        if left == 0:
            self.stop(WorkerExit.OK, f"{self.settings.max_messages} messages were taken")
        return left >= 0

    def tick(self) -> None:
        """Look after time limits; called by the monitor."""
        try:
            for pool in self.pools:
                pool.replace_overdue()
            stuck = sum(len(pool.stuck) for pool in self.pools)
            most = self.settings.max_stuck
            if stuck > (self.settings.concurrency if most is None else most):
                self.stop(WorkerExit.STUCK, f"{stuck} tasks are stuck beyond their time limit")
            if self._ends_at.expired:
                self.stop(WorkerExit.OK, f"{self.settings.max_seconds:g} s have passed")
            for callback in self._on_tick:
                callback()
        except Exception:
            _LOG.exception("%s: a bug in the monitor", self.name, extra=self.log_fields)

    def refused(self, message: Message, error: StompError) -> None:
        """Note that the broker refused what was sent for a message."""
        self.last_error = str(error)
        with self._lock:
            if len(self._refused) >= _MAX_REFUSALS:
                self._refused.clear()
            self._refused.add(fingerprint(message))

    def was_refused(self, message: Message) -> bool:
        """Return whether the broker refused something for this message when it was delivered before."""
        return bool(self._refused) and fingerprint(message) in self._refused

    def health(self) -> WorkerHealth:
        """Return how the worker is doing."""
        tasks = {
            pool.task.name: TaskHealth(pool.running, len(pool.queue), len(pool.stuck), dict(pool.counts))
            for pool in self.pools
        }
        state = "stopping" if self.stopping.is_set() else "running" if self.started else "starting"
        parked = 0 if self._parking is None else len(self._parking)
        return WorkerHealth(state, self.connected, parked, tasks, self.last_error)

    def notify(self, event: str, *arguments: object) -> None:
        """Call a method of every middleware; what it raises is logged."""
        for each in self._middleware:
            method = getattr(each, event, None)
            if method is not None:
                try:
                    method(*arguments)
                except Exception:
                    _LOG.exception("%s: %s of a middleware raised", self.name, event, extra=self.log_fields)

    # Stopping.

    def stop(self, code: WorkerExit, reason: str) -> None:
        """Take no more messages; any thread, or a signal handler. Only the first call counts."""
        if self.stopping.is_set():
            return
        self._code = code
        if reason:
            level = logging.ERROR if code else logging.INFO
            _LOG.log(level, "%s: stopping: %s", self.name, reason, extra=self.log_fields)
        self.stopping.set()

    def finish(self, timeout: float) -> WorkerExit:
        """Wait for what runs, disconnect, and return how the worker ended.

        Args:
            timeout: seconds for the tasks to finish.
        """
        if self.finished.is_set():
            return self._code
        self.notify("stopping")
        deadline = Deadline(timeout)
        for pool in self.pools:
            pool.queue.close(2 * pool.size)
        unfinished = self._unfinished(deadline)
        while unfinished and not deadline.expired:
            unfinished = self._unfinished(deadline)
        for slot in unfinished:
            job = slot.job
            if job is not None:
                job.claim()  # its result is ignored
                _LOG.error(
                    "%s: message %.200r was not finished in time and is redelivered:\n%s",
                    self.name, job.message.message_id, slot.stack(),
                    extra={**self.log_fields, "stompy_message_id": job.message.message_id[:200]},
                )  # fmt: skip
        self.finished.set()
        self._monitor.join_until(Deadline(_DISCONNECT))
        self._release(Deadline(_DISCONNECT))
        if unfinished and self._code is WorkerExit.OK:
            self._code = WorkerExit.UNFINISHED
        _LOG.info("%s: stopped (exit code %d)", self.name, self._code, extra=self.log_fields)
        return self._code

    def _unfinished(self, deadline: Deadline) -> list[Slot]:
        """Wait a little for each slot, as the monitor may replace one meanwhile, and return those that still run."""
        slots = [slot for pool in self.pools for slot in pool.slots]
        return [slot for slot in slots if not slot.join_until(deadline.sooner(_TICK))]

    def _release(self, deadline: Deadline) -> None:
        """Close the connection and what reads from it."""
        for pool in self.pools:
            pool.queue.close(2 * pool.size)
        if self._parking is not None:
            self._parking.stop()
            self._parking.join_until(deadline)
        if self._connection is not None:
            self._connection.disconnect(timeout=deadline.remaining())
        if not self.stopping.is_set():  # another attempt follows
            for pool in self.pools:
                for slot in pool.slots:
                    slot.join_until(deadline)
            self.pools, self._parking, self._connection = [], None, None
