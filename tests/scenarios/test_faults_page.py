"""The tests that the page about faults prints, and the example of a user's test, pass as printed."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.support.printed import blocks

pytest_plugins = ["pytester"]

TOP = Path(__file__).parents[2]
PAGE = "docs/how-to/faults.md"
EXAMPLE = TOP / "examples/test_with_stompy.py"
INSTALLED = any(point.value == "stompy.testing.plugin" for point in entry_points(group="pytest11"))


@pytest.fixture(autouse=True)
def source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TOP))


def passed_of(pytester: pytest.Pytester, *sources: str) -> tuple[int, int]:
    """Return how many tests were in the sources, and how many passed."""
    pytester.makepyfile(**{f"test_{number}": source for number, source in enumerate(sources)})
    plugin = [] if INSTALLED else ["-p", "stompy.testing.plugin"]
    result = pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-W", "error", timeout=50)
    outcomes = result.parseoutcomes()
    return sum(len(re.findall(r"^def test_", source, re.MULTILINE)) for source in sources), outcomes.get("passed", 0)


@pytest.mark.broker
def test_the_tests_on_the_page_pass(pytester: pytest.Pytester) -> None:
    sources = [block.text for block in blocks(PAGE, "python")]
    assert passed_of(pytester, *sources) == (6, 6)


@pytest.mark.broker
def test_the_example_passes(pytester: pytest.Pytester) -> None:
    assert passed_of(pytester, EXAMPLE.read_text(encoding="utf-8")) == (2, 2)
