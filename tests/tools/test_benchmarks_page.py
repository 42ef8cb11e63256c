"""The page of the last kept run: that it says what the file says, and nothing else."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import page, results
from benchmarks.results import Run, number


def row(section: str, reference: str, **values: float) -> dict[str, Any]:
    clients = {
        name.replace("_", " "): {"value": value, "rate": 10.0, "ratio": value / 10, "ratio_spread": [0.1, 0.2]}
        for name, value in values.items()
    }
    return {"section": section, "title": section, "unit": "µs", "reference": reference, "goal": 0.5, "clients": clients}


@pytest.fixture
def run() -> Run:
    rows = {
        "send": row("table", "raw socket", stompy=123.4, raw_socket=10),
        "crlf": row("growth", "receive", stompy=5, receive=10),
    }
    return {"rows": rows}


def test_the_page_says_what_the_last_run_measured() -> None:
    for path in (page.PAGE, page.COMPARISON):
        text = path.read_text(encoding="utf-8")
        assert page.render(results.last(), text) == text
    assert page.CHART.read_text(encoding="utf-8") == page.drawing(results.last())


def test_the_page_has_a_place_for_every_section() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    for name in ("run", "table", "also", "growth", "brokers", "scale"):
        assert f"\n% {name}\n" in text


def test_a_figure_of_the_page_is_that_of_the_run(run: Run) -> None:
    text = "before\n% table\nold\n% end\nbetween\n% growth\n% end\nafter"
    written = page.render(run, text)
    assert "| table | 123 µs | 10.0 µs | 12.34 (0.10 to 0.20), 0.5 |" in written
    assert "| growth | 5.00 µs | receive: 10.0 µs | 0.50 (0.10 to 0.20), 0.5 |" in written
    assert "old" not in written
    assert written.startswith("before\n% table\n")
    assert "\n% end\nbetween\n" in written
    assert page.render(run, written) == written


def test_the_chart_has_a_dot_for_each_client(run: Run) -> None:
    names = {title.text for title in ElementTree.fromstring(page.drawing(run)).iterfind(".//{*}circle/{*}title")}
    assert names == {"stompy: 123 µs", "raw socket: 10.0 µs"}


@pytest.mark.parametrize(("value", "shown"), [(0.294, "0.29"), (9.99, "9.99"), (12.34, "12.3"), (55_380, "55,380")])
def test_a_figure_has_no_more_places_than_it_has_to_say(value: float, shown: str) -> None:
    assert number(value) == shown
