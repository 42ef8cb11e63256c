"""The table at the end of a run: scenario by broker by version of STOMP."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from stompy.testing.containers import REQUIRE_VARIABLE

LEGEND = """\
ok    as STOMP says, or as most brokers do
own   in a way of its own, which the expectations state and the test has seen
no    the broker cannot do it; what it does instead is stated, and the test has seen that
=     the same as in 1.2: the version makes no difference, and it was run once
FAIL  not as expected          -  not run\
"""

CELL = "scenario"
"""The property of a report that says which cell it belongs to: the fields of a `Cell`."""

_WORST = ("FAIL", "-", "no", "own", "ok")
"""Of several tests in one cell, the first of these that occurs is shown."""

_CELL = 5


@dataclass
class Matrix:
    """What the tests of a run have seen.

    Args:
        kinds: the brokers, from left to right.
        versions: the versions of STOMP within each.
    """

    kinds: Sequence[str]
    versions: Sequence[str]
    titles: dict[str, str] = field(default_factory=dict)
    """What each broker that was run calls itself."""
    _cells: dict[tuple[str, str, str | None], list[str]] = field(default_factory=lambda: defaultdict(list))
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _tests: Counter[str] = field(default_factory=Counter)

    def add(self, scenario: str, kind: str, version: str | None, mark: str) -> None:
        """Note how a test went; without a version it is the same in all."""
        self._cells[scenario, kind, version].append(mark)
        self._tests[kind] += mark != "-"

    def spent(self, kind: str, seconds: float) -> None:
        """Note time that went to a broker."""
        self._seconds[kind] += seconds

    def lines(self, order: Iterable[str]) -> Iterator[str]:
        """Yield the table; scenarios are in this order, followed by those that it does not contain."""
        seen = list(dict.fromkeys(scenario for scenario, _, _ in self._cells))
        rows = [name for name in order if name in seen]
        rows += [name for name in seen if name not in rows]
        if not rows:
            return
        kinds = [kind for kind in self.kinds if self._tests[kind]]
        width = max(map(len, ["scenario", *rows])) + 2
        block = _CELL * len(self.versions)
        yield (" " * width + "".join(self.titles.get(kind, kind).ljust(block + 1) for kind in kinds)).rstrip()
        heads = "".join(version.ljust(_CELL) for version in self.versions) + " "
        yield ("scenario".ljust(width) + heads * len(kinds)).rstrip()
        for name in rows:
            blocks = ("".join(mark.ljust(_CELL) for mark in self._marks(name, kind)) + " " for kind in kinds)
            yield (name.ljust(width) + "".join(blocks)).rstrip()
        yield ("tests".ljust(width) + "".join(str(self._tests[kind]).ljust(block + 1) for kind in kinds)).rstrip()
        times = (f"{self._seconds[kind]:.0f} s".ljust(block + 1) for kind in kinds)
        yield ("time".ljust(width) + "".join(times)).rstrip()
        yield ""
        yield from LEGEND.split("\n")

    def _marks(self, scenario: str, kind: str) -> list[str]:
        always = self._cells.get((scenario, kind, None), [])
        marks = []
        for version in self.versions:
            found = self._cells.get((scenario, kind, version), [])
            same = bool(always) and not found and version != self.versions[-1]
            marks.append("=" if same else _worst([*found, *always]))
        return marks


def _worst(marks: Iterable[str]) -> str:
    there = set(marks)
    return next((mark for mark in _WORST if mark in there), "-")


@dataclass(frozen=True)
class Cell:
    """What the report of one phase of a test adds to the table; without a `mark` it is time alone."""

    scenario: str
    kind: str
    version: str | None
    mark: str
    seconds: float
    title: str


class ScenarioTable:
    """Prints the table at the end, from the reports, in whatever process the tests ran."""

    def __init__(self) -> None:
        self._cells: list[Cell] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a cell."""
        self._cells += [Cell(*fields) for name, fields in report.user_properties if name == CELL]  # type: ignore[misc]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a kind of broker that is required took no part in the scenarios."""
        taking_part = {cell.kind for cell in self._cells if cell.mark == "ok"}
        required = {kind for kind in os.environ.get(REQUIRE_VARIABLE, "").split(",") if kind} - {"all"}
        if taking_part and required - taking_part:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            print(f"no scenario ran against: {', '.join(sorted(required - taking_part))}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, unless only one kind of broker took part."""
        if len({cell.kind for cell in self._cells}) < 2:
            return
        from tests.scenarios.expected.facts import SCENARIOS
        from tests.scenarios.expected.model import KINDS, VERSIONS

        matrix = Matrix(KINDS, VERSIONS)
        for cell in self._cells:
            matrix.spent(cell.kind, cell.seconds)
            matrix.titles[cell.kind] = cell.title
            if cell.mark:
                matrix.add(cell.scenario, cell.kind, cell.version, cell.mark)
        terminalreporter.section("scenario x broker x version of STOMP")
        for line in matrix.lines(SCENARIOS):
            terminalreporter.write_line(line)
