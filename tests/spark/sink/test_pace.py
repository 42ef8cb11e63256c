from __future__ import annotations

import math

from stompy.spark.sink.pace import Pace


class Time:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def paced(rate: float | None) -> tuple[Pace, Time]:
    time = Time()
    return Pace(rate, clock=lambda: time.now, sleep=time.sleep), time


def test_messages_go_as_fast_as_the_rate_and_the_first_at_once() -> None:
    pace, time = paced(10.0)
    for _ in range(4):
        pace.before(5)
    assert time.slept == [0.5, 0.5, 0.5]


def test_time_that_passed_by_itself_is_counted() -> None:
    pace, time = paced(10.0)
    pace.before(10)
    time.now += 0.75
    pace.before(1)
    assert time.slept == [0.25]


def test_a_pause_is_not_saved_up_for_a_burst() -> None:
    pace, time = paced(10.0)
    pace.before(10)
    time.now += 3600
    pace.before(10)
    pace.before(10)
    assert time.slept == [1.0]


def test_no_rate_never_waits() -> None:
    pace, time = paced(None)
    pace.before(1_000_000)
    pace.before(1)
    assert time.slept == []
    assert pace.most == math.inf


def test_at_once_goes_at_most_what_goes_in_a_second() -> None:
    assert (paced(250.0)[0].most, paced(0.1)[0].most) == (250.0, 1.0)
