"""One program that uses every portable option, unchanged on each broker; what a broker has not is refused by stompy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import stompy
from tests.scenarios.acts import SOON, acked, left, refused, send_all, texts
from tests.scenarios.conftest import Connect, Expect

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("portable options")]

Use = Callable[[Connect, str, str], None]


def persistent(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    send_all(connection, queue, ["kept"], persistent=True)
    assert [message.text for message in left(connection, queue)] == ["kept"]


def priority(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    for number in (1, 9, 5):
        connection.send(queue, str(number), priority=number, confirm=True)
    assert sorted(texts(connection.subscribe(queue), 3)) == ["1", "5", "9"]


def expires(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    connection.send(queue, "fresh", expires=3600, confirm=True)
    assert texts(connection.subscribe(queue), 1) == ["fresh"]


def delay(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    connection.send(queue, "later", delay=1.0)
    connection.send(queue, "now", confirm=True)
    assert texts(subscription, 2) == ["now", "later"]


def group(connect: Connect, queue: str, topic: str) -> None:
    connection, other = connect(), connect()
    subscriptions = [one.subscribe(queue, ack="client-individual") for one in (connection, other)]
    for number in range(3):
        connection.send(queue, str(number), group="g", confirm=True)
    taken: list[str] = []
    while len(taken) < 3:
        for subscription in subscriptions:
            while subscription.queued:
                taken.append(subscription.receive(timeout=SOON).text)
    assert taken == ["0", "1", "2"]


def dedupe_id(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    for _ in range(2):
        connection.send(queue, "once", dedupe_id=queue, confirm=True)
    assert [message.text for message in left(connection, queue)] == ["once"]


def prefetch(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual", prefetch=1)
    send_all(connection, queue, "12")
    first = subscription.receive(timeout=SOON)
    assert subscription.queued == 0
    acked(first)
    assert subscription.receive(timeout=SOON).text == "2"


def selector(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, selector="kind = 'b'")
    for kind in "ab":
        connection.send(queue, kind, headers={"kind": kind}, confirm=True)
    assert texts(subscription, 1) == ["b"]


def durable(connect: Connect, queue: str, topic: str) -> None:
    name = topic.removeprefix("/topic/")
    owner = connect(client_id=name)
    owner.subscribe(topic, durable=name, ack="client-individual")
    owner.close()
    send_all(connect(), topic, ["meanwhile"])
    owner = connect(client_id=name)
    subscription = owner.subscribe(topic, durable=name, ack="client-individual")
    message = subscription.receive(timeout=SOON)
    assert message.text == "meanwhile"
    acked(message)
    subscription.unsubscribe(delete=True)


def browse(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    send_all(connection, queue, "12")
    assert [message.text for message in connection.browse(queue)] == ["1", "2"]
    assert len(left(connection, queue)) == 2


def exclusive(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    first = connection.subscribe(queue, exclusive=True)
    connect().subscribe(queue, exclusive=True)
    send_all(connection, queue, "123")
    assert texts(first, 3) == ["1", "2", "3"]


def transaction(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    with connection.transaction() as block:
        block.send(queue, "1")
        block.send(queue, "2")
    assert [message.text for message in left(connection, queue)] == ["1", "2"]


def nack(connect: Connect, queue: str, topic: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue, ack="client-individual")
    send_all(connection, queue, ["x"], persistent=True)
    refused(subscription.receive(timeout=SOON))


def request(connect: Connect, queue: str, topic: str) -> None:
    asker, responder = connect(), connect()

    def answer(question: stompy.Message) -> None:
        headers = {"correlation-id": question.headers["correlation-id"]}
        responder.send(question.headers["reply-to"], question.text.upper(), headers=headers)

    responder.subscribe(queue, answer)
    assert asker.request(queue, "question", timeout=SOON).text == "QUESTION"


USES: tuple[Use, ...] = (
    persistent,
    priority,
    expires,
    delay,
    group,
    dedupe_id,
    prefetch,
    selector,
    durable,
    browse,
    exclusive,
    transaction,
    nack,
    request,
)


def test_a_program_with_every_portable_option(connect: Connect, queue: str, topic: str, expect: Expect) -> None:
    lacking = []
    for use in USES:
        try:
            use(connect, f"{queue}.{use.__name__}", f"{topic}.{use.__name__}")
        except stompy.ConfigurationError:
            lacking.append(use.__name__)
    expect("portable", " ".join(lacking))
