"""Each mutation of the lists still fits the code, which is found out here and not an hour into a long run."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["frames", "protocol"])
def test_each_mutation_changes_one_place(name: str) -> None:
    module = importlib.import_module(f"tests.mutation.{name}")
    texts = {path: (TOP / path).read_text(encoding="utf-8") for path, *_ in module.MUTATIONS}
    assert [label for path, old, _, label in module.MUTATIONS if texts[path].count(old) != 1] == []
