"""How a connection comes back after its link was lost."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stompy.deadline import check_seconds
from stompy.errors import ConfigurationError, StompError
from stompy.locks import Event

if TYPE_CHECKING:
    from tenacity import RetryCallState


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
        attempts: object = self.attempts
        if attempts is not None and (not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1):
            raise ConfigurationError(f"attempts must be 1 or more, or None, not {self.attempts!r}")
        check_seconds(self.first_delay, "first_delay", positive=True, finite=True, optional=False)
        check_seconds(self.max_delay, "max_delay", positive=True, finite=True, optional=False)
        check_seconds(self.total, "total", positive=True, finite=True)
        if self.first_delay > self.max_delay:
            raise ConfigurationError(f"delays must be positive, the first not above the largest: {self}")


def first_wait(policy: Reconnect, failures: int) -> float:
    """Return the seconds before the first attempt, after so many links in a row that ended without being of use."""
    if failures < 2:
        return 0.0
    most = min(policy.max_delay, policy.first_delay * 2 ** min(failures - 2, 60))
    return random.uniform(0, most)  # noqa: S311 - a pause


def reconnect_of(value: bool | Reconnect | None) -> Reconnect | None:
    """Return the policy that `connect(reconnect=...)` names: `True` for the usual one, else none."""
    if isinstance(value, Reconnect):
        return value
    return Reconnect() if value else None


def keep_trying(
    attempt: Callable[[], None], policy: Reconnect, *, closing: Event, tell: Callable[[int, float], None]
) -> None:
    """Make attempts until one works; what the last one raises goes to the caller.

    Args:
        attempt: called in this thread; another follows what it raises if that is `retryable`.
        policy: bounds and delays.
        closing: ends a delay and lets no further attempt begin.
        tell: called with the number of the next attempt and the seconds until then.
    """
    # Imported where it is needed: most programs never do, and it costs a good part of an import of stompy.
    import tenacity

    closed: Any = closing  # is one as far as tenacity goes
    drawn = tenacity.wait_random_exponential(multiplier=policy.first_delay, max=policy.max_delay)

    def wait(state: RetryCallState) -> float:
        left = math.inf if policy.total is None else policy.total - (state.seconds_since_start or 0.0)
        return max(0.0, min(drawn(state), left))  # the last attempt is not slept over

    def tell_of_next(state: RetryCallState) -> None:
        tell(state.attempt_number + 1, state.next_action.sleep if state.next_action is not None else 0.0)

    retrying = tenacity.Retrying(
        sleep=tenacity.sleep_using_event(closed),
        stop=tenacity.stop_any(
            tenacity.stop_when_event_set(closed),
            tenacity.stop_never if policy.attempts is None else tenacity.stop_after_attempt(policy.attempts),
            tenacity.stop_never if policy.total is None else tenacity.stop_after_delay(policy.total),
        ),
        wait=wait,
        # A refused login, version or subscription stays refused.
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, StompError) and error.retryable),
        before_sleep=tell_of_next,
        reraise=True,
    )
    retrying(attempt)


@dataclass(frozen=True, slots=True)
class ResendLimits:
    """The bounds of what is sent and not confirmed, where `connect(resend_unconfirmed=...)` sends it again.

    At either bound the next send with a receipt waits, up to the send timeout.

    Attributes:
        max_messages: so many at most.
        max_bytes: of their bodies and headers, so many at most; a message that is larger by itself is refused.
    """

    max_messages: int = 10_000
    max_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_bytes"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {value!r}")


def resend_of(value: bool | ResendLimits) -> ResendLimits | None:
    """Return the bounds that `connect(resend_unconfirmed=...)` names: `True` for the usual ones, else none."""
    if isinstance(value, ResendLimits):
        return value
    return ResendLimits() if value else None
