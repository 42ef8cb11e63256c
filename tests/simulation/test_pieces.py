"""Every schedule of small programs, up to a number of preemptions: the parts hold, and each planted fault is found."""

from __future__ import annotations

from types import ModuleType
from typing import Literal, TypeAlias

import pytest

from stompy.errors import StompError
from stompy.testing.schedules import Schedules
from stompy.testing.world import World, installed
from tests.simulation.pieces import ATOMS, PIECES, Piece, with_fault

Depths: TypeAlias = tuple[tuple[int, Literal["line", "opcode"] | None], ...]

DEPTHS: Depths = ((2, None), (1, "line"))
"""Preemptions of a schedule; before what a thread may lose its turn, if not only where it waits."""
EACH_STEP: Depths = ((1, "opcode"),)
BEGAN = 1000.0
"""The time at which each world begins; it only passes where all threads wait."""


def explore(piece: Piece, module: ModuleType, depths: Depths = DEPTHS) -> int:
    """Run every schedule; return how many there were."""
    count = 0
    for preemptions, event in depths:
        schedules = Schedules(preemptions)
        with installed():
            for choose in schedules:
                world = World(choose, traced=[str(module.__file__)] if event else [], event=event or "line")
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize("piece", ATOMS, ids=lambda piece: piece.program.__name__)
def test_what_takes_no_lock_holds_at_each_step_of_the_interpreter(piece: Piece) -> None:
    assert explore(piece, piece.module, EACH_STEP) > 1
    for planted in piece.faults.values():
        with pytest.raises((AssertionError, StompError, LookupError)):
            explore(piece, with_fault(piece.module, *planted), EACH_STEP)
