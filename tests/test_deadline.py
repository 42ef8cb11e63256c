from __future__ import annotations

import math
from typing import Any

import pytest

from stompy import deadline as deadline_module
from stompy.deadline import Deadline, check_seconds
from stompy.errors import ConfigurationError


class Clock:
    """A monotonic clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stopped = Clock()
    monkeypatch.setattr(deadline_module, "time", stopped)
    return stopped


def test_the_steps_of_an_operation_share_one_budget(clock: Clock) -> None:
    deadline = Deadline(5)
    assert deadline.remaining() == 5
    clock.now += 3
    assert deadline.remaining() == 2


def test_remaining_never_falls_below_zero(clock: Clock) -> None:
    deadline = Deadline(5)
    clock.now += 60
    assert deadline.remaining() == 0


def test_a_deadline_expires_at_its_moment(clock: Clock) -> None:
    deadline = Deadline(5)
    assert not deadline.expired
    clock.now += 4.5
    assert not deadline.expired
    clock.now += 0.5
    assert deadline.expired


@pytest.mark.parametrize("seconds", [-1, -0.5, math.nan, "1", True, 10**400])
def test_what_is_no_duration_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match="timeout must be a number of seconds, 0 or more"):
        Deadline(seconds)
    with pytest.raises(ConfigurationError, match="pause must be a finite number of seconds, more than 0"):
        check_seconds(seconds, "pause", positive=True, finite=True)


def test_a_duration_may_be_endless_or_left_out_unless_it_is_said_otherwise() -> None:
    check_seconds(None)
    check_seconds(math.inf)
    check_seconds(0)
    for wrong in (math.inf, None, 0):
        with pytest.raises(ConfigurationError):
            check_seconds(wrong, positive=True, finite=True, optional=False)


@pytest.mark.parametrize("seconds", [0, 0.0])
def test_a_budget_of_nothing_has_run_out_at_once(clock: Clock, seconds: float) -> None:
    deadline = Deadline(seconds)
    assert deadline.expired
    assert deadline.remaining() == 0


def test_no_limit_never_expires(clock: Clock) -> None:
    deadline = Deadline(None)
    clock.now += 1e9
    assert not deadline.expired
    assert deadline.remaining() is None


@pytest.mark.parametrize(
    ("budget", "other", "remaining"),
    [(5, 2, 2), (2, 5, 2), (5, None, 5), (None, 5, 5), (None, None, None), (0, 5, 0)],
)
def test_sooner_is_the_earlier_of_two(
    clock: Clock, budget: float | None, other: float | None, remaining: float | None
) -> None:
    assert Deadline(budget).sooner(other).remaining() == remaining


def test_sooner_counts_from_now_and_leaves_the_deadline_alone(clock: Clock) -> None:
    deadline = Deadline(5)
    clock.now += 4
    assert deadline.sooner(3) is deadline
    assert deadline.sooner(0.5).remaining() == 0.5
    assert deadline.remaining() == 1


def test_repr_tells_the_time_left(clock: Clock) -> None:
    assert repr(Deadline(1.5)) == "<Deadline in 1.500s>"
    assert repr(Deadline(None)) == "<Deadline never>"
