"""The simulated world itself: its clock, its deadlocks, its schedules."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

import pytest

from stompy import deadline, forks, locks
from stompy.testing.replaced import installed
from stompy.testing.world import DeadlockError, Thread, World, current_world
from tests.simulation.pieces import together
from tests.simulation.schedules import Schedules
from tests.transport.conftest import Call


def test_the_clock_jumps_to_the_first_deadline_and_only_where_all_wait() -> None:
    seen: list[float] = []

    def program() -> None:
        limit = deadline.Deadline(86_400.0)
        together(*(lambda seconds=seconds: locks.SafeEvent().wait(seconds) for seconds in (30.0, 7_200.0)))
        seen.append(limit.remaining() or 0)

    with installed():
        World(lambda able, current: 0).run(program)
    assert seen == [pytest.approx(86_400.0 - 7_200.0)]


def test_a_thread_that_waits_for_no_time_again_and_again_sees_the_clock_move() -> None:
    def program() -> None:
        world = current_world()
        began = world.now
        while world.now == began:
            locks.SafeEvent().wait(0.0)

    with installed():
        World(lambda able, current: 0, steps=20_000).run(program)


def test_a_deadlock_says_what_each_thread_waits_for() -> None:
    def program() -> None:
        one, two = locks.make_lock(locks.Rank.LEAF, "one"), locks.make_lock(locks.Rank.LEAF, "two")

        def both(first: locks.Lock, second: locks.Lock) -> None:
            with first, second:
                pass

        together(lambda: both(one, two), lambda: both(two, one))

    found = []
    schedules = Schedules(1)
    with installed():
        for choose in schedules:
            try:
                World(choose).run(program)
            except DeadlockError as error:
                found.append(str(error))
    assert 0 < len(found) < schedules.count
    assert all("waits for one" in text and "waits for two" in text and "in both" in text for text in found)


def test_each_schedule_is_tried_once_and_no_other() -> None:
    def orders(preemptions: int) -> list[str]:
        seen: list[str] = []

        def program() -> None:
            ran: list[str] = []

            def step(name: str) -> None:
                for _ in range(2):
                    with locks.make_lock(locks.Rank.LEAF, name):
                        ran.append(name)

            together(lambda: step("a"), lambda: step("b"))
            seen.append("".join(ran))

        with installed():
            for choose in Schedules(preemptions):
                World(choose).run(program)
        return seen

    assert {"aabb"} <= set(orders(0)) <= {"aabb", "bbaa"}
    assert set(orders(4)) == {"aabb", "abab", "abba", "baab", "baba", "bbaa"}
    assert orders(2) == orders(2)


def test_an_error_of_a_thread_is_one_of_the_run_and_nothing_stays_replaced() -> None:
    before = locks.make_lock, locks.SafeEvent

    def fail() -> None:
        raise ValueError("planted")

    def program() -> None:
        Thread(lambda: locks.SafeEvent().wait(), "waits").start()
        together(fail)

    with pytest.raises(ValueError, match="planted"), installed():
        World(lambda able, current: 0).run(program)
    assert (locks.make_lock, locks.SafeEvent) == before


def test_what_is_outside_of_a_world_is_not_disturbed_and_does_not_disturb_it() -> None:
    """As the threads of a broker that many tests use: they wait, and make conditions, meanwhile."""
    owner, over, condition = forks.Owner("broker"), threading.Event(), locks.make_condition("outside")

    def outside() -> None:
        while not over.is_set():
            for each in (condition, locks.make_condition("new")):
                with each:
                    each.wait_for(lambda: False, 0.0001)

    def program() -> None:
        together(*[lambda: locks.SafeEvent().wait(5.0)] * 2)

    calls = [Call(outside) for _ in range(2)]
    for call in calls:
        call.start()
    with installed():
        for choose in Schedules(4):
            world = World(choose)
            began = world.now
            world.run(program)
            assert world.now - began == pytest.approx(5.0)
    over.set()
    for call in calls:
        call.result()
    owner.check()


def test_to_wait_for_no_time_again_and_again_takes_some_although_nobody_takes_the_baton() -> None:
    class Alone:
        def patience(self) -> int:
            return 10**9

        def __call__(self, able: Sequence[Thread], current: Thread) -> int:
            return 0

    def program() -> None:
        began = current_world().now
        while current_world().now == began:
            current_world().switch()

    with installed():
        World(Alone()).run(program)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_world_leaves_nothing_that_keeps_a_forked_child_from_freeing_its_locks() -> None:
    kept: list[object] = []

    def program() -> None:
        lock = locks.make_condition("lock")
        forks.free_when_forked(lock)
        kept.append(lock)

    with installed():
        World(lambda able, current: 0).run(program)
    held = locks.make_lock(locks.Rank.LEAF, "held")
    reading, writing = os.pipe()
    taken = threading.Event()
    let_go = threading.Event()

    def hold() -> None:
        with held:
            taken.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait()
    if (child := os.fork()) == 0:
        os.write(writing, b"free" if held.acquire(False) else b"held")
        os._exit(0)
    os.waitpid(child, 0)
    let_go.set()
    holder.join()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"free"
