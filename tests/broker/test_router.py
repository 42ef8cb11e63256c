"""Where messages go: order, turns, redelivery, dead letters, topics, full queues."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest

from stompy.broker import BrokerLimits
from tests.broker.conftest import Serve, Served
from tests.support.rawclient import RawClient

# Queues


def test_a_queue_keeps_its_order_for_a_late_consumer(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", *[str(number) for number in range(500)])
    client.subscribe("/queue/a")
    assert client.bodies(500) == [str(number) for number in range(500)]


def test_competing_consumers_take_turns_and_each_message_goes_to_one(served: Served) -> None:
    clients = [served.client() for _ in range(3)]
    for client in clients:
        client.subscribe("/queue/a", "client")
    clients[0].send("/queue/a", *[str(number) for number in range(9)])
    taken = [client.bodies(3) for client in clients]
    assert taken == [["0", "3", "6"], ["1", "4", "7"], ["2", "5", "8"]]


def test_two_subscriptions_of_one_session_compete_too(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", id="1")
    client.subscribe("/queue/a", id="2")
    client.send("/queue/a", *"1234")
    assert [message.headers["subscription"] for message in client.messages(4)] == ["1", "2", "1", "2"]


def test_a_consumer_without_room_is_skipped(served: Served) -> None:
    busy, free = served.client(), served.client()
    busy.subscribe("/queue/a", "client-individual", prefetch_count="1")
    free.subscribe("/queue/a", "client-individual")
    free.send("/queue/a", *"12345")
    assert free.bodies(4) == ["2", "3", "4", "5"]
    busy.ack(busy.expect("MESSAGE"))
    free.send("/queue/a", "6")
    free.send("/queue/a", "7")
    assert sorted(busy.bodies(1) + free.bodies(1)) == ["6", "7"]


def test_a_forgotten_queue_leaves_nothing_behind(served: Served) -> None:
    client = served.client()
    for number in range(50):
        client.subscribe(f"/queue/{number}", id=str(number))
        client.send(f"/queue/{number}", "x")
        client.messages(1)
        client.sure("UNSUBSCRIBE", {"id": str(number)})
        client.subscribe(f"/topic/{number}", id=str(number))
        client.sure("UNSUBSCRIBE", {"id": str(number)})
    stats = served.broker.stats()
    assert (dict(stats.queues), dict(stats.topics), stats.subscriptions) == ({}, {}, 0)


@pytest.mark.requirement("SND-07")
@pytest.mark.parametrize("options", [{"max_queue_messages": 3}, {"max_queue_bytes": 3 * 60}])
def test_a_send_into_a_full_queue_is_an_error(serve: Serve, options: dict[str, Any]) -> None:
    served = serve(limits=BrokerLimits(**options))
    client = served.client()
    client.send("/queue/a", *[b"x" * 20] * 3)
    client.say("SEND", {"destination": "/queue/a", "receipt": "r"}, b"x" * 20)
    error = client.error()
    assert (error.headers["receipt-id"], "is full" in error.headers["message"]) == ("r", True)
    assert served.depth("/queue/a") == (3, 0)


def test_a_queue_whose_consumer_keeps_up_is_not_full(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=2))
    client = served.client()
    client.subscribe("/queue/a")
    client.raw(b"".join(client.encoded("SEND", {"destination": "/queue/a"}, str(n).encode()) for n in range(100)))
    assert client.bodies(100) == [str(number) for number in range(100)]


# Redelivery


@pytest.mark.requirement("ACK-15", "A-19")
def test_a_nacked_message_goes_back_before_later_ones(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual", prefetch_count="2")
    client.send("/queue/a", *"12345")
    first, second = client.messages(2)
    client.nack(second)
    assert client.bodies(1) == ["2"]
    client.ack(first)
    assert client.bodies(1) == ["3"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_nacked_messages_come_back_in_their_original_order(served: Served, order: tuple[int, ...]) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual", id="1", prefetch_count="4")
    client.send("/queue/a", *"1234")
    messages = client.messages(4)
    client.say("BEGIN", {"transaction": "t"})
    for index in order:
        client.nack(messages[index], transaction="t")
    client.say("COMMIT", {"transaction": "t"})
    assert client.bodies(3) == ["1", "2", "3"]
    assert served.depth("/queue/a") == (0, 4)


def test_what_a_lost_session_had_comes_back_in_order_before_the_rest(served: Served) -> None:
    client, other = served.client(), served.client()
    client.subscribe("/queue/a", "client-individual", prefetch_count="4")
    client.send("/queue/a", *"123456")
    messages = client.messages(4)
    client.ack(messages[1])
    client.bodies(1)
    client.close()
    served.until(lambda stats: stats.sessions == 1)
    other.subscribe("/queue/a", "client")
    again = other.messages(5)
    assert [message.body for message in again] == [b"1", b"3", b"4", b"5", b"6"]
    assert [message.headers.get("redelivered") for message in again] == ["true"] * 4 + [None]


def test_what_was_never_written_comes_back_without_redelivered(serve: Serve) -> None:
    served = serve(capacity=1_000)
    stuck, other = served.client(), served.client()
    stuck.subscribe("/queue/a", "auto", id="1")
    # More than one write takes, however late its thread is.
    other.send("/queue/a", *[str(number).encode() + b"x" * 10_000 for number in range(100)])
    served.until(lambda stats: stats.messages_out == 100)
    stuck.close()
    served.until(lambda stats: stats.sessions == 1)
    other.subscribe("/queue/a", "client")
    left = served.depth("/queue/a")[1]
    assert left > 50
    messages = other.messages(left)
    numbers = [int(message.body.rstrip(b"x")) for message in messages]
    assert numbers == list(range(100 - left, 100))
    assert not any("redelivered" in message.headers for message in messages)


def test_what_was_never_written_comes_back_after_unsubscribe_too(serve: Serve) -> None:
    served = serve(capacity=1_000)
    stuck, other = served.client(), served.client()
    stuck.subscribe("/queue/a", "auto", id="1")
    other.send("/queue/a", *[str(number).encode() + b"x" * 10_000 for number in range(100)])
    stuck.say("UNSUBSCRIBE", {"id": "1"})
    served.until(lambda stats: stats.subscriptions == 0)
    assert "/queue/a" not in served.broker.stats().queues
    other.send("/queue/a", "later")
    stuck.close()
    served.until(lambda stats: stats.sessions == 1)
    left = served.broker.depth("/queue/a")
    assert left > 50
    other.subscribe("/queue/a")
    assert other.messages(left)[-1].body == b"later"


def test_a_lost_link_does_not_count_as_a_nack(serve: Serve) -> None:
    served = serve(attempts=2)
    for _ in range(4):
        client = served.client()
        client.subscribe("/queue/a", "client")
        if not served.broker.stats().messages_in:
            client.send("/queue/a", "x")
        client.messages(1)
        client.close()
        served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (1, 0)


# Dead letters


def test_without_a_limit_of_attempts_a_message_is_delivered_again_each_time(serve: Serve) -> None:
    served = serve(attempts=None)
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "x")
    for _ in range(12):
        client.nack(client.expect("MESSAGE"))
    client.ack(client.expect("MESSAGE"))
    assert client.idle()
    assert served.broker.stats().dead_lettered == 0


@pytest.mark.parametrize("limit", [0, 1, 6])
def test_after_so_many_redeliveries_a_nack_moves_the_message_to_the_dead_letter_queue(serve: Serve, limit: int) -> None:
    served = serve(attempts=limit + 1)
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "poison", **{"x-id": "7", "content_type": "text/plain", "original_destination": "forged"})
    for _ in range(limit + 1):
        client.nack(client.expect("MESSAGE"))
    assert client.idle()
    assert (served.depth("/queue/a"), served.broker.depth("/queue/DLQ")) == ((0, 0), 1)
    client.subscribe("/queue/DLQ", id="dead")
    dead = client.expect("MESSAGE")
    assert dead.body == b"poison"
    assert dead.headers["destination"] == "/queue/DLQ"
    assert dead.headers.getall("original-destination") == ("/queue/a",)
    assert dead.headers["delivery-count"] == str(limit + 1)
    assert (dead.headers["x-id"], dead.headers["content-type"]) == ("7", "text/plain")
    assert "redelivered" not in dead.headers
    assert served.broker.stats().dead_lettered == 1


def test_the_dead_letter_queue_can_have_another_name(serve: Serve) -> None:
    served = serve(attempts=1, dead_letter="the dead")
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2")
    client.nack(client.messages(2)[1])
    assert served.broker.depth("the dead") == 2


def test_a_nacked_topic_message_goes_to_the_dead_letter_queue_at_once(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", "client")
    client.send("/topic/a", "x")
    client.nack(client.expect("MESSAGE"))
    client.subscribe("/queue/DLQ", id="dead")
    assert client.expect("MESSAGE").headers["original-destination"] == "/topic/a"


def test_a_message_refused_as_a_dead_letter_is_given_up_with_a_warning(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(attempts=1)
    client = served.client()
    client.subscribe("/queue/DLQ", "client")
    client.send("/queue/DLQ", "x")
    with caplog.at_level(logging.WARNING, "stompy.broker"):
        client.nack(client.expect("MESSAGE"))
    assert "is discarded" in caplog.text
    assert (served.broker.stats().discarded, served.depth("/queue/DLQ")) == (1, (0, 0))


@pytest.mark.parametrize(
    ("like", "how"),
    [
        *itertools.product([None, "activemq"], ["client", "client-individual", "expired"]),
        (None, "transaction"),  # ActiveMQ has no NACK in one
    ],
)
def test_a_full_dead_letter_queue_takes_what_was_given_up_and_refuses_others(
    serve: Serve, how: str, like: str | None
) -> None:
    limits = BrokerLimits(max_queue_messages=3, max_store_bytes=2000)
    served = serve(like=like, attempts=1, expired="/queue/DLQ", limits=limits)
    dead = "/queue/ActiveMQ.DLQ" if like else "/queue/DLQ"
    client = served.client()
    client.send(dead, "1", "2", "3", persistent="true")
    if how == "expired":
        client.send("/queue/a", "4", "5", persistent="true", expires="1")
    client.subscribe("/queue/a", "client-individual" if how == "client-individual" else "client")
    if how != "expired":
        client.send("/queue/a", "4", "5", persistent="true")
        messages = client.messages(2)
        named = {"transaction": "t"} if how == "transaction" else {}
        if named:
            client.sure("BEGIN", named)
        for message in messages if how == "client-individual" or like else messages[1:]:
            client.nack(message, **named)
        if named:
            client.sure("COMMIT", named)
    served.until(lambda stats: stats.queues[dead].ready == 5)
    stats = served.broker.stats()
    assert (stats.discarded, served.depth("/queue/a"), stats.expired) == (0, (0, 0), 2 * (how == "expired"))
    served.broker.restart()
    other = served.client()
    other.say("SEND", {"destination": dead}, b"x")
    assert "full" in other.expect("ERROR").headers["message"]
    again = served.client()
    again.subscribe(dead, "client")
    assert sorted(again.bodies(5)) == ["1", "2", "3", "4", "5"]


def test_a_full_dead_letter_queue_takes_what_was_delivered_too_often(serve: Serve) -> None:
    served = serve(like="artemis", limits=BrokerLimits(max_queue_messages=1))
    served.client("1.1").send("/queue/DLQ", "full")
    served.client("1.1").send("/queue/a", "x")
    for _ in range(10):
        client = served.client("1.1")
        client.subscribe("/queue/a", "client")
        client.messages(1)
        client.close()
        served.until(lambda stats: "/queue/a" not in stats.queues or not stats.queues["/queue/a"].unacked)
    served.until(lambda stats: stats.queues["/queue/DLQ"].ready == 2)
    assert served.broker.stats().discarded == 0


@pytest.mark.requirement("A-04")
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a"])
def test_a_header_that_the_subscribers_version_cannot_write_makes_a_dead_letter(
    served: Served, destination: str
) -> None:
    old, new = served.client("1.0"), served.client("1.2")
    old.sure("SUBSCRIBE", {"destination": destination, "id": "1"})
    new.send(destination, "x", odd="two\nlines")
    new.send(destination, "y", plain="one:line")
    message = old.expect("MESSAGE")
    assert (message.body, message.headers["plain"]) == (b"y", "one:line")
    new.subscribe("/queue/DLQ", id="dead")
    assert new.expect("MESSAGE").headers["odd"] == "two\nlines"


# A full write_queue


@pytest.mark.parametrize("mode", ["auto", "client"])
def test_a_queue_consumer_that_does_not_read_gets_no_more_than_its_outbox_holds(serve: Serve, mode: str) -> None:
    served = serve(capacity=1_000, limits=BrokerLimits(max_outbox_bytes=5_000, prefetch=100_000))
    slow, sender = served.client(), served.client()
    slow.subscribe("/queue/a", mode)
    sender.send("/queue/a", *[str(number).encode().rjust(500) for number in range(300)])
    assert served.broker.stats().messages_out < 50
    other = served.client()
    other.subscribe("/queue/a", "client", prefetch_count="10")
    assert len(other.messages(10)) == 10
    assert served.depth("/queue/a")[0] > 200
    other.close()
    served.until(lambda stats: stats.sessions == 2)
    numbers = [int(body) for body in slow.bodies(300)]
    assert sorted(numbers) == list(range(300))
    assert served.depth("/queue/a")[0] == 0


def test_acks_are_taken_from_a_client_that_does_not_read(serve: Serve) -> None:
    served = serve(capacity=1_000, limits=BrokerLimits(max_outbox_bytes=5_000))
    client, sender = served.client(), served.client()
    client.subscribe("/queue/a", "client")
    sender.send("/queue/a", "first")
    first = client.expect("MESSAGE")
    sender.send("/queue/a", *[b"x" * 500] * 100)
    client.settle(first)
    served.until(lambda stats: stats.queues["/queue/a"].unacked == stats.messages_out - 1)
    assert len(client.messages(100)) == 100


def test_a_message_larger_than_the_outbox_still_passes(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_outbox_bytes=1_000))
    client = served.client()
    client.subscribe("/queue/a")
    client.say("SEND", {"destination": "/queue/a"}, b"x" * 1_000_000)
    client.say("SEND", {"destination": "/queue/a"}, b"y")
    assert [len(message.body) for message in client.messages(2)] == [1_000_000, 1]


# Sessions that end


def _in_every_state(served: Served) -> list[RawClient]:
    silent = served.dial()
    half = served.dial()
    half.raw(b"CONNECT\naccept-vers")
    connected = served.client()
    inside = served.client()
    inside.raw(b"SEND\ndestination:/queue/a\ncontent-length:100\n\nabc")
    holding = served.client()
    holding.subscribe("/queue/q", "client")
    holding.send("/queue/q", "1", "2")
    holding.messages(2)
    holding.sure("BEGIN", {"transaction": "t"})
    holding.say("SEND", {"destination": "/queue/t", "transaction": "t"}, b"x")
    gone = served.client()
    gone.say("DISCONNECT")
    failed = served.client()
    failed.raw(b"NONSENSE\n\n\0")
    return [silent, half, connected, inside, holding, gone, failed]


@pytest.mark.requirement("DIS-01", "TXN-07")
@pytest.mark.parametrize("way", ["close", "half_close"])
def test_a_client_may_go_away_in_any_state(served: Served, way: str) -> None:
    for client in _in_every_state(served):
        getattr(client, way)()
    served.until(lambda stats: stats.sessions == 0)
    stats = served.broker.stats()
    assert {name: depth.ready for name, depth in stats.queues.items()} == {"/queue/q": 2}
    assert (stats.subscriptions, stats.transactions) == (0, 0)


def test_what_comes_back_at_a_stop_is_not_given_to_the_next(served: Served) -> None:
    clients = [served.client() for _ in range(10)]
    for client in clients:
        client.subscribe("/queue/a", "client", prefetch_count="100")
    clients[0].send("/queue/a", *[b"x"] * 100)
    for client in clients:
        client.messages(10)
    served.broker.close()
    assert [client.rest() for client in clients] == [[]] * 10
    assert served.depth("/queue/a") == (100, 0)


def test_the_broker_may_stop_with_clients_in_any_state(served: Served) -> None:
    clients = _in_every_state(served)
    served.broker.close()
    assert served.broker.stats().sessions == 0
    assert served.depth("/queue/q") == (2, 0)
    for client in clients:
        assert all(frame.command in ("ERROR", "MESSAGE", "RECEIPT") for frame in client.rest())
