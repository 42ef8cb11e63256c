from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.testing.proxied import Direction, DirectionFaults, FaultControls, check_ending


class Recorder(FaultControls):
    def __init__(self) -> None:
        self.changes: list[tuple[tuple[Direction, ...], dict[str, Any]]] = []

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        self.changes.append((tuple(directions), changes))


def test_a_switch_is_for_both_directions_unless_one_is_named() -> None:
    recorder = Recorder()
    recorder.stall()
    recorder.resume("up")
    recorder.chop(direction="down")
    assert recorder.changes == [
        (("up", "down"), {"stalled": True}),
        (("up",), {"stalled": False}),
        (("down",), {"chop": 1}),
    ]


def test_each_switch_changes_its_own_fault() -> None:
    recorder = Recorder()
    recorder.throttle(1_000)
    recorder.delay(0.5)
    recorder.cut_after(7, direction="up", ending="rst")
    assert [changes for _, changes in recorder.changes] == [
        {"rate": 1_000},
        {"latency": 0.5},
        {"cut_after": 7, "ending": "rst"},
    ]


def test_healing_sets_every_fault_back() -> None:
    recorder = Recorder()
    recorder.heal()
    ((directions, changes),) = recorder.changes
    assert directions == ("up", "down")
    assert DirectionFaults(**changes) == DirectionFaults()
    assert set(changes) == set(DirectionFaults.__slots__)


def test_what_makes_no_sense_is_refused() -> None:
    recorder = Recorder()
    calls: list[Callable[[], None]] = [
        lambda: recorder.stall("left"),  # type: ignore[arg-type]
        lambda: recorder.chop(-1),
        lambda: recorder.throttle(0),
        lambda: recorder.throttle(math.nan),
        lambda: recorder.delay(-1),
        lambda: recorder.delay(math.inf),
        lambda: recorder.cut_after(-1, direction="up"),
        lambda: recorder.cut_after(1, direction="up", ending="bye"),  # type: ignore[arg-type]
        lambda: check_ending("FIN"),
    ]
    for wrong in calls:
        with pytest.raises(ConfigurationError):
            wrong()
    assert recorder.changes == []


def test_switches_without_a_proxy_do_nothing() -> None:
    with pytest.raises(NotImplementedError):
        FaultControls().stall()
