"""How far a command is that sends or receives many messages, for a person at a terminal."""

from __future__ import annotations

import sys

from stompy.world import time

INTERVAL = 1.0
"""Seconds between two updates, and before the first."""


class Progress:
    """Shows a count on standard error, if that is a terminal, in one line that is renewed.

    Args:
        what: was done with the messages, such as `sent`.
        hidden: show nothing until the summary, as standard output is the same terminal.
    """

    def __init__(self, what: str, *, hidden: bool = False) -> None:
        self._what = what
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shows = self._terminal and not hidden
        self._began = self._last = time.monotonic()
        self._shown = False

    def show(self, count: int) -> None:
        """Show a count, unless the last one was shown a moment ago."""
        if self._shows and time.monotonic() - self._last >= INTERVAL:
            self._last = time.monotonic()
            self._shown = True
            self._write(f"\r\x1b[Kstompy: {count:,} {self._what}{self._rate(count)}")

    def summary(self, count: int) -> str:
        """Remove the line, and return the time and the rate for the end of a report; empty without a terminal."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False
        if not self._terminal or count < 2:
            return ""
        return f" in {time.monotonic() - self._began:.1f} s{self._rate(count)}"

    def _rate(self, count: int) -> str:
        return f", {count / max(time.monotonic() - self._began, 0.001):,.0f}/s"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._shows = False
