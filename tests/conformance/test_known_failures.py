from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "reference" / "known-failures.md"


def test_every_test_that_the_page_names_exists() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (TOP / "tests").rglob("test_*.py"))
    existing = set(re.findall(r"def (test_\w+)\(", sources))
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    assert len(named) > 40
    assert named - existing == set()
