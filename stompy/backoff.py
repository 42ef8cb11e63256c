"""Attempts and the delays between them: the same for sessions, outboxes and tasks."""

from __future__ import annotations

from dataclasses import dataclass

from stompy.deadline import check_seconds
from stompy.errors import ConfigurationError
from stompy.world import random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
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
