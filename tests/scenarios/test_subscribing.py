"""Subscriptions with a wish: durable, selective, wild, looking only, in groups; and temporary queues."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import stompy
from stompy.frames.frame import Frame
from tests.scenarios.acts import REFUSED, SOON, acked, left, seen, send_all, texts, until_end
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.scenarios.expected.model import CLASSIC, LIKE
from tests.support.candidates import Candidate
from tests.support.peer import until

pytestmark = pytest.mark.broker

SELECTORS = ("size > 5", "size = '9'", "size BETWEEN 8 AND 10", "kind LIKE 'b%'", "a-b = 'x'")

GRACE = 0.2
"""Seconds that a message gets which is expected not to come."""


# Durable topic subscriptions.


@pytest.mark.scenario("durable topics")
def test_a_durable_subscription_keeps_what_is_sent_while_its_owner_is_away(
    connect: Connect, topic: str, expect: Expect
) -> None:
    name = topic.removeprefix("/topic/")
    sender, owner = connect(), connect(client_id=name)
    # Not in mode auto: what is handed to a session that ends just then would be gone.
    options: dict[str, Any] = {"durable": name, "ack": "client-individual"}
    try:
        subscription = owner.subscribe(topic, **options)
    except stompy.ConfigurationError:
        expect("durable", REFUSED)
        return
    send_all(sender, topic, ["there"])
    message = subscription.receive(timeout=SOON)
    assert message.text == "there"
    acked(message)
    owner.close()
    send_all(sender, topic, ["away"])
    owner = connect(client_id=name)
    subscription = owner.subscribe(topic, **options)
    message = subscription.receive(timeout=SOON)
    assert message.text == "away"
    acked(message)
    subscription.close()
    send_all(sender, topic, ["unsubscribed"])
    subscription = owner.subscribe(topic, **options)
    kept = until_end(owner, subscription)
    subscription.unsubscribe(delete=True)
    send_all(sender, topic, ["deleted"])
    subscription = owner.subscribe(topic, **options)
    after = seen(until_end(owner, subscription))
    subscription.unsubscribe(delete=True)
    texts = " ".join(one.text for one in kept)
    expect("durable", f"after unsubscribing: {texts}; after deleting: {after}", message.frame)


# Selectors.


@pytest.mark.scenario("selectors")
def test_a_selector_chooses_messages(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        subscription = connection.subscribe(queue, selector="kind = 'b'", ack="client-individual")
    except stompy.ConfigurationError:
        expect("selector", REFUSED)
        return
    for text, kind in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        connection.send(queue, text, headers={"kind": kind}, confirm=True)
    chosen = [subscription.receive(timeout=SOON) for _ in range(2)]
    for message in chosen:
        acked(message)
    subscription.close()
    expect("selector", f"{seen(chosen)}; left: {seen(left(connection, queue))}")


@pytest.mark.once
@pytest.mark.scenario("selectors")
def test_headers_are_text_to_a_selector_or_numbers_too(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    chosen = {}
    for number, selector in enumerate(SELECTORS):
        name = f"{queue}.{number}"
        try:
            subscription = connection.subscribe(name, selector=f"{selector} OR kind = 'end'")
        except stompy.ConfigurationError:
            expect("selector-types", REFUSED)
            return
        connection.send(name, "x", headers={"size": 9, "kind": "bc", "a-b": "x"}, confirm=True)
        connection.send(name, "end", headers={"kind": "end"}, confirm=True)
        chosen[selector] = subscription.receive(timeout=SOON).text == "x"
    expect("selector-types", "; ".join(selector for selector, fulfilled in chosen.items() if fulfilled))


@pytest.mark.once
@pytest.mark.scenario("selectors")
def test_a_selector_that_stompy_does_not_stop(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.say("SUBSCRIBE", {"destination": queue, "id": "1", "selector": "kind = 'b'"})
    client.say("SEND", {"destination": queue, "kind": "a"}, b"a")
    client.say("SEND", {"destination": queue, "kind": "b"}, b"b")
    frames, _ = client.until(lambda frame: frame.command == "ERROR" or frame.body == b"b")
    expect("selector-raw", " ".join(frame.body.decode() if frame.command == "MESSAGE" else "ERROR" for frame in frames))


# Wildcards.


@pytest.mark.scenario("wildcards")
@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_a_wildcard_covers_several_destinations(connect: Connect, topic: str, expect: Expect, kind: str) -> None:
    base = topic.replace("/topic/", f"/{kind}/")
    covered = {}
    for sign in "*>#":
        connection = connect()
        name = f"{base}{ord(sign)}"
        try:
            subscription = connection.subscribe(f"{name}.{sign}")
        except stompy.BrokerError:
            covered[sign] = "ERROR"
            continue
        send_all(connection, f"{name}.a", ["one"])
        send_all(connection, f"{name}.a.b", ["two"])
        came: list[stompy.Message] = []
        try:
            while len(came) < 2:
                came.append(subscription.receive(timeout=GRACE))
        except stompy.ReceiveTimeoutError:
            pass
        # In any order: nobody promises one between destinations.
        covered[sign] = seen(sorted(came, key=lambda message: message.text))
    expect(f"wildcard-{kind}", "; ".join(f"{sign}: {what}" for sign, what in covered.items()))


# Browsing.


@pytest.mark.scenario("browsing")
def test_a_browser_looks_and_takes_nothing(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    send_all(connection, queue, "123")
    try:
        messages = list(connection.browse(queue))
    except stompy.ConfigurationError:
        expect("browse", REFUSED)
        return
    except stompy.BrokerError as refused:
        expect("browse", "ERROR", refused.frame)
        return
    expect("browse", f"{seen(messages)}; left: {seen(left(connection, queue))}", messages[0].frame)


def _ends_browsing(frame: Frame) -> bool:
    return frame.headers.get("browser") == "end"


@pytest.mark.once
@pytest.mark.scenario("browsing")
def test_a_browser_that_stompy_does_not_stop(raw: Raw, connect: Connect, queue: str, expect: Expect) -> None:
    send_all(connect(), queue, "1")
    client = raw()
    client.subscribe(queue, browser="true")
    message = client.expect("MESSAGE")
    frames = [message, *client.sync()]
    if expect.kind in CLASSIC:
        # The end comes by itself, maybe behind the answer to what was said later.
        frames = [message, *client.until(_ends_browsing)[0]]
    client.disconnect()
    ended = any(map(_ends_browsing, frames))
    expect("browse-raw", f"end marked: {ended}; left: {seen(left(connect(), queue))}", *frames)


# Message groups, duplicates.


@pytest.mark.once
@pytest.mark.scenario("message groups")
def test_the_messages_of_a_group_go_to_one_consumer(connect: Connect, queue: str, expect: Expect) -> None:
    producer = connect()
    consumers = [connect().subscribe(queue) for _ in range(2)]
    try:
        for number in range(12):
            producer.send(queue, str(number), group="abc"[number % 3], confirm=True)
    except stompy.ConfigurationError:
        expect("group", REFUSED)
        return
    until(lambda: sum(consumer.queued for consumer in consumers) == 12)
    groups: list[set[int]] = []
    for consumer in consumers:
        numbers = [int(text) for text in texts(consumer, consumer.queued)]
        groups.append({number % 3 for number in numbers})
        assert numbers == sorted(numbers)
    assert groups[0].isdisjoint(groups[1])
    expect("group", "one consumer each")


@pytest.mark.once
@pytest.mark.scenario("duplicates")
def test_a_message_that_is_sent_twice(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    try:
        for _ in range(2):
            connection.send(queue, "x", dedupe_id=queue, confirm=True)
    except stompy.ConfigurationError:
        expect("duplicate", REFUSED)
        return
    expect("duplicate", seen(left(connection, queue)))


@pytest.mark.scenario("duplicates")
def test_a_transaction_with_a_message_that_was_sent_before(connect: Connect, queue: str, expect: Expect) -> None:
    first, second = connect(), connect()
    try:
        first.send(queue, "first", dedupe_id=queue, confirm=True)
    except stompy.ConfigurationError:
        expect("duplicate-commit", REFUSED)
        return
    with pytest.raises(stompy.BrokerError) as refused, second.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send(queue, "again", dedupe_id=queue)
        transaction.send(queue, "and another")
    expect("duplicate-commit", f"ERROR; left: {seen(left(connect(), queue))}", refused.value.frame)


@pytest.mark.once
@pytest.mark.scenario("duplicates")
def test_open_transactions_with_the_same_message(connect: Connect, queue: str, expect: Expect) -> None:
    first, second = connect(), connect()
    try:
        with first.transaction() as one, second.transaction() as other:
            other.send(queue, b"2" + b" " * 70_000, dedupe_id=queue)  # so that it has left
            one.send(queue, b"1" + b" " * 70_000, dedupe_id=queue)
            second.send(f"{queue}.other", "x", confirm=True)
            one.commit()
    except stompy.ConfigurationError:
        expect("duplicate-open", REFUSED)
        return
    expect("duplicate-open", " ".join(message.text.strip() for message in left(connect(), queue)))


# Temporary queues.


@pytest.mark.scenario("temporary queues, request and reply")
def test_a_request_gets_its_reply(connect: Connect, queue: str, expect: Expect) -> None:
    asker, responder = connect(), connect()
    requests: list[stompy.Frame] = []

    def serve(request: stompy.Message) -> None:
        requests.append(request.frame)
        headers = {"correlation-id": request.headers["correlation-id"]}
        responder.send(request.headers["reply-to"], request.text.upper(), headers=headers)

    responder.subscribe(queue, serve)
    words = [f"word{number}" for number in range(10)]
    replies: dict[str, stompy.Message] = {}

    def ask(word: str) -> None:
        replies[word] = asker.request(queue, word, timeout=SOON)

    threads = [threading.Thread(target=ask, args=(word,)) for word in words]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert {word: reply.text for word, reply in replies.items()} == {word: word.upper() for word in words}
    expect("reply", True, requests[0], replies["word0"].frame)


def ask_without_answer(asker: stompy.Connection, destination: str) -> None:
    """Send a request that nobody answers in time; on a busy machine the first time may pass before it is sent."""
    for patience in (0.1, 1.0, SOON):
        with pytest.raises(stompy.ReceiveTimeoutError) as unanswered:
            asker.request(destination, "?", timeout=patience)
        if str(unanswered.value).startswith("no reply"):
            return
    raise unanswered.value


@pytest.mark.scenario("temporary queues, request and reply")
@pytest.mark.kinds("activemq", "activemq5", "like-activemq", "like-activemq5")
def test_a_client_sees_its_own_temporary_topic(raw: Raw, queue: str) -> None:
    client = raw()
    client.subscribe(queue)
    client.subscribe("/temp-topic/a", id="2")
    client.send(queue, "question", reply_to="/temp-topic/a")
    reply_to = client.expect("MESSAGE").headers["reply-to"]
    client.send(reply_to, "answer")
    assert client.bodies(1) == ["answer"]
    assert reply_to.startswith("/temp-topic/")


@pytest.mark.scenario("temporary queues, request and reply")
def test_a_reply_to_somebody_who_is_gone(connect: Connect, queue: str, expect: Expect) -> None:
    asker, responder = connect(), connect()
    requests = responder.subscribe(queue)
    ask_without_answer(asker, queue)
    request = requests.receive(timeout=SOON)
    asker.close()
    try:
        responder.send(request.headers["reply-to"], "late", confirm=True)
    except stompy.BrokerError as refused:
        expect("reply-late", "ERROR", refused.frame)
    except stompy.ConnectionLostError:
        expect("reply-late", "closed")
    else:
        expect("reply-late", "RECEIPT")


@pytest.mark.scenario("temporary queues, request and reply")
def test_a_late_reply_is_dropped(connect: Connect, queue: str) -> None:
    asker, responder = connect(), connect()
    requests = responder.subscribe(queue)
    ask_without_answer(asker, queue)
    request = requests.receive(timeout=SOON)
    headers = {"correlation-id": request.headers["correlation-id"]}
    responder.send(request.headers["reply-to"], "late", headers=headers, confirm=True)
    until(lambda: asker.stats().late_replies == 1)


FOREIGN = {
    "activemq": {
        "transformation": "jms-json",
        "activemq.retroactive": "true",
        "activemq.maximumPendingMessageLimit": "5",
    },
    "artemis": {"consumer-window-size": "-1", "subscription-type": "MULTICAST", "durable-subscription-name": "d"},
    "rabbitmq": {
        "durable": "True",
        "auto-delete": "false",
        "exclusive": "maybe",
        "x-queue-name": "q",
        "x-max-length": "-1",
    },
}
"""Headers of SUBSCRIBE that others than the broker of that name ignore."""
SCHEDULED = {
    "x-delay": "5",
    "AMQ_SCHEDULED_CRON": "* * * * *",
    "AMQ_SCHEDULED_PERIOD": "1",
    "AMQ_SCHEDULED_REPEAT": "2",
}


@pytest.mark.once
@pytest.mark.scenario("queues and topics")
def test_headers_that_another_broker_knows(candidate: Candidate, raw: Raw, queue: str, expect: Expect) -> None:
    family = LIKE.get(candidate.kind, candidate.kind).rstrip("0123456789")
    client, headers = raw(), {"destination": queue, "id": "1"}
    for other in FOREIGN.keys() - {family}:
        headers |= FOREIGN[other]
    client.say("SUBSCRIBE", headers)
    scheduled = {} if family == "activemq" else SCHEDULED
    client.say("SEND", {"destination": queue, "x-delay": "5", **scheduled}, b"x")
    expect("foreign-headers", client.frame().command)


@pytest.mark.once
@pytest.mark.scenario("queues and topics")
def test_a_consumer_of_a_higher_priority(connect: Connect, queue: str, expect: Expect) -> None:
    low, high = connect(), connect()
    try:
        subscriptions = [low.subscribe(queue, headers={"activemq.priority": "1"})]
    except stompy.BrokerError:
        expect("consumer-priority", "ERROR")
        return
    subscriptions.append(high.subscribe(queue, headers={"activemq.priority": "9"}))
    send_all(low, queue, "1234")
    until(lambda: sum(one.queued for one in subscriptions) == 4)
    expect("consumer-priority", " ".join(str(one.queued) for one in subscriptions))
