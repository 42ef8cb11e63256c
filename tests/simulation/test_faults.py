"""The faults that are planted to see that simulated worlds find them."""

from __future__ import annotations

import ast
import importlib.util

import pytest

from tests.simulation.faults import FAULTS, changed


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted_in_the_code_as_it_is(name: str) -> None:
    spec = importlib.util.find_spec(FAULTS[name].module)
    assert spec is not None
    assert spec.origin is not None
    ast.parse(changed(FAULTS[name], spec.origin))
