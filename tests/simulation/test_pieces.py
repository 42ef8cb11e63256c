"""Every schedule of small programs, up to a number of preemptions: the parts hold, and each planted fault is found."""

from __future__ import annotations

import pytest

from stompy.errors import StompError
from tests.simulation.pieces import ATOMS, EACH_STEP, PIECES, TWO_LINES, WRITTEN, Piece, explore, with_fault


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
        module = with_fault(piece.module, *planted)
        with pytest.raises((AssertionError, StompError, LookupError)):
            explore(piece, module, EACH_STEP)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("piece", WRITTEN, ids=lambda piece: piece.program.__name__)
def test_what_is_written_without_a_lock_holds_with_two_preemptions(piece: Piece) -> None:
    assert explore(piece, piece.module, TWO_LINES) > 1
    for planted in piece.faults.values():
        module = with_fault(piece.module, *planted)
        with pytest.raises(AssertionError):
            explore(piece, module, TWO_LINES)
