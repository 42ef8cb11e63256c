"""Acknowledging, refusing, and transactions."""

from __future__ import annotations

import pytest

import stompy
from tests.scenarios.conftest import SOON, Candidate, Connecting

pytestmark = pytest.mark.broker

VERSIONS = ("1.0", "1.1", "1.2")


def texts(subscription: stompy.Subscription, count: int) -> list[str]:
    """Return the texts of the next messages, which stay unacknowledged."""
    return [subscription.receive(timeout=SOON).text for _ in range(count)]


def nothing_more(connection: stompy.Connection, subscription: stompy.Subscription) -> bool:
    """Whether the queue has nothing for the subscription, told by a round trip through it."""
    connection.send(subscription.destination, "last", confirm=True)
    return subscription.receive(timeout=SOON).text == "last"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_acknowledged_one_by_one_is_gone(connecting: Connecting, queue: str, version: str) -> None:
    first = connecting(versions=version)
    subscription = first.subscribe(queue, ack="client-individual")
    for number in range(4):
        first.send(queue, str(number), confirm=True)
    messages = [subscription.receive(timeout=SOON) for _ in range(4)]
    for place in (1, 3):
        receipt = messages[place].ack(receipt=True)
        assert receipt is not None
        receipt.wait(SOON)
    first.disconnect()
    second = connecting(versions=version).subscribe(queue)
    back = [second.receive(timeout=SOON) for _ in range(2)]
    assert [(message.text, message.redelivered) for message in back] == [("0", True), ("2", True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cumulative_ack_covers_what_came_before(connecting: Connecting, queue: str, version: str) -> None:
    first = connecting(versions=version)
    subscription = first.subscribe(queue, ack="client")
    for number in range(3):
        first.send(queue, str(number), confirm=True)
    messages = [subscription.receive(timeout=SOON) for _ in range(3)]
    receipt = messages[1].ack(receipt=True)
    assert receipt is not None
    receipt.wait(SOON)
    with pytest.raises(stompy.AckError):
        messages[0].ack()
    first.disconnect()
    assert texts(connecting(versions=version).subscribe(queue), 1) == ["2"]


def test_an_automatic_subscription_consumes_by_receiving(connecting: Connecting, queue: str) -> None:
    first = connecting()
    subscription = first.subscribe(queue)
    first.send(queue, "x")
    message = subscription.receive(timeout=SOON)
    with pytest.raises(stompy.AckError, match="auto"):
        message.ack()
    first.disconnect()
    second = connecting()
    assert nothing_more(second, second.subscribe(queue))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_refused_message_ends_with_the_dead_letters(
    candidate: Candidate, connecting: Connecting, queue: str, version: str
) -> None:
    connection = connecting(versions=version)
    dead = connection.subscribe(candidate.dead_letters)
    subscription = connection.subscribe(queue, ack="client-individual")
    body = f"poison of {queue}"
    connection.send(queue, body, headers=candidate.headers)
    for delivery in range(candidate.redeliveries + 1):
        message = subscription.receive(timeout=SOON)
        assert message.redelivered is (delivery > 0)
        message.nack()
    while dead.receive(timeout=SOON).text != body:
        pass  # another test's
    assert nothing_more(connection, subscription)


def test_stomp_1_0_has_no_nack(connecting: Connecting, queue: str) -> None:
    connection = connecting(versions="1.0")
    subscription = connection.subscribe(queue, ack="client-individual")
    connection.send(queue, "x")
    message = subscription.receive(timeout=SOON)
    with pytest.raises(stompy.LocalProtocolError, match="NACK"):
        message.nack()
    message.ack()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_committed_transaction_happens_and_an_aborted_one_does_not(
    connecting: Connecting, queue: str, version: str
) -> None:
    connection = connecting(versions=version)
    subscription = connection.subscribe(queue)
    with connection.transaction() as transaction:
        transaction.send(queue, "1")
        transaction.send(queue, "2")
    with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send(queue, "never")
        raise ZeroDivisionError
    connection.send(queue, "3")
    assert texts(subscription, 3) == ["1", "2", "3"]


def test_an_aborted_transaction_that_had_left_does_not_happen(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    subscription = connection.subscribe(queue)
    with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:  # noqa: PT012 - the block
        for _ in range(3):
            transaction.send(queue, b"never" * 10_000)
        raise ZeroDivisionError
    assert nothing_more(connection, subscription)


def test_moving_a_message_is_all_or_nothing(connecting: Connecting, queue: str) -> None:
    first = connecting()
    source = first.subscribe(queue, ack="client-individual")
    first.send(queue, "moved")
    with first.transaction() as transaction:
        message = source.receive(timeout=SOON)
        transaction.send(f"{queue}.target", message.body)
        transaction.ack(message)
    first.disconnect()
    second = connecting()
    assert texts(second.subscribe(f"{queue}.target"), 1) == ["moved"]
    assert nothing_more(second, second.subscribe(queue))


def test_an_ack_in_an_aborted_transaction_can_be_given_again(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    subscription = connection.subscribe(queue, ack="client-individual")
    connection.send(queue, "x")
    message = subscription.receive(timeout=SOON)
    with pytest.raises(ZeroDivisionError), connection.transaction() as transaction:  # noqa: PT012 - the block
        transaction.ack(message)
        transaction.send(f"{queue}.large", b"x" * 70_000)  # so that it has left
        raise ZeroDivisionError
    receipt = message.ack(receipt=True)
    assert receipt is not None
    receipt.wait(SOON)
    connection.disconnect()
    second = connecting()
    assert nothing_more(second, second.subscribe(queue))


def test_a_transaction_open_at_disconnect_does_not_happen(connecting: Connecting, queue: str) -> None:
    first = connecting()
    transaction = first.transaction()
    transaction.__enter__()
    transaction.send(queue, b"never" * 20_000)
    first.disconnect()
    second = connecting()
    assert nothing_more(second, second.subscribe(queue))
