"""Line ends between frames: few are heart-beats, many a flood that costs time and says nothing."""

from __future__ import annotations

from stompy.errors import LimitExceeded

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
