"""Unit tests of handlers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

import stompy
from stompy.testing import message
from stompy.worker.worker import SentMessage


def test_a_handler_gets_a_message_as_if_it_had_been_received() -> None:
    made = message({"id": 7}, headers={"colour": "red", "n": 1})
    assert isinstance(made, stompy.Message)
    assert made.json() == {"id": 7}
    assert (made.headers["colour"], made.headers["n"], made.destination) == ("red", "1", "/queue/test")
    assert (made.ack_mode, made.settled, made.redelivered, made.session_ended) == ("handled", None, False, False)
    assert message("Gr\u00fc\u00dfe").text == "Gr\u00fc\u00dfe"
    assert message(b"\0").body == b"\0"
    assert message().message_id != message().message_id
    assert message(headers={"message-id": "m", "redelivered": "true"}).redelivered


@pytest.mark.parametrize(("method", "command"), [("ack", "ACK"), ("nack", "NACK")])
def test_what_the_handler_settles_is_recorded_once(method: str, command: str) -> None:
    made = message()
    getattr(made, method)()
    assert made.settled == command
    with pytest.raises(stompy.AckError):
        made.ack()


def test_receipts_are_confirmed_at_once() -> None:
    message().ack_async().result(0)
    message().nack_async().result(0)
    made = message()
    made.ack(confirm=True)
    assert made.settled == "ACK"


def test_a_block_settles_it() -> None:
    made = message()
    with made:
        pass
    assert made.settled == "ACK"
    bad = message(b"no json")
    with pytest.raises(stompy.BodyDecodeError), bad:
        bad.json()
    assert bad.settled == "NACK"


def test_in_mode_auto_there_is_nothing_to_settle() -> None:
    with pytest.raises(stompy.AckError):
        message(ack="auto").ack()


def test_what_it_sends_is_recorded() -> None:
    sent: list[SentMessage] = []
    made = message("x", headers={"reply-to": "/queue/r", "correlation-id": "c"}, sent=sent)
    made.reply({"ok": True}, confirm=True)
    made.forward("/queue/next", priority=3)
    assert [(each.destination, each.body) for each in sent] == [("/queue/r", {"ok": True}), ("/queue/next", b"x")]
    assert sent[0].options["headers"] == {"correlation-id": "c"}
    assert sent[1].options["priority"] == 3
    with pytest.raises(stompy.MessageError):
        message().reply()


@pytest.mark.parametrize("wrong", [{"destination": ""}, {"headers": {"a": None}}, {"body": None}])
def test_what_could_not_have_been_sent_cannot_be_received(wrong: dict[str, Any]) -> None:
    with pytest.raises(stompy.StompError):
        message(**wrong)


def test_a_task_may_answer_and_settle_where_there_is_no_broker() -> None:
    worker = stompy.Worker("stomp://127.0.0.1:1")

    @worker.task("/queue/a")
    def handle(received: stompy.Message) -> None:
        received.reply("yes")
        received.ack()

    ran = worker.run_once("/queue/a", "x", headers={"reply-to": "/queue/r"})
    assert (ran.outcome, [each.destination for each in ran.sent]) == ("processed", ["/queue/r"])


def test_an_option_that_is_given_twice_is_an_error_as_with_a_broker() -> None:
    sent: list[SentMessage] = []
    received = message("x", headers={"reply-to": "/queue/r", "priority": "3"}, sent=sent)
    with pytest.raises(stompy.ConfigurationError, match="priority= and header 'priority'"):
        received.reply("y", priority=4, headers={"priority": "4"})
    received.forward("/queue/b", priority=4)
    assert [(each.destination, each.options.get("priority")) for each in sent] == [("/queue/b", 4)]
