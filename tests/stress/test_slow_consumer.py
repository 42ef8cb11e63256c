"""A consumer far slower than its producer: memory stays bounded, heartbeats and receipts go on, nothing is lost."""

from __future__ import annotations

import threading

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.transport.base import RECV_SIZE

BODY = 256
MARKS = stompy.Limits(max_inbox_messages=1_000, max_inbox_bytes=512 * 1024, hard_max_inbox_bytes=64 * 1024 * 1024)
ONE_READ = RECV_SIZE // BODY
"""More messages than one read can hold: the marks are soft by that."""


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(50_000, marks=[pytest.mark.load, pytest.mark.timeout(300)]),
        pytest.param(200_000, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_a_slow_consumer_is_bounded_while_beats_and_receipts_go_on(messages: int) -> None:
    produced, hurry = threading.Event(), threading.Event()
    seen: list[int] = []
    peaks: list[int] = []
    done = threading.Event()

    with (
        Broker(
            heartbeat=(1, 1), limits=BrokerLimits(max_queue_messages=messages * 2, max_queue_bytes=1 << 30)
        ) as broker,
        stompy.connect(broker.url, heartbeat=(1, 1), limits=MARKS) as consumer,
        stompy.connect(broker.url, heartbeat=(1, 1)) as producer,
    ):

        def slowly(message: stompy.Message) -> None:
            if not hurry.is_set():
                # The producer manages some tens of thousands in the time that this takes for a few hundred.
                hurry.wait(0.004)
            peaks.append(consumer.stats().queued_messages)
            seen.append(int(message.body[:10]))
            if len(seen) == messages:
                done.set()

        consumer.subscribe("/queue/flood", slowly, ack="auto")

        def produce() -> None:
            receipts = []
            for number in range(messages):
                body = b"%010d" % number + b"x" * (BODY - 10)
                if number % 100:
                    producer.send("/queue/flood", body)
                else:
                    receipts.append(producer.send_async("/queue/flood", body))
            for receipt in receipts:
                receipt.result(60)
            produced.set()

        thread = threading.Thread(target=produce)
        thread.start()
        assert produced.wait(200), "the producer's receipts must come"
        consumed_meanwhile = len(seen)
        # The consumer's own receipts come although its gate was shut by the flood.
        consumer.send("/queue/other", "x", confirm=True)
        assert consumer.connected
        assert producer.connected
        hurry.set()
        assert done.wait(200)
        thread.join()
        assert seen == list(range(messages)), "all of them, once, in order"
        assert consumed_meanwhile * 20 < messages, "the consumer was not slow, so that the test shows nothing"
        assert consumer.stats().times_paused > 0

    # While a receipt is waited for the gate is held open, so the peak is the marks plus what came in that time.
    before_the_receipt = peaks[:consumed_meanwhile]
    assert max(before_the_receipt) <= MARKS.max_inbox_messages + ONE_READ
