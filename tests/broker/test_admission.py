from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.broker.users import Admission, ClientSlot, network_of
from stompy.transport.tcp import TcpOptions

HERE = "192.0.2.1:1234"


def an_admission(*, max_sessions: int, max_handshakes: int, budget: int | None = 100) -> Admission:
    return Admission(max_sessions=max_sessions, max_handshakes=max_handshakes, max_handshakes_per_address=budget)


def entered(admission: Admission, peer: str = HERE) -> ClientSlot:
    slot = admission.enter(peer)
    assert slot is not None
    return slot


def test_clients_come_in_until_there_are_too_many_and_again_when_one_has_left() -> None:
    admission = an_admission(max_sessions=2, max_handshakes=9)
    first, second = entered(admission), entered(admission)
    admission.greeted(first)
    refused = entered(admission)
    assert refused.refusal is not None
    assert str(refused.refusal) == "too many sessions (limit max_sessions=2)"
    admission.leave(first)
    admission.leave(first)
    assert entered(admission).refusal is None
    assert entered(admission).refusal is not None
    admission.leave(second)


def test_those_who_say_nothing_cannot_take_every_place() -> None:
    admission = an_admission(max_sessions=9, max_handshakes=2)
    first, _ = entered(admission), entered(admission)
    refusal = entered(admission).refusal
    assert refusal is not None
    assert (refusal.limit_name, refusal.limit) == ("max_handshakes", 2)
    admission.greeted(first)
    assert entered(admission).refusal is None


def test_a_storm_of_refused_clients_is_not_answered_one_by_one() -> None:
    admission = an_admission(max_sessions=1, max_handshakes=1)
    entered(admission)
    slots = [admission.enter(HERE) for _ in range(100)]
    answered = [slot for slot in slots if slot is not None]
    assert 0 < len(answered) < 50
    assert all(slot.refusal is not None for slot in answered)
    admission.leave(answered[0])
    assert admission.enter(HERE) is not None


def test_one_address_has_a_share_of_the_handshakes_and_others_have_the_rest() -> None:
    admission = an_admission(max_sessions=99, max_handshakes=9, budget=None)
    first, *_ = (entered(admission) for _ in range(5))
    refusal = entered(admission).refusal
    assert str(refusal) == "too many handshakes from this address (limit max_handshakes_per_address=5)"
    for _ in range(4):
        assert entered(admission, "192.0.2.2:1").refusal is None
    refusal = entered(admission, "192.0.2.3:1").refusal
    assert refusal is not None
    assert refusal.limit_name == "max_handshakes"
    admission.greeted(first)
    assert entered(admission).refusal is None
    admission.leave(first)
    assert entered(admission, "192.0.2.3:1").refusal is not None


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.1:61613", "192.0.2.1"),
        ("[2001:db8:1:2:3:4:5:6]:61613", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:61613", "fe80::/64"),
        ("[::ffff:192.0.2.1]:61613", "192.0.2.1"),
        ("/run/broker.sock", None),
        ("memory:3", None),
    ],
)
def test_a_share_is_for_the_addresses_that_one_host_has(peer: str, network: str | None) -> None:
    assert network_of(peer) == network


def test_clients_that_share_no_address_are_not_counted_by_it() -> None:
    admission = an_admission(max_sessions=99, max_handshakes=9, budget=1)
    assert [entered(admission, "/run/broker.sock").refusal for _ in range(9)] == [None] * 9


def test_silent_clients_of_one_address_keep_no_other_address_out() -> None:
    with Broker(limits=BrokerLimits(max_handshakes=12)) as broker, contextlib.ExitStack() as stack:
        host, port = broker.url.removeprefix("stomp://").split(":")
        for _ in range(40):
            stack.enter_context(socket.create_connection((host, int(port)), 20))
        with pytest.raises(stompy.ConnectError):
            stompy.connect(broker.url, reconnect=False)
        for _ in range(38):
            stompy.connect(broker.url, reconnect=False, tcp=TcpOptions(source="127.0.0.2")).close()


def test_ten_clients_of_one_host_at_once_are_nothing_unusual() -> None:
    with Broker() as broker, ThreadPoolExecutor(10) as budget:
        for connection in list(budget.map(lambda _: stompy.connect(broker.url, reconnect=False), range(30))):
            connection.close()
