"""What a session has not settled, and what an ACK takes out of it."""

from __future__ import annotations

import pytest

from stompy.broker.session_state import SessionState
from stompy.errors import RemoteProtocolError
from tests.broker.conftest import a_consumer, a_queue, a_session_state, an_item


def _with_deliveries(mode: str) -> SessionState:
    session, queue = a_session_state(), a_queue()
    consumer = a_consumer(session, queue, mode=mode)
    for order in range(3):
        consumer.deliver(an_item(order, queue))
    return session


@pytest.mark.requirement("ACK-05", "ACK-07")
@pytest.mark.parametrize(("mode", "orders"), [("client", [0, 1]), ("client-individual", [1])])
def test_the_mode_of_the_subscription_says_how_far_an_ack_reaches(mode: str, orders: list[int]) -> None:
    entries = _with_deliveries(mode).take("ack-k-2", subscription=None)
    assert [entry.item.item.order for entry in entries] == orders


@pytest.mark.requirement("A-35", "A-43")
@pytest.mark.parametrize(("token", "subscription"), [("ack-k-9", None), ("k-1", None), ("ack-k-1", "2")])
def test_a_wrong_ack_takes_nothing(token: str, subscription: str | None) -> None:
    session = _with_deliveries("client")
    with pytest.raises(RemoteProtocolError):
        session.take(token, subscription=subscription)
    assert len(session.ledger) == 3


def test_the_right_subscription_is_accepted() -> None:
    session = _with_deliveries("client-individual")
    session.take("ack-k-1", subscription="1")
    assert len(session.ledger) == 2
