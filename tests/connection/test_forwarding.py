"""Answers to a message, and sending it on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import Talk, Talking
from tests.support.peer import WITHIN


@pytest.fixture
def conn() -> Iterator[stompy.Connection]:
    with Broker() as broker, stompy.connect(broker.url) as connection:
        yield connection


def received(talk: Talk, **headers: str) -> stompy.Message:
    return talk.received("body", headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_a_server_answers_requests_with_a_lambda(conn: stompy.Connection) -> None:
    conn.subscribe("/queue/rpc", lambda message: message.reply({"twice": 2 * message.json()}))
    assert [conn.request("/queue/rpc", n, timeout=WITHIN).json() for n in range(3)] == [
        {"twice": 2 * n} for n in range(3)
    ]


def test_an_answer_goes_to_reply_to_with_the_correlation_id_or_the_message_id(talking: Talking) -> None:
    talk = talking()
    received(talk, reply_to="/queue/answers", correlation_id="c-1").reply(
        "yes", headers={"n": 1}, content_type="text/x"
    )
    frame = talk.peer.expect("SEND")
    assert frame.headers["destination"] == "/queue/answers"
    assert (frame.headers["correlation-id"], frame.headers["n"]) == ("c-1", "1")
    assert frame.headers["content-type"].startswith("text/x")
    assert frame.body == b"yes"
    message = received(talk, reply_to="/queue/answers")
    message.reply()
    assert talk.peer.expect("SEND").headers["correlation-id"] == message.message_id
    message.reply(headers={"correlation-id": "mine"})
    assert talk.peer.expect("SEND").headers["correlation-id"] == "mine"


@pytest.mark.parametrize("headers", [{}, {"reply_to": ""}])
def test_a_message_that_wants_no_answer_gets_none(talking: Talking, headers: dict[str, str]) -> None:
    talk = talking()
    with pytest.raises(stompy.MessageError, match="has no reply-to"):
        received(talk, **headers).reply("x")
    assert talk.peer.quiet()


OF_THE_DELIVERY = {
    "redelivered": "true", "timestamp": "1", "persistent": "true", "content-length": "4", "receipt": "r-9",
    "transaction": "t", "x-delivery-count": "3", "browser": "x",
}  # fmt: skip
OF_THE_MESSAGE = {
    "colour": "red",
    "correlation-id": "c",
    "reply-to": "/queue/r",
    "stompy-attempt": "2",
    "priority": "7",
}


def test_what_belongs_to_the_message_is_sent_on_and_what_belongs_to_its_delivery_is_not(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    message = talk.received("body", headers={**OF_THE_DELIVERY, **OF_THE_MESSAGE, "content-type": "text/csv"})
    message.forward("/queue/next")
    frame = talk.peer.expect("SEND")
    sent = dict(frame.headers)
    assert sent.pop("destination") == "/queue/next"
    assert sent.pop("content-type") == "text/csv"
    assert sent.pop("persistent") == "true"
    assert sent.pop("content-length") == "4"
    assert sent == OF_THE_MESSAGE
    assert frame.body == b"body"
    assert message.settled is None


def test_options_count_more_than_the_headers_of_the_message(talking: Talking) -> None:
    talk = talking(server="ActiveMQ/6.3.1")
    message = talk.received("body", headers={**OF_THE_DELIVERY, **OF_THE_MESSAGE})
    message.forward("/queue/next", priority=1, persistent=False, headers={"colour": "blue"}, content_type="text/plain")
    headers = talk.peer.expect("SEND").headers
    assert (headers["priority"], headers["persistent"], headers["colour"]) == ("1", "false", "blue")
    assert headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("body", [b"", b"\0\xff", "Gr\u00fc\u00dfe", {"n": 1}])
def test_a_transaction_forwards_a_message_and_acknowledges_it(conn: stompy.Connection, body: Any) -> None:
    conn.send("/queue/in", body, headers={"colour": "red"})
    message = conn.subscribe("/queue/in").receive(timeout=WITHIN)
    with conn.transaction() as tx:
        tx.ack(message)
        tx.forward(message, "/queue/out", headers={"step": 2})
    copy = conn.subscribe("/queue/out").receive(timeout=WITHIN)
    assert copy.body == message.body
    assert copy.headers.get("content-type") == message.headers.get("content-type")
    assert (copy.headers["colour"], copy.headers["step"]) == ("red", "2")
    assert copy.message_id != message.message_id


def test_a_forgotten_connection_sends_nothing(talking: Talking) -> None:
    talk = talking()
    message = talk.received("body", headers={"reply-to": "/queue/r"})
    leaving = talk.leave()
    talk.peer.expect_disconnect()
    leaving.result()
    with pytest.raises(stompy.NotConnectedError):
        message.reply()
    with pytest.raises(stompy.NotConnectedError):
        message.forward("/queue/next")
