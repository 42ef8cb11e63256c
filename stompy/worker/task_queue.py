"""What feeds the slots of a task: its queue, and its rate limit.

As a switch of threads costs more than a short task, messages are taken by as few slots as short tasks need: a slot
that is awake takes one after the other. Another one looks again and again whether a message waits while no slot has
taken any for `_SHORT`, and takes it then. So short tasks run in one thread, and long ones in as many as there are.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Hashable

from stompy.connection.message import Message
from stompy.locks import Rank, make_condition, make_lock
from stompy.worker.task import Task

_SHORT = 50e-6
"""Seconds of a task that is not worth waking another slot."""

_LOOK, _LONGEST_LOOK = 200e-6, 1.6e-3
"""Seconds until a slot looks whether the others are stuck in a longer task; doubled as long as they are not."""


class Taker:
    """A slot, as its queue knows it.

    Attributes:
        wakeup: released to wake the slot.
        taken: when it took its last message, by the monotonic clock.
    """

    __slots__ = ("taken", "wakeup")

    def __init__(self) -> None:
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
        self.taken = 0.0


class TaskQueue:
    """Messages of one task that wait for a slot; with a key, one message of each key at a time, in order.

    Any thread calls every method.

    Args:
        task: whose messages it holds.
        limit: of waiting messages, above which `put` blocks; `None` if the broker observes a prefetch limit.
    """

    def __init__(self, task: Task, limit: int | None) -> None:
        self._ready: deque[Message] = deque()
        self._key = task.key
        self._limit = limit
        self._waiting: dict[Hashable, deque[Message]] = {}
        """By key: the messages that wait until the one that is ready or running is done."""
        self._keys: dict[int, Hashable] = {}
        self._lock = make_condition("task queue")
        self._closed = False
        self._sleeping: list[Taker] = []
        self._last = 0.0
        """When a message was taken."""
        self._idle = True
        """Whether the slot that took a message last sleeps, as there was none left."""
        self._woken = False
        """Whether a slot was woken and has not looked yet."""
        self._watched = False
        """Whether a slot looks again and again."""

    def put(self, message: Message) -> None:
        """Add a message; the handler of the subscription."""
        if self._limit is not None:
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._count() < (self._limit or 0))
        if self._key is not None:
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
        # Without the lock, as this is done for each message: who goes to sleep looks once more.
        self._ready.append(message)
        if self._sleeping and not self._woken and (self._idle or not self._watched):
            with self._lock:
                self._wake()

    def get(self, taker: Taker) -> Message | None:
        """Return the next message, or `None` after `close`."""
        now, last = time.monotonic(), self._last
        # Not if another slot is about to take them all.
        mine = last == taker.taken or now - taker.taken > _SHORT or now - last > _SHORT
        message = self._take(taker, now) if mine else None
        if message is None:
            message = self._wait(taker)
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
            self._ready.append(waiting.popleft())  # for the caller, who is awake

    def close(self) -> None:
        """Wake all slots and every `put`."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            while self._sleeping:
                self._sleeping.pop().wakeup.release()

    def __len__(self) -> int:
        with self._lock:
            return self._count()

    def _count(self) -> int:
        return len(self._ready) + sum(map(len, self._waiting.values()))

    def _take(self, taker: Taker, now: float) -> Message | None:
        if self._closed:
            return None
        try:
            message = self._ready.popleft()
        except IndexError:
            return None
        self._last = taker.taken = now
        self._idle = False
        return message

    def _wake(self) -> None:
        """Wake the slot that was awake last; with the lock."""
        if self._sleeping and not self._woken:
            self._woken = True
            self._sleeping.pop().wakeup.release()

    def _wait(self, taker: Taker) -> Message | None:
        """Return a message that nobody else is about to take; `None` after `close`."""
        watching = woken = False
        late, pause = 0, 0.0
        while True:
            with self._lock:
                if watching:
                    self._watched = False
                elif woken:
                    self._woken = False
                if self._closed:
                    return None
                now = time.monotonic()
                # A slot that waits for the interpreter is late as well, so it is looked at twice.
                late = late + 1 if self._ready and now - self._last > _SHORT else 0
                mine = self._idle or self._last == taker.taken or late > watching
                if mine and (message := self._take(taker, now)) is not None:
                    if self._ready and not self._watched:
                        self._wake()
                    return message
                if not self._ready and self._last == taker.taken:
                    self._idle = True
                watching = not self._watched and (bool(self._ready) or now - self._last < pause)
                if watching:
                    self._watched = True
                else:
                    self._sleeping.append(taker)
                    if self._ready and (self._idle or not self._watched):
                        self._wake()
            woken = not watching
            if watching:
                pause = _LOOK if late else max(_LOOK, min(2 * pause, _LONGEST_LOOK))
                time.sleep(pause)
            else:
                pause = _LOOK
                taker.wakeup.acquire()


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
