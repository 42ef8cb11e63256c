from __future__ import annotations

import re
from pathlib import Path

from stompy import errors

PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
CLASSES = {
    name
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, (errors.StompError, errors.InsecureTlsWarning))
}


def test_every_error_is_explained_once() -> None:
    explained = re.findall(r"^### `(\w+)`$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted([*explained, "StompError"]) == sorted(CLASSES)


def test_each_explanation_says_something() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        if title.startswith("`"):
            assert len(body.split()) >= 5, title
