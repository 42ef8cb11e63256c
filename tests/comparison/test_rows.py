"""The stand-ins answer recorded sequences as the real brokers did, as far as they did when they were recorded."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.comparison import measured
from tests.comparison.compare import differences
from tests.comparison.play import Pace, Played, play
from tests.comparison.run import KINDS, LIKE, address_of, level_of
from tests.comparison.steps import Step, written
from tests.support.candidates import start

ROWS: dict[str, list[dict[str, Any]]] = json.loads(measured.ROWS.read_text(encoding="utf-8"))
FOUND: dict[str, list[dict[str, Any]]] = json.loads(measured.FOUND.read_text(encoding="utf-8"))
LEVELS = ("no", "meaning", "letter")
PACE = Pace(0.02, 0.05, 0.1)
PLAYERS = 8


@pytest.mark.parametrize("kind", KINDS)
def test_the_stand_in_answers_recorded_sequences_as_before(kind: str) -> None:
    with start(LIKE.get(kind, f"like-{kind}")) as like, ThreadPoolExecutor(PLAYERS) as pool:
        address = address_of(like)

        def worse(row: dict[str, Any]) -> str | None:
            steps = tuple(Step.loaded(*each) for each in row["steps"])
            recorded = Played.loaded(row["played"])
            found = differences(steps, recorded, play(steps, address, PACE, recorded))
            fell = LEVELS.index(level_of(found)) < LEVELS.index(row["equal"])
            return f"seed {row['seed']}: {found}" if fell else None

        rows = [*ROWS[kind], *FOUND.get(kind, ())]
        assert [text for text in pool.map(worse, rows) if text is not None] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_always_writes_the_same_sequence(kind: str) -> None:
    for row in ROWS[kind]:
        assert tuple(Step.loaded(*each) for each in row["steps"]) == written(row["seed"], kind)
