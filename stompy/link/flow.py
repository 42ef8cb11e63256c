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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.locks import make_condition
from stompy.protocol.heartbeat import HeartbeatTimer
from stompy.world import time

if TYPE_CHECKING:
    from stompy.link.settings import Limits


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
        self.waiting_messages = 0
        """Messages that wait for user code, and receipts that wait for listeners."""
        self.waiting_bytes = 0
        """Bytes of their headers and bodies."""
        self.holders: set[object] = set()
        """Callers that keep reading enabled; see `hold`."""
        self._above_limit = False
        self.paused = False
        """Whether the reader is waiting now; written with the lock, read without."""
        self._disabled = False
        self.times_paused = 0
        """How often the reader had to wait."""

    @property
    def _weight(self) -> int:
        return self.waiting_bytes + self.waiting_messages * self._limits.inbox_overhead

    def added(self, messages: int, size: int) -> None:
        """Count messages that now wait for user code."""
        with self._condition:
            self.waiting_messages += messages
            self.waiting_bytes += size
            if self.waiting_messages >= self._limits.max_inbox_messages or self._weight >= self._limits.max_inbox_bytes:
                self._above_limit = True

    def removed(self, messages: int, size: int) -> None:
        """Stop counting messages that user code has taken or that were dropped."""
        with self._condition:
            self.waiting_messages -= messages
            self.waiting_bytes -= size
            if self._above_limit or self.paused:
                self._resume_if_low()

    def queued(self, messages: Sequence[Counted]) -> None:
        """Count messages in an inbox, each until it is `taken`."""
        self.added(len(messages), sum([message.size for message in messages]))
        for message in messages:
            message._counted = True

    def put_back(self, message: Counted) -> None:
        """Count a message again, after a signal interrupted the caller that took it."""
        if not message._counted:
            self.queued([message])

    def taken(self, message: Counted) -> None:
        """Stop counting one message; a second call for it is ignored."""
        with self._condition:
            if not message._counted:
                return
            previous = self.waiting_messages, self.waiting_bytes
            try:
                message._counted = False
                self.waiting_messages -= 1
                self.waiting_bytes -= message.size
                if self._above_limit or self.paused:
                    self._resume_if_low()
            except BaseException:
                # A signal: restore the counters, so that the next attempt counts it down and wakes the reader.
                message._counted, (self.waiting_messages, self.waiting_bytes) = True, previous
                raise

    def _resume_if_low(self) -> None:
        limits = self._limits
        if self.waiting_messages * 2 <= limits.max_inbox_messages and self._weight * 2 <= limits.max_inbox_bytes:
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
