"""Programs in the style of RabbitMQ's adapter, beyond what the scenarios compare."""

from __future__ import annotations

import re

import pytest

from stompy.broker import BrokerLimits, User
from stompy.broker.broker import Like
from stompy.broker.profile import Declaration
from stompy.broker.rabbitmq import declares, read, reply_name
from stompy.protocol.rules import Fault, FaultyFrame
from tests.broker.conftest import Serve


def test_a_durable_queue_is_bound_to_a_topic(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    durable = {"durable": "true", "auto-delete": "false", "x-queue-name": "mine"}
    sender, owner = served.client(host="/"), served.client(host="/", client_id="me")
    owner.sure("SUBSCRIBE", {"destination": "/topic/a.#", "id": "1", "ack": "client", **durable})
    owner.disconnect()
    sender.send("/topic/a.b", "x")
    owner = served.client(host="/", client_id="me")
    owner.sure("SUBSCRIBE", {"destination": "/topic/a.#", "id": "1", "ack": "client", **durable})
    assert owner.bodies(1) == ["x"]


def test_a_refused_message_comes_again_unless_requeue_says_otherwise(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.subscribe("/queue/a", "client-individual", prefetch_count="1")
    client.send("/queue/a", "x")
    for redelivered in ("false", "true", "true"):
        (message,) = client.messages(1)
        assert message.headers["redelivered"] == redelivered
        client.nack(message)
    client.nack(client.messages(1)[0], requeue="false")
    client.sync()
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
def test_a_temporary_queue_of_another_kind_is_refused_for_the_command(serve: Serve, command: str) -> None:
    client = serve(like="rabbitmq").client("1.2", host="/")
    client.say(command, {"destination": "/temp-queue/a", "id": "1"})
    assert client.expect("ERROR").body == f"'/temp-queue/a' is not a valid destination for '{command}'\n".encode()


def test_an_unknown_destination_is_refused_and_the_connection_stays(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say("SEND", {"destination": "/nowhere/a", "receipt": "r"})
    assert "receipt-id" not in client.expect("ERROR").headers
    client.sync()


@pytest.mark.parametrize(
    ("name", "kept", "shown"),
    [
        ("a", "/queue/a", "/queue/a"),
        ("/amq/queue/a", "/queue/a", "/queue/a"),
        ("/exchange/amq.topic/a.#", "/topic/a.#", "/topic/a.#"),
        ("/exchange/amq.fanout/k", "/topic//amq.fanout/", "/exchange/amq.fanout/k"),
        ("/exchange/amq.fanout", "/topic//amq.fanout/", "/exchange/amq.fanout"),
        ("/exchange/amq.direct/*", "/topic//amq.direct/=*", "/exchange/amq.direct/*"),
        ("/reply-queue/other", "/queue/other", "/queue/other"),
    ],
)
def test_what_a_name_stands_for(name: str, kept: str, shown: str) -> None:
    assert read(name) == (kept, shown)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("/queue/", Fault.INVALID_DESTINATION),
        ("/queue", Fault.INVALID_DESTINATION),
        ("/exchange", Fault.INVALID_DESTINATION),
        ("/exchange//a", Fault.INVALID_DESTINATION),
        ("/exchange/amq.direct/a/b", Fault.INVALID_DESTINATION),
        ("/temp-queue/a", Fault.INVALID_DESTINATION),
        ("/nowhere/a", Fault.UNKNOWN_DESTINATION),
        ("/exchange/mine/a", Fault.UNKNOWN_EXCHANGE),
    ],
)
def test_a_name_that_stands_for_nothing(name: str, fault: Fault) -> None:
    with pytest.raises(FaultyFrame) as refused:
        read(name)
    assert refused.value.fault is fault


def test_a_reply_name_leads_back() -> None:
    name = "/remote-temp-queue/s-1/answers"
    assert read(reply_name(name))[0] == name


@pytest.mark.parametrize(
    ("headers", "declared"),
    [
        ({"destination": "/queue/a"}, Declaration()),
        ({"destination": "/queue/a", "auto-delete": "true"}, Declaration(auto_delete=True)),
        ({"destination": "/amq/queue/a", "auto-delete": "true"}, None),
        ({"destination": "/topic/a"}, None),
        ({"destination": "/topic/a", "x-queue-name": "q"}, Declaration("q", auto_delete=True, exclusive=True)),
        ({"destination": "/topic/a", "x-queue-name": "q", "durable": "true", "auto-delete": "false"}, Declaration("q")),
        ({"destination": "/topic/a", "x-queue-name": "q", "durable": "True", "auto-delete": "False"}, Declaration("q")),
        (
            {"destination": "/queue/a", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "b"},
            Declaration(
                letters="/queue/b",
                arguments=(
                    ("x-dead-letter-exchange", "the value '' of type 'longstr'"),
                    ("x-dead-letter-routing-key", "the value 'b' of type 'longstr'"),
                ),
            ),
        ),
        (
            {"destination": "/queue/a", "x-max-length": "3", "x-message-ttl": "1500", "x-expires": "2000"},
            Declaration(
                max_length=3,
                lifetime=1.5,
                unused=2.0,
                arguments=(
                    ("x-expires", "the value '2000' of type 'long'"),
                    ("x-message-ttl", "the value '1500' of type 'long'"),
                    ("x-max-length", "the value '3' of type 'long'"),
                ),
            ),
        ),
        (
            {"destination": "/topic/a", "x-queue-name": "q", "x-max-priority": "5"},
            Declaration(
                "q",
                auto_delete=True,
                exclusive=True,
                max_priority=5,
                arguments=(("x-max-priority", "the value '5' of type 'long'"),),
            ),
        ),
    ],
)
def test_what_a_subscribe_declares(headers: dict[str, str], declared: Declaration | None) -> None:
    assert declares(headers.get) == declared


def test_a_durable_queue_without_a_name_is_found_again_by_its_id(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    durable = {"durable": "true", "auto_delete": "false"}
    owner = served.client(host="/")
    owner.subscribe("/topic/a", "client", **durable)
    owner.disconnect()
    served.client(host="/").send("/topic/a", "x")
    owner = served.client(host="/")
    owner.subscribe("/topic/a", "client", **durable)
    assert owner.bodies(1) == ["x"]


@pytest.mark.parametrize("header", ["durable", "persistent"])
def test_an_unsubscribe_that_says_so_deletes_the_queue_of_a_durable_subscription(serve: Serve, header: str) -> None:
    owner = serve(like="rabbitmq").client(host="/")
    subscribed = {"destination": "/topic/a", "id": "mine", "durable": "true", "auto-delete": "false"}
    owner.sure("SUBSCRIBE", subscribed)
    owner.sure("UNSUBSCRIBE", {"id": "mine", header: "true"})
    owner.send("/topic/a", "lost")
    owner.sure("SUBSCRIBE", subscribed)
    owner.send("/topic/a", "x")
    assert owner.bodies(1) == ["x"]


@pytest.mark.parametrize("named", [{}, {"subscription": "another"}])
def test_an_ack_is_known_by_its_message_alone(serve: Serve, named: dict[str, str]) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/", version="1.1")
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "x")
    client.sure("ACK", {"message-id": client.messages(1)[0].headers["message-id"], **named})
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize(("version", "named"), [("1.2", "ack"), ("1.1", "message-id")])
def test_a_message_id_names_the_subscription_the_session_and_the_number_of_the_delivery(
    serve: Serve, version: str, named: str
) -> None:
    served = serve(like="rabbitmq")
    client = served.dial(version)
    session = client.connect(host="/").headers["session"]
    for identity in ("a@b", "50%d"):
        client.sure("SUBSCRIBE", {"destination": f"/queue/{identity}", "id": identity, "ack": "client-individual"})
        client.send(f"/queue/{identity}", "x")
    first, second = client.messages(2)
    assert (first.headers["message-id"], first.headers[named]) == (f"T_a@b@@{session}@@1",) * 2
    client.say("NACK", {"message-id": first.headers[named], "id": first.headers[named], "subscription": "a@b"})
    (again,) = client.messages(1)
    assert [each.headers[named] for each in (second, again)] == [f"T_50%d@@{session}@@2", f"T_a@b@@{session}@@3"]
    client.sure("ACK", {"message-id": again.headers[named], "id": again.headers[named], "subscription": "a@b"})
    assert served.depth("/queue/a@b") == (0, 0)


def test_a_message_id_is_written_without_escapes(serve: Serve) -> None:
    client = serve(like="rabbitmq").client("1.2", host="/")
    client.subscribe("/queue/a", "client", id="a:b")
    client.say("SEND", {"destination": "/queue/a"})
    data = client.recv(10)
    assert (b"\nmessage-id:T_a:b@@" in data, b"\nack:T_a:b@@" in data) == (True, True)


def test_a_message_id_names_the_destination_of_a_subscription_without_an_id(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(version="1.0")
    client.sure("SUBSCRIBE", {"destination": "/exchange/amq.fanout"})
    client.send("/exchange/amq.fanout", "x")
    assert re.fullmatch(r"Q_/exchange/amq\.fanout@@session-[^@]+@@1", client.messages(1)[0].headers["message-id"])


def test_a_message_id_names_a_temporary_queue(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.subscribe("/queue/a", "auto")
    client.send("/queue/a", "x", reply_to="/temp-queue/b")
    client.send(client.messages(1)[0].headers["reply-to"], "y")
    assert re.fullmatch(r"/temp-queue/b@@session-[^@]+@@2", client.messages(1)[0].headers["message-id"])


@pytest.mark.parametrize(
    ("like", "command", "destination", "text"),
    [
        ("rabbitmq", "SEND", "/topic/b", "ACCESS_REFUSED - write access to topic 'b' in exchange 'amq.topic'"),
        ("rabbitmq3", "SEND", "/topic/b", "ACCESS_REFUSED - access to topic 'b' in exchange 'amq.topic'"),
        ("rabbitmq", "SUBSCRIBE", "/topic/b", "read access to topic 'b' in exchange 'amq.topic'"),
        ("rabbitmq", "SEND", "/queue/own", "ACCESS_REFUSED - write access to exchange 'amq.default'"),
        ("rabbitmq", "SUBSCRIBE", "/queue/own", "ACCESS_REFUSED - read access to queue 'own'"),
        ("rabbitmq3", "SUBSCRIBE", "/queue/own", "ACCESS_REFUSED - access to queue 'own'"),
        ("rabbitmq", "SEND", "/queue/free", "ACCESS_REFUSED - configure access to queue 'free'"),
    ],
)
def test_a_user_without_the_right_is_told_so_and_disconnected(
    serve: Serve, like: Like, command: str, destination: str, text: str
) -> None:
    free = ("/topic/a", "/queue/free")
    user = User(passcode="sesame", read=free, write=free, admin=("/topic/*", "/queue/own"))
    client = serve(like=like, users={"joe": user}).client(host="/", login="joe", passcode="sesame")
    client.say(command, {"destination": destination, "id": "1"})
    error = client.error()
    assert (error.headers["message"], error.body.decode()) == (
        "access_refused",
        f"{text} in vhost '/' refused for user 'joe'",
    )


def test_an_exclusive_queue_is_its_sessions(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    owner, other = served.client(host="/"), served.client(host="/")
    owner.subscribe("/queue/a", "client", exclusive="true")
    other.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "exclusive": "true"})
    assert b"RESOURCE_LOCKED" in other.error().body
    owner.send("/amq/queue/a", "x")
    owner.messages(1)
    owner.disconnect()
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.parametrize("argument", ["x-max-length", "x-message-ttl", "x-expires", "x-max-priority"])
def test_an_argument_of_a_queue_that_is_no_number_is_refused(serve: Serve, argument: str) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", argument: "many"})
    assert client.expect("ERROR").headers["message"] == "Processing error"


@pytest.mark.parametrize(
    ("argument", "value", "text"),
    [
        ("x-max-length-bytes", "1", "x-max-length-bytes"),
        ("x-stream-offset", "first", "'x-stream-offset' for queue 'a' in vhost '/' of queue type rabbit_classic_queue"),
        ("x-max-length", "-1", "invalid arg 'x-max-length' for queue 'a' in vhost '/': {value_negative,-1}"),
        ("x-queue-type", "nonsense", "Processing error"),
        ("prefetch-count", "many", "Processing error"),
    ],
)
def test_an_argument_that_a_queue_cannot_have_is_refused(serve: Serve, argument: str, value: str, text: str) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", argument: value})
    assert text in client.expect("ERROR").body.decode()


def test_repeated_messages_give_way_to_later_ones(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.subscribe("/queue/a", "client", prefetch_count="1", x_max_length="2")
    client.send("/amq/queue/a", *map(str, range(200)))
    assert served.depth("/queue/a") == (2, 1)
    assert served.broker.stats().discarded == 197
    (first,) = client.messages(1)
    client.ack(first)
    (second,) = client.messages(1)
    assert (first.body, second.body) == (b"0", b"198")


def test_a_message_that_comes_back_to_a_full_queue_gives_way(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client, other = served.client(host="/"), served.client(host="/")
    client.subscribe("/queue/a", "client-individual", prefetch_count="1", x_max_length="1")
    client.send("/amq/queue/a", "1", "2")
    assert client.bodies(1) == ["1"]
    client.disconnect()
    other.subscribe("/queue/a", x_max_length="1")
    assert other.bodies(1) == ["2"]
    assert other.idle()


def test_a_queue_lets_its_messages_expire_and_ends_itself_when_it_is_not_used(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.subscribe("/queue/a", "client", prefetch_count="1", x_message_ttl="5000000", x_expires="60000000")
    client.send("/amq/queue/a", "taken", "too late")
    served.broker.clock.advance(6_000)
    assert served.depth("/queue/a") == (0, 1)
    assert served.broker.stats().expired == 1
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.send("/amq/queue/a", "kept")
    served.broker.clock.advance(4_000)
    assert served.depth("/queue/a")[0] == 1
    client.subscribe("/queue/a", "client", prefetch_count="1", x_message_ttl="5000000", x_expires="60000000")
    served.broker.clock.advance(90_000)
    assert "/queue/a" in served.broker.stats().queues
    client.sure("UNSUBSCRIBE", {"id": "1"})
    served.broker.clock.advance(61_000)
    assert "/queue/a" not in served.broker.stats().queues


def test_a_wrong_login_leaves_the_connection_open_for_another(serve: Serve) -> None:
    client = serve(like="rabbitmq", users={"ann": "sesame"}, limits=BrokerLimits(login_delay=0.0)).dial()
    client.raw(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:ann\npasscode:no\n\n\0")
    assert client.expect("ERROR").headers["message"] == "Bad CONNECT"
    client.expect_another_handshake()
    client.connect(host="/", login="ann", passcode="sesame")
    client.sync()


def test_the_receipts_of_a_transaction_follow_a_commit_without_one(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": "/queue/a", "transaction": "t", "receipt": "r"})
    client.say("COMMIT", {"transaction": "t"})
    assert client.expect("RECEIPT").headers["receipt-id"] == "r"


def test_a_queue_that_no_frame_makes_drops_what_is_sent_to_it(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client = served.client(host="/")
    client.sure("SEND", {"destination": "/amq/queue/none"})
    client.say("SUBSCRIBE", {"destination": "/amq/queue/none", "id": "1"})
    assert client.expect("ERROR").headers["message"] == "not_found"


def test_a_refused_message_of_a_topic_comes_again(serve: Serve) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.subscribe("/topic/a", "client-individual")
    client.send("/topic/a", "x")
    client.nack(client.messages(1)[0], requeue="true")
    assert client.messages(1)[0].headers["redelivered"] == "true"


def test_a_queue_without_a_lifetime_gives_a_message_to_a_waiting_consumer_or_to_nobody(serve: Serve) -> None:
    served = serve(like="rabbitmq")
    client, at_once = served.client(host="/"), {"destination": "/queue/a", "x-message-ttl": "0"}
    client.sure("SEND", at_once)
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1"})
    client.sure("SEND", at_once, b"x")
    assert client.bodies(1) == ["x"]


@pytest.mark.parametrize(("asked", "seen"), [("foo", "/reply-queue/foo"), ("/queue/foo", "/queue/foo")])
def test_a_reply_to_is_shown_as_a_destination(serve: Serve, asked: str, seen: str) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.subscribe("/queue/a", "auto")
    client.send("/queue/a", "x", reply_to=asked)
    assert client.messages(1)[0].headers["reply-to"] == seen


@pytest.mark.parametrize(
    ("command", "headers", "message", "body"),
    [
        ("SEND", {"destination": "/nowhere", "message-id": "1"}, "Invalid header", "'message-id' is not allowed on"),
        ("SEND", {"destination": "/foo/a", "transaction": "none"}, "Unknown destination", "'/foo/a' is not a valid"),
        ("SEND", {"destination": "/queue/a", "persistent": "yes"}, "Processing error", "Processing error"),
        ("SEND", {"destination": "/queue/a", "reply-to": "/foo/a"}, "Processing error", "Processing error"),
        ("SUBSCRIBE", {"destination": "/foo/a", "durable": "true"}, "Missing Header", "Header 'id' is required"),
        ("UNSUBSCRIBE", {}, "Missing destination or id", "UNSUBSCRIBE must include"),
        ("UNSUBSCRIBE", {"destination": "/queue/z"}, "No subscription found", "UNSUBSCRIBE must refer to an existing"),
        ("ACK", {"message-id": "1"}, "Missing header", '"ACK" must include the "id" header'),
    ],
)
def test_the_first_thing_that_is_wrong_is_told(
    serve: Serve, command: str, headers: dict[str, str], message: str, body: str
) -> None:
    client = serve(like="rabbitmq").client(host="/")
    client.say(command, headers)
    error = client.expect("ERROR")
    assert (error.headers["message"], error.body.decode()[: len(body)]) == (message, body)
    client.sync()


@pytest.mark.parametrize(("like", "order"), [("rabbitmq", ["a", "b", "c"]), ("rabbitmq3", ["a", "c", "b"])])
def test_rabbitmq_3_writes_the_headers_of_a_sender_backwards(serve: Serve, like: Like, order: list[str]) -> None:
    client = serve(like=like).client(host="/")
    client.subscribe("/queue/q", "auto")
    client.say("SEND", {"destination": "/queue/q", "b": "1", "c": "2", "a": "3"})
    assert [name for name in client.messages(1)[0].headers if name in order] == order
