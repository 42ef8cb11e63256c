"""Flow control: back-pressure from a slow consumer to the broker.

| thread | may do | lock |
|---|---|---|
| reader | `added`, `wait_while_paused` | flow (leaf), waits on its condition |
| dispatcher, iterating callers | `removed` | flow (leaf) |
| a caller waiting for a receipt | `hold`, `holders.discard` | flow (leaf) |
| heartbeat thread | `peer_dead` | flow (leaf) |

While reading is paused, the TCP window fills and the broker stops sending; silence does not count as a dead peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.locks import make_condition
from stompy.protocol.heartbeat import HeartbeatTimer
from stompy.world import time

if TYPE_CHECKING:
    from stompy.link.settings import Limits

_COUNTED_TOGETHER = 16
"""Taken messages after which they are counted."""


class Counted(Protocol):
    """A message that waits for user code."""

    _counted: bool
    """Whether it is counted; only `FlowControl` changes it after `added`."""
    size: int


class FlowControl:
    """Counts the messages that wait for user code, and pauses reading from the high-water mark down to half of it.

    Args:
        limits: when to pause.
        timer: reset when reading resumes, so that the pause does not count as silence of the peer.
    """

    def __init__(self, limits: Limits, timer: HeartbeatTimer) -> None:
        self._limits = limits
        self._timer = timer
        self._condition = make_condition("flow")
        self._messages = self._bytes = 0
        self._taken: deque[Counted] = deque()
        """Messages that user code has, but that are counted until the next look."""
        self.holders: set[object] = set()
        """Callers that keep reading enabled; see `hold`."""
        self._above_limit = False
        self.paused = False
        """Whether the reader is waiting now; written with the lock, read without."""
        self._disabled = False
        self.times_paused = 0
        """How often the reader had to wait."""

    def waiting(self) -> tuple[int, int]:
        """Return how many messages wait for user code, and receipts for listeners; and the bytes of all of them."""
        with self._condition:
            self._count_taken()
            return self._messages, self._bytes

    @property
    def _weight(self) -> int:
        return self._bytes + self._messages * self._limits.inbox_overhead

    def added(self, messages: int, size: int) -> None:
        """Count messages that now wait for user code."""
        with self._condition:
            self._count_taken()
            self._messages += messages
            self._bytes += size
            if self._messages >= self._limits.max_inbox_messages or self._weight >= self._limits.max_inbox_bytes:
                self._above_limit = True

    def removed(self, messages: int, size: int) -> None:
        """Stop counting messages that user code has taken or that were dropped."""
        with self._condition:
            self._messages -= messages
            self._bytes -= size
            self._count_taken()

    def queued(self, messages: Sequence[Counted]) -> None:
        """Count messages in an inbox, each until it is `taken`."""
        self.added(len(messages), sum([message.size for message in messages]))
        for message in messages:
            message._counted = True

    def dequeued(self, messages: Iterable[Counted]) -> None:
        """Stop counting messages at one look; not in the main thread, where a signal could interrupt it."""
        with self._condition:
            counted = [message for message in messages if message._counted]
            for message in counted:
                message._counted = False
            self._messages -= len(counted)
            self._bytes -= sum([message.size for message in counted])
            self._count_taken()

    def put_back(self, message: Counted) -> None:
        """Count a message again, after a signal interrupted the caller that took it."""
        self.waiting()  # which counts those that were taken
        if not message._counted:
            self.queued([message])

    def taken(self, message: Counted, last: bool = True) -> None:
        """Stop counting one message; a second call for it is ignored.

        Args:
            message: that user code has, or that was dropped.
            last: whether to look at once; else after some more, as each look takes a lock, unless reading is to resume.
        """
        self._taken.append(message)
        if last or self._above_limit or self.paused or len(self._taken) >= _COUNTED_TOGETHER:
            with self._condition:
                self._count_taken()

    def _count_taken(self) -> None:
        """Stop counting what was taken, and wake the reader if reading is to resume; with the lock held."""
        while self._taken:
            message, counters = self._taken[0], (self._messages, self._bytes)
            if message._counted:
                try:
                    message._counted = False
                    self._messages -= 1
                    self._bytes -= message.size
                except BaseException:  # a signal: the next look counts it
                    message._counted, (self._messages, self._bytes) = True, counters
                    raise
            self._taken.popleft()
        if not (self._above_limit or self.paused):
            return
        if self._messages * 2 <= self._limits.max_inbox_messages and self._weight * 2 <= self._limits.max_inbox_bytes:
            self._above_limit = False
        # Also if it stays above the mark, but has a holder and fell below the hard limit.
        if self.paused and not self._blocked():
            self._condition.notify_all()

    def hold(self, holder: object) -> None:
        """Keep reading enabled for a caller whose frame may come after the messages that filled the inbox.

        `holders.discard(holder)` ends this; it belongs in a `finally` whose `try` begins before this call.
        """
        with self._condition:
            self.holders.add(holder)
            self._condition.notify_all()

    def wait_while_paused(self, timeout: float | None = None) -> bool:
        """Block while reading is paused; usually returns immediately. Return `False` if it still is after `timeout`."""
        if not (self._above_limit or self.paused):
            return True
        with self._condition:
            if not self.paused:
                if not self._blocked():
                    return True
                self.times_paused += 1
                self.paused = True
            if not self._condition.wait_for(lambda: not self._blocked(), timeout):
                return False
            # In the same critical section: the heartbeat thread must not look in between.
            self.paused = False
            self._timer.heard(time.monotonic())
            return True

    def _blocked(self) -> bool:
        if not self._above_limit or self._disabled:
            return False
        return not self.holders or self._weight >= self._limits.hard_max_inbox_bytes

    def peer_dead(self, now: float) -> bool:
        """Return whether the peer was silent for too long while we were reading."""
        with self._condition:
            return not self.paused and self._timer.dead(now)

    def disable(self) -> None:
        """Never pause again: the link has ended, and the reader must clean up."""
        with self._condition:
            self._disabled = True
            self._condition.notify_all()
