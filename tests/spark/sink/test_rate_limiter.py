from __future__ import annotations

import math

from stompy.spark.sink.publisher import RateLimiter


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def sending_times(rate: float | None) -> tuple[RateLimiter, Time]:
    time = Time()
    return RateLimiter(rate, clock=lambda: time.now, sleep=time.sleep), time


def test_messages_go_as_fast_as_the_rate_and_the_first_at_once() -> None:
    pace, time = sending_times(10.0)
    for _ in range(4):
        pace.wait(5)
    assert time.slept == [0.5, 0.5, 0.5]


def test_time_that_passed_by_itself_is_counted() -> None:
    pace, time = sending_times(10.0)
    pace.wait(10)
    time.now += 0.75
    pace.wait(1)
    assert time.slept == [0.25]


def test_a_pause_is_not_saved_up_for_a_burst() -> None:
    pace, time = sending_times(10.0)
    pace.wait(10)
    time.now += 3600
    pace.wait(10)
    pace.wait(10)
    assert time.slept == [1.0]


def test_no_rate_never_waits() -> None:
    pace, time = sending_times(None)
    pace.wait(1_000_000)
    pace.wait(1)
    assert time.slept == []
    assert pace.burst == math.inf


def test_at_once_goes_at_most_what_goes_in_a_second() -> None:
    assert (sending_times(250.0)[0].burst, sending_times(0.1)[0].burst) == (250.0, 1.0)
