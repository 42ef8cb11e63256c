"""The clock, and what is done at its time."""

from __future__ import annotations

import gc
import queue

import pytest

from stompy.broker.queues import Item
from stompy.broker.work import Clock, Schedule, Timer
from tests.broker.conftest import Served, an_item


def test_a_clock_is_turned_forward_and_never_back() -> None:
    clock, turns = Clock(), []
    clock.turned = lambda: turns.append(clock.now())
    before = clock.now()
    clock.advance(3600)
    assert clock.now() >= before + 3600
    assert len(turns) == 1
    assert repr(clock) == "<Clock 3600 s ahead>"
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="forward"):
            clock.advance(wrong)


def test_what_is_due_comes_in_order() -> None:
    schedule: Schedule[str, Item] = Schedule()
    for due, entry in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (1.0, "a again")):
        schedule.add(due, entry)
    assert (schedule.waiting, schedule.next()) == (4, 1.0)
    assert list(schedule.due(2.0)) == ["a", "a again", "b"]
    schedule.keep(lambda entry: entry != "c")
    assert (schedule.waiting, schedule.next()) == (0, None)


def test_what_expires_is_not_kept_by_that() -> None:
    schedule: Schedule[str, Item] = Schedule()
    item = an_item()
    schedule.expire(item, 1.0)
    schedule.expire(an_item(), 1.0)
    gc.collect()
    assert list(schedule.expired(0.5)) == []
    assert list(schedule.expired(1.0)) == [item]


def test_delivered_messages_do_not_pile_up() -> None:
    schedule: Schedule[str, Item] = Schedule()
    for order in range(5_000):
        schedule.expire(an_item(order), 1e12)
    assert len(schedule._expiring) <= 1_024


def test_the_timer_looks_again_when_it_is_time_and_when_it_is_told() -> None:
    looks: queue.Queue[float | None] = queue.Queue()
    seconds = iter((0.0, 0.001, None, 1e9, None))

    def look() -> float | None:
        looks.put(answer := next(seconds, None))
        return answer

    timer = Timer(look)
    timer.start()
    assert [looks.get(timeout=20) for _ in range(3)] == [0.0, 0.001, None]
    timer.notify()
    assert looks.get(timeout=20) == 1e9
    timer.notify()
    assert looks.get(timeout=20) is None
    timer.stop(20)
    timer.stop(20)


def test_messages_come_late_and_expire_by_the_real_clock_too(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/late")
    client.send("/queue/late", "x", **{"AMQ_SCHEDULED_DELAY": "20"})
    assert client.bodies(1) == ["x"]
    client.send("/queue/gone", "x", expiration="20")
    served.until(lambda stats: stats.expired == 1)


def test_turning_the_clock_does_what_is_due(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "delayed", **{"AMQ_SCHEDULED_DELAY": "60000"})
    client.send("/queue/a", "expiring", expiration="60000")
    assert (served.broker.depth("/queue/a"), served.broker.stats().scheduled) == (1, 1)
    served.broker.clock.advance(61)
    client.subscribe("/queue/a")
    assert client.bodies(1) == ["delayed"]
    stats = served.broker.stats()
    assert (stats.expired, stats.scheduled) == (1, 0)


def test_a_message_whose_time_has_come_is_counted_until_it_is_in_its_queue(served: Served) -> None:
    served.client().send("/queue/a", "x", **{"AMQ_SCHEDULED_DELAY": "60000"})
    served.broker.clock.turned = lambda: None  # as nothing has looked yet, such as right after a start
    served.broker.clock.advance(61)
    stats = served.broker.stats()
    assert stats.scheduled + sum(depth.total for depth in stats.queues.values()) == 1
