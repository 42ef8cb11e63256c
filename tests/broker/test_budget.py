from __future__ import annotations

from typing import Any

import pytest

from stompy.broker import BrokerLimits
from stompy.broker.message import StoredMessage
from stompy.broker.settings import ALLOWANCE, MemoryBudget, SessionBudget
from stompy.errors import LimitExceededError
from tests.broker.conftest import Serve, Served, a_message
from tests.support.peer import until


def test_what_does_not_fit_is_refused_and_not_counted() -> None:
    budget = MemoryBudget(10, 1_000)
    budget.take(6)
    with pytest.raises(LimitExceededError, match="max_store_bytes=10"):
        budget.take(5)
    assert budget.held == 6
    budget.take(5, force=True)
    budget.give_back(11)
    assert budget.held == 0


def test_a_message_counts_while_it_exists_and_so_does_its_copy() -> None:
    budget = MemoryBudget(1_000, 1_000)
    head = a_message(a="b").shared
    budget.take(head.size + 1)
    message = StoredMessage(head, b"x", budget)
    assert budget.held == message.size
    copy = message.with_head(message.shared.moved("/queue/b", ()))
    assert budget.held == message.size + copy.size
    del message
    assert budget.held == copy.size
    del copy
    assert budget.held == 0


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_a_full_broker_says_so_and_has_room_again_when_messages_are_consumed(serve: Serve, ack: str) -> None:
    served = serve(limits=BrokerLimits(max_store_bytes=10_000))
    sender = served.client()
    sender.send("/queue/a", b"x" * 4_000)
    sender.send("/queue/b", b"x" * 4_000)
    sender.say("SEND", {"destination": "/queue/c"}, b"x" * 4_000)
    assert "max_store_bytes=10000" in sender.error().headers["message"]
    taker = served.client()
    taker.subscribe("/queue/a", ack)
    (message,) = taker.messages(1)
    if ack != "auto":
        taker.ack(message)
    taker.sync()
    other = served.client()
    other.send("/queue/c", b"x" * 4_000)
    other.disconnect()


# What is kept beside messages

LONG = "x" * 20_000


def test_a_session_counts_for_all_with_what_passes_its_allowance() -> None:
    budget = MemoryBudget(10, 1_000)
    first, second = SessionBudget(budget, 10**6), SessionBudget(budget, 10**6)
    first.take(ALLOWANCE)
    assert budget.state == 0
    first.take(1_000)
    assert budget.state == 1_000
    second.take(ALLOWANCE)
    with pytest.raises(LimitExceededError, match="max_state_bytes=1000"):
        second.take(1)
    assert (second.held, budget.state) == (ALLOWANCE, 1_000)
    first.take(-500)
    second.take(1)
    first.close()
    first.close()
    assert (first.held, budget.state) == (0, 1)


def test_one_session_has_its_own_limit() -> None:
    budget = SessionBudget(MemoryBudget(10, 10**6), 100)
    budget.take(90)
    with pytest.raises(LimitExceededError, match="max_session_state_bytes=100"):
        budget.take(11)
    assert budget.held == 90


def test_the_frame_that_is_not_whole_counts_once() -> None:
    budget = SessionBudget(MemoryBudget(10, 10**6), 100)
    budget.take(50)
    budget.take_frame(40)
    budget.take_frame(50)
    assert budget.held == 100
    with pytest.raises(LimitExceededError):
        budget.take_frame(51)
    budget.take_frame(0)
    assert budget.held == 50


def state_of(served: Served) -> int:
    return served.broker._router.budget.state


