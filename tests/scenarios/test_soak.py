"""Eight producers and eight consumers while links are cut at random bytes and the broker goes down and comes back.

Each run prints its seed; `--seed` runs the same schedule of faults again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.broker.message import StoredMessage
from stompy.broker.publisher import BrokerPublisher
from stompy.testing.proxy import FaultProxy
from tests.support.soak import Soak, SoakError
from tests.support.soak_plan import Plan, Resending, Tally


def restarting(broker: Broker) -> Callable[[], None]:
    """Return a function that restarts a broker, each second time with a while in which nobody listens."""
    away = itertools.cycle((False, True))

    def restart() -> None:
        if next(away):
            broker.close()
            broker.start()
        else:
            broker.restart()

    return restart


def soak(plan: Plan) -> Tally:
    with Broker() as broker, FaultProxy(broker.url) as proxy:
        tally = Soak(plan, proxy, restarting(broker)).run()
        assert broker.depth(plan.destination) == 0
        assert broker.stats().errors == 0
    return tally


def check(plan: Plan, tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n--seed={plan.seed} {plan.resending} {tally}")
    assert tally.confirmed == tally.consumed == plan.messages
    assert (tally.cuts, tally.restarts) == (plan.cuts, plan.restarts)
    assert tally.idle < plan.cuts, "no cut came where something went through"
    assert tally.reconnects > 0


@pytest.mark.parametrize("resending", ["connection", "producer"])
def test_nothing_confirmed_is_lost(resending: Resending, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(messages=2_000, cuts=10, restarts=1, window=20, resending=resending)
    check(plan, soak(plan), capsys)


def test_the_connection_sends_again_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan(messages=2_000, cuts=10, restarts=2, window=20, producers=4, consumers=1)
    check(plan, soak(plan), capsys)


@pytest.mark.long
@pytest.mark.timeout(660)
@pytest.mark.parametrize("resending", ["connection", "producer"])
def test_nothing_confirmed_is_lost_of_two_hundred_thousand_messages(
    resending: Resending, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(messages=200_000, cuts=200, restarts=20, timeout=600, resending=resending)
    check(plan, soak(plan), capsys)


def test_a_schedule_comes_from_its_seed() -> None:
    plans = [Plan(messages=1_000, cuts=20, restarts=2, seed=seed) for seed in (1, 1, 2)]
    one, again, other = [plan.faults() for plan in plans]
    assert one == again != other
    assert [fault.kind for fault in one].count("restart") == 2
    assert [fault.after for fault in one] == sorted(fault.after for fault in one)


def test_the_soak_notices_a_message_that_was_confirmed_and_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    check_noticed(lambda publish, publisher, message: None, "1 confirmed messages were never consumed", monkeypatch)


def test_the_soak_notices_a_duplicate_that_nobody_could_know(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(publish: Publish, publisher: BrokerPublisher, message: StoredMessage) -> None:
        publish(publisher, message)
        publish(publisher, message.with_head(message.shared.moved(message.destination, (("soak-id", "another"),))))

    check_noticed(twice, "came twice, without a flag", monkeypatch)


def test_the_soak_notices_an_order_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    send, swapped = stompy.Connection.send_async, {b"0 99": b"0 100", b"0 100": b"0 99"}

    def send_swapped(conn: stompy.Connection, destination: str, body: bytes, **options: Any) -> stompy.Receipt | None:
        return send(conn, destination, swapped.get(body, body), **options)

    monkeypatch.setattr(stompy.Connection, "send_async", send_swapped)
    plan = Plan(messages=200, cuts=0, restarts=0, window=20, producers=1, consumers=1)
    with pytest.raises(SoakError, match=r"came after later ones, and no lost session had them: .*'0 99'"):
        soak(plan)


Publish = Callable[[BrokerPublisher, StoredMessage], None]


def check_noticed(
    instead: Callable[[Publish, BrokerPublisher, StoredMessage], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the broker treat one message in another way, and see that the soak fails."""
    publish, numbers = BrokerPublisher.publish, itertools.count(1)

    def treat(publisher: BrokerPublisher, message: StoredMessage, sender: str | None = None) -> None:
        if next(numbers) == 100:
            instead(publish, publisher, message)
        else:
            publish(publisher, message)

    monkeypatch.setattr(BrokerPublisher, "publish", treat)
    plan = Plan(messages=400, cuts=0, restarts=0, window=20, seed=1, resending="producer", patience=0.5)
    with pytest.raises(SoakError, match=words):
        soak(plan)
