"""Reconnecting: the policy, the retry loop and its thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stompy.arguments import check_fields
from stompy.backoff import DEFAULT_BACKOFF, Backoff, check_attempts
from stompy.deadline import check_seconds
from stompy.default import DEFAULT, Default
from stompy.errors import ConfigurationError, StompError, is_passing
from stompy.locks import SafeEvent
from stompy.values import Value
from stompy.world import time

if TYPE_CHECKING:
    from tenacity import RetryCallState


Order = Literal["given", "random", "priority"]
"""The order of addresses in one pass: as given, random, or the first address first and the others random."""


class ResendLimits(Value):
    """Limits of the messages that `Reconnect(resend_unconfirmed=...)` keeps until they are confirmed.

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


class Reconnect(Value):
    """Policy for replacing a lost session; durations in seconds.

    One attempt is one pass over all addresses. The first starts immediately. `backoff` is before each later one. If
    several sessions in a row end as soon as they are open, the first attempt is delayed too.

    Attributes:
        attempts: attempts before giving up; `None` for no limit.
        backoff: the delays between attempts.
        total: seconds after which no new attempt starts; `None` for no limit.
        order: the order of several addresses in each attempt: `"given"`, `"random"`, or `"priority"`, which tries the
            first address first and the others in random order. By default that of a `failover:` address, else
            `"given"`. Each attempt starts over, so with `"given"` and `"priority"` a lost connection returns to the
            first address if it is reachable.
        resend_unconfirmed: resend the unconfirmed messages with a receipt, in order and before any new send.
            Every copy has the same `stompy-dedupe-id` header (and `_AMQ_DUPL_ID` for Artemis, which drops duplicates).
            `True`, or limits.
    """

    attempts: int | None = None
    backoff: Backoff = DEFAULT_BACKOFF
    total: float | None = None
    order: Order | Default = DEFAULT
    resend_unconfirmed: bool | ResendLimits = False

    def __post_init__(self) -> None:
        check_fields(self)
        check_attempts(self.attempts)
        check_seconds(self.total, "total", positive=True, finite=True)


class Outage(NamedTuple):
    """Why there is no session; `str` adds the next attempt.

    Attributes:
        text: the failure, with the address.
        reason: the error.
        since: when the outage began, as of `time.monotonic`.
        attempt: number of the next attempt; 0 if there will be none.
        at: when that starts, as of `time.monotonic`.
    """

    text: str
    reason: StompError
    since: float
    attempt: int = 0
    at: float = 0.0

    @classmethod
    def after(
        cls, last: Outage | None, reason: StompError, attempt: int = 0, delay: float = 0.0, *, text: str = ""
    ) -> Outage:
        """Return the outage after a failure; it goes on since the first one."""
        now = time.monotonic()
        return cls(text or str(reason), reason, now if last is None else last.since, attempt, now + delay)

    def __str__(self) -> str:
        if not self.attempt:
            return self.text
        seconds = self.at - time.monotonic()
        when = f"in {seconds:.1f} s" if seconds > 0 else "is being made"
        return f"{self.text}; attempt {self.attempt} {when}"


def first_wait(policy: Reconnect, failures: int) -> float:
    """Return the seconds before the first attempt, after `failures` links in a row that were of no use."""
    return 0.0 if failures < 2 else policy.backoff(failures - 1)


def reconnect_of(value: bool | Reconnect | Default, failover: Reconnect | None) -> Reconnect | None:
    """Return the policy for the argument of `connect`.

    Args:
        value: the argument; `True` is the policy of the address or, if it has none, the default policy.
        failover: the policy of a `failover:` address.

    """
    if isinstance(value, Reconnect):
        return value
    if value is DEFAULT:
        return failover
    return (failover or Reconnect()) if value else None


def retry(
    attempt: Callable[[], None],
    policy: Reconnect,
    *,
    closing: SafeEvent,
    report: Callable[[int, float, StompError], None],
) -> None:
    """Call `attempt` until it succeeds; raise the last error.

    Args:
        attempt: called in this thread; called again after an error that may pass.
        policy: limits and delays.
        closing: ends a delay and prevents further attempts.
        report: called with the number of the next attempt, the seconds until then, and why the last one failed.
    """
    # Imported late, as it is slow to import and most programs never need it.
    import tenacity

    closed: Any = closing  # has the methods of `threading.Event` that tenacity uses

    def wait(state: RetryCallState) -> float:
        remaining = math.inf if policy.total is None else policy.total - (state.seconds_since_start or 0.0)
        # So that the last attempt fits into `total`.
        return max(0.0, min(policy.backoff(state.attempt_number), remaining))

    def report_next(state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        assert isinstance(error, StompError)  # as others are not retried
        report(state.attempt_number + 1, state.next_action.sleep if state.next_action is not None else 0.0, error)

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
