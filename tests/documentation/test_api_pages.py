from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import stompy
from stompy.errors import InsecureTls, StompError

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "api"


def test_every_public_name_is_on_one_page() -> None:
    directives = r"^\.\. auto(?:class|function):: stompy\.(\w+)(?:\(\))?$"
    named = Counter(
        name
        for page in PAGES.glob("*.md")
        for name in re.findall(directives, page.read_text(encoding="utf-8"), re.MULTILINE)
    )
    errors = {
        name
        for name in stompy.__all__
        if isinstance(value := getattr(stompy, name), type) and issubclass(value, (StompError, InsecureTls))
    }
    assert named == Counter(set(stompy.__all__) - errors - {"__version__"})
