"""What the console can ask, over STOMP, as its page does."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.broker.console.conftest import Ask, asks, console_ws, until


def test_the_overview_has_queues_topics_and_connections(broker: Broker, client: Connection, ask: Ask) -> None:
    client.subscribe("/queue/a", ack="client-individual")
    client.subscribe("/topic/t", ack="auto")
    client.send("/queue/a", "x", confirm=True)
    client.send("/topic/t", "x", confirm=True)
    client.send("/queue/b", "x", confirm=True)
    broker.pause("/queue/b")
    overview = ask("overview")["result"]
    queues = {row["name"]: row for row in rows(overview, "queues")}
    assert {name: row["paused"] for name, row in queues.items()} == {"/queue/a": False, "/queue/b": True}
    assert depths(queues["/queue/a"]) == (0, 1, 1)
    assert depths(queues["/queue/b"]) == (1, 0, 0)
    (topic,) = rows(overview, "topics")
    assert (topic["name"], *depths(topic)) == ("/topic/t", 0, 0, 1)
    (connection,) = overview["connections"]
    assert (connection["version"], connection["unacked"]) == ("1.2", 1)
    assert connection["subscriptions"] == ["/queue/a", "/topic/t"]
    assert connection["heartbeat"] == [10.0, 10.0]
    assert connection["last_frame"][0] == "SEND"
    assert overview["counters"]["messages_in"] == 3


def rows(overview: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the rows of the overview, by the names of their columns."""
    return [dict(zip(overview["columns"], row, strict=True)) for row in overview[kind]]


