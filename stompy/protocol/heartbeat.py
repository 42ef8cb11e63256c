"""Heartbeats: negotiation, timer, and a limit for their rate (STOMP 1.2, Heart-beating).

Every `now` is the time of a monotonic clock, in seconds.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stompy.errors import ConfigurationError, LimitExceededError, RemoteProtocolError
from stompy.protocol.rules import shown

_MAX_DIGITS = 10
_VALUE = re.compile(rf" *([0-9]{{1,{_MAX_DIGITS}}}) *, *([0-9]{{1,{_MAX_DIGITS}}}) *")
_MAX_SECONDS = 10**_MAX_DIGITS // 1000 - 1

SEND_SHARE = 0.6
"""The share of the negotiated interval after which a heartbeat is sent: brokers disconnect at the first late one."""
DEFAULT_TOLERANCE = 3.0
"""The number of negotiated intervals without bytes after which the peer counts as dead.

The first heartbeat of ActiveMQ arrives after two intervals.
"""
_MIN_TOLERANCE = 1.1
_MIN_MARGIN = 0.3

DEFAULT_EOL_RATE = 10_000
"""Bytes of line ends per second."""

_BURST = 10.0
"""The seconds of line ends that may arrive at once, as after a pause without reads."""
_FREE_PER_FRAME = 16
"""Bytes of line ends that each frame may bring without being counted."""


class HeartbeatOffer(NamedTuple):
    """The `heart-beat` header of one side, in milliseconds; 0 means none.

    Attributes:
        send_ms: the shortest interval at which this side can send heartbeats.
        receive_ms: the interval at which it wants to receive them.
    """

    send_ms: int = 0
    receive_ms: int = 0

    @classmethod
    def from_seconds(cls, send: float, receive: float) -> HeartbeatOffer:
        """Return the offer for two intervals in seconds.

        Raises:
            ConfigurationError: an interval is negative, not a number, or too long for the header.
        """
        for seconds in (send, receive):
            if not 0 <= seconds <= _MAX_SECONDS:
                raise ConfigurationError(f"a heart-beat interval must be 0 to {_MAX_SECONDS} seconds, not {seconds!r}")
        return cls(_milliseconds(send), _milliseconds(receive))

    @classmethod
    def parse(cls, value: str | None) -> HeartbeatOffer:
        """Return the offer in a `heart-beat` header; `None`, a missing header, means `0,0`.

        Raises:
            RemoteProtocolError: the value is not two decimal numbers with a comma between them.
        """
        if value is None:
            return cls()
        match = _VALUE.fullmatch(value)
        if match is None:
            raise RemoteProtocolError(
                f"heart-beat must be two numbers of at most {_MAX_DIGITS} digits, not {shown(value)} (Heart-beating)"
            )
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.send_ms},{self.receive_ms}"


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000)) if seconds else 0


class Heartbeats(NamedTuple):
    """The negotiated intervals of one side, in seconds; `None` means no heartbeats in this direction."""

    send: float | None = None
    receive: float | None = None

    @classmethod
    def agree(cls, mine: HeartbeatOffer, theirs: HeartbeatOffer) -> Heartbeats:
        """Return the result of the negotiation: in each direction the longer interval, or none if a side says 0."""
        return cls(_interval(mine.send_ms, theirs.receive_ms), _interval(theirs.send_ms, mine.receive_ms))

    def silence_allowed(self, tolerance: float = DEFAULT_TOLERANCE) -> float | None:
        """Return the seconds without bytes after which the peer counts as dead, or `None` for never."""
        if self.receive is None:
            return None
        return max(self.receive * max(tolerance, _MIN_TOLERANCE), self.receive + _MIN_MARGIN)

    @property
    def beat_after(self) -> float | None:
        """The seconds after the last write at which a heartbeat is due, or `None` for never."""
        return None if self.send is None else self.send * SEND_SHARE


def _interval(can_ms: int, wants_ms: int) -> float | None:
    return max(can_ms, wants_ms) / 1000 if can_ms and wants_ms else None


class HeartbeatTimer:
    """Track when bytes were last sent and received, and tell when a heartbeat is due and when the peer is dead.

    Not thread-safe, except for `sent` and `heard`, which are single assignments.

    After the machine was suspended, or the process was stopped, a check runs much later than planned, and bytes that
    arrived meanwhile are still unread. Such a late check restarts the silence, once, so that the reader can catch up; a
    peer that is really dead is detected one allowed silence later.

    Args:
        heartbeats: the negotiated intervals.
        now: the time of the handshake.
        tolerance: the number of intervals without bytes after which the peer counts as dead.
    """

    def __init__(self, heartbeats: Heartbeats, now: float, tolerance: float = DEFAULT_TOLERANCE) -> None:
        self._excused: float | None = None
        self.start(heartbeats, now, tolerance)

    def start(self, heartbeats: Heartbeats, now: float, tolerance: float = DEFAULT_TOLERANCE) -> None:
        """Start to count from `now`; the arguments are those of the class."""
        self._beat_after = heartbeats.beat_after
        self._silence = heartbeats.silence_allowed(tolerance)
        self._late = max(_MIN_MARGIN, heartbeats.receive or 0.0)
        self.last_sent = now
        self.last_heard = now
        self._planned = now

    def sent(self, now: float) -> None:
        """Record that bytes were sent."""
        self.last_sent = now

    def heard(self, now: float) -> None:
        """Record that bytes arrived, even a part of a frame."""
        self.last_heard = now

    def beat_due(self, now: float) -> bool:
        """Return whether a heart-beat must be sent."""
        return self._beat_after is not None and now - self.last_sent >= self._beat_after

    def dead(self, now: float) -> bool:
        """Return whether the peer was silent for too long; a late check restarts the silence, see above."""
        heard, late = self.last_heard, now - self._planned > self._late
        self._planned = max(self._planned, now)
        if self._silence is None or now - heard <= self._silence:
            return False
        if late and heard != self._excused:
            self.last_heard = self._excused = now
            return False
        return True

    def next_check(self, now: float) -> float | None:
        """Return the seconds until the next check is due, or `None` for never."""
        due: list[float] = []
        if self._beat_after is not None:
            due.append(self.last_sent + self._beat_after)
        if self._silence is not None:
            due.append(self.last_heard + self._silence)
        if not due:
            return None
        self._planned = max(now, min(due))
        return self._planned - now


class HeartbeatRateLimit:
    """Limit the rate of line ends between frames: few are heartbeats, a flood of them is an attack.

    A token bucket: it holds ten seconds' worth of bytes and refills at the allowed rate.

    Args:
        rate: bytes per second.
        now: the time of the first check.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._most = rate * _BURST
        self._left = self._most
        self.seen = 0
        """Bytes of line ends so far; there is nothing to check before there are more."""
        self._last = now

    def check(self, total: int, *, frames: int, now: float) -> None:
        """Count new line ends.

        Args:
            total: bytes of line ends between frames since the start of the stream.
            frames: complete frames since the last check.
            now: the current time.

        Raises:
            LimitExceededError: the line ends exceed the rate.
        """
        used, self.seen = total - self.seen - _FREE_PER_FRAME * frames, total
        if used <= 0:
            return
        self._left = min(self._most, self._left + (now - self._last) * self._rate) - used
        self._last = now
        if self._left < 0:
            raise LimitExceededError("a flood of line ends between frames", limit_name="max_eol_rate", limit=self._rate)
