from __future__ import annotations

import threading

import pytest

from stompy.spark.receiver.bell import Bell

SOON = 20.0


def test_it_looks_at_once_and_waits_for_nothing_if_there_is_nothing_to_wait_for() -> None:
    looks: list[float] = [0.0]
    Bell().watch(lambda: looks.pop())
    assert looks == []


def test_a_ring_wakes_the_waiting_thread() -> None:
    bell, waits, over = Bell(), threading.Event(), threading.Event()

    def look() -> float:
        if over.is_set():
            return 0.0
        waits.set()
        return float("inf")

    watching = threading.Thread(target=bell.watch, args=(look,))
    watching.start()
    assert waits.wait(SOON)
    over.set()
    bell.ring()
    watching.join(SOON)
    assert not watching.is_alive()


def test_a_ring_while_it_looks_is_not_lost() -> None:
    bell = Bell()
    answers = [3600.0, 0.0]

    def look() -> float:
        bell.ring()
        return answers.pop(0)

    bell.watch(look)
    assert answers == []


def test_it_looks_again_when_the_time_is_over() -> None:
    answers = [0.001, 0.001, -1.0]
    Bell().watch(lambda: answers.pop(0))
    assert answers == []


def test_what_is_raised_ends_it() -> None:
    def look() -> float:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        Bell().watch(look)
