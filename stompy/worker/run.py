"""The state that the threads of a running worker share: its connection, its clock, the order to stop, its reports.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 5 | run (leaf) | counters, tickets, the record of refusals | no |
| 5 | commits (leaf) | which transactions are being committed | no |
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stompy.connection.connection import Connection
from stompy.connection.message import Message, delivery_of
from stompy.connection.reconnect import Reconnect
from stompy.default import Default, given
from stompy.dialects.brokers import dialect_named
from stompy.dialects.dialect import Dialect
from stompy.errors import BrokerError, NotConnectedError, StompError
from stompy.link.settings import Timeouts
from stompy.locks import Rank, SafeEvent, make_condition, make_lock
from stompy.threads import must_propagate
from stompy.worker.failure import class_of, text_of
from stompy.worker.processes import Crashes, identity
from stompy.worker.service import WorkerExit
from stompy.worker.task import Task
from stompy.world import time

_LOG = logging.getLogger("stompy.worker")

_LOOK = 0.01
"""Seconds between two looks at a clock that is not the system's."""

_MAX_REFUSALS = 1_000
_MAX_LOGGED = 200
"""Characters of a message id in a log record."""

Refusals = tuple[int, StompError | None]
"""The points of a message for its refusals in its last deliveries, and the last reason; see `slot.py`."""

