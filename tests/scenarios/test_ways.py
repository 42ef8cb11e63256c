"""The files that a message passes on its ways, as the page on the architecture lists them."""

from __future__ import annotations

import itertools
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

    def by(self, thread: str) -> list[str]:
        """Return the files that a thread has passed, in order, each call once."""
        return [file for name, file in self.calls if name == thread]

    def of(self, action: Callable[[], object]) -> list[str]:
        """Return the files that an action passes in this thread, in order, each call once."""
        before = sys.getprofile()
        self.calls.clear()
        sys.setprofile(self)
        try:
            self.on = True
            action()
        finally:
            self.on = False
            sys.setprofile(before)
        return self.by(threading.current_thread().name)


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


@pytest.fixture
def conn(monkeypatch: pytest.MonkeyPatch) -> Iterator[stompy.Connection]:
    """Return a connection as programs have it: its locks are not checked, and nothing looks at each frame."""
    monkeypatch.setattr("stompy.locks.checked", False)
    monkeypatch.setattr(logging.Logger, "isEnabledFor", lambda self, level: level >= logging.INFO)
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        yield conn


def test_a_send_is_five_calls_in_five_files(trace: Trace, conn: stompy.Connection) -> None:
    for _ in range(10):  # so that heads are known
        conn.send("/queue/a", "x")
    calls = trace.of(lambda: conn.send("/queue/a", "x"))
    assert calls == listed("From `send` to the system")
    assert len(calls) == 5


def test_a_send_with_a_header_and_an_option_is_at_most_eight_calls_in_six_files(
    trace: Trace, conn: stompy.Connection
) -> None:
    for number in range(10):
        conn.send("/queue/a", "x", headers={"kind": str(number)}, persistent=True)
    calls = trace.of(lambda: conn.send("/queue/a", "x", headers={"kind": "last"}, persistent=True))
    assert len(calls) <= 8
    assert len(set(calls)) <= 6


def test_from_the_wire_to_a_handler_are_nine_files_and_an_ack_is_short(trace: Trace, conn: stompy.Connection) -> None:
    got: list[stompy.Message] = []

    def handle(message: stompy.Message) -> None:
        trace.on = False
        got.append(message)

    conn.subscribe("/queue/h", handle, ack="client-individual")
    for number in range(100):
        conn.send("/queue/h", str(number))
    until(lambda: len(got) == 100)
    trace.calls.clear()
    trace.on = True
    conn.send("/queue/h", "last")
    until(lambda: len(got) == 101)

    reader, dispatcher = (f"stompy-{conn._links._name}-{part}" for part in ("reader", "dispatcher"))
    reading = itertools.dropwhile(lambda file: file != "link/reader.py", trace.by(reader))
    passed = {*itertools.takewhile(lambda file: file != "transport/sockets.py", reading), *trace.by(dispatcher)}
    assert passed == set(listed("From the wire to a handler"))
    assert len(passed) <= 9

    trace.calls.clear()
    assert list(dict.fromkeys(trace.of(got[-1].ack))) == listed("From `ack` to the system")


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
