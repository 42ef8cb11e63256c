"""The rate of tasks and of sinks."""

from __future__ import annotations

import math

import pytest

from stompy import backoff
from stompy.backoff import RateLimit


class Time:
    """A clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(backoff, "time", time)
    return time


def started(limit: RateLimit, time: Time, *counts: int) -> list[float]:
    """Return the delays of some messages each, of one thread that waits for them."""
    delays = []
    for count in counts:
        delays.append(limit.delay(count))
        time.now += delays[-1]
    return delays


def test_messages_go_as_fast_as_the_rate_and_the_first_at_once(time: Time) -> None:
    assert started(RateLimit(10.0), time, 5, 5, 5, 5) == pytest.approx([0, 0.5, 0.5, 0.5])


def test_threads_share_a_rate(time: Time) -> None:
    limit = RateLimit(10.0)
    assert [limit.delay() for _ in range(4)] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_time_that_passed_by_itself_is_counted(time: Time) -> None:
    limit = RateLimit(10.0)
    limit.delay(10)
    time.now += 0.75
    assert limit.delay() == pytest.approx(0.25)


def test_a_pause_is_not_saved_up_for_a_burst(time: Time) -> None:
    limit = RateLimit(10.0)
    limit.delay(10)
    time.now += 3600
    assert started(limit, time, 10, 10) == [0, 1.0]


def test_no_rate_never_waits(time: Time) -> None:
    assert started(RateLimit(math.inf), time, 1_000_000, 1) == [0, 0]
