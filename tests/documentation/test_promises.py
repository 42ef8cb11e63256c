"""Each numbered promise of the page on delivery names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PAGE = TOP / "docs/topics/delivery.md"
_ROW = re.compile(r"^\| (?P<number>\d+) \| .+ \| .+ \| (?P<tests>.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)`")

PROMISES = [(int(row["number"]), row["tests"]) for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def test_promises_are_numbered_from_1_on() -> None:
    assert [number for number, _ in PROMISES] == list(range(1, len(PROMISES) + 1))
    assert PROMISES


@pytest.mark.parametrize(("number", "tests"), PROMISES)
def test_the_tests_of_a_promise_exist(number: int, tests: str) -> None:
    named = list(_TEST.finditer(tests))
    assert named
    for test in named:
        tree = ast.parse((TOP / "tests" / test["file"]).read_text(encoding="utf-8"))
        assert test["name"] in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
