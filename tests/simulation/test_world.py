"""The simulated world itself: its clock, its deadlocks, its schedules."""

from __future__ import annotations

import os
import threading

import pytest

from stompy import deadline, forks, locks
from stompy.testing.world import DeadlockError, Thread, World, installed
from tests.simulation.pieces import Schedules, together


def test_the_clock_jumps_to_the_first_deadline_and_only_where_all_wait() -> None:
    seen: list[float] = []

    def program() -> None:
        limit = deadline.Deadline(86_400.0)
        together(*(lambda seconds=seconds: locks.SafeEvent().wait(seconds) for seconds in (30.0, 7_200.0)))
        seen.append(limit.remaining() or 0)

    with installed():
        World(lambda able, current: 0).run(program)
    assert seen == [pytest.approx(86_400.0 - 7_200.0)]


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
