"""Slots, the threads that run tasks, and what feeds them: the queue of a task and its rate limit.

| thread (named `stompy-<worker>-<task>-<number>`) | owns | may block on | never |
|---|---|---|---|
| slot | the message that it runs | its queue, user code, the broker | holds a lock in user code |

A job is settled by the slot that claims it first: the one that runs it, or the one that replaces it as it is stuck.
Whatever the code around a task raises, a slot ends only with its worker or when it is replaced.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from stompy.connection.message import Message, delivery_of
from stompy.connection.transaction import Transaction, was_written
from stompy.errors import AckError, BrokerError, NotConnectedError, SessionError, StompError, is_passing
from stompy.forks import ChildEnds
from stompy.locks import Rank, make_condition, make_lock
from stompy.threads import DaemonThread
from stompy.worker.crashes import Note
from stompy.worker.failure import (
    Attempt,
    Copy,
    Decision,
    class_of,
    dead_letter,
    decide,
    end_session,
    make_redelivered,
    parked,
    parking_queue,
    retry_copy,
    settle,
    text_of,
)
from stompy.worker.task import (
    ProcessCrashedError,
    Reject,
    Retry,
    Task,
    TaskContext,
    TimeLimitExceededError,
    persistence,
)
from stompy.world import queue, threading, time

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompy.worker.engine import Engine


_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds that a slot waits after the broker refused a retry, a dead letter or a reply."""

_REFUSED = (AckError, BrokerError)

_COUNTER = {"retry": "retried", "defer": "deferred", "dead-letter": "dead_lettered"}


_REFUSAL, _DOUBT, _TOO_MANY = 5, 1, 10
"""Points of a message for a refusal, and for the end of its session that is likely to be due to another message; with
how many points it has failed. Two refusals are enough, and no message is redelivered without an end."""

Refusals = tuple[int, "StompError | None"]
"""The points of a message for what the broker refused in its last deliveries, and the last reason."""
NO_REFUSALS: Refusals = (0, None)


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
        self._line_of: dict[int, _Line] = {}
        """By `id` of each message that is here or running."""
        self._without_key: dict[int, Reject] = {}
        """The same for messages whose key failed."""
        self._lock = make_condition("task queue")
        self._closed = False

    def put(self, message: Message) -> None:
        """Add a message; the handler of the subscription."""
        if self._limit is not None:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._count() < (self._limit or 0))
        if self._task.key is not None and not self._join_line(message):
            return
        self._ready.put(message)

    def _join_line(self, message: Message) -> bool:
        """Put a message after those of its key; return whether a slot may have it now."""
        try:
            key = key_of(self._task, message)
            with self._lock:
                line = self._line_of[id(message)] = self._line(key)
                if line.busy:
                    line.waiting.append(message)
                    return False
                line.busy = True
        except Reject as failure:
            with self._lock:
                self._without_key[id(message)] = failure
        except BaseException as error:  # of the key, when it is compared
            with self._lock:
                self._without_key[id(message)] = _no_key(error)
        return True

    def check_key(self, message: Message) -> None:
        """Raise why a message has no place in the order, if it has none."""
        failure = self._without_key.get(id(message)) if self._without_key else None
        if failure is not None:
            raise failure

    def _line(self, key: Hashable) -> _Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
        return line

    def get(self) -> Message | None:
        """Return the next message, or `None` after `close`."""
        message = self._ready.get()
        if self._limit is not None:
            with self._lock:
                self._lock.notify_all()
        return message

    def done(self, message: Message) -> None:
        """Let the next message of the same key run."""
        if self._task.key is None:
            return
        with self._lock:
            self._without_key.pop(id(message), None)
            line = self._line_of.pop(id(message), None)
            if line is None:
                return
            if not line.waiting:
                line.busy = False
                with contextlib.suppress(BaseException):  # of the key when it is compared; the line can be used again
                    del self._lines[line.key]
                return
            following = line.waiting.popleft()
        self._ready.put(following)

    def close(self, slots: int) -> None:
        """Wake all slots and every `put`."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        for _ in range(slots):
            self._ready.put(None)

    def __len__(self) -> int:
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return self._ready.qsize() + sum(len(line.waiting) for line in self._lines.values())


def key_of(task: Task, message: Message) -> Hashable:
    """Return the key of a message.

    Raises:
        Reject: the key function raised, or its value cannot be hashed. Without a key the message has no place in the
            order, so another attempt would not keep that.
    """
    assert task.key is not None
    try:
        key = task.key(message)
        hash(key)
    except BaseException as error:
        raise _no_key(error) from error
    return key


def _no_key(error: BaseException) -> Reject:
    failure = Reject(f"its key failed: {class_of(error)}: {text_of(error)}")
    failure.__cause__ = error
    return failure


class _Line:
    """The messages of one key.

    Attributes:
        key: of the messages.
        busy: whether one of them is ready or running.
        waiting: the others.
    """

    __slots__ = ("busy", "key", "waiting")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.busy = False
        self.waiting: deque[Message] = deque()


class RateLimit:
    """Starts at most `rate` messages per second, evenly spaced."""

    def __init__(self, rate: float) -> None:
        self._interval = 1.0 / rate
        self._next = 0.0
        self._lock = make_lock(Rank.LEAF, "rate limit")

    def delay(self) -> float:
        """Reserve a start, and return the seconds until then."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._interval
            return start - now


