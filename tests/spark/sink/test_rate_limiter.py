from __future__ import annotations

import math

import pytest

from stompy.spark.sink import publisher
from stompy.spark.sink.publisher import RateLimiter


class Time:
    """A clock that sleeping advances."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(publisher, "time", time)
    return time


def test_messages_go_as_fast_as_the_rate_and_the_first_at_once(time: Time) -> None:
    pace = RateLimiter(10.0)
    for _ in range(4):
        pace.wait(5)
    assert time.slept == [0.5, 0.5, 0.5]


def test_time_that_passed_by_itself_is_counted(time: Time) -> None:
    pace = RateLimiter(10.0)
    pace.wait(10)
    time.now += 0.75
    pace.wait(1)
    assert time.slept == [0.25]


def test_a_pause_is_not_saved_up_for_a_burst(time: Time) -> None:
    pace = RateLimiter(10.0)
    pace.wait(10)
    time.now += 3600
    pace.wait(10)
    pace.wait(10)
    assert time.slept == [1.0]


def test_no_rate_never_waits(time: Time) -> None:
    pace = RateLimiter(math.inf)
    pace.wait(1_000_000)
    pace.wait(1)
    assert time.slept == []
    assert pace.burst == math.inf


def test_at_once_goes_at_most_what_goes_in_a_second() -> None:
    assert (RateLimiter(250.0).burst, RateLimiter(0.1).burst) == (250.0, 1.0)
