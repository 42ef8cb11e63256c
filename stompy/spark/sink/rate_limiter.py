"""A limit on the rate of sending."""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class RateLimiter:
    """Limits the rate of one thread that sends.

    Unused rate is not saved up: there is no burst after a pause.

    Args:
        rate: messages per second; `None` for no limit.
        clock: seconds, monotonic.
        sleep: waits for seconds.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = -math.inf

    @property
    def burst(self) -> float:
        """How many messages may go at once: what goes in one second, at least one."""
        return math.inf if self._rate is None else max(1.0, self._rate)

    def wait(self, messages: int) -> None:
        """Wait until `messages` may be sent."""
        if self._rate is None:
            return
        now = self._clock()
        if now < self._free_at:
            self._sleep(self._free_at - now)
            now = self._free_at
        self._free_at = now + messages / self._rate
