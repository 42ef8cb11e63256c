"""A worker that runs for long: memory, threads and descriptors do not grow."""

from __future__ import annotations

import gc
import itertools
import os
import re
import sys
import threading
from pathlib import Path

import pytest

import stompy
from tests.support.broker_process import broker_process
from tests.worker.conftest import wait_until

MIB = 1024


def resident() -> int:
    """Return the KiB of memory that this process has."""
    gc.collect()
    (found,) = re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("rounds", "count"),
    [
        pytest.param(10, 10_000, id="200000", marks=[pytest.mark.load, pytest.mark.timeout(1800)]),
        pytest.param(40, 125_000, id="10-million", marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)]),
    ],
)
def test_nothing_grows_with_the_number_of_messages(rounds: int, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "stompy")  # as pytest keeps every record
    with broker_process() as broker, stompy.connect(broker.url) as conn:
        worker = stompy.Worker(broker.url)

        @worker.task("/queue/a", attempts=2, backoff=stompy.Backoff(first=0.001, longest=0.001))
        def plain(message: stompy.Message) -> None:
            if message.text.endswith("99"):
                raise stompy.Retry if message.text.endswith("199") else stompy.Reject

        @worker.task("/queue/k", key=lambda message: message.text[-1])
        def keyed(message: stompy.Message) -> None: ...

        def settled(name: str) -> int:
            counts = worker.health().tasks[name].counts
            return counts.get("processed", 0) + counts.get("dead_lettered", 0)

        with worker:
            measured = []
            for number in range(1, rounds + 1):
                with conn.batch():
                    for each in range(count):
                        conn.send("/queue/a", str(each))
                        conn.send("/queue/k", str(each))
                conn.flush()
                want = number * count
                wait_until(lambda: settled("plain") == want, 600)  # noqa: B023 - called at once
                wait_until(lambda: settled("keyed") == want, 600)  # noqa: B023
                measured.append((resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))))
                print(f"{2 * want} messages: KiB, threads, descriptors: {measured[-1]}", flush=True)
    memory, threads, descriptors = zip(*measured[rounds // 4 :], strict=True)
    assert max(later - earlier for earlier, later in itertools.combinations(memory, 2)) < 8 * MIB  # it may shrink
    assert len(set(threads)) == len(set(descriptors)) == 1
