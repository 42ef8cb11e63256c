"""Attempts, the delays between them, and rates: the same for sessions, outboxes, tasks and sinks."""

from __future__ import annotations

from stompy.deadline import check_seconds
from stompy.errors import ConfigurationError
from stompy.locks import Rank, make_lock
from stompy.values import Value
from stompy.world import random, time


class Backoff(Value):
    """Delays between attempts, in seconds: random, between 0 and a bound that doubles each time (full jitter).

    `backoff(failures)` returns one delay.

    Attributes:
        first: the bound after the first failed attempt.
        longest: the largest bound.

    Raises:
        ConfigurationError: a number is not positive and finite, or `first` is larger than `longest`.
    """

    first: float = 0.1
    longest: float = 30.0

    def __post_init__(self) -> None:
        check_seconds(self.first, "first", positive=True, finite=True, optional=False)
        check_seconds(self.longest, "longest", positive=True, finite=True, optional=False)
        if self.first > self.longest:
            raise ConfigurationError(f"first must not be larger than longest: {self}")

    def __call__(self, failures: int, /) -> float:
        """Return the seconds before the next attempt, after so many failed ones in a row; 1 or more."""
        return random.uniform(0, min(self.longest, self.first * 2.0 ** min(failures - 1, 100)))  # noqa: S311 - a delay


DEFAULT_BACKOFF = Backoff()


def check_attempts(value: object) -> None:
    """Check that `attempts` is a whole number of 1 or more, or `None` for no limit.

    Raises:
        ConfigurationError: it is not.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigurationError(f"attempts must be a whole number of 1 or more, or None, not {value!r}")


class RateLimit:
    """Starts at most `rate` messages per second, evenly spaced, and after a pause no more at once. Any thread."""

    def __init__(self, rate: float) -> None:
        self._interval = 1.0 / rate
        self._next = 0.0
        self._lock = make_lock(Rank.LEAF, "rate limit")

    def delay(self, messages: int = 1) -> float:
        """Reserve a start of some messages together, and return the seconds until then."""
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + messages * self._interval
            return start - now
