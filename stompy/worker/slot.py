"""Slots, the threads that run tasks, and their supply: the queue of a task and its rate limit.

| thread (named `stompy-<worker>-<task>-<number>`) | owns | may block on | never |
|---|---|---|---|
| slot | the message that it runs | its queue, user code, the broker | holds a lock in user code |

A job is settled by the slot that claims it first: the slot that runs it, or the slot that replaces it as it is stuck.
If code around a task raises, the slot goes on: it ends only with its worker or when it is replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from stompy.backoff import RateLimit
from stompy.connection.message import Message, delivery_of, persistent_option
from stompy.connection.transaction import Transaction, was_written
from stompy.errors import AckError, BrokerError, NotConnectedError, SessionError, StompError, is_passing
from stompy.forks import ChildEnds
from stompy.locks import make_condition
from stompy.threads import DaemonThread
from stompy.worker.failure import (
    Attempt,
    Copy,
    Decision,
    class_of,
    dead_letter,
    decide,
    end_session,
    options_of,
    retry_copy,
    settle,
    text_of,
)
from stompy.worker.parking import parked, parking_queue
from stompy.worker.processes import Note
from stompy.worker.run import NO_REFUSALS, WorkerRun
from stompy.worker.task import ProcessCrashedError, Reject, Retry, Task, TaskContext, TimeLimitExceededError
from stompy.world import queue, time

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds that a slot waits after the broker refused a retry, a dead letter or a reply."""

_EVENT = {"retry": "retried", "defer": "deferred", "dead-letter": "dead_lettered"}

_REFUSAL, _DOUBT, _TOO_MANY = 5, 1, 10
"""Points of a message for a refusal, and for the end of its session that is likely to be due to another message; with
how many points it has failed. Two refusals are enough, and no message is redelivered without an end."""


@dataclass(slots=True)
class _Line:
    """The messages of one key.

    Attributes:
        key: of the messages.
        busy: whether one of them is ready or running.
        waiting: the others.
    """

    key: Hashable
    busy: bool = False
    waiting: deque[Message] = field(default_factory=deque)


