"""The ten short programs of `examples/`: they run, and lose nothing when they are killed anywhere in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.support.certificates import Certificates
from tests.support.options import chosen
from tests.support.peer import WITHIN, until
from tests.support.ports import reserved_port
from tests.support.seed import SEED_SETTING, chance

TOP = Path(__file__).parents[2]
TEN = ("script", "request", "iteration", "prices", "work", "store", "forward", "test_orders", "durable", "tls")
LINES = [f"line {number}" for number in range(20)]
KILLS = 40 if chosen.long else 4


class Runs:
    """Runs a program against a broker, which kills it at a frame that is drawn at random, and keeps what it prints.

    The broker is in this process: its hook sees each frame before it is processed, or before it is written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._program = TOP / "examples" / f"{name}.py"
        self._printed = folder / "printed"
        self._lock = threading.Lock()
        self._left = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def hook(self, direction: str, session: str, frame: stompy.Frame) -> None:
        """Count down, and kill."""
        with self._lock:
            self._left -= 1
            if self._left == 0 and self._process is not None:
                self._process.kill()
                self.kills += 1

    def start(self, *arguments: str, kill_at: int = 0, stdin: Path | None = None, url: str = "") -> None:
        """Start the program, to be killed at that frame from now; 0 does not kill it."""
        with self._printed.open("ab") as out, (stdin or Path(os.devnull)).open("rb") as lines:
            process = subprocess.Popen(
                [sys.executable, str(self._program), *arguments],
                stdin=lines, stdout=out, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP), "STOMPY_URL": url},
            )  # fmt: skip
        with self._lock:
            self._process, self._left = process, kill_at

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait until the program was killed, has ended, or all is done; then it runs no more."""
        process, end = self._process, time.monotonic() + WITHIN
        assert process is not None
        while process.poll() is None and not done():
            assert time.monotonic() < end, "neither killed nor done"
            time.sleep(0.01)
        process.kill()
        process.wait(WITHIN)
        assert process.returncode in (0, -signal.SIGKILL)
        with self._lock:
            self._left = 0

    @property
    def printed(self) -> list[str]:
        return self._printed.read_text().splitlines() if self._printed.exists() else []


def nothing_left(broker: Broker) -> bool:
    stats = broker.stats()
    depths = [*stats.queues.values(), *stats.durables.values()]
    return not any(depth.ready or depth.unacked for depth in depths)


def fed(url: str, queue: str, first: int = 0, **options: Any) -> None:
    with stompy.connect(url, **options) as conn:
        for number in range(first, first + len(LINES)):
            conn.send(queue, f"line {number}", confirm=True)


def points(name: str, most: int) -> Iterator[int]:
    print(SEED_SETTING)
    draw = chance("the ten programs", name)
    return (draw.randrange(1, most) for _ in range(KILLS))


@pytest.fixture
def runs(tmp_path: Path, request: pytest.FixtureRequest) -> Runs:
    return Runs(tmp_path, request.param)


def consumed(
    runs: Runs, name: str, broker: Broker, feed: Callable[[int], None], *arguments: str, out: Path | None = None
) -> None:
    """Run a consumer, killed again and again while `feed` keeps it busy; check that it has written everything."""
    sent = 0
    for point in points(name, 2 * len(LINES)):
        if nothing_left(broker):
            feed(sent)
            sent += len(LINES)
        runs.start(*arguments, kill_at=point, url=broker.url)
        runs.wait(lambda: nothing_left(broker))
    runs.start(*arguments, url=broker.url)
    runs.wait(lambda: nothing_left(broker))
    assert runs.kills >= KILLS // 4
    # A kill may fall between two writes of `print`, so that a line has no end.
    printed = re.findall(r"line (\d+)", out.read_text() if out else "\n".join(runs.printed))
    assert set(range(sent)) - set(map(int, printed)) == set()


@pytest.mark.parametrize("name", TEN)
def test_each_is_short(name: str) -> None:
    text = (TOP / "examples" / f"{name}.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 15


@pytest.mark.parametrize(
    ("runs", "queue"),
    [("prices", "/queue/prices"), ("work", "/queue/orders")],
    ids=lambda value: str(value),
    indirect=["runs"],
)
def test_a_killed_consumer_loses_nothing(runs: Runs, queue: str) -> None:
    with Broker(on_frame=runs.hook) as broker:
        consumed(runs, queue, broker, partial(fed, broker.url, queue), broker.url)


@pytest.mark.parametrize("runs", ["iteration"], indirect=True)
def test_a_killed_loop_loses_nothing(runs: Runs, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Broker(on_frame=runs.hook) as broker:
        consumed(runs, "iteration", broker, partial(fed, broker.url, "/queue/lines"), broker.url, str(out), out=out)


@pytest.mark.parametrize("runs", ["durable"], indirect=True)
def test_a_killed_durable_subscriber_loses_nothing(runs: Runs) -> None:
    with Broker(on_frame=runs.hook) as broker:
        runs.start(broker.url)
        until(lambda: broker.stats().durables)
        runs.wait(lambda: True)
        consumed(runs, "durable", broker, partial(fed, broker.url, "/topic/events"), broker.url)


@pytest.mark.parametrize("runs", ["tls"], indirect=True)
def test_a_killed_consumer_over_tls_with_a_dead_broker_loses_nothing(runs: Runs, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    tls = stompy.Tls(cert=Path(certificates.server))
    with reserved_port() as dead, Broker(tls=tls, on_frame=runs.hook) as broker:
        port = broker.url.rpartition(":")[2]
        url = f"stomp+ssl://localhost:{port}"
        feed = partial(fed, url, "/queue/lines", tls=stompy.Tls(ca=Path(certificates.ca)))
        consumed(runs, "tls", broker, feed, certificates.ca, str(dead), port)


@pytest.mark.parametrize("runs", ["script"], indirect=True)
def test_what_a_killed_script_has_printed_is_in_the_queue(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("\n".join(LINES))
    with Broker(on_frame=runs.hook) as broker:
        for point in (*points("script", 2 * len(LINES)), 0):
            runs.start(broker.url, str(file), kill_at=point)
            runs.wait(lambda: False)
        sent = Counter(message.body.decode() for message in broker.browse("/queue/lines"))
        assert runs.kills
        assert runs.printed[-len(LINES) :] == LINES
        assert Counter(runs.printed) <= sent


@pytest.mark.parametrize("runs", ["store"], indirect=True)
def test_what_a_killed_program_has_put_into_an_outbox_arrives(runs: Runs, tmp_path: Path) -> None:
    rest = tmp_path / "rest"
    with Broker(on_frame=runs.hook) as broker:
        for point in (*points("store", 2 * len(LINES)), 0):
            rest.write_text("".join(f"{line}\n" for line in LINES if line not in runs.printed))
            runs.start(broker.url, str(tmp_path / "box"), kill_at=point, stdin=rest)
            runs.wait(lambda: False)
        sent = {message.body.decode() for message in broker.browse("/queue/lines")}
        assert runs.kills
        assert sent == set(runs.printed) == set(LINES)


@pytest.mark.parametrize("runs", ["forward"], indirect=True)
def test_a_killed_forwarder_moves_each_message_once(runs: Runs) -> None:
    with Broker(on_frame=runs.hook) as broker:
        sent = 0

        def left() -> int:
            depth = broker.stats().queues.get("/queue/in")
            return 0 if depth is None else depth.total

        for point in (*points("forward", 4 * len(LINES)), 0):
            if not left():
                fed(broker.url, "/queue/in", sent)
                sent += len(LINES)
            runs.start(broker.url, kill_at=point)
            runs.wait(lambda: not left())
            until(lambda: broker.stats().sessions == 0)
        assert runs.kills >= KILLS // 4
        moved = Counter(message.body.decode() for message in broker.browse("/queue/out"))
        assert moved == Counter(f"line {number}" for number in range(sent))


@pytest.mark.parametrize("runs", ["request"], indirect=True)
def test_a_killed_server_leaves_no_request_without_a_reply(runs: Runs) -> None:
    with Broker(on_frame=runs.hook) as broker, stompy.connect(broker.url) as conn:
        answers: list[str] = []
        numbers = [str(number) for number in range(12)]

        def ask() -> None:
            for number in numbers:
                answers.append(conn.request("/queue/square", number, timeout=2 * WITHIN).text)

        asking = threading.Thread(target=ask, name="test-asking")
        asking.start()
        for point in (*points("request", 40), 0):
            runs.start(broker.url, "serve", kill_at=point)
            runs.wait(lambda: not asking.is_alive())
        asking.join(WITHIN)
        assert answers == [str(int(number) ** 2) for number in numbers]


def test_the_client_of_the_server_prints_the_answer(tmp_path: Path) -> None:
    with Broker() as broker:
        server, client = Runs(tmp_path, "request"), Runs(tmp_path, "request")
        server.start(broker.url, "serve")
        client.start(broker.url, "12")
        client.wait(lambda: False)
        server.wait(lambda: True)
        assert client.printed == ["144"]


def test_the_test_on_the_broker_passes() -> None:
    """It is not killed: it leaves nothing that could be lost, as its broker is its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "examples/test_orders.py"]
    subprocess.run(command, cwd=TOP, check=True, capture_output=True)
