"""Make the page of the Spark pipeline's hard cases from the tests' marks: `python -m tests.documentation.spark_cases`.

The cases stand in `tests/spark/cases.json`; a test names those it holds with `@pytest.mark.hard_case("T1", ...)`. The
marks are read from the source, so that neither Spark nor pyarrow is needed for it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).parent.parent
CASES = TESTS / "spark" / "cases.json"
PAGE = TESTS.parent / "docs" / "spark" / "cases.md"

HEAD = """\
# Hard cases of the Spark source and sink

Failures between a broker and Spark, and the tests that cause them. This page is generated from the tests' marks
(`python -m tests.documentation.spark_cases`); the build fails when it is stale, and when a case has no test.

| case | failure and guarantee | tests |
|---|---|---|
"""


def read_cases() -> dict[str, str]:
    """Return what each case is."""
    cases: dict[str, str] = json.loads(CASES.read_text(encoding="utf-8"))
    return cases


def marked(top: Path) -> dict[str, list[str]]:
    """Return the tests below a folder by case, as `spark/test_file.py::test_name`."""
    found: dict[str, list[str]] = {}
    for path in sorted(top.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for case in _cases_of(node):
                    found.setdefault(case, []).append(f"{path.relative_to(top).as_posix()}::{node.name}")
    return found


def problems(cases: Mapping[str, str], tests: Mapping[str, list[str]]) -> list[str]:
    """Return what keeps the page from saying that every case has its tests."""
    strangers = [f"{case} is no case, but {', '.join(tests[case])} names it" for case in tests if case not in cases]
    return strangers + [f"{case} has no test ({what})" for case, what in cases.items() if case not in tests]


def page(cases: Mapping[str, str], tests: Mapping[str, list[str]]) -> str:
    """Return the whole page."""
    return HEAD + "".join(f"| {case} | {what} | {_told(tests.get(case, []))} |\n" for case, what in cases.items())


def _cases_of(node: ast.FunctionDef) -> Iterator[str]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "hard_case":
            yield from (str(ast.literal_eval(argument)) for argument in mark.args)


def _told(tests: list[str]) -> str:
    files: dict[str, list[str]] = {}
    for test in tests:
        path, _, name = test.partition("::")
        files.setdefault(path, []).append(f"`{name}`")
    return "<br>".join(f"{path}: {', '.join(names)}" for path, names in files.items())


if __name__ == "__main__":
    PAGE.write_text(page(read_cases(), marked(TESTS)), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
