"""What each command does, seen by a raw client over the memory transport."""

from __future__ import annotations

import pytest

from tests.broker.conftest import Served

VERSIONS = ("1.0", "1.1", "1.2")


# SEND and MESSAGE


@pytest.mark.requirement("SND-02", "BDY-03", "BDY-10")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", [b"", b"hello\n", b"a\x00b\x00", "é😀".encode()])
def test_a_body_arrives_byte_by_byte(served: Served, version: str, body: bytes) -> None:
    client = served.client(version)
    client.subscribe("/queue/a")
    client.say("SEND", {"destination": "/queue/a"}, body)
    assert client.expect("MESSAGE").body == body


@pytest.mark.requirement("BDY-07")
@pytest.mark.parametrize("version", VERSIONS)
def test_content_length_of_a_message_is_computed_anew(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a")
    client.raw(b"SEND\ndestination:/queue/a\n\nabc\0")
    assert client.expect("MESSAGE").headers.getall("content-length") == ("3",)
    client.raw(b"SEND\ndestination:/queue/a\ncontent-length:4\n\na\0bc\0")
    assert client.expect("MESSAGE").headers.getall("content-length") == ("4",)


@pytest.mark.requirement("SND-03", "SRV-02", "SRV-03", "A-49")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_destination_is_opaque_and_comes_back_byte_for_byte(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("a b:c/é\\%d")
    client.say("SEND", {"destination": "a b:c/é\\%d"}, b"x")
    assert client.expect("MESSAGE").headers["destination"] == "a b:c/é\\%d"


@pytest.mark.parametrize(("version", "value"), [("1.0", "  "), ("1.1", ""), ("1.2", "")])
@pytest.mark.parametrize("more", [{}, {"transaction": "t"}])
def test_an_empty_destination_is_an_error(served: Served, version: str, value: str, more: dict[str, str]) -> None:
    client = served.client(version)
    client.sure("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": value, "receipt": "r", **more}, b"x")
    error = client.error()
    assert error.headers["message"] == "a SEND frame needs a destination that is not empty"
    assert error.headers["receipt-id"] == "r"
    assert "" not in served.broker.stats().queues


@pytest.mark.requirement("SND-06", "SRV-07", "A-47")
def test_user_headers_are_passed_on_in_order_with_repeats(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a")
    sent = [("x-id", "7"), ("content-type", "text/plain"), ("x-id", "8"), ("odd:name", "line\nend\\ and: colon\r")]
    client.say("SEND", [("destination", "/queue/a"), *sent], b"x")
    pairs = client.expect("MESSAGE").headers.pairs
    assert [pair for pair in pairs if pair[0] in ("x-id", "content-type", "odd:name")] == sent


@pytest.mark.requirement("SRV-07", "A-47", "SND-06")
@pytest.mark.parametrize("mode", ["auto", "client"])
def test_headers_of_the_broker_cannot_be_forged_by_a_sender(served: Served, mode: str) -> None:
    client = served.client()
    client.subscribe("/queue/a", mode)
    forged = {"message-id": "m", "subscription": "s", "ack": "a", "redelivered": "true", "transaction-id": "kept"}
    client.sure("SEND", {"destination": "/queue/a", **forged}, b"x")
    headers = client.expect("MESSAGE").headers
    assert headers["subscription"] == "1"
    assert "m" not in headers.getall("message-id")
    assert "a" not in headers.getall("ack")
    assert {"receipt", "transaction", "redelivered"}.isdisjoint(headers)
    assert headers["transaction-id"] == "kept"


@pytest.mark.requirement("SRV-04", "A-34")
def test_message_ids_are_unique_per_delivery(served: Served) -> None:
    one, two = served.client(), served.client()
    for client in (one, two):
        client.subscribe("/topic/a", id="1")
        client.subscribe("/topic/a", id="2")
    for _ in range(50):
        one.send("/topic/a", "x")
    messages = one.messages(100) + two.messages(100)
    assert len({message.headers["message-id"] for message in messages}) == 200


@pytest.mark.requirement("SRV-05", "SUB-04")
def test_subscription_names_the_receiving_subscription(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", id="per%cent")
    client.subscribe("/topic/a", id="other:one")
    client.send("/topic/a", "x")
    assert {message.headers["subscription"] for message in client.messages(2)} == {"per%cent", "other:one"}


@pytest.mark.requirement("SUB-04")
def test_a_1_0_subscription_without_id_has_no_subscription_header(served: Served) -> None:
    client = served.client("1.0")
    client.sure("SUBSCRIBE", {"destination": "/queue/a"})
    client.sure("SUBSCRIBE", {"destination": "/queue/b", "id": "message-id:7"})
    client.send("/queue/a", "x")
    client.send("/queue/b", "x")
    first, second = client.messages(2)
    assert "subscription" not in first.headers
    assert second.headers["subscription"] == "message-id:7"


@pytest.mark.requirement("SRV-06", "ACK-17", "A-44")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_an_ack_header_is_there_in_1_2_client_modes_only(served: Served, version: str, mode: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", mode)
    client.send("/queue/a", "x")
    headers = client.expect("MESSAGE").headers
    assert ("ack" in headers) == (version == "1.2" and mode != "auto")
    assert headers.get("ack") != headers["message-id"]


@pytest.mark.requirement("SND-01")
def test_a_send_without_destination_is_an_error(served: Served) -> None:
    client = served.client()
    client.raw(b"SEND\nreceipt:r\n\nx\0")
    error = client.error()
    assert error.headers["receipt-id"] == "r"
    assert b"SEND" in error.body


# Receipts


@pytest.mark.requirement("RCP-01", "RCP-02", "SRV-08", "SRV-09")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_command_gets_its_receipt_in_order(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2")
    first, second = client.messages(2)
    tx = {"transaction": "t"}
    client.say("SEND", {"destination": "/queue/z", "receipt": "send:1"})
    client.say("SUBSCRIBE", {"destination": "/queue/b", "id": "2", "receipt": "subscribe"})
    client.say("UNSUBSCRIBE", {"id": "2", "receipt": "unsubscribe"})
    client.settle(first, receipt="ack")
    if version != "1.0":
        client.settle(second, "NACK", receipt="nack")
    for command, name in (("BEGIN", "begin"), ("COMMIT", "commit"), ("BEGIN", "begin2"), ("ABORT", "abort")):
        client.say(command, {**tx, "receipt": name})
    client.say("DISCONNECT", {"receipt": "bye"})
    frames = [frame for frame in client.rest() if frame.command != "MESSAGE"]
    assert [(frame.command, frame.headers["receipt-id"], frame.body) for frame in frames] == [
        ("RECEIPT", name, b"")
        for name in ("send:1", "subscribe", "unsubscribe", "ack", "nack", "begin", "commit", "begin2", "abort", "bye")
        if version != "1.0" or name != "nack"
    ]


@pytest.mark.requirement("RCP-03")
def test_after_the_receipt_of_a_subscribe_others_messages_arrive(served: Served) -> None:
    reader, sender = served.client(), served.client()
    for number in range(50):
        reader.subscribe(f"/topic/{number}", id=str(number))
        sender.say("SEND", {"destination": f"/topic/{number}"}, b"x")
        assert reader.expect("MESSAGE").headers["subscription"] == str(number)


@pytest.mark.requirement("A-45")
@pytest.mark.parametrize("mode", ["auto", "client"])
def test_the_receipt_of_a_subscribe_comes_before_its_first_message(served: Served, mode: str) -> None:
    client = served.client()
    client.send("/queue/a", "waiting")
    client.say("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": mode, "receipt": "s"})
    assert [client.frame().command for _ in range(2)] == ["RECEIPT", "MESSAGE"]


@pytest.mark.requirement("A-22")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_receipt_on_connect_is_ignored(served: Served, command: str) -> None:
    client = served.dial()
    client.raw(b"%b\naccept-version:1.2\nhost:h\nreceipt:r\n\n\0" % command.encode())
    client.connected()
    assert client.idle()


# SUBSCRIBE and UNSUBSCRIBE


@pytest.mark.requirement("SUB-02", "SUB-15")
@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_comes_after_the_receipt_of_an_unsubscribe(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", id="1")
    client.subscribe("/topic/b", id="2")
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.sure("UNSUBSCRIBE", {"id": "2"})
    client.send("/queue/a", "x")
    client.send("/topic/b", "x")
    assert client.idle()
    assert served.broker.depth("/queue/a") == 1


@pytest.mark.requirement("SUB-15", "A-30")
def test_only_the_named_subscription_ends(served: Served) -> None:
    client = served.client()
    client.subscribe("/topic/a", id="1")
    client.subscribe("/topic/a", id="2")
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.send("/topic/a", "x")
    assert client.expect("MESSAGE").headers["subscription"] == "2"
    assert client.idle()


@pytest.mark.requirement("SUB-13", "A-30")
def test_1_0_unsubscribes_by_destination(served: Served) -> None:
    client = served.client("1.0")
    client.sure("SUBSCRIBE", {"destination": "/queue/a"})
    client.sure("UNSUBSCRIBE", {"destination": "/queue/a"})
    client.send("/queue/a", "x")
    assert client.idle()


@pytest.mark.requirement("A-30", "A-31")
def test_unsubscribe_gives_back_what_was_not_acknowledged_and_frees_the_id(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2")
    _, second = client.messages(2)
    client.sure("UNSUBSCRIBE", {"id": "1"})
    assert served.depth("/queue/a") == (2, 0)
    client.subscribe("/queue/a", "client-individual")
    assert client.bodies(2) == ["1", "2"]
    client.settle(second)
    client.error()


@pytest.mark.requirement("SUB-01", "SUB-05", "SUB-06", "SUB-09", "SUB-10", "SUB-12", "SUB-14", "A-31", "A-32", "A-33")
@pytest.mark.parametrize(
    ("version", "command", "headers"),
    [
        ("1.2", "SUBSCRIBE", {"id": "9"}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a"}),
        ("1.1", "SUBSCRIBE", {"destination": "/queue/a"}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "1"}),
        ("1.0", "SUBSCRIBE", {"destination": "/queue/taken"}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "9", "ack": "maybe"}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "9", "selector": "a = "}),
        ("1.2", "SUBSCRIBE", {"destination": "", "id": "9"}),
        ("1.0", "SUBSCRIBE", {"destination": " "}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "9", "prefetch-count": "1234567890"}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "9", "prefetch-count": ""}),
        ("1.2", "SUBSCRIBE", {"destination": "/queue/a", "id": "9", "activemq.prefetchSize": "ten"}),
        ("1.2", "UNSUBSCRIBE", {"destination": "/queue/a"}),
        ("1.2", "UNSUBSCRIBE", {"id": "9"}),
        ("1.0", "UNSUBSCRIBE", {"destination": "/queue/a"}),
        ("1.0", "UNSUBSCRIBE", {}),
    ],
)
def test_a_wrong_subscribe_or_unsubscribe_is_an_error(
    served: Served, version: str, command: str, headers: dict[str, str]
) -> None:
    client = served.client(version)
    client.sure("SUBSCRIBE", {"destination": "/queue/taken", **({} if version == "1.0" else {"id": "1"})})
    client.say(command, {**headers, "receipt": "r"})
    error = client.error()
    assert error.headers["receipt-id"] == "r"
    assert command.encode() in error.body


@pytest.mark.requirement("SUB-11", "SND-08")
def test_unknown_headers_are_no_error(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", x_durable="yes")
    client.send("/queue/a", "x", expires="0", priority="9")
    assert client.expect("MESSAGE").headers["priority"] == "9"


def test_the_subscriptions_of_a_session_are_bounded(served: Served) -> None:
    client = served.client()
    client.raw(
        b"".join(client.encoded("SUBSCRIBE", {"destination": f"/queue/{n}", "id": str(n)}) for n in range(10_001))
    )
    assert "too many subscriptions" in client.error().headers["message"]
    served.until(lambda stats: stats.subscriptions == 0 and not stats.queues)


# DISCONNECT


@pytest.mark.requirement("DIS-07")
@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_without_receipt_ends_the_stream(served: Served, version: str) -> None:
    client = served.client(version)
    client.say("DISCONNECT")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)


def test_frames_after_disconnect_are_ignored(served: Served) -> None:
    client = served.client()
    client.raw(
        client.encoded("DISCONNECT", {"receipt": "bye"}) + client.encoded("SEND", {"destination": "/queue/a"}, b"x")
    )
    assert [frame.command for frame in client.rest()] == ["RECEIPT"]
    assert served.depth("/queue/a") == (0, 0)


def test_the_xml_of_a_message_that_is_to_be_transformed_is_passed_on(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a")
    client.send("/queue/a", "<map/>", transformation="jms-map-xml")
    (message,) = client.messages(1)
    assert (message.body, message.headers["transformation"]) == (b"<map/>", "jms-map-xml")
