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

from stompy.broker import Broker
from stompy.errors import ConnectionLost, SpoolError, StompError
from stompy.spark.receiver.process import ProcessCrew
from stompy.spark.source_options import spool_options
from tests.spark.receiver.filling import QUEUE, bodies, eventually, fill, receiving, spool_in


@contextmanager
def crew_of(broker: Broker, path: Path, **given: str) -> Iterator[ProcessCrew]:
    options = spool_options({
        "url": broker.url, "destination": QUEUE, "spooldir": str(path / "spool"), "locktimeout": "0",
        "brokertimeout": "5", **given,
    })  # fmt: skip
    crew = ProcessCrew(options, spool_in(path))
    try:
        yield crew
    finally:
        crew.stop()
        crew.stop()


def count(crew: ProcessCrew) -> int:
    for lane in crew.lanes:
        lane.refresh()
    return sum(lane.next for lane in crew.lanes)


def until_it_fails(check: Callable[[], None]) -> None:
    for _ in range(2000):
        check()
        time.sleep(0.01)


def test_two_processes_fill_two_lanes_and_what_was_processed_is_removed(tmp_path: Path) -> None:
    with Broker(prefetch=10) as broker, crew_of(broker, tmp_path, receivers="2", prefetch="10") as crew:
        eventually(lambda: crew.subscribed_for() > 0)
        fill(broker.url, range(500))
        eventually(lambda: count(crew) == 500)
        crew.check()
        eventually(lambda: crew.quiet_for() > 0.2)
        eventually(lambda: broker.depth(QUEUE) == 0)
        assert all(lane.next for lane in crew.lanes)
        found = [number for lane in (0, 1) for number in bodies(tmp_path, lane=lane)]
        eventually(lambda: crew.lanes[0].purge(crew.lanes[0].next) or crew.lanes[0].snapshot(lambda i: not i.messages))
    assert sorted(found) == list(range(500))


def test_a_process_that_dies_is_told_of(tmp_path: Path) -> None:
    with Broker() as broker, crew_of(broker, tmp_path) as crew:
        eventually(lambda: crew.subscribed_for() > 0)
        os.kill(crew._children[0]._process.pid, signal.SIGKILL)
        with pytest.raises(ConnectionLost, match=r"receiver 0: .*its process ended with code -9"):
            crew.watch(lambda: 3600.0)


def test_what_ails_a_process_is_told_in_its_words(tmp_path: Path) -> None:
    with (
        Broker() as broker,
        receiving(broker, tmp_path),
        crew_of(broker, tmp_path) as crew,
        pytest.raises(SpoolError, match="another query or receiver fills it"),
    ):
        until_it_fails(crew.check)
    with (
        Broker() as broker,
        crew_of(broker, tmp_path, selector="n = 1") as crew,
        pytest.raises(StompError, match=r"no way to be asked for a selector"),
    ):
        until_it_fails(crew.check)


def test_a_process_does_not_outlive_its_parent(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from tests.spark.receiver.test_process import crew_of
from tests.spark.receiver.filling import eventually
from types import SimpleNamespace
from pathlib import Path
with crew_of(SimpleNamespace(url=sys.argv[1]), Path(sys.argv[2])) as crew:
    eventually(lambda: crew.subscribed_for() > 0)
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
