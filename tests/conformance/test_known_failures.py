from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize(("page", "at_least"), [("reference/known-failures.md", 40), ("why.md", 24)])
def test_every_test_that_a_page_names_exists(page: str, at_least: int) -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (TOP / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)\(", sources))
    named = set(re.findall(r"`(test_\w+)`", (TOP / "docs" / page).read_text("utf-8")))
    assert len(named) >= at_least
    assert named - existing == set()
