"""Topics: who gets a message, and what is kept for a durable subscriber."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stompy.broker import BrokerLimits
from tests.broker.conftest import Serve, Served
from tests.support.peer import until

# Topics


def test_a_topic_reaches_every_live_subscription_and_keeps_nothing(served: Served) -> None:
    clients = [served.client(version) for version in ("1.0", "1.1", "1.2")]
    clients[0].send("/topic/a", "nobody hears this")
    for client in clients:
        client.subscribe("/topic/a")
    clients[0].send("/topic/a", *[str(number) for number in range(100)], **{"odd": "a:b\\c"})
    for client in clients:
        messages = client.messages(100)
        assert [message.body.decode() for message in messages] == [str(number) for number in range(100)]
        assert {message.headers["odd"] for message in messages} == {"a:b\\c"}
    late = served.client()
    late.subscribe("/topic/a")
    assert late.idle()


def test_unacknowledged_topic_messages_end_with_their_session(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", "client")
    client.send("/topic/a", "x")
    client.messages(1)
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    assert dict(served.broker.stats().queues) == {}


def test_prefetch_holds_topic_messages_back_and_loses_none(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", "client-individual", prefetch_count="1")
    client.send("/topic/a", *"123")
    for body in "123":
        message = client.expect("MESSAGE")
        assert message.body.decode() == body
        client.ack(message)


@pytest.mark.parametrize("options", [{"max_backlog_messages": 5}, {"max_backlog_bytes": 600}])
def test_a_topic_subscriber_that_is_too_slow_is_ended_with_an_error_that_says_so(
    serve: Serve, options: dict[str, Any]
) -> None:
    served = serve(limits=BrokerLimits(**options))
    slow, sender = served.client(), served.client()
    slow.subscribe("/topic/a", "client", prefetch_count="1")
    slow.subscribe("/queue/q", "client", id="2")
    sender.send("/queue/q", "in its hands")
    sender.send("/topic/a", "in its hands")
    slow.messages(2)
    for _ in range(8):
        sender.send("/topic/a", b"x" * 100)
    assert "too slow" in slow.error().headers["message"]
    assert served.depth("/queue/q") == (1, 0)
    sender.subscribe("/topic/a")
    sender.send("/topic/a", "the others go on")
    assert sender.bodies(1) == ["the others go on"]


def test_a_burst_to_a_topic_is_no_fault_of_a_subscriber_that_keeps_up(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_backlog_messages=2))
    reader, sender = served.client(), served.client()
    reader.subscribe("/topic/a")
    sender.raw(b"".join(sender.encoded("SEND", {"destination": "/topic/a"}, str(n).encode()) for n in range(100)))
    assert reader.bodies(100) == [str(number) for number in range(100)]


def test_a_topic_subscriber_that_reads_nothing_is_ended_while_the_sender_goes_on(serve: Serve) -> None:
    served = serve(capacity=1_000, limits=BrokerLimits(max_outbox_bytes=2_000, max_backlog_messages=10, linger=0.05))
    deaf, sender = served.client(), served.client()
    deaf.subscribe("/topic/a")
    for _ in range(50):
        sender.send("/topic/a", b"x" * 500)
    assert (served.broker.stats().sessions, served.broker.stats().errors) == (1, 1)
    until(lambda: "stompy-broker-1-reader" not in {thread.name for thread in threading.enumerate()})


def test_the_error_stands_before_what_a_slow_subscriber_has_not_fetched(serve: Serve) -> None:
    served = serve(capacity=1_000, limits=BrokerLimits(max_outbox_bytes=100_000, max_backlog_messages=10, linger=20.0))
    slow, sender = served.client(), served.client()
    slow.subscribe("/topic/a")
    sender.send("/topic/a", b"x" * 2_000)
    served.until(lambda stats: stats.messages_out == 1)
    while served.broker.stats().sessions == 2:
        sender.send("/topic/a", b"x" * 2_000)
    frames = slow.rest()
    assert frames[-1].command == "ERROR"
    assert len(frames) < 40


def test_a_sender_that_is_its_own_slow_subscriber_is_ended_once(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_backlog_messages=2))
    client = served.client()
    client.subscribe("/topic/a", "client", id="1", prefetch_count="1")
    client.subscribe("/topic/a", "client", id="2", prefetch_count="1")
    client.sure("BEGIN", {"transaction": "t"})
    for number in range(6):
        client.say("SEND", {"destination": "/topic/a", "transaction": "t"}, str(number).encode())
    client.say("SEND", {"destination": "/queue/q", "transaction": "t"}, b"x")
    client.say("COMMIT", {"transaction": "t"})
    frames = client.rest()
    assert [frame.command for frame in frames].count("ERROR") == 1
    assert frames[-1].command == "ERROR"
    assert served.depth("/queue/q") == (1, 0)