class TaskQueue:
    """Messages of one task that wait for a slot; with a key, one message of each key at a time, in order.

    Args:
        task: whose messages it holds.
        limit: of waiting messages, above which `put` blocks; `None` if the broker observes a prefetch limit.
    """

    def __init__(self, task: Task, limit: int | None) -> None:
        self._ready: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._task = task
        self._limit = limit
        self._lines: dict[Hashable, _Line] = {}
        """By key."""
        self._line_of: dict[int, _Line | Reject] = {}
        """By `id` of each message that is here or running; of a message whose key failed, the reason."""
        self._lock = make_condition("task queue")
        self._closed = False

    def put(self, message: Message) -> None:
        """Add a message; the handler of the subscription."""
        if self._limit is not None:
            limit = self._limit
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._count() < limit)
        if self._task.key is None or self._is_next(message, self._task.key):
            self._ready.put(message)

    def _is_next(self, message: Message, key_of: Callable[[Message], Hashable]) -> bool:
        """Put a message after the others of its key; return whether a slot may have it now."""
        try:
            key = key_of(message)
            with self._lock:
                line = self._lines.get(key)
                if line is None:
                    line = self._lines[key] = _Line(key)
                self._line_of[id(message)] = line
                if line.busy:
                    line.waiting.append(message)
                    return False
                line.busy = True
        except BaseException as error:  # the key is the user's: making, hashing and comparing it may raise
            with self._lock:
                self._line_of[id(message)] = no_key(error)
        return True

    def check_key(self, message: Message) -> None:
        """Raise why a message has no place in the order, if it has none."""
        failure = self._line_of.get(id(message))
        if isinstance(failure, Reject):
            raise failure

    def get(self) -> Message | None:
        """Return the next message, or `None` after `close`."""
        message = self._ready.get()
        if message is None:
            self._ready.put(None)  # for the next slot
        elif self._limit is not None:
            with self._lock:
                self._lock.notify_all()
        return message

    def done(self, message: Message) -> None:
        """Let the next message of the same key run."""
        if self._task.key is None:
            return
        with self._lock:
            line = self._line_of.pop(id(message), None)
            if not isinstance(line, _Line):
                return
            if not line.waiting:
                line.busy = False
                with contextlib.suppress(BaseException):  # of the key when it is compared; the line can be used again
                    del self._lines[line.key]
                return
            following = line.waiting.popleft()
        self._ready.put(following)

    def close(self) -> None:
        """Wake all slots and every `put`."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._ready.put(None)

    def __len__(self) -> int:
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return self._ready.qsize() + sum(len(line.waiting) for line in self._lines.values())


def no_key(error: BaseException) -> Reject:
    """Return why a message is a dead letter: another attempt would not keep the order, as its key failed."""
    failure = Reject(f"its key failed: {class_of(error)}: {text_of(error)}")
    failure.__cause__ = error
    return failure


class Job:
    """One attempt at one message.

    Attributes:
        started: by the monotonic clock.
        transaction: of a transactional task.
    """

    __slots__ = ("_attempt", "_holder", "message", "started", "transaction")

    def __init__(self, message: Message, attempt: Attempt | None = None) -> None:
        self.message = message
        self._attempt = attempt
        self.started = time.monotonic()
        self._holder: dict[None, object] = {}
        self.transaction: Transaction | None = None

    def claim(self, holder: object) -> bool:
        """Return whether `holder` settles the message: the first to ask, however often it asks."""
        return self._holder.setdefault(None, holder) is holder  # one step, which no other thread divides

    @property
    def holder(self) -> object:
        """The slot that has claimed the message, or the engine; `None` before that."""
        return self._holder.get(None)

    @property
    def attempt(self) -> Attempt:
        """The number of this attempt; the headers are only parsed when it is needed."""
        if self._attempt is None:
            self._attempt = Attempt.of(self.message)
        return self._attempt


class _Replaced(Exception):
    """The slot was stuck beyond the time limit, and another one has its place."""


class Slot(DaemonThread):
    """A thread that runs one message of a task at a time.

    Args:
        run: of the worker.
        pool: the slots of the task.
        number: part of the thread's name.
        overdue: the job of a stuck slot, which this one replaces.
    """

    def __init__(self, run: WorkerRun, pool: Pool, number: int, overdue: Job | None = None) -> None:
        self.name = f"stompy-{run.name}-{pool.task.name}-{number}"
        super().__init__(self.name)
        self._run = run
        self._pool = pool
        self._task = pool.task
        self._pause = _FIRST_PAUSE
        self._note: Note | None = None
        self._refusals = NO_REFUSALS
        self._child_ends = ChildEnds()
        self.job = overdue

    def run(self) -> None:
        """Run messages until the worker stops or the slot is replaced."""
        try:
            if self.job is not None:
                self._work(self.job, self._finish_overdue)
            self._loop()
        except _Replaced:
            assert self.job is not None
            self._pool.stuck_returned(self, self.job)

    def _loop(self) -> None:
        pool, run = self._pool, self._run
        before = None if run.crashes is None else self._enter
        while (message := pool.queue.get()) is not None and not run.stopping.is_set():
            if message.session_ended:
                pool.queue.done(message)
                continue
            if not run.take_ticket() or (pool.rate is not None and run.hurried.wait(pool.rate.delay())):
                return
            self._refusals = run.refusals(message)
            self._work(Job(message), before)
            del message  # it is not kept while the slot waits

    def _work(self, first: Job, before: Callable[[Job], Job | None] | None) -> None:
        """Run a message, of an ordered task until it is settled; after any exception it is settled or redelivered.

        Args:
            first: the job.
            before: called first; returns the job to run, or `None` if the message is settled.
        """
        message = first.message
        try:
            job = first if before is None else before(first)
            while job is not None and (self._note is None or self._may_begin(job, self._note)):
                self.job = job
                job = self._attempt(job)
        except _Replaced:
            # The message is the replacement's, which also lets the next one of its key run. `job` stays, for the log.
            self._end_note()
            raise
        except BaseException as error:
            self._rescue(first, error)
        self._end_note()
        self.job = None
        self._pool.queue.done(message)

    def _rescue(self, job: Job, error: BaseException) -> None:
        """Have a message redelivered that could not be settled; raises nothing."""
        with contextlib.suppress(BaseException):
            self._run.broke("the handling of a message", error, self._task)
        with contextlib.suppress(BaseException):
            # If it was not acknowledged, the broker redelivers it when its session has ended.
            if job.message.settled is None:
                self._run.report("unsettled", self._task, job.message)
                self._wait_longer()
                end_session(job.message, "a message was not settled")

    def _finish_overdue(self, job: Job) -> Job | None:
        """Settle the message of a stuck slot as failed."""
        if job.transaction is not None:
            # The stuck task may still send in it, which then raises there. Its slot cannot commit it: that needs the
            # claim, which this slot has. If the task returns just now, its slot aborts it too, and one of the two calls
            # raises.
            try:
                job.transaction.abort()
            except StompError as error:
                text = "a transaction of a stuck task was not aborted: %s"
                self._run.log(logging.INFO, text, error, task=self._task)
        return self._fail(job, TimeLimitExceededError(f"the task ran longer than {self._task.time_limit:g} s"))

    # In a child process, where messages are noted.

    def _enter(self, job: Job) -> Job | None:
        """Note a message; if it has crashed a process, settle that attempt as failed."""
        assert self._run.crashes is not None
        note = self._note = Note(self._run.crashes, job.message)
        if note.crashed is None:
            return job
        self.job = job = Job(job.message, Attempt(note.crashed, job.attempt.first_failure))
        job.claim(self)  # before the monitor sees it as overdue, as settling may take longer than the time limit
        return self._fail(job, ProcessCrashedError("a process died while it ran this message"))

    def _may_begin(self, job: Job, note: Note) -> bool:
        """Wait until a message may run beside the others of this process; return whether it is to be run."""
        self.job = None  # while it waits, no time limit applies
        if not note.begin(job.attempt.number, self._run.hurried) or job.message.session_ended:
            return False
        job.started = time.monotonic()
        return True

    def _end_note(self) -> None:
        note, self._note = self._note, None
        if note is not None:
            note.end()

    # An attempt. The methods that may settle a message return the next job, if it is to run in place.

    def _attempt(self, job: Job) -> Job | None:
        """Run the task once and settle."""
        task, message = self._task, job.message
        value: Any = None
        error: BaseException | None = None
        try:
            if self._run.settings.middleware:
                self._run.notify("before", task, message)
            if task.key is not None:
                self._pool.queue.check_key(message)
            if task.seen is not None and task.identity_of(message) in task.seen:
                self._drop_duplicate(job)
                return None
            if task.transactional:
                self._call_in_transaction(job)
            else:
                value = self._call(job)
        except _Replaced:
            raise
        except BaseException as raised:
            error = raised
        if task.transactional:
            return self._after_transaction(job, error)
        # The task has returned or raised, maybe at the very moment of its time limit. From here on, either this slot
        # settles the message, or its replacement has done so; so a result that came too late is ignored as a whole.
        if not job.claim(self):
            raise _Replaced
        return self._succeed(job, value) if error is None else self._fail(job, error)

    def _claim(self, job: Job) -> None:
        if not job.claim(self):
            raise _Replaced

    def _call(self, job: Job) -> Any:
        """Call the task, again as often as `retry_in_place` says."""
        task = self._task
        context = None
        if task.with_context:
            context = TaskContext(
                message=job.message,
                attempt=job.attempt.number,
                task=task.name,
                connection=self._run.connection,
                transaction=job.transaction,
            )

        if task.retry_in_place is None:
            return self._call_once(job.message, context)
        import tenacity

        try:
            return task.retry_in_place.copy()(self._call_once, job.message, context)
        except tenacity.RetryError as error:
            raise (error.last_attempt.exception() or error) from None

    def _call_once(self, message: Message, context: TaskContext | None) -> Any:
        with self._child_ends:  # around each call, as a forked child must not try again itself
            return self._task.call(message, context)

    def _drop_duplicate(self, job: Job) -> None:
        self._claim(job)
        try:
            job.message.ack()
            self._run.report("duplicate", self._task, job.message)
        except StompError as error:
            self._unsettled(job, error)

    def _reply_to(self, job: Job, value: Any) -> Copy | None:
        asked = job.message.headers
        destination = asked.get("reply-to")
        # After a refusal of this message it is acknowledged without the reply, which may be the reason.
        if not destination or self._refusals[0] >= _REFUSAL:
            return None
        correlation = asked.get("correlation-id")
        headers = {} if correlation is None else {"correlation-id": correlation}
        return Copy(destination, value, headers, persistent=persistent_option(job.message, self._run.dialect))

    def _succeed(self, job: Job, value: Any) -> Job | None:
        message = job.message
        try:
            # Before the acknowledgement: if the process dies in between, the message comes again as a duplicate.
            if self._task.seen is not None:
                self._task.seen.add(self._task.identity_of(message))
        except BaseException as error:
            return self._fail(job, error)
        try:
            reply = None if value is None else self._reply_to(job, value)
            if reply is None:
                # Shared: this slot leaves the ACK to another one that writes now, or writes the ACKs of others with
                # its own. With a key, alone: the next message of the key may begin when this method returns, so the
                # ACK must have left by then, and a slot that writes for others would keep its own key waiting.
                delivery_of(message).acker.acknowledge(message, "ACK", shared=self._task.key is None)
            else:
                settle(self._run.connection, (message, reply))
        except BaseException as error:
            # If the session or the broker failed, the task has not: the message is redelivered, not counted as failed.
            # Everything else is about the returned value, such as one that cannot be sent.
            session = isinstance(error, (AckError, SessionError, NotConnectedError))
            if isinstance(error, StompError) and (session or is_passing(error)):
                self._unsettled(job, error)
                return None
            return self._fail(job, error)
        self._processed(job)
        return None

    def _processed(self, job: Job) -> None:
        self._run.count("processed", self._task)
        if self._run.settings.middleware:
            self._run.notify("after", self._task, job.message)
        self._pause = _FIRST_PAUSE

    # A transactional task.

    def _call_in_transaction(self, job: Job) -> None:
        """Call the task, and claim and acknowledge its message in the same transaction."""
        points, refusal = self._refusals
        if points >= _TOO_MANY and refusal is not None:
            # It was refused again when no other was committed beside it; once more would end the session with the
            # transactions of all other slots.
            raise refusal
        with self._run.connection.transaction() as transaction:
            job.transaction = transaction
            value = self._call(job)
            # Claimed before anything of the outcome is written, as a replacement would settle the message meanwhile.
            # The exception aborts the transaction, with all that the task has sent too late.
            self._claim(job)
            reply = None if value is None else self._reply_to(job, value)
            if reply is not None:
                transaction.send(reply.destination, reply.body, **options_of(reply, self._run.dialect))
            transaction.ack(job.message)
            with self._run.commits.turn(job.message, alone=points > 0):
                transaction.commit()

    def _after_transaction(self, job: Job, error: BaseException | None) -> Job | None:
        message = job.message
        # With the claim, the task has returned, and what failed came after it. Without it, the task raised; but an
        # ERROR of the broker may be about a frame that left before the commit, which is a failed commit as well.
        committing = job.holder is self or (isinstance(error, BrokerError) and message.session_ended)
        self._claim(job)
        if error is None:
            try:
                if self._task.seen is not None:
                    self._task.seen.add(self._task.identity_of(message))
            except BaseException as late:  # the commit stands
                self._run.broke("the store of ids", late, self._task)
            self._processed(job)
        elif (
            committing
            and isinstance(error, StompError)
            and (isinstance(error, (AckError, BrokerError)) or is_passing(error))
        ):
            # If nothing of it was written, the session has ended by something else: that of another message, unless
            # the task has sent it outside of its transaction.
            self._unsettled(job, error, doubt=job.transaction is not None and not was_written(job.transaction))
        else:
            return self._fail(job, error)
        return None

    # Failures.

    def _fail(self, job: Job, error: BaseException) -> Job | None:
        """Settle a message whose task failed."""
        message, task, run, attempt = job.message, self._task, self._run, job.attempt
        try:
            decision = decide(task, attempt.number, error)
        except BaseException as bug:  # of the user's backoff
            error, decision = bug, Decision("dead-letter", reason="backoff failed")
        dead = decision.action == "dead-letter"
        run.log(
            logging.INFO if decision.action == "defer" else logging.WARNING,
            "%s: attempt %d at message %.200r failed, %s: %s: %.500s",
            task.name, attempt.number, message.message_id,
            "dead-letter" if dead else f"{decision.action} in {decision.delay:.1f} s",
            type(error).__name__, text_of(error), task=task, message=message, attempt=attempt.number,
            error=error if dead and not isinstance(error, (Reject, Retry)) else None,
        )  # fmt: skip
        if decision.action != "defer":
            run.count("failed", task)
            run.notify("failed", task, message, error)
        if not dead and task.key is not None:
            # In place: a copy would go to the end of the queue, behind the next messages of this key.
            run.report(_EVENT[decision.action], task, message)
            if self._note is not None:
                self._note.pause()
            if run.wait(decision.delay) or message.session_ended:
                return None
            return Job(message, Attempt(attempt.number + decision.counts, attempt.first_failure))
        try:
            if dead:
                copy = dead_letter(task, message, attempt, error, decision.reason)
            else:
                copy = retry_copy(task, message, attempt, error, decision)
                if decision.delay > 0 and run.parks:
                    copy = parked(copy, parking_queue(task), run.now())
            settle(run.connection, (message, copy))
            run.report(_EVENT[decision.action], task, message)
            self._pause = _FIRST_PAUSE
        except StompError as refused:
            self._unsettled(job, refused)
        return None

    def _unsettled(self, job: Job, error: StompError, *, doubt: bool = False) -> None:
        """Note that a message was not settled, so that the broker redelivers it; wait if the broker refused.

        Args:
            job: the message.
            error: raised when it was to be settled.
            doubt: whether the refusal is likely to be about another message.
        """
        message, run = job.message, self._run
        run.report("unsettled", self._task, message)
        run.log(
            logging.INFO if isinstance(error, AckError) else logging.WARNING,
            "%s: message %.200r was not settled and is redelivered: %.500s",
            self._task.name, message.message_id, error, task=self._task, message=message,
        )  # fmt: skip
        points, refusal = self._refusals
        if isinstance(error, BrokerError) or not (
            is_passing(error) or isinstance(error, (AckError, NotConnectedError))
        ):
            # The broker refused it: for good reasons, or as its session ended by the transaction of another message.
            # Points tell these apart over several deliveries, since one ERROR may not say what it is about.
            doubt = doubt or run.commits.blames_another(message)
            run.refused(message, points + (_DOUBT if doubt else _REFUSAL), error)
            if not doubt:
                self._wait_longer()
        elif refusal is not None:
            run.refused(message, points, refusal)  # kept, as this delivery says nothing about the reason
        # Some brokers keep the session after an ERROR; the user may have acknowledged the message already.
        if message.settled is None or not isinstance(error, AckError):
            end_session(message, f"a message was not settled: {text_of(error)}")

    def _wait_longer(self) -> None:
        self._run.stopping.wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


class Pool:
    """The slots of one task.

    Args:
        run: of the worker.
        task: the task.
        size: number of slots.
        limit: see `TaskQueue`.
    """

    def __init__(self, run: WorkerRun, task: Task, size: int, limit: int | None) -> None:
        self.task = task
        self.queue = TaskQueue(task, limit)
        self.rate = None if task.rate is None else RateLimit(task.rate)
        self.stuck: dict[Slot, Job] = {}
        self._run = run
        self._numbers = itertools.count(1)
        self.slots = [Slot(run, self, next(self._numbers)) for _ in range(size)]

    def replace_overdue(self) -> None:
        """Replace each slot whose message has run longer than the time limit; called by the monitor."""
        limit = self.task.time_limit
        if limit is None:
            return
        for index, slot in enumerate(self.slots):
            job = slot.job
            if job is None or job.holder is not None or time.monotonic() - job.started <= limit:
                continue
            # The slot may claim its job at this moment, and then settles it in time: the replacement is not started.
            # Otherwise the claim is the replacement's, and the slot ends as soon as its task returns. The claim comes
            # first, so that no message is settled twice; a slot that has lost it runs nothing else.
            replacement = Slot(self._run, self, next(self._numbers), job)
            if job.claim(replacement):
                self.stuck[slot] = job
                self._run.count("stuck", self.task)
                self._run.log(
                    logging.ERROR, "%s: message %.200r runs longer than %g s in thread %s, which is left alone:\n%s",
                    self.task.name, job.message.message_id, limit, slot.name, slot.stack(), task=self.task,
                    message=job.message,
                )  # fmt: skip
                self.slots[index] = replacement
                replacement.start()

    def stuck_returned(self, slot: Slot, job: Job) -> None:
        """Note that a replaced slot has ended."""
        self.stuck.pop(slot, None)
        self._run.log(
            logging.WARNING, "%s: thread %s has finished message %.200r after %.1f s; the result is ignored",
            self.task.name, slot.name, job.message.message_id, time.monotonic() - job.started, task=self.task,
            message=job.message,
        )  # fmt: skip
