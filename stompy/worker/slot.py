"""Slots: the threads that run tasks.

| thread (named `stompy-<worker>-<task>-<number>`) | owns | may block on | never |
|---|---|---|---|
| slot | the message that it runs | its queue, user code, the broker | holds a lock in user code |

A job is settled by the thread that claims it first: its slot, or the slot that replaces a stuck one.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from stompy.connection.message import Message
from stompy.connection.transaction import Transaction
from stompy.errors import AckError, BrokerError, ConnectionLost, NotConnected, StompError
from stompy.forks import ChildEnds
from stompy.locks import Rank, make_lock
from stompy.threads import DaemonThread
from stompy.worker.failure import (
    Attempt,
    Copy,
    copy_of,
    dead_letter_headers,
    dead_letter_queue,
    decide,
    make_redelivered,
    parking_queue,
    retry_headers,
    retry_queue,
    settle,
)
from stompy.worker.task import ProcessCrashed, Reject, Retry, Task, TaskContext, TimeLimitExceeded
from stompy.worker.task_queue import RateLimit, TaskQueue

if TYPE_CHECKING:
    from stompy.worker.engine import Engine

_LOG = logging.getLogger("stompy.worker")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds that a slot waits after the broker refused a retry, a dead letter or a reply."""

_COUNTER = {"retry": "retried", "defer": "deferred", "dead-letter": "dead_lettered"}


class Job:
    """One attempt at one message.

    Attributes:
        started: by the monotonic clock.
        claimed: acquired by the thread that settles the message.
        transaction: of a transactional task.
    """

    __slots__ = ("attempt", "claimed", "message", "started", "transaction")

    def __init__(self, message: Message, attempt: Attempt | None) -> None:
        self.message = message
        self.attempt = attempt
        self.started = time.monotonic()
        self.claimed = threading.Lock()
        self.transaction: Transaction | None = None

    def claim(self) -> bool:
        """Return whether the caller may settle the message; `True` once."""
        return self.claimed.acquire(blocking=False)

    def attempts(self) -> Attempt:
        """Return the number of this attempt; the headers are only parsed when it is needed."""
        if self.attempt is None:
            self.attempt = Attempt.of(self.message)
        return self.attempt


class _Replaced(Exception):
    """The slot was stuck beyond the time limit, and another one has its place."""


