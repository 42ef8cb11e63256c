"""The page of common mistakes shows what happens now."""

from __future__ import annotations

import pytest

from tests.documentation.mistakes import PAGE, PARTS, Mistake, page, transcript

MISTAKES = [mistake for _, mistakes in PARTS for mistake in mistakes]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_ends_as_the_page_says(mistake: Mistake) -> None:
    shown = f"### {mistake.title}\n\n```text\n{transcript(mistake)}\n```\n"
    assert shown in PAGE.read_text(encoding="utf-8"), "run python -m tests.documentation.mistakes"


def test_the_page_has_at_least_twenty_and_nothing_else() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(MISTAKES) >= 20
    assert text.count("\n### ") == len(MISTAKES)
    assert text == page(), "run python -m tests.documentation.mistakes"
