"""BEGIN, COMMIT and ABORT, and what is sent and acknowledged in a transaction."""

from __future__ import annotations

from typing import Any

import pytest

from stompy.broker import BrokerLimits
from tests.broker.conftest import Serve, Served
from tests.broker.test_commands import VERSIONS

# Transactions


@pytest.mark.requirement("TXN-01", "TXN-02", "TXN-03", "TXN-05")
@pytest.mark.parametrize("version", VERSIONS)
def test_sends_of_a_transaction_appear_at_commit_in_order(served: Served, version: str) -> None:
    client, reader = served.client(version), served.client(version)
    reader.subscribe("/queue/a")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", "2", transaction="t")
    client.send("/queue/a", "outside")
    client.send("/queue/a", "3", transaction="t")
    assert reader.bodies(1) == ["outside"]
    assert reader.idle()
    client.sure("COMMIT", {"transaction": "t"})
    assert reader.bodies(3) == ["1", "2", "3"]


@pytest.mark.requirement("A-21")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_stored_in_a_transaction_is_confirmed_before_its_commit(served: Served, version: str) -> None:
    client = served.client(version)
    client.sure("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": "/queue/a", "transaction": "t", "receipt": "stored"}, b"x")
    assert client.expect("RECEIPT").headers["receipt-id"] == "stored"
    assert served.depth("/queue/a") == (0, 0)
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.requirement("TXN-06")
def test_sends_of_an_aborted_transaction_never_appear_and_its_id_may_be_used_again(served: Served) -> None:
    client = served.client()
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", transaction="t")
    client.sure("ABORT", {"transaction": "t"})
    client.sure("BEGIN", {"transaction": "t"})
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (0, 0)
    assert served.broker.stats().transactions == 0


