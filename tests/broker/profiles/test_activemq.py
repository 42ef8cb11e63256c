"""What ActiveMQ says, beyond what the scenarios compare."""

from __future__ import annotations

import pytest

from stompy.broker.profiles import ACTIVEMQ, ACTIVEMQ_5
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.rules import Fault, FaultyFrame
from tests.broker.conftest import Serve

COMMIT = Frame("COMMIT", [("transaction", "t"), ("receipt", "r")])


def test_a_wrong_frame_leaves_the_connection_open() -> None:
    assert ACTIVEMQ.refusals.refuse is not None
    refusal = ACTIVEMQ.refusals.refuse(FaultyFrame(Fault.UNKNOWN_TRANSACTION, "none"), COMMIT, Version.V1_2)
    assert (refusal.message, refusal.closes, refusal.named) == ("Invalid transaction id: t", False, True)


DUPLICATE = "StompWireFormat is configured for 'server' mode and received a duplicate CONNECT or STOMP frame"


@pytest.mark.parametrize(
    ("profile", "message", "closes"), [(ACTIVEMQ, DUPLICATE, True), (ACTIVEMQ_5, "Already connected.", False)]
)
def test_a_second_connect_ends_it_from_6_on(profile: object, message: str, closes: bool) -> None:
    refuse = profile.refusals.refuse  # type: ignore[attr-defined]
    again = Frame("CONNECT", [("receipt", "r")])
    refusal = refuse(FaultyFrame(Fault.COMMAND_NOT_ALLOWED, "the session is open"), again, Version.V1_2)
    assert (refusal.message, refusal.closes) == (message, closes)


def test_a_message_has_the_headers_that_activemq_adds(serve: Serve) -> None:
    client = serve(like="activemq").client()
    client.subscribe("/queue/a")
    client.send("a", "x", priority="7")
    (message,) = client.messages(1)
    assert message.headers["destination"] == "/queue/a"
    assert (message.headers["expires"], message.headers["priority"]) == ("0", "7")
    assert message.headers["timestamp"].isdigit()


def test_version_5_says_that_it_is_not_connected_and_waits(serve: Serve) -> None:
    client = serve(like="activemq5").dial()
    client.raw(b"SEND\ndestination:/queue/a\nreceipt:r\n\nx\0")
    error = client.expect("ERROR")
    assert (error.headers["message"], error.headers["receipt-id"]) == ("Not connected.", "r")
    client.expect_another_handshake()
    client.connect()
    client.sync()


def test_a_subscription_that_is_taken_with_an_unknown_mode_can_be_ended(serve: Serve) -> None:
    client = serve(like="activemq").client()
    client.subscribe("/queue/a", "banana")
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.send("/queue/a", "x")
    assert client.idle()
