from __future__ import annotations

from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli import tour
from stompy.cli.stage import Stage
from stompy.connection.message import Message


@pytest.fixture
def conn(broker: Broker) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url, heartbeat=tour.HEARTBEAT) as conn:
        yield conn


@pytest.mark.parametrize("step", tour.STEPS, ids=lambda step: step.__name__)
def test_each_step_holds_by_itself(step: object, broker: Broker, conn: stompy.Connection) -> None:
    assert callable(step)
    stage = Stage()
    step(stage, broker, conn)
    assert stage.failed == []
    assert stage.passed >= 1


def test_a_broker_that_does_not_mark_redelivery_is_found_out(
    broker: Broker, conn: stompy.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Message, "redelivered", False)
    stage = Stage()
    tour.nack(stage, broker, conn)
    assert stage.failed == ["the second delivery says so"]


def test_silence_without_beats_is_found_out(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "_PATIENCE", 0.3)
    stage = Stage()
    with stompy.connect(broker.url, heartbeat=(0, 0)) as conn:
        tour.heartbeats(stage, broker, conn)
    assert stage.failed == ["both hearts beat"]
