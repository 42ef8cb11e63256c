"""The plan as a value, and each fault as raw clients and real ones meet it behind a proxy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError, ConnectionLostError, StompTimeoutError
from stompy.testing import faults
from stompy.testing.faults import (
    GARBAGE,
    RECEIVED,
    SENT,
    STRAY_MESSAGE,
    Cut,
    CutAfter,
    Delay,
    Double,
    Drop,
    Fault,
    FaultPlan,
    Insert,
    Refuse,
    Rewrite,
)
from stompy.testing.proxy import FaultProxy
from stompy.transport.tcp import TcpDialer
from tests.broker.conftest import Served

WITHIN = 20.0
VERSIONS = ["1.0", "1.1", "1.2"]

EVERY_FAULT: list[Fault] = [
    Drop("RECEIPT", nth=2),
    Delay("MESSAGE", seconds=0.5, chance=0.25),
    Delay(SENT),
    Cut("SEND", nth=3, keep=7, link=2),
    Cut(RECEIVED, keep=0),
    CutAfter(sent=(1, 100)),
    CutAfter(received=5, link=1),
    Double("heart-beat"),
    Rewrite("RECEIPT", header="receipt-id", value="other"),
    Insert("CONNECTED", data=GARBAGE),
    Refuse(),
    Refuse(link=3),
]


# The plan


@pytest.mark.parametrize("fault", EVERY_FAULT, ids=repr)
def test_a_fault_prints_as_the_expression_that_makes_it(fault: Fault) -> None:
    assert eval(repr(fault), vars(faults).copy()) == fault


def test_a_plan_prints_as_the_expression_that_makes_it() -> None:
    plan = FaultPlan(*EVERY_FAULT, seed=42)
    again = eval(repr(plan), vars(faults).copy())
    assert (again.faults, repr(again)) == (plan.faults, repr(plan))
    assert "Drop('RECEIPT', nth=2)" in repr(plan)
    assert repr(FaultPlan()) == "FaultPlan(seed=0)"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Drop("RECEIPTS"), "no frame is called 'RECEIPTS'"),
        (lambda: Drop("RECEIPT", nth=0), "nth"),
        (lambda: Drop("RECEIPT", link=0), "link"),
        (lambda: Drop("RECEIPT", chance=1.5), "chance"),
        (lambda: Delay("RECEIPT", seconds=-1), "seconds"),
        (lambda: Delay("RECEIPT", seconds=float("nan")), "seconds"),
        (lambda: Cut("RECEIPT", keep=-1), "keep"),
        (lambda: CutAfter(), "one of them"),
        (lambda: CutAfter(sent=1, received=1), "one of them"),
        (lambda: CutAfter(sent=-1), "range"),
        (lambda: CutAfter(sent=(5, 4)), "range"),
        (lambda: CutAfter(sent=1, link=0), "link"),
        (lambda: Refuse(link=-1), "link"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, named: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigurationError, match=named):
        make()


def test_faults_come_and_go() -> None:
    first, second = Drop("RECEIPT"), Drop("MESSAGE")
    plan = FaultPlan(first)
    plan.add(second)
    assert [*plan.faults] == [first, second]
    plan.remove(first)
    assert [*plan.faults] == [second]
    plan.clear()
    assert not plan.faults


def test_waiting_for_a_fault_that_does_not_strike_ends_in_time() -> None:
    with pytest.raises(StompTimeoutError, match=r"0 of 1 faults struck .*Drop\('RECEIPT'\)"):
        FaultPlan(Drop("RECEIPT")).await_strikes(timeout=0)


# What raw clients see


@pytest.fixture
def faulty() -> Iterator[Callable[..., tuple[Served, FaultPlan]]]:
    """Return a function that starts a broker, and a proxy with faults before it."""
    with contextlib.ExitStack() as stack:

        def start(*planned: Fault) -> tuple[Served, FaultPlan]:
            plan = FaultPlan(*planned)
            broker = stack.enter_context(Broker())
            proxy = stack.enter_context(FaultProxy(broker.url, faults=plan))
            served = Served(broker, TcpDialer("127.0.0.1", proxy.port))
            stack.callback(served.close)
            return served, plan

        yield start


Faulty = Callable[..., tuple[Served, FaultPlan]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dropped_receipt_is_missing_and_its_frame_took_effect(faulty: Faulty, version: str) -> None:
    served, _ = faulty(Drop("RECEIPT", nth=1))
    client = served.client(version)
    client.say("SEND", {"destination": "/queue/a", "receipt": "lost"}, b"x")
    assert client.sync() == []
    assert served.depth("/queue/a") == (1, 0)


def test_a_dropped_send_took_no_effect(faulty: Faulty) -> None:
    served, plan = faulty(Drop("SEND", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a"}, b"x")
    client.sync()
    assert served.depth("/queue/a") == (0, 0)
    assert len(plan.strikes) == 1


def test_a_dropped_message_stays_unacknowledged(faulty: Faulty) -> None:
    served, _ = faulty(Drop("MESSAGE", nth=1))
    client = served.client()
    client.send("/queue/a", "1", "2")
    client.subscribe("/queue/a", "client-individual")
    assert client.bodies(1) == ["2"]
    assert served.depth("/queue/a") == (0, 2)


def test_a_delayed_message_holds_back_what_is_behind_it(faulty: Faulty) -> None:
    served, plan = faulty(Delay("MESSAGE"))
    client = served.client()
    client.send("/queue/a", "1")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "auto"})
    plan.await_strikes(timeout=WITHIN)
    client.say("SEND", {"destination": "/queue/b", "receipt": "behind"})
    served.until(lambda stats: "/queue/b" in stats.queues)
    assert client.recv(0) == b""
    plan.release()
    assert client.bodies(1) == ["1"]
    client.expect("RECEIPT")


def test_a_lie_about_a_receipt(faulty: Faulty) -> None:
    served, _ = faulty(Rewrite("RECEIPT", header="receipt-id", value="other", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert client.expect("RECEIPT").headers["receipt-id"] == "other"


def test_a_doubled_receipt(faulty: Faulty) -> None:
    served, _ = faulty(Double("RECEIPT", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert [client.expect("RECEIPT").headers["receipt-id"] for _ in range(2)] == ["mine", "mine"]


def test_a_message_that_nobody_subscribed_to(faulty: Faulty) -> None:
    served, _ = faulty(Insert("RECEIPT", data=STRAY_MESSAGE))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert client.expect("MESSAGE").headers["subscription"] == "no-such-subscription"
    client.expect("RECEIPT")


def test_a_cut_after_a_frame_received_lets_it_take_effect_without_an_answer(faulty: Faulty) -> None:
    served, _ = faulty(Cut("SEND", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "never"}, b"x")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.parametrize("keep", [0, 10])
def test_a_cut_in_a_frame_received_lets_it_not_take_effect(faulty: Faulty, keep: int) -> None:
    served, _ = faulty(Cut("SEND", nth=1, keep=keep))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "never"}, b"x")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_in_the_midst_of_a_message_gives_it_back(faulty: Faulty, version: str) -> None:
    served, _ = faulty(Cut("MESSAGE", keep=20, link=1))
    client = served.client(version)
    client.send("/queue/a", "1")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "client"})
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a", "client")
    (message,) = again.messages(1)
    assert message.headers["redelivered"] == "true"


def test_a_refused_connection_ends_without_an_error_frame(faulty: Faulty) -> None:
    served, _ = faulty(Refuse(link=2))
    with served.client() as first:
        assert served.dial().rest() == []
        served.client()
        first.sync()


@pytest.mark.parametrize("fault", [Delay("RECEIPT", seconds=0.01), Delay("SEND", seconds=0.01)], ids=repr)
def test_a_delay_ends_by_itself(faulty: Faulty, fault: Fault) -> None:
    served, plan = faulty(fault)
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "late"})
    client.expect("RECEIPT")
    assert [strike.fault for strike in plan.strikes] == [fault]


def test_the_end_of_the_proxy_ends_a_delay() -> None:
    plan = FaultPlan(Delay("RECEIPT"))
    with Broker() as broker, connected(broker) as other:
        with FaultProxy(broker.url, faults=plan) as proxy:
            conn = connected(proxy)
            receipt = conn.send_async("/queue/a", "x")
            assert receipt is not None
            plan.await_strikes(timeout=WITHIN)
        with pytest.raises(ConnectionLostError):
            receipt.result(timeout=WITHIN)
        other.send("/queue/a", "y", confirm=True)
        conn.close()


@pytest.mark.parametrize("scheme", ["stomp+ssl", "ws", "wss"])
def test_a_plan_is_refused_where_frames_cannot_be_seen(scheme: str) -> None:
    with pytest.raises(ConfigurationError, match="without TLS and WebSocket"):
        FaultProxy(f"{scheme}://localhost:1", faults=FaultPlan())


# What a real client sees


def connected(end: Broker | FaultProxy, **settings: object) -> stompy.Connection:
    return stompy.connect(end.url, **{"timeouts": stompy.Timeouts(receipt=WITHIN), **settings})  # type: ignore[arg-type]


def test_a_client_whose_receipt_is_dropped_times_out() -> None:
    plan = FaultPlan(Drop("RECEIPT", nth=1))
    with (
        Broker() as broker,
        FaultProxy(broker.url, faults=plan) as proxy,
        connected(proxy, timeouts=stompy.Timeouts(receipt=WITHIN, close=0.1)) as conn,
    ):
        with pytest.raises(stompy.ReceiptTimeoutError):
            conn.send("/queue/a", "x", confirm=True, timeout=0.3)
        conn.send("/queue/a", "y", confirm=True)
        assert broker.depth("/queue/a") == 2


def test_a_client_waits_out_a_delay() -> None:
    plan = FaultPlan(Delay("RECEIPT", nth=1))
    with Broker() as broker, FaultProxy(broker.url, faults=plan) as proxy, connected(proxy) as conn:
        receipt = conn.send_async("/queue/a", "x")
        assert receipt is not None
        plan.await_strikes(timeout=WITHIN)
        assert not receipt.done()
        plan.release()
        receipt.result(timeout=WITHIN)


@pytest.mark.parametrize("fault", [Cut("SEND"), Cut("RECEIPT", keep=0), Cut("RECEIPT", keep=5), CutAfter(received=150)])
def test_a_client_that_is_cut_off_does_not_know(fault: Fault) -> None:
    with Broker() as broker, FaultProxy(broker.url, faults=FaultPlan(fault)) as proxy, connected(proxy) as conn:
        with pytest.raises(ConnectionLostError) as caught:
            conn.send("/queue/a", "x" * 200, confirm=True)
        assert caught.value.outcome == "unknown"


def test_a_client_does_not_take_another_receipt_for_its_own() -> None:
    plan = FaultPlan(Rewrite("RECEIPT", header="receipt-id", value="other", nth=1))
    with (
        Broker() as broker,
        FaultProxy(broker.url, faults=plan) as proxy,
        connected(proxy, timeouts=stompy.Timeouts(receipt=WITHIN, close=0.1)) as conn,
        pytest.raises(stompy.StompError),
    ):
        conn.send("/queue/a", "x", confirm=True, timeout=0.3)


def test_a_client_given_garbage_loses_the_link() -> None:
    with (
        Broker() as broker,
        FaultProxy(broker.url, faults=FaultPlan(Insert("RECEIPT", data=GARBAGE))) as proxy,
        connected(proxy) as conn,
    ):
        with pytest.raises(ConnectionLostError):
            conn.send("/queue/a", "x", confirm=True)
        assert not conn.connected


def test_a_client_that_is_refused_says_so() -> None:
    with Broker() as broker, FaultProxy(broker.url, faults=FaultPlan(Refuse(link=1))) as proxy:
        with pytest.raises(stompy.ConnectError):
            connected(proxy)
        with connected(proxy) as conn:
            conn.send("/queue/a", "x", confirm=True)


def test_a_client_that_reconnects_outlives_cuts_and_restarts() -> None:
    plan = FaultPlan(CutAfter(sent=(200, 600)), seed=1)
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
    with Broker() as broker, FaultProxy(broker.url, faults=plan) as proxy:
        with connected(proxy, reconnect=policy) as conn:
            sent = 0
            while len(plan.strikes) < 10 or sent < 100:
                try:
                    conn.send("/queue/a", str(sent), confirm=True)
                    sent += 1
                except ConnectionLostError:
                    continue
                if sent == 50:
                    broker.restart()
            plan.clear()
        with connected(broker) as conn:
            sub = conn.subscribe("/queue/a", ack="client-individual")
            bodies = set()
            for _ in range(broker.depth("/queue/a") + broker.stats().queues["/queue/a"].unacked):
                message = sub.receive(timeout=WITHIN)
                bodies.add(message.text)
                message.ack()
            assert bodies >= {str(number) for number in range(sent)}
