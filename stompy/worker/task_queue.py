"""What feeds the slots of a task: its queue, and its rate limit. Any thread calls every method."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Hashable

from stompy.connection.message import Message
from stompy.locks import Rank, make_condition, make_lock
from stompy.worker.failure import class_of, text_of
from stompy.worker.task import Reject, Task
from stompy.world import queue, time


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
