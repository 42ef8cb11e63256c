"""What a program may do with a connection, against each broker."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.scenarios.acts import SOON
from tests.scenarios.conftest import Connect
from tests.scenarios.expected.model import LIKE
from tests.support.candidates import Candidate

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("inside listeners")]


def test_everything_works_inside_a_listener(connect: Connect, queue: str) -> None:
    connection = connect()
    done: list[str] = []
    over = threading.Event()

    def handle(message: stompy.Message) -> None:
        message.ack()
        connection.send(f"{queue}.echo", message.body, confirm=True)
        done.append(connection.subscribe(f"{queue}.echo").receive(timeout=SOON).text)
        connection.close()
        over.set()

    connection.subscribe(queue, handle, ack="client-individual")
    connection.send(queue, "round")
    assert over.wait(SOON)
    assert done == ["round"]
    with pytest.raises(stompy.NotConnectedError):
        connection.send(queue, "x")


def test_a_listener_that_raises_is_reported_and_the_connection_lives_on(
    connect: Connect, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connect()
    second = threading.Event()

    def handle(message: stompy.Message) -> None:
        if message.text == "bad":
            raise ValueError("on purpose")
        second.set()

    connection.subscribe(queue, handle)
    connection.send(queue, "bad")
    connection.send(queue, "good")
    assert second.wait(SOON)
    assert "on purpose" in caplog.text


def test_sending_after_disconnect_is_refused_and_says_so(connect: Connect, queue: str) -> None:
    connection = connect()
    connection.close()
    connection.close()
    with pytest.raises(stompy.NotConnectedError, match="closed"):
        connection.send(queue, "x")


def test_a_candidate_is_what_it_says(candidate: Candidate, connect: Connect) -> None:
    words = {"embedded": "stompy-broker", "activemq": "ActiveMQ/6.", "activemq5": "ActiveMQ/5.17"}
    words |= {"artemis": "ActiveMQ-Artemis/2.", "rabbitmq3": "RabbitMQ/3.", "rabbitmq4": "RabbitMQ/4."}
    assert (connect().server or "").startswith(words[LIKE.get(candidate.kind, candidate.kind)])
