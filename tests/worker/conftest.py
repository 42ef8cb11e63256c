"""Workers on the embedded broker, as it is and in the place of others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.support.stacks import gave_up
from tests.transport.conftest import free_port as free_port

WITHIN = 20.0
"""Seconds after which a test has failed."""

LIKE = (None, "activemq", "activemq5", "artemis", "rabbitmq")


def wait_until(condition: Callable[[], Any], within: float = WITHIN) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            gave_up("not in time")
        time.sleep(0.01)


def left(broker: Broker, queue: str = "/queue/a") -> int:
    """Return the messages of a queue, with those that a consumer has and did not acknowledge."""
    depth = broker.stats().queues.get(queue)
    return 0 if depth is None else depth.total


REFUSED = {
    "stompy": ["/queue/*"],
    "activemq": ["/remote-temp-queue/ID:none-1-1:1:1"],
    "rabbitmq": ["/nonsense/out", "/exchange/nope/x"],
}
"""Destinations that a broker refuses, by dialect."""


def orders_to_refused(url: str, dialect: str, name: str) -> None:
    """Check that of orders, those whose output is refused become dead letters, and the others are processed."""
    refused = REFUSED[dialect]
    worker = stompy.Worker(
        url,
        concurrency=4,
        timeouts=stompy.Timeouts(close=WITHIN),
        reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)),
    )
    good, bad = [f"good-{number}" for number in range(8)], [f"bad-{number}" for number in range(2 * len(refused))]

    @worker.task(f"/queue/{name}", transactional=True, attempts=2, backoff=stompy.Backoff(first=0.01, longest=0.01))
    def handle(message: stompy.Message, context: stompy.TaskContext) -> None:
        number = int(message.text.rpartition("-")[2])
        context.send(f"/queue/{name}.out" if message.text in good else refused[number % len(refused)], message.body)

    with stompy.connect(url) as conn:
        for text in [*bad, *good]:
            conn.send(f"/queue/{name}", text, headers={"persistent": "true"}, confirm=True)
        outputs = conn.subscribe(f"/queue/{name}.out")
        letters = conn.subscribe(f"/queue/{name}.dead")
        with worker:
            # What was interrupted on RabbitMQ may be sent once more, but is not lost.
            found: set[str] = set()
            while found != set(good):
                text = outputs.receive(timeout=3 * WITHIN).text
                assert dialect == "rabbitmq" or text not in found, "sent twice"
                found.add(text)
            dead = [letters.receive(timeout=3 * WITHIN) for _ in bad]
            while {message.text for message in dead} != set(bad):
                assert dialect == "rabbitmq", "a dead letter twice"
                dead.append(letters.receive(timeout=3 * WITHIN))
            wait_until(lambda: worker.health().tasks["handle"].running == 0)
        assert {message.headers["stompy-error"] for message in dead} == {"stompy.errors.BrokerError"}
        assert {message.headers["stompy-attempts"] for message in dead} == {"2"}
        rest = conn.subscribe(f"/queue/{name}", ack="client-individual")
        with pytest.raises(stompy.ReceiveTimeoutError):
            rest.receive(timeout=0.5)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(params=LIKE, ids=lambda like: like or "stompy")
def each_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(like=request.param) as broker:
        yield broker


@pytest.fixture
def make_worker(broker: Broker) -> Iterator[Callable[..., stompy.Worker]]:
    """Return what makes a worker for `broker`, which is stopped at the end."""
    made: list[stompy.Worker] = []

    def make(url: str | None = None, **options: Any) -> stompy.Worker:
        worker = stompy.Worker(
            url or broker.url, **{"concurrency": 2, "timeouts": stompy.Timeouts(close=WITHIN), **options}
        )
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.close()


class Seen:
    """What tasks were called with."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = threading.Condition()

    def add(self, item: Any) -> None:
        with self._changed:
            self.items.append(item)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        """Wait until there are `count` items, and return them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.items) >= count, WITHIN), self.items
            return list(self.items)


@pytest.fixture
def seen() -> Seen:
    return Seen()


TOP = Path(__file__).parents[2]

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts `stompy worker`; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start_worker(
        name: str, *arguments: str, url: str, module: str = "stompy", new_session: bool = False, **environment: str
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "worker", f"tests.worker.programs:{name}", *arguments],
            cwd=TOP,
            env={**os.environ, "STOMPY_URL": url, "STOMPY_TEST_FOLDER": str(tmp_path), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=new_session,
        )
        started.append(process)
        return process

    yield start_worker
    for process in started:
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture
def noted(tmp_path: Path) -> Callable[[], list[str]]:
    """Return what returns the lines that the tasks noted."""
    path = tmp_path / "noted"
    return lambda: path.read_text().splitlines() if path.exists() else []


def send(url: str, *bodies: str) -> None:
    with stompy.connect(url) as conn:
        for body in bodies:
            conn.send("/queue/a", body, confirm=True)


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=WITHIN) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:  # it is the answer, and holds the socket
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
