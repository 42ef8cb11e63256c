"""The expectations are whole, the page is their image, and the table shows what the tests have seen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stompy.frames.frame import Frame
from tests.scenarios import page
from tests.scenarios.expected.facts import ALL, FACTS
from tests.scenarios.expected.model import KINDS, LIKE, VERSIONS, Fact, either, fits
from tests.scenarios.expected.profiles import DIFFERS
from tests.support.matrix import Matrix

HERE = Path(__file__).parent
SOURCES = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py")]
ASKED = {name for source in SOURCES for name in re.findall(r"(?<![.\w])expect\(\s*f?\"([^\"]+)\"", source)}


def test_the_page_is_not_stale() -> None:
    assert page.main(["--check"]) == 0


def test_a_stale_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "brokers.md"
    stale.write_text(page.page() + "more\n", encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", stale)
    monkeypatch.setattr(page, "PROFILES_PAGE", tmp_path / "broker-profiles.md")
    assert page.main(["--check"]) == 1
    assert page.main([]) == 0
    assert page.main(["--check"]) == 0


def test_each_fact_stands_once() -> None:
    assert len(FACTS) == len(ALL)


def test_each_fact_is_asked_for_by_a_test_and_no_other() -> None:
    patterns = [re.compile(re.sub(r"\\\{.*?\}", ".+", re.escape(name))) for name in ASKED]
    unasked = [name for name in FACTS if not any(pattern.fullmatch(name) for pattern in patterns)]
    unknown = [pattern.pattern for pattern in patterns if not any(pattern.fullmatch(name) for name in FACTS)]
    assert (unasked, unknown) == ([], [])


@pytest.mark.parametrize("fact", ALL, ids=lambda fact: fact.name)
def test_each_kind_of_broker_has_an_answer_and_each_answer_counts(fact: Fact) -> None:
    reached = set()
    for kind in KINDS:
        answers = [FACTS[fact.name].answer(kind, version) for version in VERSIONS]
        assert answers[-1] is not None or answers[0] is not None, kind
        reached |= {answer for answer in answers if answer is not None}
    assert reached == set(fact.answers)


MESSAGE = Frame("MESSAGE", [("destination", "/queue/a"), ("x", "1")], b"body")


@pytest.mark.parametrize(
    "pattern",
    ["MESSAGE", "MESSAGE\nx:1", "MESSAGE\ndestination:/queue/*\n!ack", "MESSAGE\nx:*\n\nb*y", "MESSAGE\n\nbody"],
)
def test_a_pattern_that_fits(pattern: str) -> None:
    assert fits(pattern, MESSAGE)


@pytest.mark.parametrize(
    "pattern", ["ERROR", "MESSAGE\nx:2", "MESSAGE\ny:*", "MESSAGE\n!x", "MESSAGE\n\nbo", "MESSAGE\nx:1\n!destination"]
)
def test_a_pattern_that_does_not_fit(pattern: str) -> None:
    assert not fits(pattern, MESSAGE)


def test_either_of_two_ways_is_as_expected() -> None:
    assert either("a", "b") == "b"
    assert either("a", "b") != "c"


def test_the_table_shows_the_worst_of_each_cell() -> None:
    matrix = Matrix(("one", "two", "three"), ("1.0", "1.2"), titles={"one": "One 1.0"})
    matrix.add("early", "one", "1.0", "ok")
    matrix.add("early", "one", "1.0", "own")
    matrix.add("early", "one", "1.2", "FAIL")
    matrix.add("early", "two", "1.0", "no")
    matrix.add("early", "three", "1.0", "-")
    matrix.add("late", "one", None, "ok")
    matrix.spent("one", 1.6)
    lines = list(matrix.lines(["late", "early", "never"]))
    assert lines[:6] == [
        "          One 1.0    two",
        "scenario  1.0  1.2   1.0  1.2",
        "late      =    ok    -    -",
        "early     own  FAIL  no   -",
        "tests     4          1",
        "time      2 s        0 s",
    ]


def test_a_run_without_scenarios_has_no_table() -> None:
    assert list(Matrix(("one",), ("1.0",)).lines(["early"])) == []


def test_each_difference_is_one_of_a_known_fact_and_broker() -> None:
    assert {kind for kind, _, _ in DIFFERS} <= set(LIKE)
    assert {fact for _, _, fact in DIFFERS} <= set(FACTS)


@pytest.mark.parametrize("kind", LIKE)
def test_at_least_95_of_100_answers_are_equal(kind: str) -> None:
    other = {fact for like, _, fact in DIFFERS if like == kind}
    assert len(ALL) - len(other) >= 0.95 * len(ALL)
