"""The fixture `stomp_worker`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.testing.worker import RunningWorker
from tests.worker.conftest import LIKE

Run = Callable[[stompy.Worker], RunningWorker]


@pytest.fixture(params=LIKE, ids=lambda like: like or "stompy")
def stomp_broker_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"like": request.param}


def test_a_worker_runs_on_the_embedded_broker_until_it_is_idle(
    stomp_worker: Run, stomp_broker: Broker, stomp_connection: stompy.Connection
) -> None:
    worker = stompy.Worker("stomp://production.invalid")

    @worker.task("/queue/orders", attempts=2, backoff=stompy.Backoff(first=3600, longest=3600))
    def handle(message: stompy.Message) -> None:
        if message.text == "bad":
            raise ValueError

    running = stomp_worker(worker)
    stomp_connection.send("/queue/orders", "bad", confirm=True)
    stomp_connection.send("/queue/orders", "good", confirm=True)
    running.wait_idle()
    assert worker.health().tasks["handle"].counts == {"processed": 1, "failed": 1, "retried": 1}
    stomp_broker.clock.advance(3600)
    running.wait_idle()
    assert stomp_broker.depth("/queue/orders.dead") == 1


def test_a_worker_that_is_not_idle_in_time_is_reported(stomp_worker: Run, stomp_connection: stompy.Connection) -> None:
    worker = stompy.Worker()
    stop = stomp_connection.subscribe("/queue/stop")
    worker.add(lambda message: stop.receive(timeout=10).text, "/queue/a", name="waits")
    running = stomp_worker(worker)
    stomp_connection.send("/queue/a", confirm=True)
    with pytest.raises(TimeoutError, match="not idle"):
        running.wait_idle(timeout=0.05)
    stomp_connection.send("/queue/stop", confirm=True)
    running.wait_idle()
