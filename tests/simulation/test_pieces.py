"""Every schedule of small programs, up to a number of preemptions: the parts hold, and each planted fault is found."""

from __future__ import annotations

from types import ModuleType

import pytest

from stompy.errors import StompError
from stompy.testing.world import World, installed
from tests.simulation.pieces import PIECES, Piece, Schedules, with_fault

DEPTHS = ((2, False), (1, True))
"""Preemptions of a schedule; whether a thread may lose its turn before each line, or only where it waits."""
BEGAN = 1000.0
"""The time at which each world begins; it only passes where all threads wait."""


def explore(piece: Piece, module: ModuleType) -> int:
    """Run every schedule; return how many there were."""
    count = 0
    for preemptions, each_line in DEPTHS:
        schedules = Schedules(preemptions)
        with installed():
            for choose in schedules:
                world = World(choose, traced=[str(module.__file__)] if each_line else [])
                world.run(lambda: piece.program(module))
                assert world.now == BEGAN, "a wait ended by its limit"
        count += schedules.count
    return count


@pytest.mark.timeout(300)
@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.program.__name__)
def test_a_piece_holds_in_every_schedule(piece: Piece) -> None:
    assert explore(piece, piece.module) > 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("piece", "fault"),
    [(piece, fault) for piece in PIECES for fault in piece.faults],
    ids=lambda value: value if isinstance(value, str) else value.program.__name__,
)
def test_a_planted_fault_is_found(piece: Piece, fault: str) -> None:
    module = with_fault(piece.module, *piece.faults[fault])
    with pytest.raises((AssertionError, StompError)):
        explore(piece, module)
