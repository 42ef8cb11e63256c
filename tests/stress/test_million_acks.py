"""A million messages, acknowledged one by one from four threads: no growth, and the broker ends empty."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

import stompy
from tests.support.broker_process import Held, broker_process

THREADS = 4
AHEAD = 5_000
"""How far the producer may be ahead of the consumers, so that a growing backlog is not taken for a leak."""


def peak_kib(pid: int | str = "self") -> int:
    """The most memory that a process has had; `ru_maxrss` of a child counts its parent's, too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(100_000, marks=[pytest.mark.load, pytest.mark.timeout(180)]),
        pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_acks_from_four_threads_end_with_an_empty_queue_and_no_growth(messages: int) -> None:
    room = threading.Semaphore(AHEAD)
    counts = [0] * THREADS
    early: dict[str, int] = {}

    with (
        broker_process() as broker,
        stompy.connect(broker.url) as producer,
        stompy.connect(broker.url) as consumer,
    ):
        subscription = consumer.subscribe("/queue/million", ack="client-individual", prefetch=1_000)

        def peaks() -> dict[str, int]:
            return {"client": peak_kib(), "broker": peak_kib(broker.pid)}

        def work(place: int) -> None:
            try:
                while True:
                    message = subscription.receive(timeout=60)
                    message.ack()
                    counts[place] += 1
                    room.release()
            except stompy.NotConnectedError:
                return

        workers = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
        for worker in workers:
            worker.start()
        for number in range(messages):
            room.acquire()
            producer.send("/queue/million", b"x" * 64)
            if number == messages // 10:
                early = peaks()
        for _ in range(AHEAD):
            assert room.acquire(timeout=60)
        late = peaks()
        # The receipt of a later frame says that the broker has processed all ACKs before it (RCP-04).
        consumer.send("/queue/after", "x", confirm=True)
        assert broker.held() == Held(ready=1, unacked=0)  # the one for /queue/after
        subscription.close()
        for worker in workers:
            worker.join(30)
        assert sum(counts) == messages
        assert consumer.stats().queued_messages == 0
        assert consumer.stats().receipts_pending == 0
        for name, kib in late.items():
            assert kib - early[name] < 20 * 1024, f"memory of the {name} grew from {early[name]} to {kib} KiB"