def depths(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["ready"], row["unacked"], row["consumers"]


def counts(ask: Ask, name: str, kind: str = "queues") -> dict[str, int]:
    """Return the counters of a destination that are not 0."""
    overview = ask("overview")["result"]
    (found,) = [row for row in rows(overview, kind) if row["name"] == name]
    rest = ("name", "ready", "unacked", "consumers", "paused")
    return {column: value for column, value in found.items() if value and column not in rest}


def test_a_refused_message_that_comes_back_is_not_enqueued_again() -> None:
    with (
        Broker(console=True, attempts=None) as broker,
        connect(broker.url) as client,
        connect(console_ws(broker)) as page,
    ):
        subscription = client.subscribe("/queue/a", ack="client-individual")
        client.send("/queue/a", "x", confirm=True)
        for _ in range(3):
            subscription.receive(timeout=20).nack(confirm=True)
        subscription.receive(timeout=20).ack(confirm=True)
        assert counts(asks(page), "/queue/a") == {"enqueued": 1, "delivered": 4, "acknowledged": 1}


def test_what_is_sent_and_purged_between_two_looks_is_counted(broker: Broker, client: Connection, ask: Ask) -> None:
    with client.batch():
        for _ in range(5000):
            client.send("/queue/a", "x")
    client.send("/queue/a", "x", confirm=True)
    assert broker.purge("/queue/a") == 5001
    assert counts(ask, "/queue/a") == {"enqueued": 5001, "removed": 5001}
    client.send("/queue/a", "x", confirm=True)
    assert counts(ask, "/queue/a") == {"enqueued": 5002, "removed": 5001}


def test_the_counters_of_a_queue_that_is_not_in_use_any_more_are_forgotten_after_a_while(
    broker: Broker, client: Connection, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send("/queue/a", "x", confirm=True)
    broker.purge("/queue/a")
    assert counts(ask, "/queue/a")["enqueued"] == 1
    monkeypatch.setattr("stompy.broker.topology.COUNTED_ON", 0.0)
    assert rows(ask("overview")["result"], "queues") == []
    client.send("/queue/a", "x", confirm=True)
    assert counts(ask, "/queue/a") == {"enqueued": 1}


def test_each_end_of_a_message_is_counted(broker: Broker, ask: Ask) -> None:
    with connect(broker.url) as client:
        auto = client.subscribe("/queue/a", ack="auto")
        client.send("/queue/a", "delivered", confirm=True)
        auto.receive(timeout=20)
        auto.close()
        client.send("/queue/a", "purged", confirm=True)
        broker.purge("/queue/a")
        client.send("/queue/a", "moved", confirm=True)
        broker.move("/queue/a", "/queue/b")
        client.send("/queue/a", "expired", expires=0.001, confirm=True)
        until(lambda: counts(ask, "/queue/a").get("expired"))
        subscription = client.subscribe("/queue/a", ack="client-individual")
        client.send("/queue/a", "refused", confirm=True)
        subscription.receive(timeout=20).nack(confirm=True)
        assert counts(ask, "/queue/a") == {
            "enqueued": 5, "delivered": 2, "acknowledged": 1, "removed": 2, "expired": 1, "dead_lettered": 1,
        }  # fmt: skip
    assert counts(ask, "/queue/b") == {"enqueued": 1}
    assert counts(ask, "/queue/DLQ") == {"enqueued": 1, "letters": 1}


def test_dead_letters_are_those_that_are_there(broker: Broker, client: Connection, ask: Ask) -> None:
    subscription = client.subscribe("/queue/a", ack="client-individual")
    for _ in range(2):
        client.send("/queue/a", "x", confirm=True)
        subscription.receive(timeout=20).nack(confirm=True)
    until(lambda: ask("overview")["result"]["dead_letters"] == 2)
    letters = client.subscribe("/queue/DLQ", ack="client-individual")
    message = letters.receive(timeout=20)
    assert ask("overview")["result"]["dead_letters"] == 2, "one that is delivered is still there"
    message.ack(confirm=True)
    assert ask("overview")["result"]["dead_letters"] == 1
    letters.close()
    assert broker.purge("/queue/DLQ") == 1
    overview = ask("overview")["result"]
    assert (overview["dead_letters"], overview["counters"]["dead_lettered"]) == (0, 2)


def test_a_topic_counts_what_was_published_and_each_copy(client: Connection, ask: Ask) -> None:
    first, second, pattern = (client.subscribe(f"/topic/a.{end}", ack="auto") for end in "bb*")
    client.send("/topic/a.b", "x", confirm=True)
    for subscription in (first, second, pattern):
        subscription.receive(timeout=20)
    second.close()
    client.send("/topic/a.b", "x", confirm=True)
    for subscription in (first, pattern):
        subscription.receive(timeout=20)
    assert counts(ask, "/topic/a.b", "topics") == {"enqueued": 2, "delivered": 3, "acknowledged": 3}
    assert counts(ask, "/topic/a.*", "topics") == {"enqueued": 2, "delivered": 2, "acknowledged": 2}
    first.close()
    assert counts(ask, "/topic/a.b", "topics") == {"enqueued": 2, "delivered": 3, "acknowledged": 3}


def test_messages_are_browsed_opened_and_dropped(broker: Broker, client: Connection, ask: Ask) -> None:
    client.send("/queue/a", "wörd", headers={"kind": "x", "token": "sesame"}, confirm=True)
    client.send("/queue/a", bytes(range(256)), confirm=True)
    text, binary = ask("browse", queue="/queue/a")["result"]
    assert (text["body"], text["size"], text["base64"], text["whole"]) == ("wörd", 5, False, True)
    assert (base64.b64decode(binary["body"]), binary["base64"]) == (bytes(range(256)), True)
    headers = dict(text["headers"])
    assert (headers["kind"], headers["token"]) == ("x", "***")
    opened = ask("message", queue="/queue/a", number=binary["number"])["result"]
    assert opened["number"] == binary["number"]
    assert ask("purge", queue="/queue/a", numbers=[text["number"]]) == {"result": 1}
    assert "not in the queue" in ask("message", queue="/queue/a", number=text["number"])["error"]
    assert broker.depth("/queue/a") == 1


def test_a_long_body_is_cut_between_characters(client: Connection, ask: Ask) -> None:
    client.send("/queue/a", "x" + "ö" * 1000, confirm=True)
    (message,) = ask("browse", queue="/queue/a")["result"]
    assert (message["body"], message["whole"], message["size"]) == ("x" + "ö" * 127, False, 2001)
    opened = ask("message", queue="/queue/a", number=message["number"])["result"]
    assert (opened["body"], opened["whole"]) == ("x" + "ö" * 1000, True)


def test_queues_are_moved_paused_and_purged(broker: Broker, client: Connection, ask: Ask) -> None:
    for text in "123":
        client.send("/queue/a", text, confirm=True)
    assert ask("move", queue="/queue/a", target="/queue/b") == {"result": 3}
    assert ask("pause", queue="/queue/b") == {"result": None}
    (row,) = [row for row in rows(ask("overview")["result"], "queues") if row["ready"]]
    assert (row["name"], row["ready"], row["paused"]) == ("/queue/b", 3, True)
    assert ask("resume", queue="/queue/b") == {"result": None}
    assert ask("purge", queue="/queue/b") == {"result": 3}


def test_a_dead_letter_goes_back(broker: Broker, client: Connection, ask: Ask) -> None:
    subscription = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", "x", confirm=True)
    subscription.receive(timeout=20).nack()
    (letter,) = until(lambda: ask("browse", queue="/queue/DLQ")["result"])
    assert letter["origin"] == "/queue/a"
    assert ask("retry", queue="/queue/DLQ", numbers=[letter["number"]]) == {"result": 1}
    assert subscription.receive(timeout=20).text == "x"


def test_a_connection_is_ended(broker: Broker, ask: Ask) -> None:
    client = connect(broker.url, reconnect=False)
    (connection,) = ask("overview")["result"]["connections"]
    assert ask("kill", connection=connection["session"]) == {"result": True}
    assert ask("kill", connection=connection["session"]) == {"result": False}
    client.close()
    assert ask("overview")["result"]["connections"] == []


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a", "/topic/>"])
def test_the_tail_shows_what_arrives_and_takes_nothing(
    broker: Broker, client: Connection, ask: Ask, destination: str
) -> None:
    assert ask("tail", destination=destination)["result"] == {"total": 0, "passed": []}
    to = destination.replace(">", "a")
    subscription = client.subscribe(to)
    client.send(to, "one", headers={"kind": "x"}, confirm=True)
    client.send(to, "two", confirm=True)
    assert [subscription.receive(timeout=20).text for _ in range(2)] == ["one", "two"]
    result = ask("tail", destination=destination)["result"]
    assert [(message["number"], message["body"]) for message in result["passed"]] == [(1, "one"), (2, "two")]
    assert ["kind", "x"] in result["passed"][0]["headers"]
    assert ask("tail", destination=destination)["result"] == {"total": 2, "passed": []}
    assert broker.stats().topics == ({to: 1} if to.startswith("/topic/") else {})


@pytest.mark.parametrize(
    ("arguments", "found"),
    [({"text": "needle"}, ["a needle"]), ({"selector": "kind = 'x'"}, ["b"]), ({"text": "kind:x"}, ["b"])],
)
def test_the_tail_is_filtered_by_headers_and_body(
    client: Connection, ask: Ask, arguments: dict[str, str], found: list[str]
) -> None:
    ask("tail", destination="/queue/a", **arguments)
    client.send("/queue/a", "a needle", confirm=True)
    client.send("/queue/a", "b", headers={"kind": "x"}, confirm=True)
    passed = ask("tail", destination="/queue/a", **arguments)["result"]["passed"]
    assert [message["body"] for message in passed] == found


def test_the_tail_of_a_busy_queue_is_sampled(client: Connection, ask: Ask) -> None:
    ask("tail", destination="/queue/a")
    with client.batch():
        for number in range(1000):
            client.send("/queue/a", str(number))
    client.send("/queue/a", "last", confirm=True)
    result = ask("tail", destination="/queue/a")["result"]
    assert (result["total"], len(result["passed"])) == (1001, 100)
    assert result["passed"][-1]["body"] == "last"


def test_what_comes_back_is_not_in_the_tail_again(broker: Broker, ask: Ask) -> None:
    ask("tail", destination="/queue/a")
    with connect(broker.url) as other:
        subscription = other.subscribe("/queue/a", ack="client")
        other.send("/queue/a", "x")
        subscription.receive(timeout=20)
    until(lambda: broker.depth("/queue/a") == 1)
    assert ask("tail", destination="/queue/a")["result"]["total"] == 1


def test_what_was_there_before_the_tail_is_not_in_it_when_it_comes_back(broker: Broker, ask: Ask) -> None:
    with connect(broker.url) as other:
        subscription = other.subscribe("/queue/a", ack="client")
        other.send("/queue/a", "x")
        subscription.receive(timeout=20)
        ask("tail", destination="/queue/a")
    until(lambda: broker.depth("/queue/a") == 1)
    assert ask("tail", destination="/queue/a")["result"]["total"] == 0


def test_two_pages_see_the_frames_of_one_connection(broker: Broker, client: Connection, ask: Ask) -> None:
    with connect(console_ws(broker)) as second:
        pages = [ask, asks(second)]
        session = broker.connections()[0].session
        for page in pages:
            page("frames", connection=session)
        client.send("/queue/a", "x", confirm=True)
        for page in pages:
            frames = page("frames", connection=session)["result"]
            assert [frame["command"] for frame in frames["passed"]] == ["SEND", "RECEIPT"]
            assert frames["total"] == 2


def test_the_frames_of_a_connection_are_shown_with_secrets_masked(client: Connection, ask: Ask) -> None:
    (connection,) = ask("overview")["result"]["connections"]
    session = connection["session"]
    assert ask("frames", connection=session)["result"]["passed"] == []
    client.send("/queue/a", "x", headers={"kind": "x", "passcode": "sesame"}, confirm=True)
    passed = until(lambda: ask("frames", connection=session)["result"]["passed"])
    send = next(frame for frame in passed if frame["command"] == "SEND")
    assert (send["kind"], send["body"]) == ("received", "x")
    assert ["passcode", "***"] in send["headers"]
    assert ["kind", "x"] in send["headers"]
    kinds = {(frame["kind"], frame["command"]) for frame in passed}
    kinds |= {(f["kind"], f["command"]) for f in ask("frames", connection=session)["result"]["passed"]}
    assert ("sent", "RECEIPT") in kinds
    assert "has ended" in ask("frames", connection="nobody")["error"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"call": "purge", "queue": "/topic/a"}, "not one queue"),
        ({"call": "move", "queue": "/queue/a", "target": "/queue/a"}, "another queue"),
        ({"call": "tail", "destination": "/queue/>"}, "neither a queue nor a topic"),
        ({"call": "tail", "destination": ""}, "neither a queue nor a topic"),
        ({"call": "tail", "destination": "/queue/a", "selector": "a = ="}, "selector is invalid"),
        ({"call": "browse"}, "not understood"),
        ({"call": "browse", "queue": 7}, "not understood"),
        ({"call": "browse", "queue": "/queue/a", "start": "x"}, "not understood"),
        ({"call": "purge", "queue": "/queue/a", "numbers": 1}, "not understood"),
        ({"call": "browse", "queue": "/queue/a", "start": float("inf")}, "not understood"),
        ({"call": ["browse"]}, "not understood"),
        ({"call": "__init__"}, "not understood"),
        ({"call": "stop"}, "not understood"),
    ],
)
def test_a_wrong_request_is_answered_with_an_error(ask: Ask, request_: dict[str, Any], said: str) -> None:
    arguments = dict(request_)
    assert said in ask(arguments.pop("call"), **arguments)["error"]


@pytest.mark.parametrize("request_", ["", "[]", "7", "[" * 100_000, b"\xff"])
def test_a_request_that_is_no_object_is_answered_with_an_error(console: Connection, request_: str | bytes) -> None:
    assert "not understood" in console.request("/console", request_).text