class Job:
    """One attempt at one message.

    Attributes:
        holder: what has claimed the message, or `None`.
        started: by the monotonic clock.
        transaction: of a transactional task.
    """

    __slots__ = ("_unclaimed", "attempt", "holder", "message", "started", "transaction")

    def __init__(self, message: Message, attempt: Attempt | None) -> None:
        self.message = message
        self.attempt = attempt
        self.started = time.monotonic()
        self._unclaimed = threading.Lock()
        self.holder: object = None
        self.transaction: Transaction | None = None

    def claim(self, holder: object) -> bool:
        """Return whether `holder` is the one that settles the message: the first to ask, however often it asks."""
        if self._unclaimed.acquire(blocking=False):
            self.holder = holder
        # Another one may have acquired it and not be named yet: then this reads `None`, which is not `holder` either.
        return self.holder is holder

    def attempts(self) -> Attempt:
        """Return the number of this attempt; the headers are only parsed when it is needed."""
        if self.attempt is None:
            self.attempt = Attempt.of(self.message)
        return self.attempt


class Commits:
    """Lets transactions be committed side by side, or one alone, as an ERROR may not say which of them it is about.

    It ends the session for all of them. If one was committed alone, that one is to blame, and the others are not.
    Called with no other lock held; what is waited for ends by the receipt timeout.
    """

    def __init__(self) -> None:
        self._changed = make_condition("commits", None)
        self._running = 0
        self._alone = False
        self._blamed: Message | None = None
        """The last that was committed alone and refused; its session has ended by that."""

    @contextlib.contextmanager
    def turn(self, message: Message, *, alone: bool) -> Iterator[None]:
        """Commit the transaction of a message in the block, which ends by the receipt timeout."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = alone
            self._changed.wait_for(lambda: not (alone and self._running))
            self._running += 1
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
            # The one that is being committed alone may be refused at this moment.
            self._changed.wait_for(lambda: not self._alone)
            blamed = self._blamed
            return (
                blamed is not None and blamed is not message and delivery_of(blamed).link is delivery_of(message).link
            )


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
        self._note: Note | None = None
        self._refusals = NO_REFUSALS
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
        pool, engine = self._pool, self._engine
        before = None if engine.crashes is None else self._enter
        while (message := pool.queue.get()) is not None and not engine.stopping.is_set():
            if message.session_ended:
                pool.queue.done(message)
                continue
            if not engine.take_ticket() or (pool.rate is not None and engine.stopping.wait(pool.rate.delay())):
                return
            self._refusals = engine.refusals(message)
            self._work(Job(message, None), before)
            del message  # it is not kept while the slot waits

    def _work(self, first: Job, before: Callable[[Job], Job | None] | None) -> None:
        """Run a message, of an ordered task until it is settled; whatever is raised, it is settled or redelivered.

        Args:
            first: the job.
            before: called first; returns the job to run, or `None` if the message is settled.
        """
        message = first.message
        try:
            job = first if before is None else before(first)
            while job is not None and self._may_begin(job):
                self.job = job
                following = self._attempt(job)
                job = None if following is None else Job(message, following)
        except _Replaced:
            self._end_note()
            raise
        except BaseException as error:
            self._rescue(first, error)
        self._end(message)

    def _rescue(self, job: Job, error: BaseException) -> None:
        """Have a message redelivered that could not be settled; raises nothing."""
        with contextlib.suppress(BaseException):
            self._engine.broke("the handling of a message", error, self._task)
        with contextlib.suppress(BaseException):
            # Nobody acknowledged it: the broker redelivers it when its session has ended.
            if job.message.settled is None:
                self._count("unsettled", job)
                self._wait_longer()
                end_session(job.message, "a message was not settled")

    def _finish_overdue(self, job: Job) -> Job | None:
        """Settle the message of a stuck slot as failed."""
        if job.transaction is not None:
            try:
                job.transaction.abort()
            except StompError as error:
                self._log(logging.INFO, "a transaction of a stuck task was not aborted: %s", error)
        following = self._fail(job, TimeLimitExceededError(f"the task ran longer than {self._task.time_limit:g} s"))
        return None if following is None else Job(job.message, following)

    def _enter(self, job: Job) -> Job | None:
        """Note a message; if it has crashed a process, settle that attempt as failed."""
        crashes, message = self._engine.crashes, job.message
        assert crashes is not None
        self._note = crashes.note(message)
        if self._note.crashed is None:
            return job
        self.job = job = Job(message, Attempt(self._note.crashed, job.attempts().first_failure))
        job.claim(self)
        following = self._fail(job, ProcessCrashedError("a process died while it ran this message"))
        return None if following is None else Job(message, following)

    def _may_begin(self, job: Job) -> bool:
        """Wait until a message may run beside the others of this process; return whether it is to be run."""
        if self._note is None:
            return True
        self.job = None  # while it waits, no time limit applies
        if not self._note.begin(job.attempts().number, self._engine.stopping) or job.message.session_ended:
            return False
        job.started = time.monotonic()
        return True

    def _end(self, message: Message) -> None:
        self._end_note()
        self.job = None
        self._pool.queue.done(message)

    def _end_note(self) -> None:
        note, self._note = self._note, None
        if note is not None:
            note.end()

    def _attempt(self, job: Job) -> Attempt | None:
        """Run the task once and settle; return the next attempt if it is to run in place."""
        value: Any = None
        error: BaseException | None = None
        try:
            self._engine.notify("before", self._task, job.message)
            self._pool.queue.check_key(job.message)
            points, refusal = self._refusals
            if self._task.transactional and points >= _TOO_MANY and refusal is not None:
                # It was refused again when no other was committed beside it; once more would end the session with the
                # transactions of all other slots.
                if job.claim(self):
                    return self._fail(job, refusal)
                raise _Replaced
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
        if self._task.transactional and isinstance(error, BrokerError) and job.message.session_ended:
            job.claim(self)  # a frame was refused that left before the commit
        settling = job.holder is self
        if not settling and not job.claim(self):
            raise _Replaced
        if not self._task.transactional:
            return self._succeed(job, value) if error is None else self._fail(job, error)
        if error is None:
            try:
                self._remember(job)
            except BaseException as late:  # the commit stands
                self._engine.broke("the store of ids", late, self._task)
            self._processed(job)
        elif settling and isinstance(error, StompError) and (is_passing(error) or isinstance(error, _REFUSED)):
            # If nothing of it was written, the session has ended by something else: that of another message, unless
            # the task has sent it outside of its transaction.
            self._unsettled(job, error, doubt=job.transaction is not None and not was_written(job.transaction))
        else:
            return self._fail(job, error)
        return None

    def _call_in_transaction(self, job: Job) -> None:
        """Call the task, and claim and acknowledge its message in the same transaction."""
        with self._engine.connection.transaction() as transaction:
            job.transaction = transaction
            value = self._call(job)
            if not job.claim(self):
                raise _Replaced
            reply = self._reply_to(job, value)
            if reply is not None:
                transaction.send(
                    reply.destination,
                    reply.body,
                    headers=reply.headers,
                    content_type=reply.content_type,
                    persistent=reply.persistent,
                )
            transaction.ack(job.message)
            with self._engine.commits.turn(job.message, alone=self._refusals[0] > 0):
                transaction.commit()

    def _call(self, job: Job) -> Any:
        """Call the task, again as often as `retry_in_place` says."""
        task = self._task
        context = None

        def call(message: Message, context: TaskContext | None) -> Any:
            with ChildEnds():
                return task.call(message, context)

        if task.with_context:
            number = job.attempts().number
            context = TaskContext(
                message=job.message,
                attempt=number,
                task=task.name,
                connection=self._engine.connection,
                transaction=job.transaction,
            )
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
        if not job.claim(self):
            raise _Replaced
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
        asked = job.message.headers
        destination = None if value is None else asked.get("reply-to")
        if not destination or self._refusals[0] >= _REFUSAL:
            return None
        correlation = asked.get("correlation-id")
        headers = {} if correlation is None else {"correlation-id": correlation}
        return Copy(destination, value, headers, persistent=persistence(self._engine.connection, job.message))

    def _succeed(self, job: Job, value: Any) -> Attempt | None:
        try:
            self._remember(job)
        except BaseException as error:
            return self._fail(job, error)
        try:
            if value is None or (reply := self._reply_to(job, value)) is None:
                # With a key, alone: a slot that writes for others must not keep the next message of its key waiting.
                delivery_of(job.message).acker.acknowledge(job.message, "ACK", shared=self._task.key is None)
            else:
                settle(self._engine.connection, (job.message, reply))
        except (AckError, SessionError, NotConnectedError) as error:
            self._unsettled(job, error)
        except BaseException as error:
            if isinstance(error, StompError) and is_passing(error):
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
        except BaseException as bug:  # of the user's backoff
            error, decision = bug, Decision("dead-letter", reason="backoff failed")
        level = logging.INFO if decision.action == "defer" else logging.WARNING
        expected = decision.action != "dead-letter" or isinstance(error, (Reject, Retry))
        self._log(
            level, "%s: attempt %d at message %.200r failed, %s: %s: %.500s",
            task.name, attempt.number, message.message_id,
            decision.action if decision.action == "dead-letter" else f"{decision.action} in {decision.delay:.1f} s",
            type(error).__name__, text_of(error), exc_info=None if expected else error,
            extra=log_fields(task, message, attempt.number),
        )  # fmt: skip
        if decision.action != "defer":
            self._pool.count("failed")
            engine.notify("failed", task, message, error)
        following = Attempt(attempt.number + decision.counts, attempt.first_failure)
        if decision.action != "dead-letter" and task.key is not None:
            self._count(_COUNTER[decision.action], job)
            if self._note is not None:
                self._note.pause()
            return None if engine.wait(decision.delay) or message.session_ended else following
        try:
            if decision.action == "dead-letter":
                copy = dead_letter(task, message, attempt, error, decision.reason)
            else:
                copy = retry_copy(task, message, attempt, error, decision)
                if decision.delay > 0 and engine.parks:
                    copy = parked(copy, parking_queue(task), engine.now())
            settle(engine.connection, (message, copy))
            self._count(_COUNTER[decision.action], job)
            self._pause = _FIRST_PAUSE
        except StompError as refused:
            self._unsettled(job, refused)
        return None

    def _unsettled(self, job: Job, error: StompError, *, doubt: bool = False) -> None:
        """Note that a message was not settled, so that the broker redelivers it; wait if the broker refused."""
        make_redelivered(job.message, error)
        self._count("unsettled", job)
        self._log(
            logging.INFO if isinstance(error, AckError) else logging.WARNING,
            "%s: message %.200r was not settled and is redelivered: %.500s",
            self._task.name, job.message.message_id, error,
            extra=log_fields(self._task, job.message),
        )  # fmt: skip
        points, refusal = self._refusals
        if isinstance(error, BrokerError) or (
            not is_passing(error) and not isinstance(error, (AckError, NotConnectedError))
        ):
            doubt = doubt or self._engine.commits.blames_another(job.message)
            self._engine.refused(job.message, points + (_DOUBT if doubt else _REFUSAL), error)
            if not doubt:
                self._wait_longer()
        elif refusal is not None:
            self._engine.refused(job.message, points, refusal)
        # Some brokers keep the session after an ERROR; the user may have acknowledged the message already.
        if job.message.settled is None or not isinstance(error, AckError):
            end_session(job.message, f"a message was not settled: {text_of(error)}")

    def _wait_longer(self) -> None:
        self._engine.stopping.wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _log(self, level: int, text: str, *arguments: object, **options: Any) -> None:
        self._engine.log(level, text, *arguments, task=self._task, **options)

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
            if job is None or job.holder is not None or time.monotonic() - job.started <= limit:
                continue
            replacement = Slot(self._engine, self, next(self._numbers), job)
            if job.claim(replacement):
                self.stuck[slot] = job
                self.count("stuck")
                self._engine.log(
                    logging.ERROR, "%s: message %.200r runs longer than %g s in thread %s, which is left alone:\n%s",
                    self.task.name, job.message.message_id, limit, slot.name, slot.stack(), task=self.task,
                    extra=log_fields(self.task, job.message),
                )  # fmt: skip
                self.slots[index] = replacement
                replacement.start()

    def stuck_returned(self, slot: Slot, job: Job) -> None:
        """Note that a replaced slot has ended."""
        self.stuck.pop(slot, None)
        self._engine.log(
            logging.WARNING, "%s: thread %s has finished message %.200r after %.1f s; the result is ignored",
            self.task.name, slot.name, job.message.message_id, time.monotonic() - job.started, task=self.task,
        )  # fmt: skip


def log_fields(task: Task, message: Message, attempt: int | None = None) -> dict[str, object]:
    """Return the `extra` of a log record about a message."""
    return {"stompy_task": task.name, "stompy_message_id": message.message_id[:200], "stompy_attempt": attempt}
