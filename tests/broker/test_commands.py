"""What each command does, seen by a raw client over the memory transport."""

from __future__ import annotations

import pytest

from tests.broker.conftest import Serve, Served

VERSIONS = ("1.0", "1.1", "1.2")


# SEND and MESSAGE


@pytest.mark.requirement("SND-02", "BDY-03", "BDY-10")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("body", [b"", b"hello\n", b"a\x00b\x00", "é😀".encode()])
def test_a_body_arrives_octet_by_octet(served: Served, version: str, body: bytes) -> None:
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
def test_delivered_messages_can_be_acknowledged_after_unsubscribe_and_the_id_used_again(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2")
    first, second = client.messages(2)
    client.sure("UNSUBSCRIBE", {"id": "1"})
    client.subscribe("/queue/a", "client-individual")
    client.ack(first)
    assert served.depth("/queue/a") == (0, 1)
    client.nack(second)
    assert client.expect("MESSAGE").body == b"2"


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


# ACK and NACK


@pytest.mark.requirement("ACK-01")
def test_in_auto_mode_a_message_is_consumed_when_it_was_written(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a")
    client.send("/queue/a", "x")
    client.messages(1)
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("ACK-02", "ACK-04", "ACK-13")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_without_ack_the_next_consumer_gets_it(served: Served, version: str, mode: str) -> None:
    one, two = served.client(version), served.client(version)
    one.subscribe("/queue/a", mode)
    one.send("/queue/a", "1", "2")
    assert "redelivered" not in one.messages(2)[0].headers
    assert served.depth("/queue/a") == (0, 2)
    two.subscribe("/queue/a", mode)
    one.close()
    messages = two.messages(2)
    assert [(message.body, message.headers["redelivered"]) for message in messages] == [(b"1", "true"), (b"2", "true")]
    for message in messages:
        two.ack(message)
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("ACK-05", "ACK-06", "A-16", "A-18")
@pytest.mark.parametrize("version", VERSIONS)
def test_in_client_mode_an_ack_covers_earlier_messages_of_its_subscription_only(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client", id="1")
    client.subscribe("/queue/b", "client", id="2")
    client.send("/queue/b", "other")
    client.send("/queue/a", "1", "2", "3")
    client.expect("MESSAGE")
    client.ack(client.messages(3)[1])
    assert (served.depth("/queue/a"), served.depth("/queue/b")) == ((0, 1), (0, 1))
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a")
    assert again.bodies(1) == ["3"]


@pytest.mark.requirement("ACK-07")
@pytest.mark.parametrize("version", VERSIONS)
def test_in_client_individual_mode_an_ack_covers_one_message(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2", "3")
    client.ack(client.messages(3)[2])
    client.close()
    served.until(lambda stats: stats.sessions == 0)
    again = served.client(version)
    again.subscribe("/queue/a")
    assert again.bodies(2) == ["1", "2"]
    assert again.idle()


@pytest.mark.requirement("ACK-16", "A-17")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_in_client_mode_a_nack_covers_earlier_messages_too(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    client.nack(client.messages(3)[1])
    again = client.messages(2)
    assert [message.body for message in again] == [b"1", b"2"]
    assert all(message.headers["redelivered"] == "true" for message in again)
    assert served.depth("/queue/a") == (0, 3)


@pytest.mark.requirement("ACK-16")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_in_client_individual_mode_a_nack_covers_one_message(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2", "3")
    client.nack(client.messages(3)[1])
    assert client.bodies(1) == ["2"]
    assert client.idle()


@pytest.mark.requirement("ACK-09", "ACK-10", "ACK-11", "ACK-14", "A-35", "A-43")
@pytest.mark.parametrize(
    ("version", "command", "headers"),
    [
        ("1.2", "ACK", {"message-id": "{message-id}"}),
        ("1.2", "ACK", {"id": "{message-id}"}),
        ("1.2", "ACK", {"id": "nonsense"}),
        ("1.2", "NACK", {"id": "nonsense"}),
        ("1.1", "ACK", {"message-id": "{message-id}"}),
        ("1.1", "ACK", {"subscription": "1"}),
        ("1.1", "ACK", {"message-id": "{message-id}", "subscription": "2"}),
        ("1.1", "NACK", {"message-id": "{message-id}", "subscription": "none"}),
        ("1.0", "ACK", {"id": "{message-id}"}),
        ("1.0", "ACK", {"message-id": "nonsense"}),
        ("1.0", "NACK", {"message-id": "{message-id}"}),
    ],
)
def test_a_wrong_ack_is_an_error_and_loses_nothing(
    served: Served, version: str, command: str, headers: dict[str, str]
) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client-individual")
    client.subscribe("/queue/b", "client", id="2")
    client.send("/queue/a", "x")
    message_id = client.expect("MESSAGE").headers["message-id"]
    client.say(command, {name: value.replace("{message-id}", message_id) for name, value in headers.items()})
    assert command.encode() in client.error().body
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.requirement("A-43")
def test_a_second_ack_and_an_ack_in_auto_mode_are_errors(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "x")
    message = client.expect("MESSAGE")
    client.ack(message)
    client.settle(message)
    client.error()
    auto = served.client("1.1")
    auto.subscribe("/queue/a")
    auto.send("/queue/a", "x")
    auto.settle(auto.expect("MESSAGE"))
    auto.error()


def test_prefetch_bounds_what_waits_for_an_ack(serve: Serve) -> None:
    served = serve(prefetch=3)
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", *"12345")
    assert served.depth("/queue/a") == (2, 3)
    messages = client.messages(3)
    client.ack(messages[1])
    assert client.bodies(1) == ["4"]
    assert served.depth("/queue/a") == (1, 3)


@pytest.mark.parametrize("header", ["prefetch-count", "activemq.prefetchSize"])
def test_a_subscription_may_ask_for_its_own_prefetch(served: Served, header: str) -> None:
    client = served.client()
    client.sure("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "client", header: "2"})
    client.send("/queue/a", *"12345")
    messages = client.messages(2)
    assert client.idle()
    client.ack(messages[1])
    assert client.bodies(2) == ["3", "4"]


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_a_prefetch_count_of_0_is_no_bound_as_at_rabbitmq(serve: Serve, mode: str) -> None:
    client = serve(prefetch=1).client()
    client.subscribe("/queue/a", mode, prefetch_count="0")
    client.send("/queue/a", *"12345")
    assert client.bodies(5) == list("12345")


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
@pytest.mark.parametrize(
    ("header", "value"),
    [("activemq.prefetchSize", "0"), ("activemq.prefetchSize", "-1"), ("prefetch-count", "-1")],
)
def test_a_prefetch_that_leaves_no_room_gets_nothing_and_keeps_nothing_from_others(
    served: Served, caplog: pytest.LogCaptureFixture, header: str, value: str, mode: str
) -> None:
    starved, other = served.client(), served.client()
    starved.sure("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": mode, header: value})
    starved.send("/queue/a", *"12345")
    assert starved.idle()
    assert served.depth("/queue/a") == (5, 0)
    other.subscribe("/queue/a")
    assert other.bodies(5) == list("12345")
    assert starved.idle()
    assert "gets nothing, as its prefetch is 0 or less" in caplog.text


def test_prefetch_does_not_bind_an_auto_subscription(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", prefetch_count="1")
    client.send("/queue/a", *"12345")
    assert client.bodies(5) == list("12345")


# Transactions


@pytest.mark.requirement("TXN-01", "TXN-02", "TXN-03", "TXN-05")
@pytest.mark.parametrize("version", VERSIONS)
def test_sends_of_a_transaction_appear_at_commit_in_order(served: Served, version: str) -> None:
    client, reader = served.client(version), served.client(version)
    reader.subscribe("/queue/a")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", "2", transaction="t")
    client.send("/queue/a", "outside")
    client.send("/queue/a", "3", transaction="t")
    assert reader.bodies(1) == ["outside"]
    assert reader.idle()
    client.sure("COMMIT", {"transaction": "t"})
    assert reader.bodies(3) == ["1", "2", "3"]


@pytest.mark.requirement("A-21")
@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_stored_in_a_transaction_is_confirmed_before_its_commit(served: Served, version: str) -> None:
    client = served.client(version)
    client.sure("BEGIN", {"transaction": "t"})
    client.say("SEND", {"destination": "/queue/a", "transaction": "t", "receipt": "stored"}, b"x")
    assert client.expect("RECEIPT").headers["receipt-id"] == "stored"
    assert served.depth("/queue/a") == (0, 0)
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.requirement("TXN-06")
def test_sends_of_an_aborted_transaction_never_appear_and_its_id_may_be_used_again(served: Served) -> None:
    client = served.client()
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/a", "1", transaction="t")
    client.sure("ABORT", {"transaction": "t"})
    client.sure("BEGIN", {"transaction": "t"})
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (0, 0)
    assert served.broker.stats().transactions == 0


@pytest.mark.requirement("TXN-08", "A-18")
@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_a_transaction_take_effect_at_commit(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    second = client.messages(3)[1]
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(second, transaction="t")
    assert served.depth("/queue/a") == (0, 3)
    client.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (0, 1)


@pytest.mark.requirement("TXN-08")
@pytest.mark.parametrize("version", VERSIONS)
def test_acks_of_an_aborted_transaction_can_be_made_again(served: Served, version: str) -> None:
    client = served.client(version)
    client.subscribe("/queue/a", "client")
    client.send("/queue/a", "1", "2", "3")
    messages = client.messages(3)
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(messages[1], transaction="t")
    client.sure("ABORT", {"transaction": "t"})
    client.ack(messages[0])
    assert served.depth("/queue/a") == (0, 2)
    client.ack(messages[2])
    assert served.depth("/queue/a") == (0, 0)


@pytest.mark.requirement("TXN-02")
def test_nacks_of_a_transaction_take_effect_at_commit(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1")
    client.sure("BEGIN", {"transaction": "t"})
    client.nack(client.expect("MESSAGE"), transaction="t")
    assert client.idle()
    client.sure("COMMIT", {"transaction": "t"})
    assert client.expect("MESSAGE").headers["redelivered"] == "true"


def test_an_ack_in_a_transaction_makes_room_for_the_next_message(served: Served) -> None:
    client = served.client()
    client.subscribe("/queue/a", "client", prefetch_count="1")
    client.send("/queue/a", "1", "2")
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(client.expect("MESSAGE"), transaction="t")
    assert client.bodies(1) == ["2"]


@pytest.mark.requirement("TXN-07")
@pytest.mark.parametrize("end", ["disconnect", "close", "half-close", "error"])
def test_an_open_transaction_is_aborted_when_the_session_ends(served: Served, end: str) -> None:
    client = served.client()
    client.send("/queue/in", "in")
    client.subscribe("/queue/in", "client")
    message = client.expect("MESSAGE")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/out", "out", transaction="t")
    client.ack(message, transaction="t")
    if end == "disconnect":
        client.sure("DISCONNECT")
    elif end == "close":
        client.close()
    elif end == "half-close":
        client.half_close()
    else:
        client.raw(b"WRONG\n\n\0")
    served.until(lambda stats: stats.sessions == 0)
    assert (served.depth("/queue/in"), served.depth("/queue/out")) == ((1, 0), (0, 0))


@pytest.mark.requirement("TXN-01", "TXN-04", "A-42")
@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("BEGIN", {}),
        ("BEGIN", {"transaction": "open"}),
        ("COMMIT", {}),
        ("COMMIT", {"transaction": "none"}),
        ("ABORT", {"transaction": "none"}),
        ("SEND", {"destination": "/queue/a", "transaction": "none"}),
        ("ACK", {"id": "{ack}", "transaction": "none"}),
        ("NACK", {"id": "{ack}", "transaction": "none"}),
    ],
)
def test_a_misused_transaction_is_an_error(served: Served, command: str, headers: dict[str, str]) -> None:
    client = served.client()
    client.subscribe("/queue/in", "client")
    client.send("/queue/in", "in")
    ack = client.expect("MESSAGE").headers["ack"]
    client.sure("BEGIN", {"transaction": "open"})
    client.say(command, {name: value.replace("{ack}", ack) for name, value in headers.items()})
    assert command.encode() in client.error().body
    assert (served.depth("/queue/in"), served.depth("/queue/a")) == ((1, 0), (0, 0))


def test_two_sessions_may_use_the_same_transaction_id(served: Served) -> None:
    one, two = served.client(), served.client()
    for client in (one, two):
        client.sure("BEGIN", {"transaction": "t"})
        client.send("/queue/a", "x", transaction="t")
    one.sure("ABORT", {"transaction": "t"})
    two.sure("COMMIT", {"transaction": "t"})
    assert served.depth("/queue/a") == (1, 0)


@pytest.mark.parametrize(
    ("options", "body"), [({"max_transaction_frames": 2}, b"x"), ({"max_transaction_bytes": 100}, b"x" * 40)]
)
def test_what_transactions_hold_is_bounded(serve: Serve, options: dict[str, int], body: bytes) -> None:
    served = serve(**options)
    client = served.client()
    for name in ("t1", "t2"):
        client.sure("BEGIN", {"transaction": name})
    client.say("SEND", {"destination": "/q", "transaction": "t1"}, body)
    client.say("SEND", {"destination": "/q", "transaction": "t2"}, body)
    client.say("SEND", {"destination": "/q", "transaction": "t1"}, body)
    assert "too large" in client.error().headers["message"]
    assert served.depth("/q") == (0, 0)


def test_an_ack_that_no_longer_fits_a_transaction_is_not_lost(serve: Serve) -> None:
    served = serve(max_transaction_frames=1)
    client = served.client()
    client.subscribe("/queue/a", "client-individual")
    client.send("/queue/a", "1", "2")
    messages = client.messages(2)
    client.sure("BEGIN", {"transaction": "t"})
    client.ack(messages[0], transaction="t")
    client.settle(messages[1], transaction="t")
    client.error()
    assert served.depth("/queue/a") == (2, 0)


def test_the_number_of_open_transactions_is_bounded(served: Served) -> None:
    client = served.client()
    client.raw(b"".join(client.encoded("BEGIN", {"transaction": str(n)}) for n in range(1_001)))
    assert "too many open transactions" in client.error().headers["message"]


def test_a_commit_into_a_full_queue_takes_no_effect_at_all(serve: Serve) -> None:
    served = serve(max_queue_messages=2)
    client = served.client()
    client.send("/queue/in", "in")
    client.subscribe("/queue/in", "client")
    client.sure("BEGIN", {"transaction": "t"})
    client.send("/queue/fits", "1", transaction="t")
    client.send("/queue/full", "1", "2", "3", transaction="t")
    client.ack(client.expect("MESSAGE"), transaction="t")
    client.say("COMMIT", {"transaction": "t", "receipt": "r"})
    assert client.error().headers["receipt-id"] == "r"
    assert {name: depth.ready for name, depth in served.broker.stats().queues.items()} == {"/queue/in": 1}


# DISCONNECT


@pytest.mark.requirement("DIS-07")
@pytest.mark.parametrize("version", VERSIONS)
def test_disconnect_without_receipt_ends_the_stream(served: Served, version: str) -> None:
    client = served.client(version)
    client.say("DISCONNECT")
    assert client.rest() == []
    served.until(lambda stats: stats.sessions == 0)


def test_frames_behind_disconnect_are_passed_over(served: Served) -> None:
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
