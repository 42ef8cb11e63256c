"""Nothing is lost, loops or overtakes, whatever dies: the worker, the broker or the session."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import stompy
from stompy.broker import Broker
from tests.worker.conftest import LIKE, left

TOP = Path(__file__).parents[2]
CUSTOMERS = 7


def kind_of(number: int) -> str:
    return "poison" if number % 100 == 50 else "flaky" if number % 20 == 10 else "good"


def fill(url: str, count: int) -> None:
    with stompy.connect(url) as conn:
        for number in range(count):
            body = {"n": number, "kind": kind_of(number)}
            headers = {"customer": f"c{number % CUSTOMERS}"}
            conn.send("/queue/a", body, headers=headers, persistent=True)
            conn.send("/queue/k", body, headers=headers, persistent=True, receipt=number % 50 == 0)
        conn.send("/queue/none", "", confirm=True)


class Chaos:
    """A worker process that is started again whenever it ends, and what strikes it."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "STOMPY_URL": self.broker.url, "STOMPY_TEST_FOLDER": str(self.folder)}
        command = [sys.executable, "-m", "stompy", "worker", "tests.worker.programs:chaos"]
        return subprocess.Popen(command, cwd=TOP, env=environment, stderr=subprocess.DEVNULL)

    def terminate(self) -> None:
        self.process.terminate()
        # 143: while it was still being imported.
        assert self.process.wait(30) in (0, 128 + signal.SIGTERM, -signal.SIGTERM)
        self.process = self._start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def restart_broker(self) -> None:
        self.broker.restart()

    def cut(self) -> None:
        for connection in self.broker.connections():
            self.broker.kill(connection)

    def lines(self) -> list[str]:
        path = self.folder / "noted"
        return path.read_text().splitlines() if path.exists() else []


@contextmanager
def running(broker: Broker, folder: Path) -> Iterator[Chaos]:
    chaos = Chaos(broker, folder)
    try:
        yield chaos
    finally:
        chaos.process.terminate()
        chaos.process.wait(30)


def wait_for_progress(chaos: Chaos, before: int, step: int, done: Callable[[], bool], within: float) -> None:
    end = time.monotonic() + within
    while len(chaos.lines()) < before + step and not done():
        assert time.monotonic() < end, f"no progress: {chaos.broker.stats()}"
        time.sleep(0.02)


@pytest.mark.parametrize("like", LIKE, ids=lambda like: like or "stompy")
@pytest.mark.parametrize(
    ("count", "strikes"),
    [
        pytest.param(400, 4, id="small"),
        pytest.param(50_000, 20, id="large", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_nothing_is_lost_or_loops_or_overtakes(like: str | None, count: int, strikes: int, tmp_path: Path) -> None:
    poison = {number for number in range(count) if kind_of(number) == "poison"}
    with Broker(like=like) as broker:  # type: ignore[arg-type]
        fill(broker.url, count)
        with running(broker, tmp_path) as chaos:
            acts = itertools.cycle([chaos.kill, chaos.restart_broker, chaos.terminate, chaos.cut])

            def empty() -> bool:
                dead = [broker.depth(f"/queue/{name}.dead") for name in "ak"]
                rest = [left(broker, f"/queue/{name}") for name in ("a", "k", "a.parked")]
                return not any(rest) and min(dead) >= len(poison)

            for act, _ in zip(acts, range(strikes), strict=False):
                wait_for_progress(chaos, len(chaos.lines()), count // (2 * strikes), empty, 60)
                act()
            wait_for_progress(chaos, 0, sys.maxsize, empty, 60 + count / 50)
            chaos.terminate()
            wait_for_progress(chaos, 0, sys.maxsize, empty, 60)
        assert not any(left(broker, f"/queue/{name}") for name in ("a", "k", "a.parked", "k.parked"))
        for name in "ak":
            dead = Counter(
                int(letter.text.partition(":")[2].partition(",")[0]) for letter in broker.browse(f"/queue/{name}.dead")
            )
            assert dead == Counter(poison)
        assert all(letter.headers["stompy-reason"] == "failed 3 times" for letter in broker.browse("/queue/a.dead"))
    lines = [line.split() for line in chaos.lines()]
    assert {int(line[1]) for line in lines if line[0] == "a"} == set(range(count)) - poison
    assert {int(line[2]) for line in lines if line[0] == "k"} == set(range(count)) - poison
    for customer in range(CUSTOMERS):
        first = list(dict.fromkeys(int(line[2]) for line in lines if line[:2] == ["k", f"c{customer}"]))
        assert first == sorted(first)
