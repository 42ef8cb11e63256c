"""Reconnecting: the policy, the retry loop and its thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stompy.deadline import Deadline, check_seconds
from stompy.errors import ConfigurationError, ConnectionLostError, NotConnectedError, StompError, is_passing
from stompy.locks import Event
from stompy.threads import DaemonThread
from stompy.world import random

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from stompy.connection.link_manager import LinkManager

_LOG = logging.getLogger("stompy.connection")


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Policy for replacing a lost session; durations in seconds.

    One attempt is one pass over all addresses. The first starts immediately. The delay before each later one is random,
    between 0 and a bound that doubles each time (full jitter). If several sessions in a row end as soon as they are
    open, the first attempt is delayed too.

    Attributes:
        attempts: attempts before giving up; `None` for no limit.
        first_delay: upper bound of the delay before the second attempt.
        max_delay: upper bound of all delays.
        total: seconds after which no new attempt starts; `None` for no limit.
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
            raise ConfigurationError(f"first_delay must not be larger than max_delay: {self}")


def first_wait(policy: Reconnect, failures: int) -> float:
    """Return the seconds before the first attempt, after `failures` links in a row that were of no use."""
    if failures < 2:
        return 0.0
    most = min(policy.max_delay, policy.first_delay * 2 ** min(failures - 2, 60))
    return random.uniform(0, most)  # noqa: S311 - a pause


def reconnect_of(value: bool | Reconnect | None) -> Reconnect | None:
    """Return the policy for the argument of `connect`: `True` is the default policy."""
    if isinstance(value, Reconnect):
        return value
    return Reconnect() if value else None


def retry(
    attempt: Callable[[], None],
    policy: Reconnect,
    *,
    closing: Event,
    report: Callable[[int, float, StompError | None], None],
) -> None:
    """Call `attempt` until it succeeds; raise the last error.

    Args:
        attempt: called in this thread; called again after an error that may pass.
        policy: limits and delays.
        closing: ends a delay and prevents further attempts.
        report: called with the number of the next attempt, the seconds until then, and the error of the last one.
    """
    # Imported late, as it is slow to import and most programs never need it.
    import tenacity

    closed: Any = closing  # has the methods of `threading.Event` that tenacity uses
    drawn = tenacity.wait_random_exponential(multiplier=policy.first_delay, max=policy.max_delay)

    def wait(state: RetryCallState) -> float:
        remaining = math.inf if policy.total is None else policy.total - (state.seconds_since_start or 0.0)
        return max(0.0, min(drawn(state), remaining))  # so that the last attempt fits into `total`

    def report_next(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        reason = error if isinstance(error, StompError) else None
        report(state.attempt_number + 1, state.next_action.sleep if state.next_action is not None else 0.0, reason)

    retrying = tenacity.Retrying(
        sleep=tenacity.sleep_using_event(closed),
        stop=tenacity.stop_any(
            tenacity.stop_when_event_set(closed),
            tenacity.stop_never if policy.attempts is None else tenacity.stop_after_attempt(policy.attempts),
            tenacity.stop_never if policy.total is None else tenacity.stop_after_delay(policy.total),
        ),
        wait=wait,
        # Not a rejected login, version or subscription.
        retry=tenacity.retry_if_exception(is_passing),
        before_sleep=report_next,
        reraise=True,
    )
    retrying(attempt)


class ReconnectThread(DaemonThread):
    """Replaces a lost link, until the policy gives up or the connection is closed."""

    def __init__(
        self, links: LinkManager, policy: Reconnect, first_wait: float, reason: StompError | None, *, name: str
    ) -> None:
        super().__init__(name)
        self._reason = reason
        self._links = links
        self._policy = policy
        self._first_wait = first_wait

    def run(self) -> None:
        """Open the next link, or report why there will be none."""
        try:
            self._retry()
        except StompError as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(ConnectionLostError(f"reconnecting failed: {error!r}"))
            raise

    def _retry(self) -> None:
        closing = self._links.closing
        self._links.reconnecting(1, self._first_wait, self._reason)
        closing.wait(self._first_wait)
        retry(self._attempt, self._policy, closing=closing, report=self._links.reconnecting)

    def _give_up(self, error: StompError) -> None:
        closed = self._links.closing.is_set()
        if not closed:
            _LOG.warning("gave up reconnecting: %s", error)
        self._links.finish(None if closed else error, failed=not closed)

    def _attempt(self) -> None:
        if self._links.closing.is_set():
            raise NotConnectedError("the connection was closed")
        self._links.attempt(Deadline(None))


@dataclass(frozen=True, slots=True)
class ResendLimits:
    """Limits of the messages that `connect(resend_unconfirmed=...)` keeps until they are confirmed.

    At either limit, the next send with a receipt waits, up to the send timeout.

    Attributes:
        max_messages: number of messages.
        max_bytes: size of their bodies and headers; a larger message raises `LocalProtocolError`.
    """

    max_messages: int = 10_000
    max_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("max_messages", "max_bytes"):
            value: object = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {value!r}")


def resend_of(value: bool | ResendLimits) -> ResendLimits | None:
    """Return the limits for the argument of `connect`: `True` is the default limits."""
    if isinstance(value, ResendLimits):
        return value
    return ResendLimits() if value else None
