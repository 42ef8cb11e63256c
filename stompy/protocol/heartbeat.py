"""Heart-beat arithmetic (STOMP 1.2, Heart-beating). Every `now` is a reading of a monotonic clock in seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stompy.errors import ConfigurationError, LimitExceeded, RemoteProtocolError
from stompy.protocol.rules import shown

_MAX_DIGITS = 10
_VALUE = re.compile(rf" *([0-9]{{1,{_MAX_DIGITS}}}) *, *([0-9]{{1,{_MAX_DIGITS}}}) *")
_MAX_SECONDS = 10**_MAX_DIGITS // 1000 - 1

SEND_SHARE = 0.6
"""A beat is sent when this share of the agreed interval passed in silence: brokers close on the first late one."""
DEFAULT_TOLERANCE = 3.0
"""Silence of this many agreed intervals is death; ActiveMQ's first beat comes after two of them."""
_LEAST_TOLERANCE = 1.1
_LEAST_MARGIN = 0.3


@dataclass(frozen=True, slots=True)
class HeartbeatOffer:
    """What one side puts into its `heart-beat` header, in milliseconds; 0 means "cannot" or "do not want".

    Attributes:
        send_ms: the shortest interval at which it can send.
        receive_ms: the interval at which it wants to hear from the peer.
    """

    send_ms: int = 0
    receive_ms: int = 0

    @classmethod
    def from_seconds(cls, send: float, receive: float) -> HeartbeatOffer:
        """Return the offer for two intervals in seconds.

        Raises:
            ConfigurationError: one of them is negative, not a number, or too long for the header.
        """
        for seconds in (send, receive):
            if not 0 <= seconds <= _MAX_SECONDS:
                raise ConfigurationError(f"a heart-beat interval must be 0 to {_MAX_SECONDS} seconds, not {seconds!r}")
        return cls(_milliseconds(send), _milliseconds(receive))

    @classmethod
    def parse(cls, value: str | None) -> HeartbeatOffer:
        """Return the offer in a `heart-beat` header; a missing one means `0,0`.

        Raises:
            RemoteProtocolError: not two non-negative decimal integers with a comma between them.
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


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """What both sides agreed on, seen from one side, in seconds; `None` where there are no beats in that direction."""

    send: float | None = None
    receive: float | None = None

    @classmethod
    def agree(cls, mine: HeartbeatOffer, theirs: HeartbeatOffer) -> Heartbeats:
        """Return what follows from both headers: none if either side says 0, else the longer interval."""
        return cls(_interval(mine.send_ms, theirs.receive_ms), _interval(theirs.send_ms, mine.receive_ms))

    def silence_allowed(self, tolerance: float = DEFAULT_TOLERANCE) -> float | None:
        """Return after how many seconds without an octet the peer counts as dead, or `None` for never."""
        if self.receive is None:
            return None
        return max(self.receive * max(tolerance, _LEAST_TOLERANCE), self.receive + _LEAST_MARGIN)

    @property
    def beat_after(self) -> float | None:
        """After how many silent seconds of ours a beat is due, or `None` for never."""
        return None if self.send is None else self.send * SEND_SHARE


def _interval(can_ms: int, wants_ms: int) -> float | None:
    return max(can_ms, wants_ms) / 1000 if can_ms and wants_ms else None


class Pulse:
    """When we last sent, when the peer was last heard, and what is due.

    Not for two threads at once, except that `sent` and `heard` are single assignments.

    A machine that was suspended, or a process that was stopped, finds the clock far ahead of the look it had planned,
    and what the peer said meanwhile is still unread. Such a late look starts the silence anew, once: the reader gets
    its chance, and a peer that is really gone is found dead one allowed silence later.

    Args:
        heartbeats: the agreement.
        now: the moment of the handshake.
        tolerance: how many intervals of silence are death.
    """

    def __init__(self, heartbeats: Heartbeats, now: float, tolerance: float = DEFAULT_TOLERANCE) -> None:
        self._beat_after = heartbeats.beat_after
        self._silence = heartbeats.silence_allowed(tolerance)
        self._late = max(_LEAST_MARGIN, heartbeats.receive or 0.0)
        self.last_sent = now
        self.last_heard = now
        self._planned = now
        self._pardoned: float | None = None

    def sent(self, now: float) -> None:
        """Note that octets left."""
        self.last_sent = now

    def heard(self, now: float) -> None:
        """Note that octets came: any, also a part of a frame."""
        self.last_heard = now

    def beat_due(self, now: float) -> bool:
        """Whether a beat must be sent."""
        return self._beat_after is not None and now - self.last_sent >= self._beat_after

    def dead(self, now: float) -> bool:
        """Whether the peer was silent for too long, on a clock that somebody watched."""
        heard, overslept = self.last_heard, now - self._planned > self._late
        self._planned = max(self._planned, now)
        if self._silence is None or now - heard <= self._silence:
            return False
        if overslept and heard != self._pardoned:
            self.last_heard = self._pardoned = now
            return False
        return True

    def next_look(self, now: float) -> float | None:
        """Return in how many seconds something may be due, or `None` if nothing ever is."""
        due: list[float] = []
        if self._beat_after is not None:
            due.append(self.last_sent + self._beat_after)
        if self._silence is not None:
            due.append(self.last_heard + self._silence)
        if not due:
            return None
        self._planned = max(now, min(due))
        return self._planned - now


DEFAULT_EOL_RATE = 10_000
"""Octets of line ends a second."""

_BURST = 10.0
"""Seconds of them that may come at once, as after a pause in which nobody read."""
_WITH_A_FRAME = 16
"""Octets of line ends that may come with each frame for nothing."""


class EolMeter:
    """Measures the line ends of one peer, by a bucket that leaks at the allowed rate.

    Args:
        rate: octets a second that are borne with in the long run.
        now: seconds of a monotonic clock.
    """

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._most = rate * _BURST
        self._left = self._most
        self._seen = 0
        self._last = now

    def look(self, total: int, *, frames: int, now: float) -> None:
        """Take note of what has come.

        Args:
            total: octets of line ends between frames since the stream began.
            frames: whole frames that came since the last look.
            now: seconds of the same clock.

        Raises:
            LimitExceeded: more than the rate allows.
        """
        come, self._seen = total - self._seen - _WITH_A_FRAME * frames, total
        if come <= 0:
            return
        self._left = min(self._most, self._left + (now - self._last) * self._rate) - come
        self._last = now
        if self._left < 0:
            raise LimitExceeded("a flood of line ends between frames", limit_name="max_eol_rate", limit=self._rate)
