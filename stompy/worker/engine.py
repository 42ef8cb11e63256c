"""The running worker: one connection, the slots of every task, and the monitor.

| thread (named `stompy-<worker>-…`) | owns | may block on | never |
|---|---|---|---|
| the caller of `start` and `finish` | the order of start and stop | connecting, the slots | |
| monitor | time limits, `max_seconds` | its event | runs user code |
| slots (`slot.py`), parking (`parking.py`) | see there | | |

The dispatcher of the connection puts messages into the queues of the tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stompy.backoff import Backoff
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.listeners import ClosedEvent, Listener
from stompy.connection.message import Message
from stompy.connection.reconnect import Outage, Reconnect, retry
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, given
from stompy.dialects.brokers import dialect_named, with_limits
from stompy.errors import (
    ConfigurationError,
    NotConnectedError,
    StompError,
)
from stompy.forks import Owner
from stompy.link.settings import Timeouts
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.threads import DaemonThread, must_propagate
from stompy.worker.crashes import Crashes, identity
from stompy.worker.failure import class_of, parking_queue, retry_queues, text_of
from stompy.worker.parking import ParkingLot
from stompy.worker.service import TaskHealth, WorkerExit, WorkerHealth, exit_of
from stompy.worker.slot import NO_REFUSALS, Commits, Pool, Refusals, Slot
from stompy.worker.task import Task
from stompy.world import time

_LOG = logging.getLogger("stompy.worker")

_TICK = 0.2
"""Seconds between two looks of the monitor."""

_LOOK = 0.01
"""Seconds between two looks at a clock that is not the system's."""

