"""The files that a message passes on its ways, as the page on the architecture lists them."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import stompy
from stompy.broker import Broker
from tests.support.peer import WITHIN, until

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "topics" / "architecture.md").read_text(encoding="utf-8")
ONCE_A_READ = {
    "deadline.py",
    "forks.py",
    "frames/checks.py",
    "frames/escaping.py",
    "frames/grammar.py",
    "link/flow.py",
    "link/link.py",
    "locks.py",
    "protocol/heartbeat.py",
    "protocol/rules.py",
    "protocol/server.py",
    "protocol/state.py",
    "transport/sockets.py",
}
"""What is counted, timed and checked for all messages of a read together."""


class Trace:
    """Notes which files of stompy are called, by thread."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[tuple[str, str]] = []
        self._start = f"{Path(stompy.__file__).parent}/"

    def __call__(self, frame: FrameType, event: str, what: object) -> None:
        file = frame.f_code.co_filename
        if self.on and event == "call" and file.startswith(self._start):
            self.calls.append((threading.current_thread().name, file.removeprefix(self._start)))

    def of(self, action: Callable[[], object]) -> list[str]:
        """Return the files that an action passes in this thread, in order, each call once."""
        before = sys.getprofile()
        sys.setprofile(self)
        try:
            self.on = True
            action()
        finally:
            self.on = False
            sys.setprofile(before)
        mine, self.calls = self.calls, []
        # The tests' own locks are checked, and so Python code.
        return [file for thread, file in mine if thread == threading.current_thread().name and file != "locks.py"]


@pytest.fixture
def trace() -> Iterator[Trace]:
    trace = Trace()
    threading.setprofile(trace)
    yield trace
    threading.setprofile(None)


def listed(way: str) -> list[str]:
    """Return the files of one way, as the page lists them."""
    part = PAGE.split(f"**{way}", 1)[1]
    return re.findall(r"^\| `([a-z_/]+\.py)` \|", part.split("\n\n", 2)[1], re.MULTILINE)


def test_the_ways_are_those_of_the_page(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a program that does not log each frame; the tests always look at what would be logged.
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda self, level: level >= logging.INFO)
    got: list[stompy.Message] = []
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        conn.subscribe("/queue/h", got.append, ack="client-individual")
        for number in range(100):  # so that heads are known
            conn.send("/queue/a", "x")
            conn.send("/queue/h", str(number))
        until(lambda: len(got) == 100)
        sending = trace.of(lambda: conn.send("/queue/a", "x"))
        assert sending == listed("From `send` to the system")

        trace.on = True
        conn.send("/queue/h", "last")
        until(lambda: len(got) == 101)
        trace.on = False
        names = [f"stompy-{conn._links._name}-{part}" for part in ("reader", "dispatcher")]
        receiving = [file for thread, file in trace.calls if thread in names and file not in ONCE_A_READ]
        trace.calls.clear()
        assert set(receiving) == set(listed("From the wire to a handler"))

        acking = trace.of(got[-1].ack)
        assert list(dict.fromkeys(acking)) == listed("From `ack` to the system")


def test_the_way_through_the_embedded_broker_is_that_of_the_page(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda self, level: level >= logging.INFO)
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        consumer = conn.subscribe("/queue/a", ack="auto")
        for _ in range(100):  # so that the head is known
            conn.send("/queue/a", "x")
            consumer.receive(timeout=WITHIN)
        trace.on = True
        conn.send("/queue/a", "x")
        consumer.receive(timeout=WITHIN)
        trace.on = False
        passed = {file for thread, file in trace.calls if thread.startswith("stompy-broker-")} - ONCE_A_READ
        assert passed == set(listed("Through the embedded broker"))
        assert len(passed) <= 12


def test_the_life_of_a_connection_names_functions_that_are_there() -> None:
    page = (TOP / "docs" / "topics" / "connection-life.md").read_text(encoding="utf-8")
    files = [*(TOP / "stompy" / "connection").glob("*.py"), *(TOP / "stompy" / "link").glob("*.py")]
    there = {
        name for file in files for name in re.findall(r"(?:def|class|self\.) ?(\w+)", file.read_text(encoding="utf-8"))
    }
    named = re.findall(r"`(?:(\w+)\.)?(_?[a-z]\w*)`", page)
    assert len(named) > 20
    assert {word for pair in named for word in pair if word} - {
        "stompy",
        "send",
        "recv",
        "dial",
        "drain",
        "atexit",
    } <= there
