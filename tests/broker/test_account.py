"""What a session has not settled, and what an ACK takes out of it."""

from __future__ import annotations

import pytest

from stompy.broker.account import Account
from stompy.broker.message import Item
from stompy.errors import RemoteProtocolError
from tests.broker.conftest import a_consumer, a_message, a_queue, an_account


def _with_deliveries(mode: str) -> Account:
    account, queue = an_account(), a_queue()
    consumer = a_consumer(account, queue, mode=mode)
    for order in range(3):
        consumer.deliver(Item(a_message(), order))
    return account


@pytest.mark.requirement("ACK-05", "ACK-07")
@pytest.mark.parametrize(("mode", "orders"), [("client", [0, 1]), ("client-individual", [1])])
def test_the_mode_of_the_subscription_says_how_far_an_ack_reaches(mode: str, orders: list[int]) -> None:
    entries = _with_deliveries(mode).take("ack-k-2", subscription=None)
    assert [entry.item.item.order for entry in entries] == orders


@pytest.mark.requirement("A-35", "A-43")
@pytest.mark.parametrize(("token", "subscription"), [("ack-k-9", None), ("k-1", None), ("ack-k-1", "2")])
def test_a_wrong_ack_takes_nothing(token: str, subscription: str | None) -> None:
    account = _with_deliveries("client")
    with pytest.raises(RemoteProtocolError):
        account.take(token, subscription=subscription)
    assert len(account.ledger) == 3


def test_the_right_subscription_is_accepted() -> None:
    account = _with_deliveries("client-individual")
    account.take("ack-k-1", subscription="1")
    assert len(account.ledger) == 2