class Slot(DaemonThread):
    """A thread that runs one message of a task at a time.

    Args:
        engine: the running worker.
        pool: the slots of the task.
        number: part of the thread's name.
        overdue: the job of a stuck slot, which this one replaces.
    """

    def __init__(self, engine: Engine, pool: Pool, number: int, overdue: Job | None = None) -> None:
        self.name = f"stompy-{engine.name}-{pool.task.name}-{number}"
        super().__init__(self.name)
        self._engine = engine
        self._pool = pool
        self._task = pool.task
        self._pause = _FIRST_PAUSE
        self._noted: int | None = None
        self.job = overdue

    def run(self) -> None:
        """Run messages until the worker stops or the slot is replaced."""
        try:
            if self.job is not None:
                self._finish_overdue(self.job)
            self._loop()
        except _Replaced:
            assert self.job is not None
            self._pool.stuck_returned(self, self.job)

    def _loop(self) -> None:
        pool, engine = self._pool, self._engine
        while (message := pool.queue.get()) is not None and not engine.stopping.is_set():
            if message.session_ended:
                pool.queue.done(message)
                continue
            if not engine.take_ticket() or (pool.rate is not None and engine.stopping.wait(pool.rate.delay())):
                return
            self._work(message, None)

    def _finish_overdue(self, job: Job) -> None:
        if job.transaction is not None:
            _abort(job.transaction)
        following = self._fail(job, TimeLimitExceeded(f"the task ran longer than {self._task.time_limit:g} s"))
        if following is None:
            self._end(job.message)
        else:
            self._work(job.message, following)

    def _work(self, message: Message, attempt: Attempt | None) -> None:
        """Run a message, of an ordered task until it is settled."""
        crashes = self._engine.crashes
        if crashes is not None:
            if attempt is None and crashes.crashed(message):
                job = self.job = Job(message, None)
                job.claim()
                attempt = self._fail(job, ProcessCrashed("a process died while it ran this message"))
                if attempt is None:
                    self._end(message)
                    return
            self._noted = crashes.enter(message)
        while True:
            job = self.job = Job(message, attempt)
            if (attempt := self._attempt(job)) is None:
                break
        self._end(message)

    def _end(self, message: Message) -> None:
        if self._engine.crashes is not None:
            self._engine.crashes.leave(self._noted)
            self._noted = None
        self.job = None
        self._pool.queue.done(message)

    def _attempt(self, job: Job) -> Attempt | None:
        """Run the task once and settle; return the next attempt if it is to run in place."""
        value: Any = None
        error: BaseException | None = None
        try:
            self._engine.notify("before", self._task, job.message)
            if self._task.seen is not None and self._is_duplicate(job):
                return None
            if self._task.transactional:
                self._call_in_transaction(job)
            else:
                value = self._call(job)
        except _Replaced:
            raise
        except BaseException as raised:
            error = raised
        if self._task.transactional and job.claimed.locked():
            if error is None:
                self._remember(job)
                self._processed(job)
            elif isinstance(error, StompError) and (error.retryable or isinstance(error, (AckError, BrokerError))):
                self._unsettled(job, error)
            else:
                return self._fail(job, error)
            return None
        if not job.claim():
            raise _Replaced
        return self._succeed(job, value) if error is None else self._fail(job, error)

    def _call_in_transaction(self, job: Job) -> None:
        """Call the task, and claim and acknowledge its message in the same transaction."""
        with self._engine.connection.transaction() as transaction:
            job.transaction = transaction
            value = self._call(job)
            if not job.claim():
                raise _Replaced
            reply = self._reply_to(job, value)
            if reply is not None:
                transaction.send(reply.destination, reply.body, headers=reply.headers, content_type=reply.content_type)
            transaction.ack(job.message)

    def _call(self, job: Job) -> Any:
        """Call the task, again as often as `retry_in_place` says."""
        task = self._task
        context = None

        def call(message: Message, context: TaskContext | None) -> Any:
            with ChildEnds():
                return task.call(message, context)

        if task.with_context:
            number = job.attempts().number
            context = TaskContext(job.message, number, task.name, self._engine.connection, job.transaction)
        if task.retry_in_place is None:
            return call(job.message, context)
        import tenacity

        try:
            return task.retry_in_place.copy()(call, job.message, context)
        except tenacity.RetryError as error:
            raise (error.last_attempt.exception() or error) from None

    def _is_duplicate(self, job: Job) -> bool:
        seen = self._task.seen
        if seen is None or self._task.identity_of(job.message) not in seen:
            return False
        job.claim()
        try:
            job.message.ack()
            self._count("duplicate", job)
        except StompError as error:
            self._unsettled(job, error)
        return True

    def _remember(self, job: Job) -> None:
        if self._task.seen is not None:
            self._task.seen.add(self._task.identity_of(job.message))

    def _reply_to(self, job: Job, value: Any) -> Copy | None:
        headers = job.message.headers
        destination = None if value is None else headers.get("reply-to")
        if not destination or self._engine.was_refused(job.message):
            return None
        correlation = headers.get("correlation-id")
        return Copy(destination, value, {} if correlation is None else {"correlation-id": correlation}, identity="")

    def _succeed(self, job: Job, value: Any) -> Attempt | None:
        try:
            self._remember(job)
            if value is None or (reply := self._reply_to(job, value)) is None:
                # With a key, alone: a slot that writes for others must not keep the next message of its key waiting.
                job.message._delivery.acker.acknowledge(job.message, "ACK", shared=self._task.key is None)
            else:
                settle(self._engine.connection, job.message, reply)
        except (AckError, ConnectionLost, NotConnected) as error:
            self._unsettled(job, error)
        except Exception as error:
            if isinstance(error, StompError) and error.retryable:
                self._unsettled(job, error)
            else:
                return self._fail(job, error)  # such as a value that cannot be sent
        else:
            self._processed(job)
        return None

    def _processed(self, job: Job) -> None:
        self._pool.count("processed")
        self._engine.notify("after", self._task, job.message)
        self._pause = _FIRST_PAUSE

    def _fail(self, job: Job, error: BaseException) -> Attempt | None:
        """Settle a message whose task failed; return the next attempt if it is to run in place."""
        message, task, engine = job.message, self._task, self._engine
        attempt = job.attempts()
        try:
            decision = decide(task, attempt.number, error)
        except Exception as bug:  # of the user's retry_delay
            error, decision = bug, decide(task, task.retries + 1, bug)
        counts = decision.action == "retry"
        level = logging.INFO if decision.action == "defer" else logging.WARNING
        expected = decision.action != "dead-letter" or isinstance(error, (Reject, Retry))
        _LOG.log(
            level, "%s: attempt %d at message %.200r failed, %s: %s: %.500s",
            task.name, attempt.number, message.message_id,
            decision.action if decision.action == "dead-letter" else f"{decision.action} in {decision.delay:.1f} s",
            type(error).__name__, error, exc_info=None if expected else error,
            extra=log_fields(task, message, attempt.number),
        )  # fmt: skip
        if decision.action != "defer":
            self._pool.count("failed")
            engine.notify("failed", task, message, error)
        following = Attempt(attempt.number + counts, attempt.first_failure)
        if decision.action != "dead-letter" and task.key is not None:
            self._count(_COUNTER[decision.action], job)
            return None if engine.stopping.wait(decision.delay) or message.session_ended else following
        try:
            if decision.action == "dead-letter":
                headers = dead_letter_headers(task, message, attempt, error, decision.reason)
                settle(engine.connection, message, copy_of(message, dead_letter_queue(task, message), headers))
            else:
                headers = retry_headers(task, message, attempt, counts=counts)
                queue, parking = retry_queue(task, message), parking_queue(task)
                copy = copy_of(message, queue, headers, delay=decision.delay, parking=parking)
                settle(engine.connection, message, copy)
            self._count(_COUNTER[decision.action], job)
            self._pause = _FIRST_PAUSE
        except StompError as refused:
            self._unsettled(job, refused)
        return None

    def _unsettled(self, job: Job, error: StompError) -> None:
        """Note that a message was not settled, so that the broker redelivers it; wait if the broker refused."""
        make_redelivered(job.message, error)
        self._count("unsettled", job)
        (_LOG.info if isinstance(error, AckError) else _LOG.warning)(
            "%s: message %.200r was not settled and is redelivered: %.500s",
            self._task.name, job.message.message_id, error,
            extra=log_fields(self._task, job.message),
        )  # fmt: skip
        if isinstance(error, BrokerError) or (not error.retryable and not isinstance(error, (AckError, NotConnected))):
            self._engine.refused(job.message, error)
            self._engine.stopping.wait(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _count(self, what: str, job: Job) -> None:
        self._pool.count(what)
        self._engine.notify(what, self._task, job.message)


class Pool:
    """The slots of one task.

    Args:
        engine: the running worker.
        task: what the slots run.
        size: number of slots.
        limit: see `TaskQueue`.
    """

    def __init__(self, engine: Engine, task: Task, size: int, limit: int | None) -> None:
        self.task = task
        self.size = size
        self.queue = TaskQueue(task, limit)
        self.rate = None if task.rate is None else RateLimit(task.rate)
        self.counts: dict[str, int] = {}
        self.stuck: dict[Slot, Job] = {}
        self._engine = engine
        self._numbers = itertools.count(1)
        self._lock = make_lock(Rank.LEAF, "pool")
        self.slots = [Slot(engine, self, next(self._numbers)) for _ in range(size)]

    def start(self) -> None:
        """Start the slots."""
        for slot in self.slots:
            slot.start()

    def count(self, what: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def running(self) -> int:
        """Number of messages that are being handled."""
        return sum(slot.job is not None for slot in self.slots)

    def replace_overdue(self) -> None:
        """Replace each slot whose message has run longer than the time limit; called by the monitor."""
        limit = self.task.time_limit
        if limit is None:
            return
        for index, slot in enumerate(self.slots):
            job = slot.job
            if job is not None and time.monotonic() - job.started > limit and job.claim():
                self.stuck[slot] = job
                self.count("stuck")
                _LOG.error(
                    "%s: message %.200r runs longer than %g s in thread %s, which is left alone:\n%s", self.task.name,
                    job.message.message_id, limit, slot.name, slot.stack(), extra=log_fields(self.task, job.message),
                )  # fmt: skip
                self.slots[index] = replacement = Slot(self._engine, self, next(self._numbers), job)
                replacement.start()

    def stuck_returned(self, slot: Slot, job: Job) -> None:
        """Note that a replaced slot has ended."""
        self.stuck.pop(slot, None)
        _LOG.warning(
            "%s: thread %s has finished message %.200r after %.1f s; the result is ignored", self.task.name, slot.name,
            job.message.message_id, time.monotonic() - job.started,
        )  # fmt: skip


def log_fields(task: Task, message: Message, attempt: int | None = None) -> dict[str, object]:
    """Return the `extra` of a log record about a message."""
    return {"stompy_task": task.name, "stompy_message_id": message.message_id[:200], "stompy_attempt": attempt}


def _abort(transaction: Transaction) -> None:
    try:
        transaction.abort()
    except StompError as error:
        _LOG.info("a transaction of a stuck task was not aborted: %s", error)
