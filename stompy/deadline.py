"""One time budget carried over many steps."""

from __future__ import annotations

import math
import time

from stompy.errors import ConfigurationError

_LONGEST_WAIT = 1e8
"""Seconds; the platform's waits take no larger number."""


def check_seconds(
    value: object, name: str = "timeout", *, positive: bool = False, finite: bool = False, optional: bool = True
) -> None:
    """Refuse what is no duration, before anything is done with it.

    Args:
        value: `None`, or a number of seconds of 0 or more.
        name: of the argument.
        positive: whether 0 is refused too.
        finite: whether infinity is refused too.
        optional: whether `None` is allowed.

    Raises:
        ConfigurationError: it is none: text, a truth value, negative, not a number.
    """
    if value is None and optional:
        return
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if (number > 0 if positive else number >= 0) and not (finite and number == math.inf):
        return
    least = "more than 0" if positive else "0 or more"
    raise ConfigurationError(f"{name} must be a{' finite' if finite else ''} number of seconds, {least}, not {value!r}")


class Deadline:
    """A moment on the monotonic clock by which a whole operation must be done.

    A call that takes several steps (dial, handshake, wait) makes one `Deadline` and hands it to each step, so that the
    steps share the caller's budget instead of each taking a full one.

    Args:
        seconds: the budget from now; `None` means no limit, `0` means that it has already run out.

    Raises:
        ConfigurationError: it is no duration; see `check_seconds`.
    """

    __slots__ = ("_at",)

    def __init__(self, seconds: float | None) -> None:
        if type(seconds) is float and seconds >= 0:
            self._at = time.monotonic() + seconds  # what nearly all are
            return
        check_seconds(seconds)
        self._at = math.inf if seconds is None else time.monotonic() + seconds

    def remaining(self) -> float | None:
        """Return the seconds left, never below 0, or `None` if there is no limit."""
        if self._at == math.inf:
            return None
        return min(max(0.0, self._at - time.monotonic()), _LONGEST_WAIT)

    @property
    def expired(self) -> bool:
        """Whether the moment has passed."""
        return time.monotonic() >= self._at

    def sooner(self, seconds: float | None) -> Deadline:
        """Return the earlier of this deadline and one `seconds` from now (`None`: this one)."""
        other = Deadline(seconds)
        return other if other._at < self._at else self

    def __repr__(self) -> str:
        left = self.remaining()
        return "<Deadline never>" if left is None else f"<Deadline in {left:.3f}s>"


Budget = Deadline | float | None
"""Until when something must be done: a deadline, or seconds from now, of which a deadline is made when they matter."""


def deadline_of(budget: Budget) -> Deadline:
    """Return the deadline that a budget stands for."""
    return budget if isinstance(budget, Deadline) else Deadline(budget)
