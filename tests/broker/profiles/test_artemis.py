"""What Artemis says, beyond what the scenarios compare."""

from __future__ import annotations

import pytest

from stompy.broker.profiles import ARTEMIS, least
from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame
from stompy.frames.grammar import Version
from stompy.protocol.heartbeat import HeartbeatOffer
from tests.broker.conftest import Serve


@pytest.mark.parametrize(
    ("asked", "answered"), [((100, 100), (500, 500)), ((5000, 0), (0, 5000)), ((0, 5000), (5000, 30_000))]
)
def test_heart_beats_have_a_least_interval(asked: tuple[int, int], answered: tuple[int, int]) -> None:
    assert least(HeartbeatOffer(*asked)) == HeartbeatOffer(*answered)


def test_in_1_2_an_error_is_the_last_but_one() -> None:
    assert ARTEMIS.refuse is not None
    frame = Frame("ABORT", [("transaction", "t")])
    lasts = [
        ARTEMIS.refuse(ARTEMIS, RemoteProtocolError("wrong"), frame, version).last
        for version in (Version.V1_0, Version.V1_1, Version.V1_2)
    ]
    assert lasts == [False, False, True]


def test_a_window_of_0_is_one_message_at_a_time(serve: Serve) -> None:
    client = serve(like="artemis").client()
    client.send("/queue/a", "1", "2")
    client.subscribe("/queue/a", "client", consumer_window_size="0")
    client.ack(client.messages(1)[0])
    assert client.bodies(1) == ["2"]


