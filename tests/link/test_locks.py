"""Locks that assert their rank."""

from __future__ import annotations

import threading

import pytest

from stompy.link import locks
from stompy.link.locks import CheckedLock, LockOrderError, Rank, held_ranks, make_condition, make_lock
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling


def test_a_thread_may_take_rising_ranks() -> None:
    with make_lock(Rank.SUPERVISOR, "a"), make_lock(Rank.SUBSCRIPTIONS, "b"), make_lock(Rank.LEAF, "c"):
        assert held_ranks() == [(Rank.SUPERVISOR, "a"), (Rank.SUBSCRIPTIONS, "b"), (Rank.LEAF, "c")]
    assert held_ranks() == []


@pytest.mark.parametrize("second", [Rank.SUPERVISOR, Rank.SUBSCRIPTIONS, Rank.WRITE])
def test_a_lower_or_equal_rank_is_refused(second: Rank) -> None:
    with make_lock(Rank.WRITE, "write"):
        with pytest.raises(LockOrderError, match=r"other .* while holding write"):
            make_lock(second, "other").acquire()
        assert held_ranks() == [(Rank.WRITE, "write")]


def test_the_same_lock_twice_is_refused_instead_of_hanging() -> None:
    lock = make_lock(Rank.LEAF, "leaf")
    with lock, pytest.raises(LockOrderError):
        lock.acquire()


def test_a_refused_lock_stays_free() -> None:
    other = make_lock(Rank.WRITE, "other")
    with make_lock(Rank.PROTOCOL, "protocol"), pytest.raises(LockOrderError):
        other.acquire()
    assert not other.locked()
    assert other.acquire(blocking=False)
    other.release()


def test_an_acquire_that_fails_leaves_no_trace(calling: Calling) -> None:
    lock = make_lock(Rank.WRITE, "write")

    def try_it() -> tuple[bool, bool, int]:
        return lock.acquire(blocking=False), lock.acquire(timeout=0.01), len(held_ranks())

    with lock:
        assert calling(try_it).result() == (False, False, 0)


def test_each_thread_has_ranks_of_its_own(calling: Calling) -> None:
    with make_lock(Rank.LEAF, "here"):
        assert calling(lambda: held_ranks()).result() == []


def test_locks_may_be_given_back_in_any_order() -> None:
    write, leaf = make_lock(Rank.WRITE, "write"), make_lock(Rank.LEAF, "leaf")
    write.acquire()
    leaf.acquire()
    write.release()
    assert held_ranks() == [(Rank.LEAF, "leaf")]
    leaf.release()


def test_a_condition_gives_its_lock_back_while_it_waits(calling: Calling) -> None:
    condition = make_condition("inbox")
    state: list[str] = []

    def wait() -> list[tuple[Rank, str]]:
        with condition:
            condition.wait_for(lambda: state)
            return list(held_ranks())

    waiter = calling(wait)
    waiter.until_blocked()
    with condition:
        state.append("go")
        condition.notify_all()
    assert waiter.result() == [(Rank.LEAF, "inbox")]


def test_a_condition_asks_for_its_rank() -> None:
    condition = make_condition("inbox")
    with make_lock(Rank.LEAF, "leaf"), pytest.raises(LockOrderError):
        condition.acquire()


def test_a_condition_without_its_lock_cannot_be_notified() -> None:
    with pytest.raises(RuntimeError):
        make_condition("inbox").notify()


def test_locks_are_checked_where_the_switch_is_on_and_plain_where_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_lock(Rank.LEAF, "leaf"), CheckedLock)
    monkeypatch.setattr(locks, "checked", False)
    assert isinstance(make_lock(Rank.LEAF, "leaf"), type(threading.Lock()))
