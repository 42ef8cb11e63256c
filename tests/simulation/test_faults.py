"""The faults that are planted to see that simulated worlds find them."""

from __future__ import annotations

import ast
import importlib.util

import pytest

from tests.simulation import programs
from tests.simulation.faults import FAULTS, PLANTED, changed
from tests.simulation.plans import Plan
from tests.simulation.run import failing
from tests.simulation.seen import Seen


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted_in_the_code_as_it_is(name: str) -> None:
    spec = importlib.util.find_spec(FAULTS[name].module)
    assert spec is not None
    assert spec.origin is not None
    ast.parse(changed(FAULTS[name], spec.origin))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("a session of the drop-in begins beside the callbacks of the last", "drop_ins"),
        ("a fragment of WebSocket is left out", "web"),
    ],
)
def test_a_fault_is_looked_for_in_every_world_that_can_show_it(
    name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []

    def run(plan: Plan) -> Seen:
        seeds.append(plan.seed)
        return Seen(plan)

    monkeypatch.setenv(PLANTED, name)
    monkeypatch.setattr(programs, "run", run)
    failing(range(100))
    assert seeds == [seed for seed in range(100) if getattr(Plan.drawn(seed), part)]
