"""The attributes of log records."""

from __future__ import annotations

import logging
import threading

import pytest

import stompy
import stompy.worker
from stompy.broker import Broker
from tests.telemetry.conftest import WITHIN

Fields = dict[str, object]


def fields_of(caplog: pytest.LogCaptureFixture, start: str) -> Fields:
    """Return the attributes of the first record whose text has `start`."""
    record = next(record for record in caplog.records if start in record.getMessage())
    return {name: value for name, value in vars(record).items() if name.startswith("stompy_")}


def test_a_handler_that_raised(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stompy")
    failed = threading.Event()

    class Failures(stompy.Listener):
        def on_handler_error(self, event: stompy.HandlerErrorEvent) -> None:
            failed.set()

    def handle(message: stompy.Message) -> None:
        raise ValueError

    with stompy.connect(broker.url, listeners=[Failures()]) as conn:
        conn.subscribe("/queue/a", handle)
        conn.send("/queue/a", "x")
        assert failed.wait(WITHIN)
    found = fields_of(caplog, "the handler of")
    assert found == {"stompy_destination": "/queue/a", "stompy_message_id": found["stompy_message_id"]}
    assert found["stompy_message_id"]


def test_a_session_that_was_lost(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stompy")
    lost = threading.Event()

    class Losses(stompy.Listener):
        def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
            lost.set()

    with stompy.connect(broker.url, listeners=[Losses()]) as conn:
        address = conn.address
        broker.close()
        assert lost.wait(WITHIN)
    assert fields_of(caplog, "session with") == {"stompy_address": address}


def test_a_worker_and_a_task_that_failed(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stompy")
    done = threading.Event()

    class Ends(stompy.worker.Middleware):
        def dead_lettered(self, task: object, message: stompy.Message) -> None:
            done.set()

    worker = stompy.Worker(broker.url, name="w", middleware=[Ends()])

    @worker.task("/queue/a", attempts=1)
    def fail(message: stompy.Message) -> None:
        raise ValueError

    with worker, stompy.connect(broker.url) as conn:
        conn.send("/queue/a", "x")
        assert done.wait(WITHIN)
    found = fields_of(caplog, "attempt 1 at message")
    assert (found["stompy_task"], found["stompy_attempt"]) == ("fail", 1)
    assert found["stompy_message_id"]
    for text in ("started with fail", "stopping", "stopped"):
        assert fields_of(caplog, text) == {"stompy_worker": "w"}
