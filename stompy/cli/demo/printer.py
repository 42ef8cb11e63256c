"""What `stompy demo` prints: numbered steps, what happened, and checks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from stompy.cli.console import say
from stompy.errors import StompError
from stompy.printable import printable

WIDTH = 80
_INDENT = "   "


class DemoPrinter:
    """Prints steps at 80 columns, and keeps count of what was checked.

    Attributes:
        passed: checks that held.
        failed: what did not hold.
    """

    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self._step = 0

    @contextmanager
    def step(self, title: str, meaning: str) -> Iterator[None]:
        """Begin a step; an error of the library in it fails the step and ends the block, not the demo."""
        self._step += 1
        say()
        say(f"{self._step}. {title}")
        self._wrapped(meaning, _INDENT)
        try:
            yield
        except StompError as error:
            self.check(f"{title}: {error}", holds=False)

    def happened(self, what: str, result: str) -> None:
        """Tell what was done and what came of it."""
        self._wrapped(result, f"{_INDENT}{what:<12} ")

    def check(self, claim: str, *, holds: bool) -> None:
        """Tell whether `claim` holds, and count it."""
        if holds:
            self.passed += 1
        else:
            self.failed.append(printable(claim))
        self._wrapped(claim, f"{_INDENT}[{'ok' if holds else 'FAILED'}] ")

    def _wrapped(self, text: str, start: str) -> None:
        for line in textwrap.wrap(printable(text), WIDTH, initial_indent=start, subsequent_indent=" " * len(start)):
            say(line)
