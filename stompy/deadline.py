"""Deadlines: one time limit that several steps share."""

from __future__ import annotations

import math

from stompy.errors import ConfigurationError
from stompy.world import time

_LONGEST_WAIT = 1e8
"""Seconds; the wait functions of some platforms accept no larger number."""


def check_seconds(
    value: object, name: str = "timeout", *, positive: bool = False, finite: bool = False, optional: bool = True
) -> None:
    """Check that an argument is a number of seconds.

    Args:
        value: the argument; `None`, or 0 or more seconds.
        name: the name of the argument, for the error message.
        positive: whether to reject 0 too.
        finite: whether to reject infinity too.
        optional: whether to accept `None`.

    Raises:
        ConfigurationError: `value` is not a number (a `bool` is none), NaN, or out of range.
    """
    if value is None and optional:
        return
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:  # an integer above every float
        number = math.nan
    if (number > 0 if positive else number >= 0) and not (finite and number == math.inf):
        return
    least = "more than 0" if positive else "0 or more"
    raise ConfigurationError(f"{name} must be a{' finite' if finite else ''} number of seconds, {least}, not {value!r}")


class Deadline:
    """A point in time, on the monotonic clock, by which an operation must be complete.

    A call with several steps (dial, handshake, wait) creates one `Deadline` and passes it to each step, so that all of
    them together take no longer than the caller's timeout.

    Args:
        seconds: from now; `None` means no limit, `0` means that the deadline has already passed.

    Raises:
        ConfigurationError: `seconds` is not a valid number of seconds; see `check_seconds`.
    """

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None) -> None:
        if type(seconds) is float and seconds > 0:
            self._at = time.monotonic() + seconds  # the common case, without further checks
            return
        check_seconds(seconds)
        # One that has passed has passed by every clock, also by that of a simulated world.
        self._at = math.inf if seconds is None else time.monotonic() + seconds if seconds else -math.inf

    def remaining(self) -> float | None:
        """Return the seconds left, at least 0, or `None` if there is no limit."""
        if self._at == math.inf:
            return None
        return min(max(0.0, self._at - time.monotonic()), _LONGEST_WAIT)

    @property
    def expired(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._at

    def sooner(self, seconds: float | None) -> Deadline:
        """Return the earlier one of this deadline and `seconds` from now; `None` means this deadline."""
        other = Deadline(seconds)
        return other if other._at < self._at else self

    def __repr__(self) -> str:
        left = self.remaining()
        return "<Deadline never>" if left is None else f"<Deadline in {left:.3f}s>"


NOW = Deadline(0.0)

Budget = Deadline | float | None
"""A time limit: a deadline, or a number of seconds that starts to count when the operation has to wait."""


def deadline_of(budget: Budget) -> Deadline:
    """Return `budget` as a deadline; seconds count from now."""
    return budget if isinstance(budget, Deadline) else Deadline(budget)
