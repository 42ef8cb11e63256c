"""Messages go through a broker unchanged, once and in order."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

import stompy
from tests.scenarios.conftest import SOON, Candidate, Connecting

pytestmark = pytest.mark.broker

FLIGHTS = Path(__file__).parents[2] / "examples" / "data" / "flights.ndjson"
VERSIONS = ("1.0", "1.1", "1.2")


@pytest.mark.parametrize("version", VERSIONS)
def test_text_and_octets_come_back_as_they_were(connecting: Connecting, queue: str, version: str) -> None:
    connection = connecting(versions=version)
    assert connection.version == version
    subscription = connection.subscribe(queue)
    octets = bytes(range(256)) * 4
    connection.send(queue, "Grüße, 世界 🦊")
    connection.send(queue, octets)
    connection.send(queue, {"n": [1, None, "é"]})
    assert subscription.receive(timeout=SOON).text == "Grüße, 世界 🦊"
    assert subscription.receive(timeout=SOON).body == octets
    assert subscription.receive(timeout=SOON).json() == {"n": [1, None, "é"]}


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_headers_are_escaped_and_come_back(connecting: Connecting, queue: str, version: str) -> None:
    connection = connecting(versions=version)
    subscription = connection.subscribe(queue)
    headers = {"colon": "a:b", "line": "a\nb", "backslash": "C:\\new", "unicode": "é世🦊", "spaces": " a b "}
    connection.send(queue, "x", headers=headers)
    received = subscription.receive(timeout=SOON).headers
    assert {name: received[name] for name in headers} == headers


def test_a_large_body_comes_back_whole(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    subscription = connection.subscribe(queue)
    body = hashlib.sha256(b"seed").digest() * (5 * 1024 * 1024 // 32)
    connection.send(queue, body, confirm=True)
    assert subscription.receive(timeout=SOON).body == body


def test_the_flights_come_back_octet_for_octet_and_in_order(connecting: Connecting, queue: str) -> None:
    lines = FLIGHTS.read_bytes().splitlines()
    assert len(lines) > 1000
    producer, consumer = connecting(), connecting()
    subscription = consumer.subscribe(queue, ack="client-individual", prefetch=200)
    with producer.batch():
        for line in lines:
            producer.send(queue, line, content_type="application/json")
    producer.flush()
    for line in lines:
        message = subscription.receive(timeout=SOON)
        assert message.body == line
        message.ack()


def test_a_topic_reaches_everybody(connecting: Connecting, topic: str) -> None:
    listeners = [connecting().subscribe(topic) for _ in range(3)]
    connecting().send(topic, "to all", confirm=True)
    assert [one.receive(timeout=SOON).text for one in listeners] == ["to all"] * 3


def test_competing_consumers_share_a_queue(connecting: Connecting, queue: str) -> None:
    # Individual acks with a small prefetch, so that nobody is sent everything ahead.
    consumers = [connecting().subscribe(queue, ack="client-individual", prefetch=1) for _ in range(2)]
    producer = connecting()
    for number in range(20):
        producer.send(queue, str(number))
    producer.flush()
    seen: list[list[int]] = [[], []]

    def consume(place: int) -> None:
        while sum(map(len, seen)) < 20:
            try:
                message = consumers[place].receive(timeout=0.2)
            except stompy.ReceiveTimeout:
                continue
            seen[place].append(int(message.text))
            message.ack()

    threads = [threading.Thread(target=consume, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen[0] + seen[1]) == list(range(20))
    assert all(part == sorted(part) for part in seen)
    assert all(seen)


def test_a_thousand_receipts_may_be_under_way(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    receipts = [connection.send(queue, str(number), receipt=True) for number in range(1000)]
    connection.flush(timeout=SOON)
    assert all(receipt is not None and receipt.outcome == "confirmed" for receipt in receipts)


def test_a_request_gets_its_reply(connecting: Connecting, queue: str) -> None:
    asker, responder = connecting(), connecting()

    def serve(request: stompy.Message) -> None:
        headers = {"correlation-id": request.headers["correlation-id"]}
        responder.send(request.headers["reply-to"], request.body[::-1], headers=headers)

    responder.subscribe(queue, serve)
    assert [asker.request(queue, text, timeout=SOON).text for text in ("abc", "xyz")] == ["cba", "zyx"]


def test_prefetch_bounds_what_is_sent_ahead(connecting: Connecting, queue: str) -> None:
    connection = connecting()
    for number in range(5):
        connection.send(queue, str(number), confirm=True)
    subscription = connection.subscribe(queue, ack="client-individual", prefetch=1)
    first = subscription.receive(timeout=SOON)
    # The broker has answered later frames, and would have sent the next message before.
    connection.send(f"{queue}.other", "x", confirm=True)
    assert subscription.queued == 0
    first.ack()
    assert subscription.receive(timeout=SOON).text == "1"


def test_candidates_are_what_they_say(candidate: Candidate, connecting: Connecting) -> None:
    server = connecting().server or ""
    assert server.lower().startswith({"embedded": "stompy-broker", "activemq": "activemq/"}[candidate.name])
