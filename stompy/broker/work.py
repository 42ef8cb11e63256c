"""How much is done while the router's lock is held: a piece of work at a time, so that no client stops the others.

Work is counted in messages, subscriptions and queues that are looked at. What is longer than a piece is a generator,
which yields where the others may have their turn: it leaves everything in order there. Guarded by the router's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from stompy.errors import ProtocolError

PIECE = 256
"""Messages, subscriptions and queues that are looked at before others have their turn; a few milliseconds."""
TOGETHER = 4
"""Messages that are appended, or handed out, together in the time of one by itself."""

Steps: TypeAlias = Iterator[None]
"""Work that yields where it may be interrupted."""


class Work:
    """What has been done since the lock was taken.

    Attributes:
        left: how much may still be done; less than 0 where a step was larger.
        longest: the most that was ever done at once.
    """

    __slots__ = ("_before", "left", "longest")

    def __init__(self) -> None:
        self.left = PIECE
        self.longest = 0
        self._before = 0

    def begin(self) -> None:
        """Begin to count, as the lock was taken."""
        self.left, self._before = PIECE, 0

    def go_on(self) -> None:
        """Allow one more piece, for what the end of a turn has to do."""
        self._before += PIECE - self.left
        self.left = PIECE

    def end(self) -> None:
        """Note how much it was, as the lock is released."""
        done = self._before + PIECE - self.left
        if done > self.longest:
            self.longest = done


class Unfinished:
    """What the frame, or the call, that is being dealt with has still to do; its thread does it before anything else.

    Attributes:
        steps: in order.
        finish: called when all of it is done, such as to confirm the frame.
        refuse: called with an error that ended one of them.
    """

    __slots__ = ("finish", "refuse", "steps")

    def __init__(self) -> None:
        self.steps: deque[Steps] = deque()
        self.finish: Callable[[], None] | None = None
        self.refuse: Callable[[ProtocolError], None] | None = None

    def go_on(self, work: Work) -> None:
        """Do a piece.

        Raises:
            ProtocolError: an error that no frame or call can be answered with.
        """
        while self.steps and work.left > 0:
            try:
                next(self.steps[0])
            except StopIteration:
                self.steps.popleft()
            except ProtocolError as error:
                self.steps.popleft()
                self.finish, refuse = None, self.refuse
                if refuse is None:
                    raise
                refuse(error)
            except BaseException:
                self.steps.popleft()
                raise
        if not self.steps and self.finish is not None:
            finish, self.finish = self.finish, None
            finish()


class Turn:
    """Holds the router's lock in a `with` block; after it, again and again until nothing is left for its thread.

    Args:
        begin: takes the lock.
        end: does a piece of what is left, releases the lock, and returns whether nothing is left.
    """

    __slots__ = ("_begin", "_end", "_unfinished")

    def __init__(self, begin: Callable[[Unfinished], None], end: Callable[[Unfinished], bool]) -> None:
        self._begin = begin
        self._end = end
        self._unfinished = Unfinished()

    def __enter__(self) -> None:
        self._begin(self._unfinished)

    def __exit__(self, *raised: object) -> None:
        while not self._end(self._unfinished):
            self._begin(self._unfinished)
