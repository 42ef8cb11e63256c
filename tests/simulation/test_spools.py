"""Spools in a simulated world: what is read of them, and the verdicts of the judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stompy.testing.network import Weather
from tests.simulation.plans import Plan, Producer
from tests.simulation.programs import run
from tests.simulation.spools import HAS_ARROW, Row, Spooled, SpoolProgram

TWO_SPOOLS = Plan(
    seed=1,
    like=None,
    weather=Weather(),
    producers=(Producer("/queue/a", (("confirm", "transaction"), ("async", "batch")), resends=False, killed_at=None),),
    consumers=(),
    restarts=(),
    rate=0.01,
    spools=(SpoolProgram("/queue/a", (1, 1), receivers=2, prefetch=3, most=1, kills=()),),
)
BODIES = {f"p0.{name}" for name in ("0.0", "0.1.0", "0.1.1", "0.1.2", "1.0")}


@pytest.mark.skipif(not HAS_ARROW, reason="pyarrow is missing")
@pytest.mark.parametrize("kills", [(), ((0.1, 0), (0.7, 1), (0.4, -1))], ids=["calm", "killed"])
@pytest.mark.parametrize("fillers", [(1,), (2,), (1, 1)])
def test_each_message_is_read_once(fillers: tuple[int, ...], kills: tuple[tuple[float, int], ...]) -> None:
    producer = Producer("/queue/a", (("confirm", "transaction"), ("async",)), resends=False, killed_at=None)
    there = tuple(kill for kill in kills if kill[1] < sum(fillers))
    spool = SpoolProgram("/queue/a", fillers, receivers=2, prefetch=3, most=2, kills=there)
    result = run(Plan(1, None, Weather(), (producer,), (), restarts=(), rate=0.01, spools=(spool,)))
    assert result.breaches == []
    read = [body for line in result.trace if " batch " in line and " r0 " in line for body in line.split()[4:]]
    assert set(read) == BODIES
    assert sum("is killed" in line for line in result.trace) == len(there)


@pytest.mark.skipif(not HAS_ARROW, reason="pyarrow is missing")
def test_neither_what_is_drawn_nor_the_order_of_spools_in_a_batch_depends_on_a_hash() -> None:
    drawn = "[Plan.drawn(seed) for seed in range(50)]"
    shown = f"from {__name__} import TWO_SPOOLS, Plan, run; print(run(TWO_SPOOLS).trace, {drawn})"
    traces = {
        subprocess.run(
            [sys.executable, "-c", shown],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in range(6)
    }
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("read", "like", "found"),
    [
        (["p.0", "p.1"], None, ""),
        (["p.0", "p.0?"], None, "p.0 was read 2 times"),
        (["p.0", "p.0"], "rabbitmq", "2 times without a flag"),
        (["p.0?"], None, "although nothing broke"),
        (["p.1", "p.0"], None, "were read as ['p.1', 'p.0']"),
    ],
)
def test_the_judge_compares_what_was_read_with_what_was_promised(read: list[str], like: str | None, found: str) -> None:
    spooled = Spooled(SpoolProgram("/queue/a", (1,), 1, 1, 1, ()), Path())
    spooled.batches = [[Row(body.rstrip("?"), body.endswith("?"))] for body in read]
    breaches = list(spooled.judged(like, {"p.0": "p", "p.1": "p"}, (), faultless=True))
    assert any(found in breach for breach in breaches) if found else breaches == []
