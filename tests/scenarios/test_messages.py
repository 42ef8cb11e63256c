"""What is sent is what is received: bodies, headers, order."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

import stompy
from tests.scenarios.acts import SOON, acked, send_all, texts
from tests.scenarios.conftest import Connect, Expect, Raw
from tests.scenarios.expected.model import CLASSIC
from tests.support.candidates import Candidate
from tests.support.rawclient import RawClient

pytestmark = pytest.mark.broker

FLIGHTS = Path(__file__).parents[2] / "examples" / "data" / "flights.ndjson"

HEADERS: dict[str, str] = {
    "colon": "a:b:c",
    "utf-8": "é世🦊",
    "empty": "",
    "spaces": "  a  ",
    "backslash": "C:\\new\\c",
    "LF": "a\nb",
    "CR": "a\r\nb\r",
}
PASSED = ("ack", "id", "version", "session", "server", "subscription", "redelivered", "receipt", "transaction")


@pytest.mark.scenario("send and receive text")
def test_text_and_json_come_back(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    connection.send(queue, "Grüße, 世界 🦊")
    connection.send(queue, {"n": [1, None, "é"]})
    first, second = (subscription.receive(timeout=SOON) for _ in range(2))
    assert first.text == "Grüße, 世界 🦊"
    assert second.json() == {"n": [1, None, "é"]}
    expect("text", True, first.frame, second.frame)


@pytest.mark.scenario("send and receive text")
def test_a_body_without_its_length(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect(content_length=False)
    subscription = connection.subscribe(queue)
    connection.send(queue, "é")
    message = subscription.receive(timeout=SOON)
    assert message.text == "é"
    expect("text-length", message.headers.get("content-length", "none"), message.frame)


@pytest.mark.scenario("send and receive text")
def test_messages_come_in_the_order_they_were_sent_in(connect: Connect, queue: str) -> None:
    producer, consumer = connect(), connect()
    subscription = consumer.subscribe(queue)
    bodies = [str(number) for number in range(300)]
    with producer.batch():
        for body in bodies:
            producer.send(queue, body)
    assert texts(subscription, 300) == bodies


@pytest.mark.scenario("send and receive bytes, NULs")
@pytest.mark.requirement("SND-02", "BDY-06")
@pytest.mark.binary
def test_any_bytes_come_back(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    bodies = [b"", b"\0", b"a\0\0b\0", b"\n\n", b"\r\n\0\n", b"\xff\xfe", bytes(range(256)) * 4]
    for body in bodies:
        connection.send(queue, body)
    subscription = connection.subscribe(queue)
    received = [subscription.receive(timeout=SOON) for _ in bodies]
    assert [message.body for message in received] == bodies
    expect("bytes", True, *(message.frame for message in received))


@pytest.mark.scenario("send and receive bytes, NULs")
@pytest.mark.binary
def test_bytes_without_their_length(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue)
    client.raw(f"SEND\ndestination:{queue}\n\n".encode() + b"\xff\xfe\x80 end\0")
    client.raw(f"SEND\ndestination:{queue}\n\nab".encode() + b"\0")
    first, second = client.messages(2)
    assert second.body == b"ab"
    expect("bytes-length", "intact" if first.body == b"\xff\xfe\x80 end" else "replaced", first)


@pytest.mark.scenario("send and receive bytes, NULs")
def test_the_length_of_an_empty_body(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue)
    for length in ("content-length:0\n", ""):
        client.raw(f"SEND\ndestination:{queue}\n{length}\n\0".encode())
    lengths = [message.headers.get("content-length", "none") for message in client.messages(2)]
    expect("bytes-empty", ", ".join(lengths))


@pytest.mark.scenario("send and receive bytes, NULs")
@pytest.mark.transports("ws", "wss")
@pytest.mark.once
def test_bytes_over_websocket(candidate: Candidate, raw: Raw, queue: str, expect: Expect) -> None:
    ignored = candidate.kind in CLASSIC  # as docs/how-to/websocket.md says
    expect.grades.append("no" if ignored else "yes")
    client = raw()
    client.subscribe(queue)
    client.say("SEND", {"destination": queue}, b"\xff\xfe")
    client.send(queue, "a\0b")
    assert client.expect("MESSAGE").body == (b"a\0b" if ignored else b"\xff\xfe")


@pytest.mark.scenario("UTF-8 and escapes in headers")
@pytest.mark.requirement("FRM-09", "FRM-10", "SND-05")
def test_header_values_come_back_as_far_as_the_version_can_write_them(
    connect: Connect, queue: str, expect: Expect
) -> None:
    changed = []
    for name, value in HEADERS.items():
        connection = connect()
        subscription = connection.subscribe(f"{queue}.{name}")
        try:
            connection.send(subscription.destination, name, headers={"x": value}, confirm=True)
            message = subscription.receive(timeout=SOON)
        except (stompy.LocalProtocolError, stompy.SessionError) as error:
            changed.append(f"{name} {'refused' if isinstance(error, stompy.LocalProtocolError) else 'ends the link'}")
            continue
        assert message.text == name
        if message.headers.get("x") != value:
            changed.append(f"{name} {message.headers.get('x', 'dropped')!r}")
    expect("header-values", ", ".join(changed) or "all kept")


@pytest.mark.scenario("UTF-8 and escapes in headers")
def test_numbers_and_truths_are_written_as_text(connect: Connect, queue: str) -> None:
    connection = connect()
    connection.send(queue, "x", headers={"x-number": 7, "x-flag": True})
    received = connection.subscribe(queue).receive(timeout=SOON).headers
    assert (received["x-number"], received["x-flag"]) == ("7", "true")


@pytest.mark.scenario("UTF-8 and escapes in headers")
def test_a_repeated_header(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue)
    client.say("SEND", [("destination", queue), ("x", "first"), ("x", "last")], b"x")
    message = client.expect("MESSAGE")
    expect("header-repeated", " ".join(message.headers.getall("x")), message)


@pytest.mark.once
@pytest.mark.scenario("UTF-8 and escapes in headers")
def test_a_senders_headers_with_the_names_of_the_protocols(raw: Raw, queue: str, expect: Expect) -> None:
    client = raw()
    client.subscribe(queue, id="mine")
    client.say("BEGIN", {"transaction": "t"})
    fields = {name: "sent" for name in PASSED if name not in ("receipt", "transaction")}
    client.say("SEND", {"destination": queue, "receipt": "r", "transaction": "t", **fields}, b"x")
    client.say("COMMIT", {"transaction": "t"})
    frames, _ = client.until(lambda frame: frame.command != "RECEIPT")
    came = frames[-1].headers
    expect("header-names", " ".join(name for name in PASSED if came.get(name) in ("sent", "r", "t")), frames[-1])


@pytest.mark.scenario("big bodies and limits")
def test_a_body_of_three_megabytes_comes_back_whole(connect: Connect, queue: str) -> None:
    connection = connect()
    subscription = connection.subscribe(queue)
    body = hashlib.sha256(b"seed").hexdigest().encode() * (3 * 1024 * 1024 // 64)
    connection.send(queue, body, confirm=True)
    assert subscription.receive(timeout=SOON).body == body


def offered(client: RawClient, queue: str, length: int, body: bytes, *, within: float = SOON) -> str:
    """Return what becomes of a SEND that says to have `length` bytes, of which so many come."""
    with_length = f"SEND\ndestination:{queue}\ncontent-length:{length}\nreceipt:big\n\n".encode()
    try:
        frames, came = client.ask(
            with_length + body, lambda frame: frame.command in ("RECEIPT", "ERROR"), within=within
        )
    except stompy.StompTimeoutError:
        return "read"
    return frames[-1].command if came else "closed"


@pytest.mark.once
@pytest.mark.scenario("big bodies and limits")
def test_how_long_a_body_may_be(candidate: Candidate, raw: Raw, queue: str, expect: Expect) -> None:
    six = 6 * 1024 * 1024
    results = [offered(raw(), queue, six, b"x" * six + b"\0")]
    # Only the head of these: who does not refuse it waits for the rest.
    lengths = (100 * 1024 * 1024 + 1, 128 * 1024 * 1024 + 1)
    results += [offered(raw(), queue, length, b"x", within=1.5) for length in lengths]
    expect("body-limit", " ".join(results))


@pytest.mark.once
@pytest.mark.scenario("send and receive text")
def test_the_flights_come_back_byte_for_byte_and_in_order(connect: Connect, queue: str) -> None:
    lines = FLIGHTS.read_bytes().splitlines()
    assert len(lines) > 1000
    producer, consumer = connect(), connect()
    subscription = consumer.subscribe(queue, ack="client-individual")
    with producer.batch():
        for line in lines:
            producer.send(queue, line, content_type="application/json")
    producer.flush()
    for line in lines:
        message = subscription.receive(timeout=SOON)
        assert message.body == line
        message.ack()


@pytest.mark.scenario("queues and topics")
def test_a_topic_reaches_everybody_who_is_there(connect: Connect, topic: str) -> None:
    connection = connect()
    early = connection.subscribe(topic)
    elsewhere = connect().subscribe(topic)
    connection.send(topic, "before", confirm=True)
    assert texts(elsewhere, 1) == ["before"]
    late = connection.subscribe(topic)
    connection.send(topic, "after", confirm=True)
    assert texts(late, 1) == ["after"]
    assert texts(early, 2) == ["before", "after"]


@pytest.mark.scenario("queues and topics")
def test_competing_consumers_share_a_queue(connect: Connect, queue: str) -> None:
    consumers = [connect().subscribe(queue, ack="client-individual") for _ in range(2)]
    producer = connect()
    send_all(producer, queue, map(str, range(10)))
    seen: list[list[int]] = [[], []]

    def consume(place: int) -> None:
        while sum(map(len, seen)) < 10:
            try:
                message = consumers[place].receive(timeout=0.2)
            except stompy.ReceiveTimeoutError:
                continue
            seen[place].append(int(message.text))
            acked(message)

    threads = [threading.Thread(target=consume, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen[0] + seen[1]) == list(range(10))
    assert all(part == sorted(part) for part in seen)


@pytest.mark.scenario("queues and topics")
def test_a_destination_without_a_prefix(raw: Raw, queue: str, expect: Expect) -> None:
    name = queue.removeprefix("/queue/")
    results = []
    for destination in (name, f"/{name}/bar"):
        client = raw()
        client.say("SUBSCRIBE", {"destination": destination, "id": "1"})
        client.say("SEND", {"destination": destination}, b"x")
        frames, _ = client.until(lambda frame: True)
        first = frames[0] if frames else None
        results.append(
            first.headers["destination"].replace(name, "NAME") if first and first.command == "MESSAGE" else "refused"
        )
    expect("destination-bare", " ".join(results))
