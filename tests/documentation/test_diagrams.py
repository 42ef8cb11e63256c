from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.documentation.diagrams import DRAWINGS, FOLDER, Drawing


@pytest.mark.parametrize("draw", DRAWINGS, ids=lambda draw: draw.__name__)
def test_a_diagram_is_current_whole_and_shown_on_a_page(draw: Callable[[], Drawing]) -> None:
    art = draw()
    assert (FOLDER / f"{art.name}.svg").read_text(encoding="utf-8") == art.svg(), (
        "run python -m tests.documentation.diagrams"
    )
    ElementTree.fromstring(art.svg())
    pages = FOLDER.parents[1].rglob("*.md")
    assert any(f"diagrams/{art.name}.svg" in page.read_text(encoding="utf-8") for page in pages)


def test_every_drawing_in_the_folder_is_made_by_the_script() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == {draw().name for draw in DRAWINGS}
