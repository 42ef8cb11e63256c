"""What ActiveMQ says, beyond what the scenarios compare."""

from __future__ import annotations

import pytest

from stompy.broker import Like
from stompy.broker.profile import Profile
from stompy.broker.profiles import ACTIVEMQ, ACTIVEMQ_5
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.rules import Fault, FaultyFrame
from tests.broker.conftest import Serve

COMMIT = Frame("COMMIT", [("transaction", "t"), ("receipt", "r")])


def test_a_wrong_frame_leaves_the_connection_open() -> None:
    assert ACTIVEMQ.refuse is not None
    refusal = ACTIVEMQ.refuse(ACTIVEMQ, FaultyFrame(Fault.UNKNOWN_TRANSACTION, "none"), COMMIT, Version.V1_2)
    assert (refusal.message, refusal.closes, refusal.named) == ("Invalid transaction id: t", False, True)


def test_persistent_messages_are_first_only_among_those_that_no_subscriber_has_met(serve: Serve) -> None:
    served = serve(like="activemq")
    client, other = served.client(), served.client()
    other.subscribe("/queue/a", "client-individual", **{"activemq.prefetchSize": "1"})
    for text in ("1", "2", "3"):
        client.send("/queue/a", text)
    client.sync()
    other.messages(1)
    other.sure("UNSUBSCRIBE", {"id": "1"})
    for text, persistent in (("6", "false"), ("4", "true"), ("5", "true")):
        client.send("/queue/a", text, persistent=persistent)
    client.sync()
    client.subscribe("/queue/a")
    assert b"".join(message.body for message in client.messages(6)) == b"123456"


DUPLICATE = "StompWireFormat is configured for 'server' mode and received a duplicate CONNECT or STOMP frame"


@pytest.mark.parametrize(
    ("profile", "message", "closes"), [(ACTIVEMQ, DUPLICATE, True), (ACTIVEMQ_5, "Already connected.", False)]
)
def test_a_second_connect_ends_it_from_6_on(profile: Profile, message: str, closes: bool) -> None:
    assert profile.refuse is not None
    again = Frame("CONNECT", [("receipt", "r")])
    error = FaultyFrame(Fault.COMMAND_NOT_ALLOWED, "the session is open")
    refusal = profile.refuse(profile, error, again, Version.V1_2)
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


def test_version_5_writes_the_old_names_of_packages_in_all_refusals(serve: Serve) -> None:
    client = serve(like="activemq5").client("1.1", **{"client-id": "c"})
    client.say("SUBSCRIBE", {"destination": "/temp-topic/a", "id": "1", "activemq.subscriptionName": "s"})
    assert client.expect("ERROR").body.startswith(b"javax.jms.JMSException: A durable subscription cannot be created")


@pytest.mark.parametrize("like", ["activemq", "activemq5"])
@pytest.mark.parametrize("beats", ["0, 0", "abc"])
def test_a_wrong_heart_beat_is_refused_with_the_receipt(serve: Serve, like: Like, beats: str) -> None:
    client = serve(like=like).dial()
    client.say("CONNECT", {"accept-version": "1.2", "host": "localhost", "heart-beat": beats, "receipt": "r"})
    error = client.expect("ERROR")
    assert (error.headers["message"], error.headers["receipt-id"]) == (f"Invalid heart-beat header:{beats}", "r")


def test_an_ack_in_1_0_that_names_another_subscription_is_refused(serve: Serve) -> None:
    client = serve(like="activemq").client("1.0")
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    (message,) = client.messages(1)
    client.say("ACK", {"message-id": message.headers["message-id"], "subscription": "other"})
    assert client.expect("ERROR").headers["message"].startswith("Unexpected ACK received")


def test_a_send_is_read_before_its_transaction_is_looked_up(serve: Serve) -> None:
    client = serve(like="activemq").client()
    client.say("SEND", {"destination": "/queue/a", "transaction": "none", "priority": "x"})
    assert client.rest() == []


def test_an_invalid_selector_on_a_topic_says_less(serve: Serve) -> None:
    client = serve(like="activemq").client()
    client.say("SUBSCRIBE", {"destination": "/topic/a", "id": "1", "selector": "n ="})
    assert client.expect("ERROR").headers["message"] == "Couldn't create TopicSubscription"


@pytest.mark.parametrize("like", ["activemq", "activemq5"])
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_client_id_that_is_taken_is_refused_whichever_command_begins_the_session(
    serve: Serve, like: Like, command: str
) -> None:
    served = serve(like=like)
    served.client(**{"client-id": "c"})
    second = served.dial()
    second.raw(f"{command}\naccept-version:1.2\nhost:h\nclient-id:c\n\n\0".encode())
    assert "Client: c already connected from tcp://" in second.expect("ERROR").headers["message"]
