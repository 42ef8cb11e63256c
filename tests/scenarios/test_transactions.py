"""Transactions: commit, abort, at disconnect, acks and refusals in them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import stompy
from tests.scenarios.acts import REFUSED, SOON, acked, left, seen, send_all, texts, until_end
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.scenarios.expected.model import ARTEMIS, CLASSIC, LIKE, RABBITMQ

pytestmark = [pytest.mark.broker, pytest.mark.scenario("transactions")]


def test_a_committed_transaction_happens_and_an_aborted_one_does_not(connect: Connect, queue: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    with connection.transaction() as transaction:
        transaction.send(queue, "1")
        transaction.send(queue, "2")
    with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send(queue, b"never" * 20_000)  # so that it has left
        raise ZeroDivisionError
    connection.send(queue, "3", confirm=True)
    assert texts(subscription, 3) == ["1", "2", "3"]
    assert until_end(connection, subscription) == []


@pytest.mark.requirement("TXN-02", "TXN-03")
def test_nothing_of_a_transaction_is_seen_before_its_commit(connect: Connect, queue: str) -> None:
    connection, other = connect(), connect()
    subscription = other.subscribe(queue)
    with connection.transaction() as transaction:
        transaction.send(queue, b"inside" + b" " * 100_000)  # so that it has left
        assert until_end(connection, connection.subscribe(f"{queue}.other")) == []
        connection.send(queue, "outside", confirm=True)
        assert texts(subscription, 1) == ["outside"]
        assert subscription.queued == 0
    assert subscription.receive(timeout=SOON).body.strip() == b"inside"


@pytest.mark.requirement("TXN-04")
def test_transactions_side_by_side_do_not_mix(connect: Connect, queue: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    with connection.transaction() as kept, pytest.raises(ZeroDivisionError), connection.transaction() as dropped:  # noqa: PT012 - the block
        kept.send(queue, b"kept" + b" " * 70_000)
        dropped.send(queue, b"dropped" + b" " * 70_000)
        raise ZeroDivisionError
    connection.send(queue, b"last")
    assert [subscription.receive(timeout=SOON).body.strip() for _ in range(2)] == [b"kept", b"last"]


def test_a_transaction_open_at_disconnect_does_not_happen(connect: Connect, queue: str) -> None:
    first = connect()
    transaction = first.transaction()
    transaction.__enter__()
    transaction.send(queue, b"never" * 20_000)
    first.close()
    assert left(connect(), queue) == []


def test_a_transaction_of_a_lost_connection_does_not_happen(connect: Connect, queue: str) -> None:
    first = connect()
    with pytest.raises(stompy.ConnectionLostError), first.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send(queue, b"never" * 20_000)
        first._links.link.transport.shutdown()
        transaction.send(queue, b"never" * 20_000)
    assert left(connect(), queue) == []


def test_moving_a_message_is_all_or_nothing(connect: Connect, queue: str, expect: Expect) -> None:
    first = connect()
    source = first.subscribe(queue, ack="client-individual")
    send_all(first, queue, ["moved"])
    with first.transaction() as transaction:
        message = source.receive(timeout=SOON)
        try:
            transaction.ack(message)
        except stompy.ConfigurationError:
            expect("tx-move", REFUSED)
            return
        transaction.send(f"{queue}.target", message.body)
    first.close()
    second = connect()
    moved = left(second, f"{queue}.target")
    expect("tx-move", f"target: {seen(moved)}; source: {seen(left(second, queue))}")


def test_an_ack_in_an_aborted_transaction(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"])
    message = subscription.receive(timeout=SOON)
    try:
        with connection.transaction() as transaction:
            transaction.ack(message)
            transaction.send(f"{queue}.large", b"x" * 70_000)  # so that it has left
            raise ZeroDivisionError
    except stompy.ConfigurationError:
        expect("tx-ack-aborted", REFUSED)
        return
    except ZeroDivisionError:
        pass
    again = seen(until_end(connection, subscription))
    frames = []
    try:
        acked(message)
    except stompy.BrokerError as refused:
        answer = "ERROR"
        frames.append(refused.frame)
    else:
        answer = "RECEIPT"
    connection.close()
    expect("tx-ack-aborted", f"again: {again}; the same ACK: {answer}; left: {seen(left(connect(), queue))}", *frames)


def test_an_ack_in_a_transaction_that_is_lost(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"])
    message = subscription.receive(timeout=SOON)
    transaction = connection.transaction()
    transaction.__enter__()
    try:
        transaction.ack(message)
    except stompy.ConfigurationError:
        expect("tx-ack-lost", REFUSED)
        return
    transaction.send(f"{queue}.large", b"x" * 70_000)  # so that it has left
    connection.close()
    expect("tx-ack-lost", f"left: {seen(left(connect(), queue))}")


@pytest.mark.versions("1.1", "1.2")
def test_a_refusal_in_a_transaction(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"], headers={"persistent": "true"})
    message = subscription.receive(timeout=SOON)
    frames = []
    try:
        with connection.transaction() as transaction:
            transaction.nack(message)
    except stompy.BrokerError as refused:
        frames.append(refused.frame)
        again = "ERROR"
    except stompy.ConfigurationError:
        expect("tx-nack", REFUSED)
        return
    else:
        again = seen(until_end(connection, subscription))
    connection.close()
    expect("tx-nack", f"{again}; left: {seen(left(connect(), queue))}", *frames)


@pytest.mark.once
@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_a_settlement_in_a_transaction_that_stompy_does_not_stop(
    raw: Raw, connect: Connect, queue: str, expect: Expect, command: str
) -> None:
    client = raw()
    client.subscribe(queue, "client-individual")
    client.send(queue, "x", persistent="true")
    message = client.expect("MESSAGE")
    client.sure("BEGIN", {"transaction": "t"})
    client.settle(message, command, transaction="t", receipt="settled")
    client.say("ABORT", {"transaction": "t", "receipt": "a"})
    frames, _ = client.until(_answers("a"))
    client.disconnect()
    answer = " ".join(frame.command for frame in frames[:1])
    expect(f"tx-raw-{command}", f"{answer}; left: {seen(left(connect(), queue))}", *frames)


@pytest.mark.once
def test_a_frame_that_fails_in_a_transaction(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": queue, "transaction": "t"}, b"good")
    client.say("SEND", {"transaction": "t", "receipt": "r"}, b"to nowhere")
    frames, up = client.ask(client.encoded("COMMIT", {"transaction": "t", "receipt": "c"}), _answers("c"))
    said = " ".join(frame.command for frame in frames)
    expect("tx-failed-frame", f"{said}{'' if up else ' closed'}; left: {seen(left(connect(), queue))}", *frames)


@pytest.mark.once
@pytest.mark.transports("tcp", "unix", "tls12", "tls13", "mtls")  # over WebSocket RabbitMQ may close before its ERROR
def test_a_frame_that_is_found_wrong_later(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    client = raw()
    kind = LIKE.get(expect.kind, expect.kind)
    wrong = {
        "embedded": {"destination": "/queue/*"},
        "artemis": {"destination": queue, "priority": "abc"},
        "rabbitmq3": {"destination": "/exchange/nope/x"},
        "rabbitmq4": {"destination": "/exchange/nope/x"},
    }.get(kind, {"destination": "/remote-temp-queue/ID:none-1-1:1:1"})
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": queue, "transaction": "t"}, b"good")
    client.say("SEND", {**wrong, "transaction": "t"}, b"wrong")
    client.say("SEND", {"destination": queue, "transaction": "t"}, b"good too")
    frames, up = client.ask(client.encoded("BEGIN", {"transaction": "t2", "receipt": "b"}), _answers("b"))
    if kind in CLASSIC and "ERROR" not in [frame.command for frame in frames]:
        frames += client.until(lambda frame: frame.command == "ERROR")[0]
    elif kind in ARTEMIS:
        frames, up = [*frames, *client.rest()], False
    said = " ".join(sorted({frame.command for frame in frames}))
    if up:
        more, up = client.ask(client.encoded("COMMIT", {"transaction": "t", "receipt": "c"}), _answers("c"))
        if kind in RABBITMQ:
            more, up = [*more, *client.rest()], False
        said += ", " + " ".join(frame.command for frame in more)
        frames += more
    expect("tx-refused-behind", f"{said}{'' if up else ' closed'}; left: {seen(left(connect(), queue))}", *frames)


def _answers(receipt: str) -> Callable[[stompy.Frame], bool]:
    return lambda frame: frame.headers.get("receipt-id") == receipt
