"""A received message, and how it is settled in each version."""

from __future__ import annotations

import logging

import pytest

from stompy.errors import AckError, BodyDecodeError, LocalProtocolError
from tests.connection.conftest import Talking
from tests.support.peer import until


@pytest.mark.requirement("SRV-03", "REP-01")
def test_it_shows_what_came(talking: Talking) -> None:
    talk = talking()
    headers = {"content-type": "text/plain;charset=utf-8", "redelivered": "true", "x": "1"}
    message = talk.received("é", headers=headers, id="m-7")
    assert message.body == "é".encode()
    assert message.text == "é"
    assert (message.destination, message.message_id, message.subscription) == ("/queue/a", "m-7", "1")
    assert message.redelivered
    assert message.headers["x"] == "1"
    assert "content-length" in message.headers
    assert (message.ack_mode, message.settled) == ("client-individual", None)
    assert repr(message) == "<Message 'm-7' from '/queue/a' b'\\xc3\\xa9'>"


def test_of_a_repeated_header_the_first_wins_and_all_are_kept(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    pairs = [("destination", "/queue/a"), ("message-id", "1"), ("subscription", "1"), ("x", "first"), ("x", "second")]
    talk.peer.say("MESSAGE", pairs)
    message = subscription.receive()
    assert message.headers["x"] == "first"
    assert message.headers.getall("x") == ("first", "second")


@pytest.mark.requirement("BDY-13")
def test_a_body_that_is_not_text_is_an_error_that_keeps_the_bytes(talking: Talking) -> None:
    message = talking().received(b"\xff\x00", headers={"content-type": "text/plain"})
    with pytest.raises(BodyDecodeError) as caught:
        _ = message.text
    assert caught.value.body == b"\xff\x00"
    with pytest.raises(BodyDecodeError):
        message.json()


def test_json_is_read(talking: Talking) -> None:
    assert talking().received(b'{"n": 1}', headers={"content-type": "application/json"}).json() == {"n": 1}


# The frames


@pytest.mark.requirement("ACK-09", "ACK-10", "ACK-11", "ACK-17", "SUB-16")
@pytest.mark.parametrize(
    ("version", "headers"),
    [
        ("1.0", {"message-id": "m-7", "subscription": "1"}),
        ("1.1", {"message-id": "m-7", "subscription": "1"}),
        ("1.2", {"id": "a-9"}),
    ],
)
def test_an_ack_names_the_message_as_its_version_wants_it(
    talking: Talking, version: str, headers: dict[str, str]
) -> None:
    talk = talking(version)
    message = talk.received(b"", id="m-7", ack="a-9" if version == "1.2" else None)
    message.ack()
    assert dict(talk.peer.expect("ACK").headers) == headers
    assert message.settled == "ACK"


@pytest.mark.requirement("ACK-10", "ACK-11")
@pytest.mark.parametrize(
    ("version", "headers"), [("1.1", {"message-id": "m-7", "subscription": "1"}), ("1.2", {"id": "a-9"})]
)
def test_a_nack_names_the_message_as_its_version_wants_it(
    talking: Talking, version: str, headers: dict[str, str]
) -> None:
    talk = talking(version)
    message = talk.received(b"", id="m-7", ack="a-9" if version == "1.2" else None)
    message.nack()
    assert dict(talk.peer.expect("NACK").headers) == headers
    assert repr(message).endswith(" NACK>")


@pytest.mark.requirement("ACK-14")
def test_1_0_has_no_nack_and_the_message_can_still_be_acked(talking: Talking) -> None:
    talk = talking("1.0")
    message = talk.received(b"")
    with pytest.raises(LocalProtocolError, match=r"1\.0 has no NACK"):
        message.nack()
    message.ack()
    talk.peer.expect("ACK")


def test_an_ack_may_ask_for_a_receipt(talking: Talking) -> None:
    talk = talking()
    receipt = talk.received(b"").ack_async()
    assert receipt is not None
    talk.peer.expect_and_confirm("ACK")
    receipt.result()


def test_a_message_that_lacks_what_the_version_needs_cannot_be_acked(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a", ack="client")
    talk.peer.deliver("x", subscription=subscription.id)
    message = subscription.receive()
    with pytest.raises(LocalProtocolError, match="no 'ack' header"):
        message.ack()
    assert message.settled is None
    assert talk.peer.quiet()


# As a block


def test_a_block_acks_at_its_end(talking: Talking) -> None:
    talk = talking()
    with talk.received(b"") as message:
        assert talk.peer.quiet()
    talk.peer.expect("ACK")
    assert message.settled == "ACK"


@pytest.mark.requirement("ACK-08")
def test_a_block_that_raises_nacks_and_raises(talking: Talking) -> None:
    talk = talking(server="stompy-broker/1")
    with pytest.raises(ZeroDivisionError), talk.received(b""):
        _ = 1 / 0
    talk.peer.expect("NACK")


@pytest.mark.parametrize(("server", "why"), [("ActiveMQ/6.3.1", "non-persistent"), ("peer/1", "does not know")])
def test_a_block_that_raises_leaves_what_the_broker_might_not_keep(
    talking: Talking, caplog: pytest.LogCaptureFixture, server: str, why: str
) -> None:
    talk = talking(server=server)
    with pytest.raises(ZeroDivisionError), talk.received(b"") as message:
        _ = 1 / 0
    assert why in caplog.text
    message.ack()
    talk.peer.expect("ACK")


@pytest.mark.parametrize("settle", ["ack", "nack"])
def test_a_block_that_settled_the_message_itself_is_left_alone(talking: Talking, settle: str) -> None:
    talk = talking()
    with talk.received(b"") as message:
        getattr(message, settle)()
    talk.peer.expect(settle.upper())
    assert talk.peer.quiet()


def test_a_block_over_a_message_of_auto_mode_sends_nothing(talking: Talking) -> None:
    talk = talking()
    with talk.received(b"", mode="auto"):
        pass
    with pytest.raises(ZeroDivisionError), talk.received(b"", mode="auto", headers={}):
        _ = 1 / 0
    assert talk.peer.quiet()


def test_a_block_that_raises_in_1_0_leaves_the_message_unacked(
    talking: Talking, caplog: pytest.LogCaptureFixture
) -> None:
    talk = talking("1.0")
    with caplog.at_level(logging.INFO, "stompy"), pytest.raises(ZeroDivisionError), talk.received(b""):
        _ = 1 / 0
    assert talk.peer.quiet()
    assert "sent no NACK for message" in caplog.text


def test_a_block_over_a_message_that_a_later_ack_covered_sends_nothing(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a", ack="client")
    talk.peer.raw(talk.peer.message(ack="1") + talk.peer.message(ack="2"))
    first, second = subscription.receive(), subscription.receive()
    with first:
        second.ack()
    talk.peer.expect("ACK")
    assert talk.peer.quiet()


def test_a_block_whose_link_died_says_so(talking: Talking) -> None:
    talk = talking()
    message = talk.received(b"")

    def block() -> None:
        with message:
            talk.peer.close()
            until(lambda: not talk.conn.connected)

    with pytest.raises(AckError, match="session that delivered this message has ended"):
        block()
    assert message.settled is None
