"""Workers on the embedded broker, as it is and in the place of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stompy
from stompy.broker import Broker

WITHIN = 20.0
"""Seconds after which a test has failed."""

LIKE = (None, "activemq", "activemq5", "artemis", "rabbitmq")


def wait_until(condition: Callable[[], Any], within: float = WITHIN) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def left(broker: Broker, queue: str = "/queue/a") -> int:
    """Return the messages of a queue, with those that a consumer has and did not acknowledge."""
    depth = broker.stats().queues.get(queue)
    return 0 if depth is None else depth.total


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
        worker = stompy.Worker(url or broker.url, **{"concurrency": 2, "stop_timeout": WITHIN, **options})
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.stop()


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