@pytest.mark.requirement("TXN-08", "A-18")
@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_a_transaction_take_effect_at_commit(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    second = client.messages(3)[1]
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(second, transaction="t")
    assert served.depth("/queue/a") == (0, 3)
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (0, 1)


@pytest.mark.requirement("TXN-08")
@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_an_aborted_transaction_can_be_made_again(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    messages = client.messages(3)
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(messages[1], transaction="t")
    client.sure("ABORT", {"transaction": "t"})
    client.ack(messages[0])
    assert served.depth("/queue/a") == (0, 2)
    client.ack(messages[2])
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("TXN-02")
def test_nacks_of_a_transaction_take_effect_at_commit(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1")
    client.sure("BEGIN", {"transaction": "t"})
    client.nack(client.expect("MESSAGE"), transaction="t")
    assert client.idle()
    client.sure("COMMIT", {"transaction": "t"})
    assert client.expect("MESSAGE").headers["redelivered"] == "true"


def test_an_ack_in_a_transaction_makes_room_for_the_next_message(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client", prefetch_count="1")
    client.send("/queue/a", "1", "2")
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(client.expect("MESSAGE"), transaction="t")
    assert client.bodies(1) == ["2"]


@pytest.mark.requirement("TXN-07")
@pytest.mark.parametrize("end", ["disconnect", "close", "half-close", "error"])
def test_an_open_transaction_is_aborted_when_the_session_ends(served: Served, end: str) -> None:
    client = served.client()
    client.send("/queue/in", "in")
    client.subscribe("/queue/in", "client")
    message = client.expect("MESSAGE")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/out", "out", transaction="t")
    client.ack(message, transaction="t")
    if end == "disconnect":
        client.sure("DISCONNECT")
    elif end == "close":
        client.close()
    elif end == "half-close":
        client.half_close()
    else:
        client.raw(b"WRONG\n\n\0")
    served.until(lambda stats: stats.sessions == 0)
    assert (served.depth("/queue/in"), served.depth("/queue/out")) == ((1, 0), (0, 0))


@pytest.mark.requirement("TXN-01", "TXN-04", "A-42")
@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("BEGIN", {}),
        ("BEGIN", {"transaction": "open"}),
        ("COMMIT", {}),
        ("COMMIT", {"transaction": "none"}),
        ("ABORT", {"transaction": "none"}),
        ("SEND", {"destination": "/queue/a", "transaction": "none"}),
        ("ACK", {"id": "{ack}", "transaction": "none"}),
        ("NACK", {"id": "{ack}", "transaction": "none"}),
    ],
)
def test_a_misused_transaction_is_an_error(served: Served, command: str, headers: dict[str, str]) -> None:
    client = served.client()
    client.subscribe("/queue/in", "client")
    client.send("/queue/in", "in")
    ack = client.expect("MESSAGE").headers["ack"]
    client.sure("BEGIN", {"transaction": "open"})
    client.say(command, {name: value.replace("{ack}", ack) for name, value in headers.items()})
    assert command.encode() in client.error().body
    assert (served.depth("/queue/in"), served.depth("/queue/a")) == ((1, 0), (0, 0))


def test_two_sessions_may_use_the_same_transaction_id(served: Served) -> None:
    one, two = served.client(), served.client()
    for client in (one, two):
        client.sure("BEGIN", {"transaction": "t"})
        client.send("/queue/a", "x", transaction="t")
    one.sure("ABORT", {"transaction": "t"})
    two.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.parametrize(
    ("options", "body"), [({"max_transaction_frames": 2}, b"x"), ({"max_transaction_bytes": 100}, b"x" * 40)]
)
def test_what_transactions_hold_is_bounded(serve: Serve, options: dict[str, Any], body: bytes) -> None:
    served = serve(limits=BrokerLimits(**options))
    client = served.client()
    for name in ("t1", "t2"):
        client.sure("BEGIN", {"transaction": name})
    client.say("SEND", {"destination": "/q", "transaction": "t1"}, body)
    client.say("SEND", {"destination": "/q", "transaction": "t2"}, body)
    client.say("SEND", {"destination": "/q", "transaction": "t1"}, body)
    assert "too large" in client.error().headers["message"]
    assert served.depth("/q") == (0, 0)


def test_an_ack_that_no_longer_fits_a_transaction_is_not_lost(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_transaction_frames=1))
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2")
    messages = client.messages(2)
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(messages[0], transaction="t")
    client.settle(messages[1], transaction="t")
    client.error()
    assert served.depth("/queue/a") == (2, 0)


def test_the_number_of_open_transactions_is_bounded(served: Served) -> None:
    client = served.client()
    client.raw(b"".join(client.encoded("BEGIN", {"transaction": str(n)}) for n in range(1_001)))
    assert "too many open transactions" in client.error().headers["message"]


def test_a_commit_into_a_full_queue_takes_no_effect_at_all(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=2))
    client = served.client()
    client.send("/queue/in", "in")
    client.subscribe("/queue/in", "client")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/fits", "1", transaction="t")
    client.send("/queue/full", "1", "2", "3", transaction="t")
    client.ack(client.expect("MESSAGE"), transaction="t")
    client.say("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.error().headers["receipt-id"] == "r"
    assert {name: depth.ready for name, depth in served.broker.stats().queues.items()} == {"/queue/in": 1}


def test_a_commit_of_too_many_delayed_messages_takes_no_effect_at_all(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=2))
    client = served.client()
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", transaction="t")
    for queue in "bcd":
        client.send(f"/queue/{queue}", "later", transaction="t", AMQ_SCHEDULED_DELAY="60000")
    client.say("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.error().headers["receipt-id"] == "r"
    assert served.broker.stats().scheduled == served.depth("/queue/a")[0] == 0


def test_a_commit_to_a_full_durable_subscription_takes_no_effect_at_all(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_backlog_messages=2, max_queue_messages=2))
    subscriber = served.client(client_id="me")
    subscriber.subscribe("/topic/t", **{"activemq.subscriptionName": "d"})
    subscriber.disconnect()
    client = served.client()
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", transaction="t")
    client.send("/topic/t", "1", "2", "3", transaction="t")
    client.say("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.error().headers["receipt-id"] == "r"
    assert served.depth("/queue/a") == (0, 0)