@pytest.mark.parametrize("limit", ["max_state_bytes", "max_session_state_bytes"])
def test_who_makes_the_broker_keep_too_much_is_told_and_others_are_served(serve: Serve, limit: str) -> None:
    limits: dict[str, Any] = {limit: 1_000_000}
    served = serve(limits=BrokerLimits(**limits))
    holder, other = served.client(), served.client()
    for number in range(5):
        holder.subscribe("/queue/a", id=f"{number}{LONG}")
    for number in range(10):
        holder.say("SUBSCRIBE", {"destination": "/queue/a", "id": f"1{number}{LONG}"})
    assert f"(limit {limit}=1000000)" in holder.error().headers["message"]
    until(lambda: state_of(served) == 0)
    other.subscribe("/queue/b", id="1")
    other.send("/queue/b", "x")
    assert other.bodies(1) == ["x"]


@pytest.mark.parametrize("mode", ["auto", "client"])
@pytest.mark.parametrize("like", [None, "rabbitmq"])
def test_an_id_counts_until_its_subscription_is_over_and_nothing_of_it_is_unacknowledged(
    serve: Serve, like: str | None, mode: str
) -> None:
    served = serve(like=like)
    for _ in range(3):
        client = served.client(host="/")
        client.subscribe("/queue/a", mode, id=LONG)
        assert state_of(served) > 30_000
        client.send("/queue/a", "x")
        client.messages(1)
        client.sure("UNSUBSCRIBE", {"id": LONG})
        if mode == "client" and like == "rabbitmq":  # it gives back what it has delivered when the session ends
            assert state_of(served) > 30_000
            client.close()
            until(lambda: state_of(served) == 0)
        assert state_of(served) == 0


@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_the_id_of_a_transaction_counts_until_it_is_over(served: Served, end: str) -> None:
    client = served.client()
    for _ in range(3):
        ids = [f"{number}{LONG}" for number in range(3)]
        for one in ids:
            client.sure("BEGIN", {"transaction": one})
        assert state_of(served) > 30_000
        for one in ids:
            client.sure(end, {"transaction": one})
        assert state_of(served) == 0


def test_an_unfinished_frame_counts_until_it_is_whole(served: Served) -> None:
    client = served.client()
    client.raw(b"SEND\ndestination:/queue/a\ncontent-length:500000\n\n" + b"x" * 400_000)
    until(lambda: state_of(served) > 400_000 - ALLOWANCE)
    client.raw(b"x" * 100_000 + b"\0")
    until(lambda: served.depth("/queue/a") == (1, 0) and state_of(served) == 0)


def test_what_a_client_had_is_free_when_it_is_gone(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", id=LONG)
    client.sure("BEGIN", {"transaction": LONG})
    client.raw(b"SEND\ndestination:/queue/a\ncontent-length:500000\n\n" + b"x" * 100_000)
    until(lambda: state_of(served) > 100_000)
    client.close()
    until(lambda: state_of(served) == 0)


def test_the_name_of_a_queue_counts_until_it_is_empty_and_nobody_listens(served: Served) -> None:
    client = served.client()
    client.send(f"/queue/{LONG}", "x")
    assert (
        state_of(served) > 3 * 20_000 - 3 * 1_024
    )  # the queue's name, and the head and the destination of the message
    client.subscribe(f"/queue/{LONG}", id="1")
    client.messages(1)
    client.sync()
    assert 19_000 < state_of(served) < 60_000
    client.sure("UNSUBSCRIBE", {"id": "1"})
    assert state_of(served) == 0
    assert served.broker.stats().queues == {}


def test_the_usual_counts_for_nothing(served: Served) -> None:
    client = served.client()
    for number in range(20):
        client.subscribe(f"/queue/{number}", "client", id=str(number))
        client.send(f"/queue/{number}", "x" * 10_000)
    assert state_of(served) == 0


def test_deliveries_of_one_session_that_wait_for_their_ack_are_bounded(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_session_state_bytes=512 * 20))
    client = served.client()
    for queue in "ab":
        client.subscribe(f"/queue/{queue}", "client-individual", id=queue, prefetch_count="0")
        client.send(f"/queue/{queue}", *"0123456789" * 2)
    assert (served.depth("/queue/a"), served.depth("/queue/b")) == ((0, 20), (20, 0))
    for message in client.messages(20):
        client.ack(message)
    assert len(client.messages(20)) == 20
