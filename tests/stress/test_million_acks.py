"""A million messages, acknowledged one by one from four threads: no growth, and the broker ends empty."""

from __future__ import annotations

import os
import resource
import threading

import pytest

import stompy
from stompy.broker import Broker

MESSAGES = int(os.environ.get("STOMPY_LOAD_MESSAGES", "1000000"))
THREADS = 4
AHEAD = 5_000
"""How far the producer may be ahead of the consumers, so that a growing backlog is not taken for a leak."""


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.load
@pytest.mark.timeout(900)
def test_a_million_acks_from_four_threads_end_with_an_empty_queue_and_no_growth() -> None:
    room = threading.Semaphore(AHEAD)
    counts = [0] * THREADS
    warm = threading.Event()
    early: list[int] = []

    with (
        Broker() as broker,
        stompy.connect(broker.url) as producer,
        stompy.connect(broker.url) as consumer,
    ):
        subscription = consumer.subscribe("/queue/million", ack="client-individual", prefetch=1_000)

        def work(place: int) -> None:
            try:
                while True:
                    message = subscription.receive(timeout=60)
                    message.ack()
                    counts[place] += 1
                    room.release()
            except stompy.NotConnected:
                return

        workers = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
        for worker in workers:
            worker.start()
        for number in range(MESSAGES):
            room.acquire()
            producer.send("/queue/million", b"x" * 64)
            if number == MESSAGES // 10:
                early.append(peak_kib())
                warm.set()
        for _ in range(AHEAD):
            assert room.acquire(timeout=60)
        late = peak_kib()
        # The receipt of a later frame says that the broker has processed all ACKs before it (RCP-04).
        consumer.send("/queue/after", "x", confirm=True)
        stats = broker.stats()
        subscription.unsubscribe()
        for worker in workers:
            worker.join(30)
        assert sum(counts) == MESSAGES
        depth = stats.queues.get("/queue/million")
        assert depth is None or (depth.ready, depth.unacked) == (0, 0)
        assert consumer.stats().queued_messages == 0
        assert consumer.stats().receipts_pending == 0
        assert late - early[0] < 20 * 1024, f"memory grew from {early[0]} to {late} KiB"
