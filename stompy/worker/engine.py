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
from collections.abc import Callable, Sequence
from dataclasses import replace

from stompy.backoff import Backoff
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.listeners import ClosedEvent, Listener
from stompy.connection.reconnect import Outage, Reconnect, retry
from stompy.deadline import Deadline
from stompy.default import DEFAULT, given
from stompy.dialects.brokers import with_limits
from stompy.errors import ConfigurationError, NotConnectedError, StompError
from stompy.forks import Owner
from stompy.locks import SafeEvent
from stompy.threads import DaemonThread
from stompy.worker.failure import retry_queues
from stompy.worker.parking import ParkingLot, parking_queue
from stompy.worker.processes import Crashes
from stompy.worker.run import WorkerRun, WorkerSettings
from stompy.worker.service import TaskHealth, WorkerExit, WorkerHealth, exit_of
from stompy.worker.slot import Pool, Slot
from stompy.worker.task import Task

_TICK = 0.2
"""Seconds between two looks of the monitor."""

_DISCONNECT = 5.0


class Engine(WorkerRun, Listener):
    """A worker from start to stop; used once.

    Args:
        settings: of the worker.
        tasks: to run.
        on_tick: called several times per second, on the monitor.
        crashes: see `WorkerRun`.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        tasks: Sequence[Task],
        on_tick: Sequence[Callable[[], None]],
        crashes: Crashes | None,
    ) -> None:
        super().__init__(settings, tasks, crashes)
        self.owner = Owner("worker")
        self.started = False
        self.pools: list[Pool] = []
        self._finished = SafeEvent()
        self._on_tick = on_tick
        self._outage: Outage | None = None
        """Before the first session."""
        self._parking: ParkingLot | None = None
        self._monitor = DaemonThread(f"stompy-{self.name}-monitor", self._watch)
        self._ends_at = Deadline(settings.max_seconds)

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
        self.log(logging.INFO, "%s: started with %s, at %s", self.name, names, self.connection.address)
        self.started = True
        if self.connection.closed:  # before `on_closed` could see that the start was over
            self.stop(WorkerExit.CONNECTION, "the connection was lost for good")
        self.notify("started")

    def _report_retry(self, attempt: int, delay: float, reason: StompError) -> None:
        self._outage = Outage.after(self._outage, reason, attempt, delay)
        self.log(logging.WARNING, "%s: %s", self.name, str(self._outage))

    def _open(self) -> None:
        """Make the connection and its subscriptions, or nothing."""
        if self.stopping.is_set():
            raise NotConnectedError("the worker was stopped")
        settings = self.settings
        connection = connect(
            settings.url,
            timeouts=replace(settings.timeouts, start=0.0),  # as `start` tries again
            reconnect=settings.reconnect,
            listeners=[self],
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
        dialect = with_limits(self.dialect, connection.server)
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
            for slot in pool.slots:
                slot.start()

    # Running.

    def on_closed(self, event: ClosedEvent) -> None:
        """Stop the worker, as there will be no further session; `start` itself tries again."""
        if event.reason is not None and self.started:
            self.stop(exit_of(event.reason), f"the connection was lost for good: {event.reason}")

    def _watch(self) -> None:
        while not self._finished.wait(_TICK):
            self._tick()

    def _tick(self) -> None:
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

    def health(self) -> WorkerHealth:
        """Return how the worker is doing."""
        tasks = {
            pool.task.name: TaskHealth(
                running=sum(slot.job is not None for slot in pool.slots),
                queued=len(pool.queue),
                stuck=len(pool.stuck),
                counts=dict(self.counts[pool.task.name]),
            )
            for pool in self.pools
        }
        connection, parking = self._connection, self._parking
        if self._outage is not None:
            outage: str | None = str(self._outage)
        else:
            outage = None if connection is None else connection.stats().outage
        return WorkerHealth(
            state="stopping" if self.stopping.is_set() else "running" if self.started else "starting",
            connected=connection is not None and connection.connected,
            parked=0 if parking is None else len(parking),
            tasks=tasks,
            last_error=self.last_error,
            overdue=0 if parking is None else parking.overdue,
            outage=outage,
        )

    # Stopping.

    def finish(self, timeout: float | None) -> WorkerExit:
        """Wait for the running tasks, disconnect, and return how the worker ended.

        Args:
            timeout: seconds for the tasks to finish.
        """
        if self._finished.is_set():
            return self.code
        self.notify("stopping")
        deadline = Deadline(timeout)
        for pool in self.pools:
            pool.queue.close()
        unfinished = self._unfinished(deadline)
        while unfinished and not deadline.expired:
            unfinished = self._unfinished(deadline)
        for slot in unfinished:
            job = slot.job
            if job is not None:
                # If the task returns after all, its slot finds the message claimed, and settles nothing in a session
                # that is about to end. If it has claimed its message already, it settles it or fails to.
                job.claim(self)
                self.log(
                    logging.ERROR, "%s: message %.200r was not finished in time and is redelivered:\n%s",
                    self.name, job.message.message_id, slot.stack(), message=job.message,
                )  # fmt: skip
        if self.crashes is not None:
            self.crashes.close()
        self._finished.set()
        self.hurried.set()
        self._monitor.join_until(Deadline(_DISCONNECT))
        self._release(Deadline(_DISCONNECT))
        if unfinished and self.code is WorkerExit.OK:
            self.code = WorkerExit.UNFINISHED
        self.log(logging.INFO, "%s: stopped (exit code %d)", self.name, self.code)
        return self.code

    def _unfinished(self, deadline: Deadline) -> list[Slot]:
        """Wait a little for each slot, as the monitor may replace one meanwhile; return the slots that still run."""
        slots = [slot for pool in self.pools for slot in pool.slots]
        return [slot for slot in slots if not slot.join_until(deadline.sooner(_TICK))]

    def _release(self, deadline: Deadline) -> None:
        """Close the connection and its readers."""
        for pool in self.pools:
            pool.queue.close()
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
