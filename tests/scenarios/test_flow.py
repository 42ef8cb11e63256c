"""Slow consumers, and who has to wait for them."""

from __future__ import annotations

import pytest

import stompy
from tests.scenarios.acts import SOON, send_all, texts
from tests.scenarios.conftest import Connect, Expect
from tests.support.candidates import Candidate
from tests.support.peer import until

pytestmark = [pytest.mark.broker, pytest.mark.once, pytest.mark.scenario("slow consumers and flow control")]

COUNT, BODY = 3_000, b"x" * 5_000


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_slow_consumer_holds_nobody_up_and_gets_everything(
    connect: Connect, topic: str, expect: Expect, kind: str
) -> None:
    destination = topic.replace("/topic/", f"/{kind}/")
    slow = connect(limits=stompy.Limits(max_inbox_messages=10), heartbeat=(2.0, 1.0))
    others, producer = connect(), connect()
    waiting = slow.subscribe(destination, ack="auto")
    elsewhere = others.subscribe(f"{destination}.other")
    for number in range(COUNT):
        (producer.send if number % 100 else producer.send_async)(destination, b"%d " % number + BODY)
    producer.flush(timeout=2 * SOON)
    until(lambda: slow.stats().reading_paused, "the gate")
    send_all(producer, f"{destination}.other", ["quick"])
    assert texts(elsewhere, 1) == ["quick"]
    # The gate is shut: the broker's beats wait behind its messages, ours go on.
    sent = slow.stats().bytes_sent
    until(lambda: slow.stats().bytes_sent >= sent + 3, "beats of ours")
    assert slow.connected
    numbers = [int(waiting.receive(timeout=SOON).body.partition(b" ")[0]) for _ in range(COUNT)]
    assert numbers == list(range(COUNT))
    expect(f"slow-{kind}", "all, in order")


def test_what_is_sent_ahead_without_a_prefetch(connect: Connect, queue: str, expect: Expect) -> None:
    connection = connect()
    for number in range(3_000):
        (connection.send if number % 100 else connection.send_async)(queue, str(number))
    connection.flush(timeout=SOON)
    subscription = connection.subscribe(queue, ack="client-individual")
    until(lambda: subscription.queued, "a message")
    seen = -1
    while subscription.queued > seen:
        seen = subscription.queued
        for _ in range(100):  # so long a busy broker may pause
            send_all(connection, f"{queue}.other", "x")
    expect("ahead", "all" if seen == 3_000 else "some" if seen else "none")


def test_what_a_sender_sees_when_there_is_no_room(
    candidate: Candidate, connect: Connect, queue: str, expect: Expect
) -> None:
    destination = queue.replace("/queue/", "/queue/full.")
    producer, consumer = connect(heartbeat=(0, 1)), connect()
    receipts: list[stompy.Receipt] = []
    with candidate.squeezed():
        try:
            for _ in range(1_000):
                receipt = producer.send_async(destination, BODY * 10)
                assert receipt is not None
                receipts.append(receipt)
                receipt.result(1.5)
        except stompy.BrokerError as refused:
            expect("full", "ERROR", refused.frame)
            return
        except stompy.ReceiptTimeoutError:
            beats = producer.stats().bytes_received
            until(lambda: producer.stats().bytes_received >= beats + 2, "beats of the broker")
    # RabbitMQ has room again now; at the others somebody makes some.
    subscription = consumer.subscribe(destination)
    for _ in receipts:
        subscription.receive(timeout=SOON)
    receipts[-1].result(SOON)
    expect("full", "waits; then all" if len(receipts) < 1_000 else "no limit seen")
