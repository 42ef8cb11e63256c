"""What feeds the slots of a task: its queue, and its rate limit. Any thread calls every method."""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Hashable

from stompy.connection.message import Message
from stompy.locks import Rank, make_condition, make_lock
from stompy.worker.task import Task


class TaskQueue:
    """Messages of one task that wait for a slot; with a key, one message of each key at a time, in order.

    Args:
        task: whose messages it holds.
        limit: of waiting messages, above which `put` blocks; `None` if the broker observes a prefetch limit.
    """

    def __init__(self, task: Task, limit: int | None) -> None:
        self._ready: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._key = task.key
        self._limit = limit
        self._waiting: dict[Hashable, deque[Message]] = {}
        """By key: the messages that wait until the one that is ready or running is done."""
        self._keys: dict[int, Hashable] = {}
        self._lock = make_condition("task queue")
        self._closed = False

    def put(self, message: Message) -> None:
        """Add a message; the handler of the subscription."""
        if self._limit is not None:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._count() < (self._limit or 0))
        if self._key is None:
            self._ready.put(message)
            return
        try:
            key: Hashable = self._key(message)
            hash(key)
        except Exception:  # the task then fails for the same reason, in a slot
            key = None
        with self._lock:
            self._keys[id(message)] = key
            if key in self._waiting:
                self._waiting[key].append(message)
                return
            self._waiting[key] = deque()
        self._ready.put(message)

    def get(self) -> Message | None:
        """Return the next message, or `None` after `close`."""
        message = self._ready.get()
        if self._limit is not None:
            with self._lock:
                self._lock.notify_all()
        return message

    def done(self, message: Message) -> None:
        """Let the next message of the same key run."""
        if self._key is None:
            return
        with self._lock:
            key = self._keys.pop(id(message), None)
            waiting = self._waiting.get(key)
            if waiting is None:
                return
            if not waiting:
                del self._waiting[key]
                return
            following = waiting.popleft()
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
        return self._ready.qsize() + sum(map(len, self._waiting.values()))


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
