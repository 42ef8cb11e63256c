"""Priorities, expiry, delays, duplicates, dead letters, and what outlives a restart."""

from __future__ import annotations

import pytest

from stompy.broker import BrokerLimits
from tests.broker.conftest import Serve, Served


def test_higher_priorities_go_first_and_equal_ones_in_their_order(served: Served) -> None:
    client = served.client()
    for body, priority in (("1", "1"), ("9", "9"), ("5", "5"), ("9 again", "9")):
        client.send("/queue/a", body, priority=priority)
    client.send("/queue/a", "usual")
    client.subscribe("/queue/a")
    assert client.bodies(5) == ["9", "9 again", "5", "usual", "1"]


def test_an_expired_message_is_not_delivered_and_not_counted(serve: Serve) -> None:
    served = serve(expired="/queue/late")
    client = served.client()
    client.send("/queue/a", "past", expires="1")
    client.send("/queue/a", "soon", expiration="5000000", x="1")
    client.send("/queue/a", "stays")
    assert served.depth("/queue/a") == (2, 0)
    served.broker.clock.advance(6_000)
    assert served.depth("/queue/a") == (1, 0)
    client.subscribe("/queue/late")
    past, soon = client.messages(2)
    assert past.headers["dead-letter-reason"] == soon.headers["dead-letter-reason"] == "expired"
    assert (soon.headers["original-destination"], soon.headers["x"]) == ("/queue/a", "1")
    assert "expiration" not in soon.headers
    assert served.broker.stats().expired == 2


def test_expired_messages_are_dropped_by_default(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "x", expiration="1000000")
    client.subscribe("/topic/t", prefetch_count="1")
    served.broker.clock.advance(2_000)
    assert served.broker.stats().queues == {}


def test_a_message_that_expires_while_it_waits_for_its_ack_is_not_taken_away(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x", expiration="1000000")
    (message,) = client.messages(1)
    served.broker.clock.advance(2_000)
    client.ack(message)
    client.sync()
    assert (served.broker.stats().expired, served.depth("/queue/a")) == (0, (0, 0))


def test_a_delayed_message_of_a_transaction_waits_for_its_commit(served: Served) -> None:
    client = served.client()
    client.say("BEGIN", {"transaction": "t"})
    client.send("/topic/a", "x", **{"AMQ_SCHEDULED_DELAY": "1000000", "transaction": "t"})
    client.subscribe("/topic/a")
    assert served.broker.stats().scheduled == 0
    client.sure("COMMIT", {"transaction": "t"})
    assert served.broker.stats().scheduled == 1
    served.broker.clock.advance(1_000)
    assert client.bodies(1) == ["x"]


def test_too_many_delayed_messages_are_refused(serve: Serve) -> None:
    client = serve(limits=BrokerLimits(max_queue_messages=2)).client()
    client.send("/queue/a", "1", "2", **{"AMQ_SCHEDULED_DELAY": "1000000"})
    client.say("SEND", {"destination": "/queue/b", "AMQ_SCHEDULED_DELAY": "1000000"})
    assert "too many delayed messages" in client.error().headers["message"]


def test_a_message_is_dropped_whose_dedupe_id_was_seen(served: Served) -> None:
    client = served.client()
    for destination in ("/queue/a", "/queue/a", "/queue/b"):
        client.send(destination, "x", **{"_AMQ_DUPL_ID": "1"})
    assert [served.depth(queue) for queue in ("/queue/a", "/queue/b")] == [(1, 0), (1, 0)]
    assert served.broker.stats().duplicates == 1


def test_a_message_is_taken_whose_first_copy_was_refused(serve: Serve) -> None:
    served = serve(limits=BrokerLimits(max_queue_messages=1))
    client = served.client()
    client.send("/queue/a", "other")
    client.say("SEND", {"destination": "/queue/a", "_AMQ_DUPL_ID": "1"})
    assert "max_queue_messages" in client.error().headers["message"]
    served.broker.purge("/queue/a")
    served.client().send("/queue/a", "x", **{"_AMQ_DUPL_ID": "1"})
    assert served.depth("/queue/a") == (1, 0)


def test_a_transaction_with_a_dedupe_id_that_was_seen_cannot_be_committed(served: Served) -> None:
    client = served.client()
    client.send("/queue/a", "x", **{"_AMQ_DUPL_ID": "1"})
    client.say("BEGIN", {"transaction": "t"})
    for identity in "21":
        client.send("/queue/a", "y", **{"_AMQ_DUPL_ID": identity, "transaction": "t"})
    client.say("COMMIT", {"transaction": "t"})
    assert "duplicate" in client.error().headers["message"]
    assert served.depth("/queue/a") == (1, 0)


def test_of_two_open_transactions_with_one_dedupe_id_both_are_committed(served: Served) -> None:
    client = served.client()
    for name in "tu":
        client.say("BEGIN", {"transaction": name})
        client.send("/queue/a", name, **{"_AMQ_DUPL_ID": "1", "transaction": name})
    for name in "tu":
        client.sure("COMMIT", {"transaction": name})
    client.send("/queue/a", "again", **{"_AMQ_DUPL_ID": "1"})
    assert served.depth("/queue/a") == (2, 0)


def test_a_dead_letter_says_why_and_where_from_and_how_often(serve: Serve) -> None:
    served = serve(attempts=2)
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    for _ in range(2):
        client.nack(client.messages(1)[0])
    client.subscribe("/queue/DLQ", id="2")
    letter = client.expect("MESSAGE")
    assert letter.headers["dead-letter-reason"] == "refused by its consumer"
    assert letter.headers["original-destination"] == "/queue/a"
    assert letter.headers["delivery-count"] == "2"


def test_a_message_delivered_again_says_how_often(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    counts = []
    for _ in range(3):
        (message,) = client.messages(1)
        counts.append((message.headers.get("redelivered"), message.headers.get("redelivery-count")))
        client.nack(message)
    assert counts == [(None, None), ("true", "1"), ("true", "2")]


@pytest.mark.parametrize("again", ["restart", "stop and start"])
def test_only_a_message_that_asks_for_it_is_gone_after_a_restart(serve_tcp: Serve, again: str) -> None:
    served = serve_tcp()
    client = served.client()
    client.send("/queue/a", "usual")
    client.send("/queue/a", "kept", persistent="true")
    client.send("/queue/a", "lost", persistent="false")
    client.send("/queue/a", "lost later", persistent="false", AMQ_SCHEDULED_DELAY="1000000")
    if again == "restart":
        served.broker.restart()
    else:
        served.broker.close()
        served.broker.start()
    client = served.client()
    served.broker.clock.advance(2_000)
    client.subscribe("/queue/a")
    assert client.bodies(2) == ["usual", "kept"]
    assert served.depth("/queue/a") == (0, 0)
