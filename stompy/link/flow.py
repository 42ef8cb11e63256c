"""May the reader read on? Back-pressure from a slow consumer to the broker.

| who | may do | lock |
|---|---|---|
| reader | `added`, `wait_open` | gate (leaf), waits on its condition |
| dispatcher, iterating callers | `removed` | gate (leaf) |
| a caller waiting for a receipt | `hold`, `holders.discard` | gate (leaf) |
| pacemaker | `dead` | gate (leaf) |

While the reader waits, the TCP window fills and the broker holds back; the peer's silence is not held against it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from stompy.errors import ConfigurationError
from stompy.locks import make_condition
from stompy.protocol.heartbeat import HeartbeatTimer


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """How much may wait in the inbox.

    The marks are soft: a read that passes them is still taken in whole, and one read holds many frames.

    Attributes:
        max_messages: the gate shuts at this many waiting messages.
        max_bytes: or at this many bytes of their headers and bodies, with `overhead` for each message.
        hard_max_bytes: while a receipt is waited for, the gate stays open up to this many bytes, counted alike.
        overhead: bytes that a message counts for besides: about what Python needs to hold it, so that a flood of
            empty ones does not pass for nothing.
    """

    max_messages: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    hard_max_bytes: int = 256 * 1024 * 1024
    overhead: int = 1024

    def __post_init__(self) -> None:
        if not (self.max_messages > 0 and 0 < self.max_bytes <= self.hard_max_bytes and self.overhead >= 0):
            raise ConfigurationError(f"inbox limits must be positive, and the hard one the largest: {self}")


class Counted(Protocol):
    """A message that waits for user code."""

    _counted: bool
    """Whether it is counted; written by the gate alone once it was `added`."""
    size: int


class FlowControl:
    """Counts what waits for user code, and stops the reader above the high mark until it falls to half of it.

    Args:
        limits: when to shut.
        pulse: re-armed when the reader goes on, so that the silence of a shut gate does not kill the link.
    """

    def __init__(self, limits: InboxLimits, pulse: HeartbeatTimer) -> None:
        self._limits = limits
        self._pulse = pulse
        self._condition = make_condition("gate")
        self._messages = 0
        self._size = 0
        self.holders: set[object] = set()
        """Who keeps the gate open; see `hold`."""
        self._shut = False
        self.shut = False
        """Whether the reader is stopped at the moment; written with the lock, and read without."""
        self._abandoned = False
        self.times_paused = 0
        """How often the reader had to wait."""

    @property
    def waiting_messages(self) -> int:
        """Messages in the inbox."""
        return self._messages

    @property
    def waiting_bytes(self) -> int:
        """Bytes of their headers and bodies."""
        return self._size

    @property
    def _weight(self) -> int:
        return self._size + self._messages * self._limits.overhead

    def added(self, messages: int, size: int) -> None:
        """Note messages that now wait for user code."""
        with self._condition:
            self._messages += messages
            self._size += size
            if self._messages >= self._limits.max_messages or self._weight >= self._limits.max_bytes:
                self._shut = True

    def removed(self, messages: int, size: int) -> None:
        """Note messages that user code has taken or that were dropped."""
        with self._condition:
            self._messages -= messages
            self._size -= size
            if self._shut or self.shut:
                self._open_again()

    def taken(self, message: Counted) -> None:
        """Note that user code has taken a message, or that it was dropped; a second time is ignored."""
        with self._condition:
            if not message._counted:
                return
            before = self._messages, self._size
            try:
                message._counted = False
                self._messages -= 1
                self._size -= message.size
                if self._shut or self.shut:
                    self._open_again()
            except BaseException:
                # A signal: as it was, so that whoever tries again counts it down and wakes the reader.
                message._counted, (self._messages, self._size) = True, before
                raise

    def _open_again(self) -> None:
        if self._messages * 2 <= self._limits.max_messages and self._weight * 2 <= self._limits.max_bytes:
            self._shut = False
        # Also where the gate stays shut but is held and has fallen below the hard limit.
        if self.shut and not self._blocked():
            self._condition.notify_all()

    def hold(self, holder: object) -> None:
        """Keep the gate open for somebody whose frame may lie behind the messages that filled the inbox.

        Until `holders.discard(holder)`, which belongs into a `finally` whose `try` begins before this call.
        """
        with self._condition:
            self.holders.add(holder)
            self._condition.notify_all()

    def wait_open(self) -> None:
        """Return when the reader may read on; at once in the common case."""
        if not self._shut:
            return
        with self._condition:
            if not self._blocked():
                return
            self.times_paused += 1
            self.shut = True
            while self._blocked():
                self._condition.wait()
            # In the same critical section that opens the gate: else the pacemaker could look in between.
            self.shut = False
            self._pulse.heard(time.monotonic())

    def _blocked(self) -> bool:
        if not self._shut or self._abandoned:
            return False
        return not self.holders or self._weight >= self._limits.hard_max_bytes

    def dead(self, now: float) -> bool:
        """Whether the peer was silent for too long while we were listening."""
        with self._condition:
            return not self.shut and self._pulse.dead(now)

    def abandon(self) -> None:
        """Let the reader through for good: the link is over and must be cleaned up."""
        with self._condition:
            self._abandoned = True
            self._condition.notify_all()
