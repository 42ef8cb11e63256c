"""The plan as a value, and each fault as raw clients and real ones meet it."""

from __future__ import annotations

import pytest

import stompy
from stompy.broker import Broker, faults
from stompy.broker.faults import (
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
from stompy.errors import ConfigurationError, ConnectionLostError, NotConnectedError, StompTimeoutError
from tests.broker.conftest import Serve, Served

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


def faulty(serve: Serve, *planned: Fault) -> tuple[Served, FaultPlan]:
    plan = FaultPlan(*planned)
    return serve(faults=plan), plan


@pytest.mark.parametrize("version", VERSIONS)
def test_a_dropped_receipt_is_missing_and_its_frame_took_effect(serve: Serve, version: str) -> None:
    served, _ = faulty(serve, Drop("RECEIPT", nth=1))
    client = served.client(version)
    client.say("SEND", {"destination": "/queue/a", "receipt": "lost"}, b"x")
    assert client.sync() == []
    assert served.depth("/queue/a") == (1, 0)


def test_a_dropped_send_took_no_effect(serve: Serve) -> None:
    served, plan = faulty(serve, Drop("SEND", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a"}, b"x")
    client.sync()
    assert served.depth("/queue/a") == (0, 0)
    assert len(plan.strikes) == 1


def test_a_dropped_message_stays_unacknowledged(serve: Serve) -> None:
    served, _ = faulty(serve, Drop("MESSAGE", nth=1))
    client = served.client()
    client.send("/queue/a", "1", "2")
    client.subscribe("/queue/a", "client-individual")
    assert client.bodies(1) == ["2"]
    assert served.depth("/queue/a") == (0, 2)


def test_a_delayed_message_holds_back_what_is_behind_it(serve: Serve) -> None:
    served, plan = faulty(serve, Delay("MESSAGE"))
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


def test_a_lie_about_a_receipt(serve: Serve) -> None:
    served, _ = faulty(serve, Rewrite("RECEIPT", header="receipt-id", value="other", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert client.expect("RECEIPT").headers["receipt-id"] == "other"


def test_a_doubled_receipt(serve: Serve) -> None:
    served, _ = faulty(serve, Double("RECEIPT", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert [client.expect("RECEIPT").headers["receipt-id"] for _ in range(2)] == ["mine", "mine"]


def test_a_message_that_nobody_subscribed_to(serve: Serve) -> None:
    served, _ = faulty(serve, Insert("RECEIPT", data=STRAY_MESSAGE))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "mine"})
    assert client.expect("MESSAGE").headers["subscription"] == "no-such-subscription"
    client.expect("RECEIPT")


def test_a_cut_after_a_frame_received_lets_it_take_effect_without_an_answer(serve: Serve) -> None:
    served, _ = faulty(serve, Cut("SEND", nth=1))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "never"}, b"x")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.parametrize("keep", [0, 10])
def test_a_cut_in_a_frame_received_lets_it_not_take_effect(serve: Serve, keep: int) -> None:
    served, _ = faulty(serve, Cut("SEND", nth=1, keep=keep))
    client = served.client()
    client.say("SEND", {"destination": "/queue/a", "receipt": "never"}, b"x")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_in_the_midst_of_a_message_gives_it_back(serve: Serve, version: str) -> None:
    served, _ = faulty(serve, Cut("MESSAGE", keep=20, link=1))
    client = served.client(version)
    client.send("/queue/a", "1")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "client"})
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a", "client")
    (message,) = again.messages(1)
    assert message.headers["redelivered"] == "true"


def test_a_refused_connection_ends_without_an_error_frame(serve: Serve) -> None:
    served, _ = faulty(serve, Refuse(link=2))
    with served.client() as first:
        assert served.dial().rest() == []
        served.client()
        first.sync()


def test_links_are_counted_over_a_restart(serve: Serve) -> None:
    served, plan = faulty(serve, Refuse(link=2))
    served.client()
    served.broker.restart()
    assert served.dial().rest() == []
    served.client()
    assert plan.links == 3


# A restart


def test_a_restart_keeps_what_was_not_acknowledged(serve: Serve) -> None:
    served = serve()
    client = served.client()
    client.send("/queue/a", "1", "2", "3")
    client.subscribe("/queue/a", "client-individual", prefetch_count="2")
    client.ack(client.messages(2)[0])
    bystander = served.client()
    served.broker.restart()
    client.rest()
    bystander.rest()
    assert served.broker.stats().sessions == 0
    assert served.depth("/queue/a") == (2, 0)
    again = served.client()
    again.subscribe("/queue/a", "client")
    assert [(frame.body, frame.headers.get("redelivered")) for frame in again.messages(2)] == [
        (b"2", "true"),
        (b"3", "true"),
    ]


@pytest.mark.usefixtures("quick_switches")
def test_a_restart_gives_nothing_from_one_old_session_to_the_next(serve: Serve) -> None:
    served = serve()
    for number in range(1, 11):
        clients = [served.client() for _ in range(5)]
        for client in clients:
            client.subscribe("/queue/a", "client")
        if number == 1:
            clients[0].send("/queue/a", "x")
        served.until(lambda stats, number=number: stats.messages_out == number)  # type: ignore[misc]
        served.broker.restart()
        assert served.broker.stats().messages_out == number
        assert served.depth("/queue/a") == (1, 0)


def test_a_restart_forgets_open_transactions(serve: Serve) -> None:
    served = serve()
    client = served.client()
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": "/queue/a", "transaction": "t"}, b"x")
    client.sync()
    served.broker.restart()
    client.rest()
    assert served.depth("/queue/a") == (0, 0)
    assert served.broker.stats().transactions == 0


def test_a_restart_keeps_the_port(serve_tcp: Serve) -> None:
    served = serve_tcp()
    url = served.broker.url
    client = served.client()
    served.broker.restart()
    assert served.broker.url == url
    client.rest()
    served.client().sync()


def test_what_does_not_run_cannot_be_restarted() -> None:
    with pytest.raises(NotConnectedError):
        Broker().restart()


@pytest.mark.usefixtures("quick_switches")
def test_restarts_in_the_midst_of_traffic_lose_no_confirmed_message(serve_tcp: Serve) -> None:
    served = serve_tcp()
    confirmed: list[str] = []
    for number in range(20):
        client = served.client()
        for count in range(5):
            body = f"{number}-{count}"
            client.sure("SEND", {"destination": "/queue/a"}, body.encode())
            confirmed.append(body)
        client.subscribe("/queue/a", "client-individual")
        client.messages(1)
        served.broker.restart()
        client.rest()
    assert served.depth("/queue/a") == (100, 0)
    last = served.client()
    last.subscribe("/queue/a")
    assert last.bodies(100) == confirmed


# What a real client sees


def connected(broker: Broker, **settings: object) -> stompy.Connection:
    return stompy.connect(broker.url, receipt_timeout=WITHIN, **settings)  # type: ignore[arg-type]


def test_a_client_whose_receipt_is_dropped_times_out() -> None:
    plan = FaultPlan(Drop("RECEIPT", nth=1))
    with Broker(faults=plan) as broker, connected(broker, close_timeout=0.1) as conn:
        with pytest.raises(stompy.ReceiptTimeoutError):
            conn.send("/queue/a", "x", confirm=True, timeout=0.3)
        conn.send("/queue/a", "y", confirm=True)
        assert broker.depth("/queue/a") == 2


def test_a_client_waits_out_a_delay() -> None:
    plan = FaultPlan(Delay("RECEIPT", nth=1))
    with Broker(faults=plan) as broker, connected(broker) as conn:
        receipt = conn.send_async("/queue/a", "x")
        assert receipt is not None
        plan.await_strikes(timeout=WITHIN)
        assert not receipt.done()
        plan.release()
        receipt.result(timeout=WITHIN)


@pytest.mark.parametrize("fault", [Cut("SEND"), Cut("RECEIPT", keep=0), Cut("RECEIPT", keep=5), CutAfter(received=150)])
def test_a_client_that_is_cut_off_does_not_know(fault: Fault) -> None:
    with Broker(faults=FaultPlan(fault)) as broker, connected(broker) as conn:
        with pytest.raises(ConnectionLostError) as caught:
            conn.send("/queue/a", "x" * 200, confirm=True)
        assert caught.value.outcome == "unknown"


def test_a_client_does_not_take_another_receipt_for_its_own() -> None:
    plan = FaultPlan(Rewrite("RECEIPT", header="receipt-id", value="other", nth=1))
    with Broker(faults=plan) as broker, connected(broker, close_timeout=0.1) as conn, pytest.raises(stompy.StompError):
        conn.send("/queue/a", "x", confirm=True, timeout=0.3)


def test_a_client_given_garbage_loses_the_link() -> None:
    with Broker(faults=FaultPlan(Insert("RECEIPT", data=GARBAGE))) as broker, connected(broker) as conn:
        with pytest.raises(ConnectionLostError):
            conn.send("/queue/a", "x", confirm=True)
        assert not conn.connected


def test_a_client_that_is_refused_says_so() -> None:
    with Broker(faults=FaultPlan(Refuse(link=1))) as broker:
        with pytest.raises(stompy.ConnectError):
            connected(broker)
        with connected(broker) as conn:
            conn.send("/queue/a", "x", confirm=True)


def test_a_client_that_reconnects_outlives_cuts_and_restarts() -> None:
    plan = FaultPlan(CutAfter(sent=(200, 600)), seed=1)
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
    with Broker(faults=plan) as broker:
        with connected(broker, reconnect=policy) as conn:
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
