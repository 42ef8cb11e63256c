"""How a connection comes back after its link was lost."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from stompy.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The policy of reopening a lost link; durations in seconds.

    One attempt is one pass over all addresses. The first attempt comes at once; the wait before each later one is drawn
    between 0 and a bound that doubles each time (full jitter), so that many clients of one broker do not come together.
    Where link after link ends as soon as it is there, the first attempt has to wait like a later one.

    Attributes:
        attempts: passes before giving up; `None` for no limit.
        first_delay: the bound before the second attempt.
        max_delay: the largest bound.
        total: seconds after which no new attempt is begun; `None` for no limit.
    """

    attempts: int | None = None
    first_delay: float = 0.1
    max_delay: float = 30.0
    total: float | None = None

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise ConfigurationError(f"attempts must be 1 or more, or None, not {self.attempts!r}")
        if not 0 < self.first_delay <= self.max_delay < math.inf:
            raise ConfigurationError(f"delays must be positive, the first not above the largest: {self}")
        if self.total is not None and not 0 < self.total < math.inf:
            raise ConfigurationError(f"total must be a positive number of seconds, or None, not {self.total!r}")

    def first_wait(self, in_vain: int) -> float:
        """Return the wait before the first attempt, where so many links in a row ended without having been of use."""
        if in_vain < 2:
            return 0.0
        return random.uniform(0, min(self.max_delay, self.first_delay * 2 ** min(in_vain - 2, 60)))  # noqa: S311 - a pause


def reconnect_of(value: bool | Reconnect | None) -> Reconnect | None:
    """Return the policy that `connect(reconnect=...)` names: `True` for the usual one, else none."""
    if isinstance(value, Reconnect):
        return value
    return Reconnect() if value else None
