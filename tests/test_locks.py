"""Locks that assert their rank."""

from __future__ import annotations

import signal
import threading
from functools import partial

import pytest

from stompy import locks
from stompy.locks import (
    CheckedLock,
    LockOrderError,
    Rank,
    SafeEvent,
    held_ranks,
    make_condition,
    make_lock,
)
from tests.support.peer import until
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling


def test_a_thread_may_take_rising_ranks() -> None:
    with make_lock(Rank.LINK_MANAGER, "a"), make_lock(Rank.SUBSCRIPTIONS, "b"), make_lock(Rank.LEAF, "c"):
        assert held_ranks() == [(Rank.LINK_MANAGER, "a"), (Rank.SUBSCRIPTIONS, "b"), (Rank.LEAF, "c")]
    assert held_ranks() == []


@pytest.mark.parametrize("second", [Rank.LINK_MANAGER, Rank.SUBSCRIPTIONS, Rank.WRITE])
def test_a_lower_or_equal_rank_is_refused(second: Rank) -> None:
    with make_lock(Rank.WRITE, "write"):
        with pytest.raises(LockOrderError, match=r"other .* while holding write"):
            make_lock(second, "other").acquire()
        assert held_ranks() == [(Rank.WRITE, "write")]


def test_the_same_lock_twice_is_refused_instead_of_hanging() -> None:
    lock = make_lock(Rank.LEAF, "leaf")
    with lock, pytest.raises(LockOrderError):
        lock.acquire()


def test_a_refused_lock_stays_free(calling: Calling) -> None:
    other = make_lock(Rank.WRITE, "other")
    with make_lock(Rank.PROTOCOL, "protocol"), pytest.raises(LockOrderError):
        other.acquire()
    assert calling(partial(other.acquire, blocking=False)).result()


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
    assert isinstance(make_lock(Rank.LEAF, "leaf"), type(threading.RLock()))


@pytest.fixture
def condition(monkeypatch: pytest.MonkeyPatch) -> threading.Condition:
    """One as programs have it, without the check of ranks."""
    monkeypatch.setattr(locks, "checked", False)
    return make_condition("inbox")


def test_a_wait_without_news_ends_with_its_time_and_holds_the_lock_again(
    condition: threading.Condition, calling: Calling
) -> None:
    with condition:
        assert not condition.wait(0)
        assert not condition.wait_for(lambda: False, 0)
        assert not calling(partial(condition.acquire, blocking=False)).result()
    assert calling(partial(condition.acquire, blocking=False)).result()


def test_news_wake_all_who_wait(condition: threading.Condition, calling: Calling) -> None:
    state: list[str] = []

    def wait() -> bool:
        with condition:
            return bool(condition.wait_for(lambda: state))

    waiters = [calling(wait) for _ in range(3)]
    for waiter in waiters:
        waiter.until_blocked()
    with condition:
        state.append("go")
        condition.notify()
    assert all(waiter.result() for waiter in waiters)


def test_without_its_lock_nobody_is_woken(condition: threading.Condition) -> None:
    with pytest.raises(RuntimeError):
        condition.notify_all()


def test_an_event_is_waited_for_until_it_is_set(calling: Calling) -> None:
    event = SafeEvent()
    assert not event.wait(0)
    waiter = calling(event.wait)
    waiter.until_blocked()
    event.set()
    assert waiter.result()
    assert event.is_set()


def test_a_lost_wake_up_is_noted_and_its_thread_goes_on(calling: Calling) -> None:
    condition = make_condition("inbox")
    state: list[str] = []

    def wait() -> list[str]:
        with condition:
            return condition.wait_for(lambda: state)

    waiter = calling(wait)
    waiter.until_blocked()
    with condition:
        state.append("go")
    assert waiter.result() == ["go"]
    assert locks.lost_wakeups == ["inbox, in test-call"]
    locks.lost_wakeups.clear()  # else this test would fail for it


def test_a_value_that_is_changed_before_the_lock_is_taken_to_notify_is_no_lost_wake_up(calling: Calling) -> None:
    condition = make_condition("inbox")
    seen: list[str] = []
    state: list[str] = []

    def changed() -> list[str]:
        seen.extend(state[:1])
        return state

    def wait() -> list[str]:
        with condition:
            return condition.wait_for(changed)

    waiter = calling(wait)
    waiter.until_blocked()
    state.append("go")
    until(lambda: seen)
    with condition:
        condition.notify_all()
    assert waiter.result() == ["go"]


def test_a_value_that_comes_and_goes_is_no_lost_wake_up() -> None:
    """As the frames that wait for a writer do, while other threads write them at once, without waking it."""
    condition = make_condition("inbox")
    seen = iter([False, True, True, False])
    with condition:
        assert condition.wait_for(lambda: next(seen, True))
    assert locks.lost_wakeups == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")
def test_a_signal_handler_may_take_any_lock_while_its_thread_waits() -> None:
    condition = make_condition("inbox")
    seen: list[tuple[Rank, str]] = []

    def handle(*_: object) -> None:
        with make_lock(Rank.CALL, "closing"):
            seen.extend(held_ranks())

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with condition:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            while not seen:
                condition.wait(0.1)
            assert seen == [(Rank.CALL, "closing")]
            assert held_ranks() == [(Rank.LEAF, "inbox")]
    finally:
        signal.signal(signal.SIGALRM, before)
