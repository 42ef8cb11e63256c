"""Work under the router's lock, a piece at a time, and work at its time: so no client stops the others.

Work is counted in messages, subscriptions and queues that are looked at. Work that may be longer than a piece is a
generator, which yields after each of them: there the others may have their turn, so it leaves everything in order.

| thread | owns | may block on |
|---|---|---|
| `stompy-broker-timer` | nothing | its event, until the next thing is due; the router's lock |

The router's lock guards `Work`, `Turn` and `Schedule`; `Timer` and `Clock` hold no lock of their own.
"""

from __future__ import annotations

import heapq
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from stompy.errors import ProtocolError
from stompy.world import threading, time

PIECE = 256
"""Messages, subscriptions and queues that are looked at before others have their turn; a few milliseconds."""
TOGETHER = 4
"""Messages that are handed out together in the time of one by itself."""

Steps: TypeAlias = Iterator[None]
"""Work that yields after each message, subscription or queue, where it may be interrupted."""


class Work:
    """The work of the current turn, and the work that it leaves for later.

    Attributes:
        left: how much may still be done; less than 0 where a step was larger.
        longest: the most that was ever done at once.
        unfinished: the turn, with the rest of the work of its thread.
        trash: objects to drop after the turn, as that takes time.
        notices: levels and texts to log after the turn.
    """

    def __init__(self) -> None:
        self.left = PIECE
        self.longest = 0
        self._before = 0
        self.unfinished: Turn
        self.trash: list[object] = []
        self.notices: list[tuple[int, str]] = []

    def begin(self, unfinished: Turn) -> None:
        """Begin to count, as the lock was taken."""
        self.left, self._before, self.unfinished = PIECE, 0, unfinished

    def end(self) -> None:
        """Note how much it was, as the lock is released."""
        self.longest = max(self.longest, self._before + PIECE - self.left)

    def note(self, level: int, text: str) -> None:
        """Log a text at the end of the turn."""
        self.notices.append((level, text))

    def later(self, steps: Steps) -> None:
        """Do steps piece by piece: from the end of this turn on, by this thread, which does nothing else before."""
        self.unfinished.steps.append(steps)

    def soon(self, steps: Steps, size: int) -> None:
        """Do about so many steps: at once if they are few, else as `later`."""
        if size < PIECE and not self.unfinished.steps:
            self.run(steps)
        else:
            self.later(steps)

    def run(self, steps: Steps) -> None:
        """Do all steps now."""
        for _ in steps:
            self.left -= 1

    def go_on(self) -> None:
        """Do a piece of the unfinished work, and allow one more for the end of the turn.

        Raises:
            ProtocolError: an error that no frame or call can be answered with.
        """
        self._before += PIECE - self.left
        self.left = PIECE
        unfinished = self.unfinished
        while unfinished.steps and self.left > 0:
            try:
                next(unfinished.steps[0])
                self.left -= 1
            except StopIteration:
                unfinished.steps.popleft()
            except ProtocolError as error:
                unfinished.steps.popleft()
                unfinished.finish, refuse = None, unfinished.refuse
                if refuse is None:
                    raise
                refuse(error)
            except BaseException:
                unfinished.steps.popleft()
                raise
        if not unfinished.steps and unfinished.finish is not None:
            finish, unfinished.finish = unfinished.finish, None
            finish()


class Turn:
    """Holds the router's lock in a `with` block; after it, again and again until nothing is left for its thread.

    A thread may use one again and again, but not inside of its own block.

    Args:
        begin: takes the lock.
        end: does a piece of the work left, releases the lock, and returns whether none is left.

    Attributes:
        steps: the rest of the work of the thread's frame or call, in order; it does that before anything else.
        finish: called when all of it is done, such as to confirm the frame.
        refuse: called with an error that ended one of the steps.
    """

    __slots__ = ("_begin", "_end", "finish", "refuse", "steps")

    def __init__(self, begin: Callable[[Turn], None], end: Callable[[Turn], bool]) -> None:
        self._begin = begin
        self._end = end
        self.steps: deque[Steps] = deque()
        self.finish: Callable[[], None] | None = None
        self.refuse: Callable[[ProtocolError], None] | None = None

    def __enter__(self) -> None:
        self.refuse = None
        self._begin(self)

    def __exit__(self, *raised: object) -> None:
        while not self._end(self):
            self._begin(self)


T = TypeVar("T")
E = TypeVar("E")

_LONGEST = 3600.0
"""Seconds that the timer waits at most, as the clock of the system may be set."""


class Clock:
    """The broker's clock: that of the system, plus the seconds that it was turned forward by."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self.turned: Callable[[], None] = lambda: None
        """Called when it was turned."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Turn it forward; the work due then is done when this returns. Any thread.

        Raises:
            ValueError: the number is negative.
        """
        if not seconds >= 0:
            raise ValueError(f"a clock is turned forward by a number of seconds, not {seconds!r}")
        self._ahead += seconds
        self.turned()

    def __repr__(self) -> str:
        return f"<Clock {self._ahead:g} s ahead>"


class Schedule(Generic[T, E]):
    """Messages (`T`) to deliver later, and entries (`E`) that expire unless they are delivered or used before.

    A message that was delivered is not looked for here: it is dropped when its time has come, or when such ones are
    half of all.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._later: list[tuple[float, int, T]] = []
        self._expiring: list[tuple[float, int, weakref.ref[E]]] = []
        self._compact_at = 1024

    @property
    def waiting(self) -> int:
        """How many messages wait for their time."""
        return len(self._later)

    def add(self, due: float, entry: T) -> None:
        """Keep an entry until `due`."""
        heapq.heappush(self._later, (due, next(self._numbers), entry))

    def expire(self, item: E, at: float) -> None:
        """Note when a message, or an unused queue, expires; that does not keep it."""
        heapq.heappush(self._expiring, (at, next(self._numbers), weakref.ref(item)))
        if len(self._expiring) >= self._compact_at:
            self._expiring = [entry for entry in self._expiring if entry[2]() is not None]
            heapq.heapify(self._expiring)
            self._compact_at = max(1024, 2 * len(self._expiring))

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Forget the entries that are not `wanted`."""
        self._later = [entry for entry in self._later if wanted(entry[2])]
        heapq.heapify(self._later)

    def due(self, now: float) -> Iterator[T]:
        """Take out and yield the due messages, in order."""
        return (entry for _, _, entry in self._take(self._later, now))

    def expired(self, now: float) -> Iterator[E]:
        """Take out and yield the messages and queues whose time is over, if they still exist."""
        return (item for _, _, found in self._take(self._expiring, now) if (item := found()) is not None)

    @staticmethod
    def _take(heap: list[Any], now: float) -> Iterator[Any]:
        while heap and heap[0][0] <= now:
            yield heapq.heappop(heap)

    def next(self) -> float | None:
        """Return the moment of the next thing to do."""
        if not self._later and not self._expiring:
            return None
        return min((heap[0][0] for heap in (self._later, self._expiring) if heap), default=None)


class Timer:
    """The thread that looks at the schedule.

    Args:
        look: does the work due, and returns the seconds until the next is due, if any.
    """

    def __init__(self, look: Callable[[], float | None]) -> None:
        self._look = look
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = True

    def start(self) -> None:
        """Start the thread."""
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="stompy-broker-timer", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Look again, as the schedule changed; called with the router's lock held."""
        self._wake.set()

    def stop(self, timeout: float | None) -> None:
        """End the thread, and wait for it."""
        self._stopped = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.clear()
            seconds = self._look()
            if not self._stopped:
                self._wake.wait(None if seconds is None else min(max(seconds, 0.0), _LONGEST))
