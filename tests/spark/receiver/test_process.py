from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.errors import ConnectionLostError, SpoolError, StompError
from stompy.spark.receiver.process import ReceiverProcess
from stompy.spark.source_options import spool_options
from stompy.spark.spool.view import SpoolView
from tests.spark.receiver.helpers import QUEUE, bodies, eventually, fill, receiving, spool_in


@contextmanager
def process_of(broker: Broker, path: Path, **given: str) -> Iterator[ReceiverProcess]:
    spool_in(path)
    process = ReceiverProcess(
        spool_options({
            "url": broker.url, "destination": QUEUE, "spooldir": str(path / "spool"), "locktimeout": "0",
            "brokertimeout": "5", **given,
        })
    )  # fmt: skip
    try:
        yield process
    finally:
        process.stop()
        process.stop()


def until_it_fails(check: Callable[[], None]) -> None:
    for _ in range(2000):
        check()
        time.sleep(0.01)


def test_a_process_fills_the_spool_by_several_receivers_and_removes_what_was_processed(tmp_path: Path) -> None:
    with (
        Broker(limits=BrokerLimits(prefetch=10)) as broker,
        process_of(broker, tmp_path, receivers="2", prefetch="10") as process,
    ):
        eventually(lambda: process.subscribed_for() > 0)
        fill(broker.url, range(500))
        view = SpoolView(spool_in(tmp_path))
        eventually(lambda: view.refresh() and view.next == 500)
        process.check()
        eventually(lambda: process.quiet_for() > 0.2)
        eventually(lambda: broker.depth(QUEUE) == 0)
        found = bodies(tmp_path)
        view.note_processed(500)
        eventually(lambda: spool_in(tmp_path).segments() == [])
    assert sorted(found) == list(range(500))


def test_a_process_that_dies_is_reported(tmp_path: Path) -> None:
    with Broker() as broker, process_of(broker, tmp_path) as process:
        eventually(lambda: process.subscribed_for() > 0)
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLostError, match="its process ended with code -9"):
            process.watch(lambda: 3600.0)


def test_the_failure_of_a_process_is_reported_with_its_message(tmp_path: Path) -> None:
    with (
        Broker() as broker,
        receiving(broker, tmp_path),
        process_of(broker, tmp_path) as process,
        pytest.raises(SpoolError, match="another query or receiver fills it"),
    ):
        until_it_fails(process.check)
    with (
        Broker() as broker,
        process_of(broker, tmp_path, selector="n = 1", dialect="rabbitmq") as process,
        pytest.raises(StompError, match="it would ignore the selector"),
    ):
        until_it_fails(process.check)


def test_a_process_does_not_outlive_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.spark.receiver.test_process import process_of
from tests.spark.receiver.helpers import eventually
from types import SimpleNamespace
from pathlib import Path
with process_of(SimpleNamespace(url=sys.argv[1]), Path(sys.argv[2])) as process:
    eventually(lambda: process.subscribed_for() > 0)
    print("ready", flush=True)
    time.sleep(60)
"""
    with (
        Broker() as broker,
        subprocess.Popen([sys.executable, "-c", program, broker.url, str(tmp_path)], stdout=subprocess.PIPE) as parent,
    ):
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.kill()
        eventually(lambda: broker.stats().sessions == 0)
