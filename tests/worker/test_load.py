"""A worker that runs for long: memory, threads and descriptors do not grow."""

from __future__ import annotations

import gc
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


@pytest.mark.load
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_grows_with_the_number_of_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "stompy")  # as pytest keeps every record
    rounds = [20_000] * 10
    with broker_process() as broker, stompy.connect(broker.url) as conn:
        worker = stompy.Worker(broker.url)

        @worker.task("/queue/a", retries=1, retry_delay=(0.001, 0.001))
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
            for number, count in enumerate(rounds, start=1):
                with conn.batch():
                    for each in range(count):
                        conn.send("/queue/a", str(each))
                        conn.send("/queue/k", str(each))
                conn.flush()
                want = number * count
                wait_until(lambda: settled("plain") == want, 300)  # noqa: B023 - called at once
                wait_until(lambda: settled("keyed") == want, 300)  # noqa: B023
                measured.append((resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))))
                print(measured[-1])
    memory, threads, descriptors = zip(*measured[2:], strict=True)
    assert max(memory) - min(memory) < 8 * MIB
    assert len(set(threads)) == len(set(descriptors)) == 1
