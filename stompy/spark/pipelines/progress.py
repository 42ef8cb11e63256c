"""The progress line on a terminal while a pipeline runs, and the summary at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from stompy.spark.causes import pipeline_errors
from stompy.world import time

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_POLL_INTERVAL = 0.5
"""Seconds between updates."""


class ProgressLine:
    """A line with the progress of a pipeline: rewritten on a terminal, else written once at the end.

    Args:
        to: the stream to write to.
        verb: such as `archived`.
        clock: returns monotonic seconds.
    """

    def __init__(self, to: TextIO, verb: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._to = to
        self._verb = verb
        self._clock = clock
        self._start = clock()
        self._shown = ""

    def show(self, rows: Mapping[str, int]) -> None:
        """Show the rows done so far, by kind."""
        line = self._line(rows)
        if self._to.isatty() and line != self._shown:
            self._to.write(f"\r{line:<{len(self._shown)}}")
            self._to.flush()
            self._shown = line

    def end(self, rows: Mapping[str, int]) -> None:
        """Write the summary: the rows done, by kind."""
        start = "\r" if self._to.isatty() else ""
        self._to.write(f"{start}{self._line(rows):<{len(self._shown)}}; done\n")

    def _line(self, rows: Mapping[str, int]) -> str:
        total, seconds = sum(rows.values()), self._clock() - self._start
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(rows.items())) if len(rows) > 1 else ""
        rate = f"{total / seconds:,.0f} a second" if seconds > 0 else ""
        parts = [part for part in (kinds, f"{seconds:,.0f} s", rate) if part]
        return f"{self._verb} {total:,} ({', '.join(parts)})"


def show_progress(
    query: StreamingQuery, rows: Callable[[], Mapping[str, int]], line: ProgressLine
) -> Mapping[str, int]:
    """Show the progress of a query until it ends, then a summary.

    Args:
        query: a running query.
        rows: returns the numbers of rows so far, by kind.
        line: shows them.

    Returns:
        The final numbers of rows, by kind.

    Raises:
        PipelineError: the query failed.
    """
    with pipeline_errors():
        while not query.awaitTermination(_POLL_INTERVAL):
            line.show(rows())
    done = rows()
    line.end(done)
    return done
