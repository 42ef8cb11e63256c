from __future__ import annotations

import threading

import pytest

from stompy.errors import ConnectionLostError, ConnectTimeoutError, SpoolFullError
from stompy.spark.receivers import Health, Wakeup

SOON = 20.0


def test_without_a_broker_it_is_patient_for_as_long_as_configured() -> None:
    health = Health("receiver 0")
    health.check(60.0)
    with pytest.raises(
        ConnectTimeoutError, match=r"receiver 0 had no connection to a broker.*brokerTimeout.*no connection yet"
    ):
        health.check(-1.0)
    health.subscribed()
    health.check(-1.0)
    health.lost(ConnectionLostError("the wire was cut"))
    with pytest.raises(ConnectTimeoutError, match="the wire was cut"):
        health.check(-1.0)


def test_the_first_error_is_the_one_that_is_raised_again_and_again() -> None:
    health = Health("receiver 0")
    health.fail(SpoolFullError("no room", path="/spool"))
    health.fail(ConnectionLostError("later"))
    for _ in range(2):
        with pytest.raises(SpoolFullError, match="no room"):
            health.check(60.0)


def test_it_is_quiet_only_while_there_is_a_subscription() -> None:
    health = Health("receiver 0")
    assert (health.quiet_for(), health.subscribed_for()) == (0.0, 0.0)
    health.subscribed()
    assert health.quiet_for() > 0.0
    health.lost(ConnectionLostError("cut"))
    assert health.quiet_for() == 0.0
    assert health.subscribed_for() > 0.0


def test_it_is_not_quiet_while_messages_are_on_their_way_into_the_spool() -> None:
    health = Health("receiver 0")
    health.subscribed()
    health.arrived()
    assert health.quiet_for() == 0.0
    health.settled()
    assert health.quiet_for() > 0.0


def test_it_reports_every_change_but_messages() -> None:
    changes: list[int] = []
    health = Health("receiver 0", changed=lambda: changes.append(1))
    health.subscribed()
    health.arrived()
    assert len(changes) == 1
    health.lost(ConnectionLostError("cut"))
    health.fail(ConnectionLostError("for good"))
    health.end()
    assert len(changes) == 4
    assert health.ended


def test_its_patience_ends_when_the_check_raises() -> None:
    health = Health("receiver 0")
    assert 0.0 < health.check(60.0) <= 60.0
    health.subscribed()
    assert health.check(0.0) == float("inf")


def test_it_looks_at_once_and_waits_for_nothing_if_there_is_nothing_to_wait_for() -> None:
    looks: list[float] = [0.0]
    Wakeup().watch(lambda: looks.pop())
    assert looks == []


def test_a_change_wakes_the_waiting_thread() -> None:
    wakeup, waits, over = Wakeup(), threading.Event(), threading.Event()

    def look() -> float:
        if over.is_set():
            return 0.0
        waits.set()
        return float("inf")

    watching = threading.Thread(target=wakeup.watch, args=(look,))
    watching.start()
    assert waits.wait(SOON)
    over.set()
    wakeup.wake()
    watching.join(SOON)
    assert not watching.is_alive()


def test_a_change_while_it_looks_is_not_lost() -> None:
    wakeup = Wakeup()
    answers = [3600.0, 0.0]

    def look() -> float:
        wakeup.wake()
        return answers.pop(0)

    wakeup.watch(look)
    assert answers == []


def test_it_looks_again_when_the_time_is_over() -> None:
    answers = [0.001, 0.001, -1.0]
    Wakeup().watch(lambda: answers.pop(0))
    assert answers == []


def test_what_is_raised_ends_it() -> None:
    def look() -> float:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        Wakeup().watch(look)
