"""Progress in ten lines instead of a dot for each test; failures, errors and skips are reported as usual."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

PARTS = 10


class Progress:
    """Prints a line after each tenth of the tests; goes with `-q`, `-v` shows each test as ever."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._total = self._done = 0

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count a test that passed without a letter."""
        return ("passed", "", "") if report.passed and report.when == "call" else None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note how many there are."""
        self._total = len(session.items) or self._total

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Note how many there are, where workers collect them."""
        self._total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a line after each tenth."""
        if report.when != "teardown":
            return
        before, self._done = self._done, self._done + 1
        if self._total >= PARTS and before * PARTS // self._total < self._done * PARTS // self._total:
            terminal = self._config.pluginmanager.get_plugin("terminalreporter")
            assert terminal is not None
            seconds = time.monotonic() - self._began
            terminal.write_line(f"{self._done:6} of {self._total} tests, {seconds:4.0f} s", flush=True)
