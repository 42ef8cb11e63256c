"""Programs for RabbitMQ's STOMP adapter: the same on the real broker and on the embedded one in its place."""

from __future__ import annotations

import uuid

import pytest

from tests.scenarios.conftest import Raw
from tests.support.peer import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.once,
    pytest.mark.scenario("programs for RabbitMQ"),
    pytest.mark.kinds("rabbitmq3", "rabbitmq4", "like-rabbitmq"),
]

ONE = {"prefetch_count": "1"}
BOUND = {"durable": "true", "auto-delete": "false"}


@pytest.fixture
def name() -> str:
    """Return a name that nobody else uses."""
    return uuid.uuid4().hex


def test_a_direct_exchange_goes_by_the_whole_key(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/exchange/amq.direct/{name}.a", id="1")
    client.subscribe(f"/exchange/amq.direct/{name}.*", id="2")
    client.send(f"/exchange/amq.direct/{name}.b", "b")
    client.send(f"/exchange/amq.direct/{name}.a", "a")
    (message,) = client.messages(1)
    assert (message.body, message.headers["subscription"]) == (b"a", "1")
    assert message.headers["destination"] == f"/exchange/amq.direct/{name}.a"
    assert client.idle()


def test_a_fanout_exchange_goes_to_all(raw: Raw, name: str) -> None:
    client, other = raw(), raw()
    for one in (client, other):
        one.subscribe("/exchange/amq.fanout")
    client.send(f"/exchange/amq.fanout/{name}", "x")
    for one in (client, other):
        (message,) = one.messages(1)
        assert message.headers["destination"] == f"/exchange/amq.fanout/{name}"


def test_the_topic_exchange_is_what_topics_are(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/exchange/amq.topic/{name}.*")
    client.send(f"/topic/{name}.a", "1")
    client.send(f"/exchange/amq.topic/{name}.b", "2")
    client.send(f"/topic/{name}.b.c", "3")
    messages = client.messages(2)
    assert [message.headers["destination"] for message in messages] == [f"/topic/{name}.a", f"/topic/{name}.b"]
    assert client.idle()


def test_a_queue_of_a_chosen_name_is_shared_and_lasts(raw: Raw, name: str) -> None:
    headers = {**BOUND, "x-queue-name": name}
    client, other = raw(), raw()
    for one in (client, other):
        one.subscribe(f"/topic/{name}.#", "client-individual", **_named(headers))
    client.send(f"/topic/{name}.a", "1", "2")
    assert sorted([*client.bodies(1), *other.bodies(1)]) == ["1", "2"]
    client.disconnect()
    other.disconnect()
    sender = raw()
    sender.send(f"/topic/{name}.b", "3")
    sender.subscribe(f"/amq/queue/{name}")
    assert sorted(sender.bodies(3)) == ["1", "2", "3"]


def test_a_queue_of_a_chosen_name_ends_with_an_unsubscribe_that_says_durable(raw: Raw, name: str) -> None:
    headers = {**BOUND, "x-queue-name": name}
    client = raw()
    client.subscribe(f"/topic/{name}", **_named(headers))
    client.sure("UNSUBSCRIBE", {"id": "1", "destination": f"/topic/{name}", **headers})
    client.send(f"/topic/{name}", "lost")
    client.subscribe(f"/topic/{name}", **_named(headers))
    assert client.idle()
    client.sure("UNSUBSCRIBE", {"id": "1", "destination": f"/topic/{name}", **headers})


def test_a_queue_that_deletes_itself(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual", **_named({"durable": "false", "auto-delete": "true"}))
    client.send(f"/amq/queue/{name}", "gone")
    client.messages(1)
    client.disconnect()
    client = raw()
    client.send(f"/queue/{name}", "new")
    client.subscribe(f"/queue/{name}")
    assert client.bodies(1) == ["new"]
    assert client.idle()


def test_a_queue_cannot_be_declared_in_two_ways(raw: Raw, name: str) -> None:
    client, other = raw(), raw()
    client.subscribe(f"/queue/{name}")
    other.say("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "auto-delete": "true", "receipt": "r"})
    error, *rest = other.rest()
    assert (error.command, error.headers["message"]) == ("ERROR", "precondition_failed")
    assert [frame.command for frame in rest] == ["RECEIPT"]


def test_an_unknown_exchange(raw: Raw, name: str) -> None:
    client = raw()
    client.say("SUBSCRIBE", {"destination": f"/exchange/{name}/a", "id": "1", "receipt": "r"})
    error, *rest = client.rest()
    assert (error.command, error.headers["message"]) == ("ERROR", "not_found")
    assert [frame.command for frame in rest] == ["RECEIPT"]


@pytest.mark.parametrize("destination", ["/queue/a/b", "/queue/a,/queue/b", "/topic/", "/temp-queue/a", "/nowhere/a"])
def test_an_invalid_destination(raw: Raw, destination: str) -> None:
    client = raw()
    client.say("SUBSCRIBE", {"destination": destination, "id": "1"})
    kind = "Unknown" if destination == "/nowhere/a" else "Invalid"
    assert client.expect("ERROR").headers["message"] == f"{kind} destination"
    assert client.idle()


def test_a_prefetch_count_bounds_what_is_sent_ahead(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual", prefetch_count="2")
    client.send(f"/queue/{name}", *"123")
    first, _ = client.messages(2)
    assert client.idle()
    client.ack(first)
    assert client.bodies(1) == ["3"]


def test_requeue_false_drops(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual")
    client.send(f"/queue/{name}", "x")
    (message,) = client.messages(1)
    client.nack(message)
    (again,) = client.messages(1)
    assert (message.headers["redelivered"], again.headers["redelivered"]) == ("false", "true")
    client.nack(again, requeue="false")
    assert client.idle()


def test_a_reply_comes_without_a_subscription(raw: Raw, name: str) -> None:
    asker, responder = raw(), raw()
    responder.subscribe(f"/queue/{name}")
    for number in (1, 2):
        asker.send(f"/queue/{name}", f"question {number}", reply_to="/temp-queue/answers")
        (question,) = responder.messages(1)
        assert question.headers["reply-to"].startswith("/reply-queue/")
        responder.send(question.headers["reply-to"], f"answer {number}")
        (answer,) = asker.messages(1)
        assert (answer.body, answer.headers["subscription"]) == (b"answer %d" % number, "/temp-queue/answers")
        queue = question.headers["reply-to"].removeprefix("/reply-queue/")
        assert answer.headers["destination"] == f"/queue/{queue}"


def test_a_dead_letter_goes_to_the_exchange_of_its_queue(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual", **_named(_letters(name)))
    client.subscribe(f"/topic/{name}.dead", id="2")
    client.send(f"/amq/queue/{name}", "poison")
    client.nack(*client.messages(1), requeue="false")
    (letter,) = client.messages(1)
    assert (letter.body, letter.headers["destination"]) == (b"poison", f"/topic/{name}.dead")
    assert letter.headers["x-first-death-queue"] == name


def test_a_queue_of_limited_length_drops_the_oldest(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/topic/{name}.dead", id="2")
    client.subscribe(f"/queue/{name}", "client-individual", **_named({**_letters(name), "x-max-length": "2"}), **ONE)
    client.send(f"/amq/queue/{name}", "1", "2", "3", "4")
    first, letter = client.messages(2)
    assert (first.body, letter.body) == (b"1", b"2")
    assert letter.headers["x-first-death-reason"] == "maxlen"
    client.ack(first)
    (second,) = client.messages(1)
    client.ack(second)
    assert (second.body, client.bodies(1)) == (b"3", ["4"])


def test_a_message_that_waits_too_long_is_a_dead_letter(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/topic/{name}.dead", id="2")
    client.subscribe(f"/queue/{name}", "client-individual", **_named({**_letters(name), "x-message-ttl": "200"}), **ONE)
    client.send(f"/amq/queue/{name}", "1", "2")
    first, letter = client.messages(2)
    assert (first.body, letter.body) == (b"1", b"2")
    assert letter.headers["x-first-death-reason"] == "expired"


def test_a_queue_with_priorities_hands_out_the_highest_first(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual", **_named({"x-max-priority": "5"}), **ONE)
    client.send(f"/amq/queue/{name}", "first")
    for body, headers in {"none": {}, "1": {"priority": "1"}, "9": {"priority": "9"}, "5": {"priority": "5"}}.items():
        client.send(f"/amq/queue/{name}", body, **headers)
    bodies = []
    for _ in range(5):
        (message,) = client.messages(1)
        bodies.append(message.body.decode())
        client.ack(message)
    assert bodies == ["first", "9", "5", "1", "none"]


def test_a_queue_that_nobody_uses_ends(raw: Raw, name: str) -> None:
    client = raw()
    client.subscribe(f"/queue/{name}", "client-individual", **_named({"x-expires": "50"}))
    client.send(f"/amq/queue/{name}", "kept while somebody is subscribed")
    client.messages(1)
    client.sure("UNSUBSCRIBE", {"id": "1"})
    until(lambda: _is_new(raw, name))


def _is_new(raw: Raw, name: str) -> bool:
    """Whether a queue can be declared in another way."""
    client = raw()
    client.say("SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "receipt": "r"})
    return client.frame().command == "RECEIPT"


def _letters(name: str) -> dict[str, str]:
    return {"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": f"{name}.dead"}


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {key.replace("-", "_"): value for key, value in headers.items()}