def test_a_send_adds_to_a_transaction_that_is_begun_after_it(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    client.send("/queue/a", "x", transaction="t")
    assert served.depth("/queue/a") == (0, 0)
    client.sure("BEGIN", {"transaction": "t"})
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_send_that_is_refused_begins_none(serve: Serve, command: str) -> None:
    client = serve(like="artemis").client("1.1")
    client.say("SEND", {"destination": "/queue/a", "transaction": "t", "destination-type": "wrong"})
    client.expect("ERROR")
    client.say(command, {"transaction": "t"})
    client.expect("ERROR")


def test_such_a_transaction_cannot_be_committed_before_its_begin(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    send = client.encoded("SEND", {"destination": "/queue/a", "transaction": "t"}, b"x")
    client.raw(send + client.encoded("COMMIT", {"transaction": "t", "receipt": "r"}))
    assert client.expect("ERROR").headers["message"] == "AMQ339013 Error committing t"
    assert served.depth("/queue/a") == (0, 0)


def test_the_last_header_of_a_name_counts_before_1_2(serve: Serve) -> None:
    client = serve(like="artemis").client("1.1")
    client.subscribe("/queue/b")
    client.raw(b"SEND\ndestination:/queue/a\ndestination:/queue/b\nk:a:b\ncontent-length:1\n\nxy\0")
    message = client.expect("MESSAGE")
    assert (message.headers["k"], message.body) == ("ab", b"x")


def test_a_topic_of_the_name_of_a_queue_is_that_queue(serve: Serve) -> None:
    client = serve(like="artemis").client()
    client.send("/queue/a", "x")
    client.subscribe("/topic/a")
    assert client.bodies(1) == ["x"]


def test_a_temporary_queue_has_one_name_for_all(serve: Serve) -> None:
    served = serve(like="artemis")
    client, other = served.client(), served.client()
    client.subscribe("/temp-queue/a")
    other.send("/temp-queue/a", "x")
    assert client.bodies(1) == ["x"]


def test_a_second_connect_is_answered(serve: Serve) -> None:
    client = serve(like="artemis").client()
    client.say("CONNECT", {"accept-version": "1.2", "host": "h"})
    assert client.expect("CONNECTED").headers["version"] == "1.2"
    client.sync()


def test_what_comes_before_connect_is_ignored(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.dial()
    client.raw(b"SEND\ndestination:/queue/a\n\nx\0")
    client.connect()
    assert served.depth("/queue/a") == (0, 0)
    silent = served.dial()
    silent.raw(b"GET / HTTP/1.1\r\n\r\n")
    silent.raw(b"\r\n")
    assert silent.recv(0.1) == b""


def test_a_name_with_commas_is_one(serve: Serve) -> None:
    served = serve(like="artemis")
    served.client().send("/queue/a,/queue/b", "x")
    assert served.depth("/queue/a,/queue/b") == (1, 0)


def test_of_what_a_lost_session_gives_back_the_first_alone_says_so(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", *"0123")
    client.ack(client.messages(4)[2])
    client.disconnect()
    client = served.client()
    client.subscribe("/queue/a")
    again = [(message.body, message.headers["redelivered"]) for message in client.messages(3)]
    assert again == [(b"0", "true"), (b"1", "false"), (b"3", "false")]


def test_of_what_a_lost_connection_gives_back_all_says_so(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", *"01")
    client.messages(2)
    client.close()
    client = served.client()
    client.subscribe("/queue/a")
    assert [message.headers["redelivered"] for message in client.messages(2)] == ["true", "true"]


def test_after_an_error_the_connection_ends_by_itself_in_1_2_alone(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    client.say("BEGIN", {})
    client.expect("ERROR")
    assert client.recv(10) == b""
    client = served.client("1.1")
    client.say("BEGIN", {})
    client.expect("ERROR")
    client.sure("SEND", {"destination": "/queue/a"})


def test_a_frame_on_its_way_after_the_last_error_gets_one_too(serve: Serve) -> None:
    served = serve(like="artemis")
    client = served.client()
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", *"01")
    client.messages(2)
    client.raw(client.encoded("BEGIN", {}) + client.encoded("SEND", {"destination": "/queue/a"}))
    client.expect("ERROR")
    assert client.expect("ERROR").headers["message"] == "AMQ339010 Connection is not valid."
    assert client.recv(10) == b""
    client = served.client()
    client.subscribe("/queue/a")
    assert [message.headers["redelivered"] for message in client.messages(2)] == ["true", "false"]


@pytest.mark.parametrize(
    ("mode", "window", "frames", "more"),
    [
        ("client", {}, 9, 3),
        ("client", {"consumer-window-size": "-1"}, 12, 0),
        ("client", {"consumer-window-size": "0"}, 1, 1),
        ("client", {"activemq.prefetchSize": "1", "consumer-window-size": "3000"}, 3, 3),
        ("auto", {}, 12, 0),
        ("auto", {"activemq.prefetchSize": "3000"}, 3, 0),
    ],
)
def test_a_window_is_one_of_bytes(serve: Serve, mode: str, window: dict[str, str], frames: int, more: int) -> None:
    client = serve(like="artemis").client()
    client.send("/queue/a", *["x" * 1000] * 12)
    client.sure("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": mode, **window})
    assert len(client.sync()) == frames
    last = client.messages(frames)[-1]
    if mode == "client":
        client.ack(last)
    assert len(client.sync()) == more


@pytest.mark.parametrize(("more", "frames"), [(0, 1), (1, 2)])
def test_the_frame_that_uses_up_a_window_counts_with_its_ends(serve: Serve, more: int, frames: int) -> None:
    client = serve(like="artemis").client()
    client.send("/queue/a", *"012")
    client.subscribe("/queue/a", "client", consumer_window_size="0")
    (message,) = client.messages(1)
    size = len(client.encoded("MESSAGE", message.headers, message.body)) + len("\n")
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.subscribe("/queue/a", "client", consumer_window_size=str(size + more))
    assert len(client.sync()) == frames


def test_subscriptions_without_an_id_have_that_of_their_address(serve: Serve) -> None:
    client = serve(like="artemis").client("1.0")
    client.say("SUBSCRIBE", {"destination": "/queue/a"})
    client.say("SUBSCRIBE", {"destination": "/topic/a"})
    assert "already is a subscription for: subscription/a." in client.expect("ERROR").headers["message"]
    client.sure("UNSUBSCRIBE", {"destination": "/topic/a"})
    client.say("UNSUBSCRIBE", {"destination": "/queue/a"})
    assert "no subscription exists for id: subscription/a" in client.expect("ERROR").headers["message"]


@pytest.mark.parametrize(
    ("version", "command", "headers", "message"),
    [
        ("1.0", "ACK", {}, "AMQ339018 Error acknowledging message null"),
        ("1.1", "ACK", {"subscription": "1"}, "AMQ339018 Error acknowledging message null"),
        ("1.1", "NACK", {"message-id": "1"}, "AMQ339037 Must specify the subscription's id"),
        ("1.2", "ACK", {}, "AMQ339039 No id header in ACK/NACK frame."),
        ("1.1", "UNSUBSCRIBE", {"destination": "/queue/a"}, "AMQ339037 Must specify the subscription's id"),
        ("1.1", "SEND", {"destination": "/queue/a", "x": "a\\rb"}, r"AMQ339040 Undefined escape sequence \r"),
        (
            "1.1",
            "SUBSCRIBE",
            {"id": "1", "destination": "/queue/a", "subscription-type": "x"},
            "No enum constant org.apache.activemq.artemis.api.core.RoutingType.x",
        ),
    ],
)
def test_each_error_has_its_words(
    serve: Serve, version: str, command: str, headers: dict[str, str], message: str
) -> None:
    client = serve(like="artemis").client(version)
    client.raw("".join([f"{command}\n", *(f"{name}:{value}\n" for name, value in headers.items()), "\n\0"]).encode())
    assert client.expect("ERROR").headers["message"] == message


@pytest.mark.parametrize(
    ("beats", "message"), [("0, 0", 'For input string: " 0"'), ("x", "Incorrect heartbeat header x")]
)
def test_a_heart_beat_that_is_no_number_is_refused(serve: Serve, beats: str, message: str) -> None:
    client = serve(like="artemis").dial()
    client.raw(f"CONNECT\naccept-version:1.1\nhost:h\nheart-beat:{beats}\n\n\0".encode())
    assert client.expect("ERROR").headers["message"] == message


@pytest.mark.parametrize(("version", "lines"), [("1.0", 1), ("1.1", 2)])
def test_a_header_of_the_sender_takes_the_place_of_the_brokers_own_in_1_0(
    serve: Serve, version: str, lines: int
) -> None:
    client = serve(like="artemis").client(version)
    client.subscribe("/queue/a")
    client.say("SEND", {"destination": "/queue/a", "timestamp": "5", "destination-type": "ANYCAST", "message-id": "x"})
    pairs = client.expect("MESSAGE").headers.pairs
    for name in ("timestamp", "destination-type", "message-id"):
        assert len([value for key, value in pairs if key == name]) == lines
    assert (("message-id", "x") in pairs[:3]) is (version == "1.0")