NO_REFUSALS: Refusals = (0, None)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker, beside its tasks; for the fields see `Worker`."""

    url: str | Sequence[str] = field(repr=False)
    concurrency: int
    timeouts: Timeouts
    reconnect: bool | Reconnect | Default
    max_stuck: int | Default | None
    max_messages: int | None
    max_seconds: float | None
    middleware: tuple[object, ...]
    processes: int | None
    http: str | int | None
    name: str
    options: Mapping[str, Any] = field(repr=False)
    clock: Callable[[], float] | None = None
    """Returns seconds since the epoch by the clock of an embedded broker, which tests turn forward."""

    @property
    def close_timeout(self) -> float:
        """Seconds that running tasks get to finish when the worker stops."""
        return given(self.timeouts.close, 20.0)


class Commits:
    """Lets transactions be committed side by side, or one alone, as an ERROR may not say which of them it is about.

    An ERROR ends the session for all transactions. If one was committed alone, it is to blame, and the others are not.
    Called with no other lock held; every wait ends by the receipt timeout of a commit.
    """

    def __init__(self) -> None:
        self._changed = make_condition("commits", None)
        self._running = 0
        self._alone = False
        self._blamed: Message | None = None
        """The last message that was committed alone and refused; its session has ended by that."""

    @contextlib.contextmanager
    def turn(self, message: Message, *, alone: bool) -> Iterator[None]:
        """Commit the transaction of a message in the block, which ends by the receipt timeout."""
        with self._changed:
            # First the claim, then the wait: while `_alone` is set no other commit begins, so the running ones drain.
            self._changed.wait_for(lambda: not self._alone)
            self._alone = alone
            self._changed.wait_for(lambda: not (alone and self._running))
            self._running += 1
            # If the session ended during the wait, its end is the fault of another transaction.
            began = not message.session_ended
        try:
            yield
        except BrokerError:
            if alone and began:
                with self._changed:
                    self._blamed = message
            raise
        finally:
            with self._changed:
                self._running -= 1
                if alone:
                    self._alone = False
                self._changed.notify_all()

    def blames_another(self, message: Message) -> bool:
        """Return whether the session of a message has ended as the transaction of another one was refused."""
        with self._changed:
            # The transaction that is being committed alone may be refused at this moment.
            self._changed.wait_for(lambda: not self._alone)
            blamed = self._blamed
        if blamed is None or blamed is message:
            return False
        return delivery_of(blamed).link is delivery_of(message).link


class WorkerRun:
    """One run of a worker, as its slots and its parking thread see it; `Engine` starts and stops it.

    Args:
        settings: of the worker.
        tasks: to run.
        crashes: the notes of a child process.
    """

    def __init__(self, settings: WorkerSettings, tasks: Sequence[Task], crashes: Crashes | None) -> None:
        self.settings = settings
        self.name = settings.name
        self.tasks = tasks
        self.crashes = crashes
        self.stopping = SafeEvent()
        """That no message is begun any more."""
        self.hurried = SafeEvent()
        """That no message waits any more for its next attempt, or to be run alone."""
        self.code = WorkerExit.OK
        self.commits = Commits()
        self.parks = False
        """Whether retries wait in parking queues, as the broker does not deliver with a delay."""
        self.last_error: str | None = None
        self.counts: dict[str, Counter[str]] = {task.name: Counter() for task in tasks}
        """By the name of the task, how often each event happened to a message."""
        self._clock = settings.clock
        self._connection: Connection | None = None
        self._tickets = settings.max_messages
        self._refused: dict[bytes, Refusals] = {}
        self._lock = make_lock(Rank.LEAF, "run")

    @property
    def connection(self) -> Connection:
        """The connection, once it was opened."""
        if self._connection is None:
            raise NotConnectedError("the worker is not connected yet")
        return self._connection

    @property
    def dialect(self) -> Dialect:
        """The dialect of the broker of the current session."""
        return dialect_named(self.connection.dialect)

    def stop(self, code: WorkerExit, reason: str) -> None:
        """Take no more messages, and let none wait; any thread, or a signal handler. Only the first reason counts."""
        self._take_no_more(code, reason)
        self.hurried.set()

    def _take_no_more(self, code: WorkerExit, reason: str) -> None:
        if self.stopping.is_set():
            return
        self.code = code
        if reason:
            self.log(logging.ERROR if code else logging.INFO, "%s: stopping: %s", self.name, reason)
        self.stopping.set()

    def take_ticket(self) -> bool:
        """Return whether one more message may be started; after the last one the worker takes no more."""
        if self._tickets is None:
            return True
        with self._lock:
            self._tickets -= 1
            left = self._tickets
        if left == 0:
            self._take_no_more(WorkerExit.OK, f"{self.settings.max_messages} messages were taken")
        return left >= 0

    # Time.

    def now(self) -> float:
        """Return seconds since the epoch, by which messages are parked."""
        return time.time() if self._clock is None else self._clock()

    def at_most(self, seconds: float | None) -> float | None:
        """Return how long to wait until the clock shows that `seconds` have passed, before looking again."""
        return seconds if self._clock is None else _LOOK if seconds is None else min(seconds, _LOOK)

    def wait(self, seconds: float) -> bool:
        """Wait; return whether nothing is to wait any more."""
        if self._clock is None:
            return self.hurried.wait(seconds)  # not by the wall clock, which may be set
        due = self.now() + seconds
        while (left := due - self.now()) > 0 and not self.hurried.wait(min(left, _LOOK)):
            pass
        return self.hurried.is_set()

    # Refusals of the broker.

    def refused(self, message: Message, points: int, error: StompError) -> None:
        """Note the points of a message for a refusal by the broker, and why."""
        self.last_error = str(error)
        with self._lock:
            if len(self._refused) >= _MAX_REFUSALS:
                self._refused.clear()
            self._refused[identity(message)] = points, error

    def refusals(self, message: Message) -> Refusals:
        """Return the points of a message, noted when it was delivered before, and forget them."""
        if not self._refused:
            return NO_REFUSALS  # without the hash of the message, on the way of every message
        with self._lock:
            return self._refused.pop(identity(message), NO_REFUSALS)

    # Reports.

    def count(self, event: str, task: Task) -> None:
        """Add one to a counter of a task."""
        with self._lock:
            self.counts[task.name][event] += 1

    def report(self, event: str, task: Task, message: Message) -> None:
        """Count an event, and call the method of every middleware that has its name."""
        self.count(event, task)
        self.notify(event, task, message)

    def notify(self, event: str, *arguments: Any) -> None:
        """Call a method of every middleware; its exceptions are logged."""
        for each in self.settings.middleware:
            method = getattr(each, event, None)
            if method is not None:
                try:
                    method(*arguments)
                except BaseException as error:
                    if must_propagate(error):
                        raise
                    self.broke(f"{event} of a middleware", error, *arguments[:1])

    def broke(self, part: str, error: BaseException, task: Task | None = None) -> None:
        """Note that a part around the tasks raised, such as a middleware or a store of ids."""
        self._count_error(part, error, task)
        self.log(logging.ERROR, "%s: %s raised", self.name, part, error=error)

    def _count_error(self, part: str, error: BaseException, task: Task | None) -> None:
        self.last_error = f"{part} raised {class_of(error)}: {text_of(error)}"
        if task is not None:
            self.count("errors", task)

    def log(
        self,
        level: int,
        text: str,
        *arguments: object,
        task: Task | None = None,
        message: Message | None = None,
        attempt: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Log; if a handler of the user's raises, that is counted, and the message is settled all the same.

        Args:
            level: of the record.
            text: of the record.
            arguments: of the text.
            task: the record is about, also for its fields.
            message: the record is about, for its fields.
            attempt: the record is about, for its fields.
            error: whose traceback is logged.
        """
        fields: dict[str, object] = {"stompy_worker": self.name}
        if message is not None:
            fields["stompy_message_id"] = message.message_id[:_MAX_LOGGED]
        if task is not None:
            fields |= {"stompy_task": task.name, "stompy_attempt": attempt}
        try:
            _LOG.log(level, text, *arguments, exc_info=error, extra=fields)
        except BaseException as raised:
            if must_propagate(raised):
                raise
            self._count_error("a handler of logging", raised, task)