_MAX_REFUSALS = 1_000
_DISCONNECT = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker does, beside its tasks; for the fields see `Worker`."""

    url: str | Sequence[str] = field(repr=False)
    concurrency: int
    timeouts: Timeouts
    reconnect: bool | Reconnect | Default
    max_stuck: int | Default | None
    max_messages: int | None
    max_seconds: float | None
    name: str
    options: Mapping[str, Any] = field(repr=False)

    @property
    def close_timeout(self) -> float:
        """Seconds that running tasks get to finish when the worker stops."""
        return given(self.timeouts.close, 20.0)


class _Watch(Listener):
    """Stops the worker when there will be no further session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def on_closed(self, event: ClosedEvent) -> None:
        """Stop the worker."""
        if event.reason is not None:
            self._engine.stop(exit_of(event.reason), f"the connection was lost for good: {event.reason}")


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
        clock: returns seconds since the epoch by the clock of an embedded broker, which tests turn forward; `None` uses
            the system's.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        tasks: Sequence[Task],
        *,
        clock: Callable[[], float] | None = None,
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
        self.stopping = SafeEvent()
        self.finished = SafeEvent()
        self.crashes = crashes
        self.last_error: str | None = None
        self.parks = False
        """Whether retries wait in parking queues, as the broker does not deliver with a delay."""
        self.started = False
        self.pools: list[Pool] = []
        self._clock = clock
        self._middleware = middleware
        self._on_tick = on_tick
        self._code = WorkerExit.OK
        self._tickets = settings.max_messages
        self._lock = make_lock(Rank.LEAF, "engine")
        self._refused: dict[bytes, Refusals] = {}
        self.commits = Commits()
        self._connection: Connection | None = None
        self._outage: Outage | None = None
        """Before the first session."""
        self._parking: ParkingLot | None = None
        self._monitor = _Monitor(self)
        self._ends_at = Deadline(settings.max_seconds)

    @property
    def connection(self) -> Connection:
        """The connection, once it was opened."""
        if self._connection is None:
            raise NotConnectedError("the worker is not connected yet")
        return self._connection

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return self._connection is not None and self._connection.connected

    # Time.

    def now(self) -> float:
        """Return seconds since the epoch, by which messages are parked."""
        return time.time() if self._clock is None else self._clock()

    def at_most(self, seconds: float | None) -> float | None:
        """Return how long to wait until the clock shows that `seconds` have passed, before looking again."""
        return seconds if self._clock is None else _LOOK if seconds is None else min(seconds, _LOOK)

    def wait(self, seconds: float) -> bool:
        """Wait; return whether the worker is stopping."""
        if self._clock is None:
            return self.stopping.wait(seconds)
        due = self.now() + seconds
        while (left := due - self.now()) > 0 and not self.stopping.wait(min(left, _LOOK)):
            pass
        return self.stopping.is_set()

    # Starting.

    def start(self) -> None:
        """Connect and subscribe, as soon as the broker can be reached.

        Raises:
            StompError: the broker refused, or was not reached within `Timeouts.start`; everything is closed.
        """
        total = given(self.settings.timeouts.start, None)
        policy = Reconnect(backoff=Backoff(longest=10.0), attempts=1 if total == 0 else None, total=total or None)
        try:
            self._monitor.start()
            retry(self._open, policy, closing=self.stopping, report=self._report_retry)
        except BaseException as error:
            self.stop(exit_of(error) if isinstance(error, StompError) else WorkerExit.OK, "")
            self.finish(0.0)
            raise
        self._outage = None
        names = ", ".join(task.name for task in self.tasks)
        address = self.connection.address
        self.log(logging.INFO, "%s: started with %s, at %s", self.name, names, address, extra=self.log_fields)
        self.started = True
        self.notify("started")

    def _report_retry(self, attempt: int, delay: float, reason: StompError) -> None:
        self._outage = Outage.after(self._outage, reason, attempt, delay)
        self.log(logging.WARNING, "%s: %s", self.name, str(self._outage), extra=self.log_fields)

    def _open(self) -> None:
        """Make the connection and its subscriptions, or nothing."""
        if self.stopping.is_set():
            raise NotConnectedError("the worker was stopped")
        settings = self.settings
        connection = connect(
            settings.url,
            timeouts=replace(settings.timeouts, start=0.0),  # as `start` tries again
            reconnect=settings.reconnect,
            listeners=[_Watch(self)],
            name=settings.name,
            **settings.options,
        )
        try:
            self._connection = connection
            self._subscribe(connection)
        except BaseException:
            self._release(Deadline(_DISCONNECT))
            raise

    def _subscribe(self, connection: Connection) -> None:
        dialect = with_limits(dialect_named(connection.dialect), connection.server)
        slots = sum(given(task.concurrency, self.settings.concurrency) for task in self.tasks if task.transactional)
        most = dialect.max_open_transactions
        if most is not None and slots > most // 2:
            raise ConfigurationError(f"{dialect.product} takes {most // 2} transactional tasks at once, not {slots}")
        for task in self.tasks:
            if task.transactional and "ACK" not in dialect.transacted:
                raise ConfigurationError(f"task {task.name!r}: {dialect.product} cannot acknowledge in a transaction")
            size = given(task.concurrency, self.settings.concurrency)
            prefetch = given(task.prefetch, 2 * size)
            limited = dialect.supports("prefetch")
            ordered = task.key is not None and dialect.supports("exclusive")
            pool = Pool(self, task, size, limit=None if limited else prefetch)
            self.pools.append(pool)
            for destination in dict.fromkeys((*task.destinations, *retry_queues(task))):
                user = destination in task.destinations
                # A limit in bytes (Artemis) is no limit in messages, but several consumers with one message each are.
                shared = dialect.prefetch_as_window and destination.startswith("/queue/")
                for _ in range(prefetch if shared else 1):
                    connection.subscribe(
                        destination,
                        pool.queue.put,
                        ack="client-individual",
                        prefetch=1 if shared else prefetch if limited and not dialect.prefetch_as_window else DEFAULT,
                        selector=task.selector if user else None,
                        durable=task.durable if user else None,
                        # A new session gets nothing before the broker has taken back what the lost one had.
                        exclusive=task.exclusive or (ordered and destination.startswith("/queue/")),
                        headers=task.headers if user else None,
                        own_thread=not limited,
                    )
        self.parks = not (dialect.supports("delay") and dialect.durable_delay)
        if self.parks:
            queues = [parking_queue(task) for task in self.tasks if task.key is None]
            self._parking = ParkingLot(self, list(dict.fromkeys(queues)))
            self._parking.open(connection, limited=dialect.supports("prefetch"))
        for pool in self.pools:
            # Last: what the broker refuses of a task ends the session, which would look like a refused subscription.
            pool.start()

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
            threads = [*(slot for pool in self.pools for slot in pool.slots), self._parking]
            if any(thread is not None and thread.failed for thread in threads):
                self.stop(WorkerExit.FAILED, "a thread has ended by a bug")
            stuck = sum(len(pool.stuck) for pool in self.pools)
            most = given(self.settings.max_stuck, self.settings.concurrency)
            if most is not None and stuck > most:
                self.stop(WorkerExit.STUCK, f"{stuck} tasks are stuck beyond their time limit")
            if self._ends_at.expired:
                self.stop(WorkerExit.OK, f"{self.settings.max_seconds:g} s have passed")
            for callback in self._on_tick:
                callback()
        except BaseException as error:
            self.broke("the monitor", error)

    def refused(self, message: Message, points: int, error: StompError) -> None:
        """Note the points of a message for what the broker refused, and why."""
        self.last_error = str(error)
        with self._lock:
            if len(self._refused) >= _MAX_REFUSALS:
                self._refused.clear()
            self._refused[identity(message)] = points, error

    def refusals(self, message: Message) -> Refusals:
        """Return what `refused` noted when this message was delivered before, and forget it."""
        with self._lock:
            return self._refused.pop(identity(message), NO_REFUSALS) if self._refused else NO_REFUSALS

    def health(self) -> WorkerHealth:
        """Return how the worker is doing."""
        tasks = {
            pool.task.name: TaskHealth(
                running=pool.running, queued=len(pool.queue), stuck=len(pool.stuck), counts=dict(pool.counts)
            )
            for pool in self.pools
        }
        state = "stopping" if self.stopping.is_set() else "running" if self.started else "starting"
        parked, overdue = (0, 0) if self._parking is None else (len(self._parking), self._parking.overdue)
        return WorkerHealth(
            state=state,
            connected=self.connected,
            parked=parked,
            tasks=tasks,
            last_error=self.last_error,
            overdue=overdue,
            outage=self._why_down(),
        )

    def _why_down(self) -> str | None:
        outage, connection = self._outage, self._connection
        if outage is not None or connection is None:
            return None if outage is None else str(outage)
        return connection.stats().outage

    def notify(self, event: str, *arguments: object) -> None:
        """Call a method of every middleware; what it raises is logged."""
        for each in self._middleware:
            method = getattr(each, event, None)
            if method is not None:
                try:
                    method(*arguments)
                except BaseException as error:
                    if must_propagate(error):
                        raise
                    task = next((each for each in arguments if isinstance(each, Task)), None)
                    self.broke(f"{event} of a middleware", error, task)

    def broke(self, what: str, error: BaseException, task: Task | None = None) -> None:
        """Note that something around the tasks raised, such as a middleware, a store of ids or a handler of logging."""
        self._count_error(what, error, task)
        self.log(logging.ERROR, "%s: %s raised", self.name, what, exc_info=error, extra=self.log_fields)

    def _count_error(self, what: str, error: BaseException, task: Task | None) -> None:
        self.last_error = f"{what} raised {class_of(error)}: {text_of(error)}"
        for pool in self.pools:
            if pool.task is task:
                pool.count("errors")

    def log(self, level: int, text: str, *arguments: object, task: Task | None = None, **options: Any) -> None:
        """Log; what a handler of the user's raises is counted, and does not keep a message from being settled."""
        try:
            _LOG.log(level, text, *arguments, **options)
        except BaseException as error:
            if must_propagate(error):
                raise
            self._count_error("a handler of logging", error, task)

    # Stopping.

    def stop(self, code: WorkerExit, reason: str) -> None:
        """Take no more messages; any thread, or a signal handler. Only the first call counts."""
        if self.stopping.is_set():
            return
        self._code = code
        if reason:
            level = logging.ERROR if code else logging.INFO
            self.log(level, "%s: stopping: %s", self.name, reason, extra=self.log_fields)
        self.stopping.set()

    def finish(self, timeout: float | None) -> WorkerExit:
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
                job.claim(self)  # its result is ignored
                self.log(
                    logging.ERROR, "%s: message %.200r was not finished in time and is redelivered:\n%s",
                    self.name, job.message.message_id, slot.stack(),
                    extra={**self.log_fields, "stompy_message_id": job.message.message_id[:200]},
                )  # fmt: skip
        if self.crashes is not None:
            self.crashes.close()
        self.finished.set()
        self._monitor.join_until(Deadline(_DISCONNECT))
        self._release(Deadline(_DISCONNECT))
        if unfinished and self._code is WorkerExit.OK:
            self._code = WorkerExit.UNFINISHED
        self.log(logging.INFO, "%s: stopped (exit code %d)", self.name, self._code, extra=self.log_fields)
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
            self._connection.close(timeout=deadline.remaining())
        if not self.stopping.is_set():  # another attempt follows
            for pool in self.pools:
                for slot in pool.slots:
                    slot.join_until(deadline)
            self.pools, self._parking, self._connection = [], None, None
