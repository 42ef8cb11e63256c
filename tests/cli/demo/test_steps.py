from __future__ import annotations

from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli.demo import steps
from stompy.cli.demo.printer import DemoPrinter
from stompy.connection.message import Message


@pytest.fixture
def conn(broker: Broker) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url, heartbeat=steps.HEARTBEAT) as conn:
        yield conn


@pytest.mark.parametrize("step", steps.STEPS, ids=lambda step: step.__name__)
def test_each_step_holds_by_itself(step: object, broker: Broker, conn: stompy.Connection) -> None:
    assert callable(step)
    printer = DemoPrinter()
    step(printer, broker, conn)
    assert printer.failed == []
    assert printer.passed >= 1


def test_a_broker_that_does_not_mark_redelivery_is_found_out(
    broker: Broker, conn: stompy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Message, "redelivered", False)
    printer = DemoPrinter()
    steps.nack(printer, broker, conn)
    assert printer.failed == ["the second delivery is marked"]


def test_silence_without_beats_is_found_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PATIENCE", 0.3)
    printer = DemoPrinter()
    with stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        steps.heartbeats(printer, broker, conn)
    assert printer.failed == ["both sides sent heartbeats"]


def test_a_dead_letter_that_does_not_say_where_it_was_is_found_out(
    broker: Broker, conn: stompy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_MOST_REFUSALS", 0)
    conn.send("/queue/DLQ", "x", headers={"original-destination": "/queue/other", "dead-letter-reason": "another"})
    conn.flush()
    printer = DemoPrinter()
    steps.dead_letters(printer, broker, conn)
    assert printer.failed == ["the dead letter names its queue"]
