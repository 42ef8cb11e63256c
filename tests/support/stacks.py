"""Show where a test hangs, also in a worker: pytest-timeout writes to standard output, which a worker does not have."""

from __future__ import annotations

import faulthandler
import os
import tempfile
from collections.abc import Generator
from typing import NoReturn

import pytest

EARLIER = 0.9
"""Of the time that a test has, this much passes before the stacks are shown."""


def gave_up(what: str) -> NoReturn:
    """Fail a test that has waited long enough, and say where each thread is: later, they have gone on."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        raise AssertionError(f"{what}; meanwhile:\n{file.read()}")


class Stacks:
    """Prints the stack of every thread to the standard error, shortly before a test's time is over."""

    def __init__(self, config: pytest.Config) -> None:
        self._default = float(config.getoption("timeout") or config.getini("timeout") or 0)
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watch over a test."""
        mark = item.get_closest_marker("timeout")
        limit = float(mark.args[0]) if mark and mark.args else self._default
        if limit:
            faulthandler.dump_traceback_later(limit * EARLIER, file=self._stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
