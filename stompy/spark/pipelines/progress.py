"""What a terminal shows while a pipeline runs, and the summary at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TextIO

from stompy.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_POLL = 0.5
"""Seconds between looks."""


def watch(
    query: StreamingQuery,
    rows: Callable[[], Mapping[str, int]],
    *,
    to: TextIO,
    verb: str,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, int]:
    """Show how a query gets on until it ends, and then a summary; on a terminal in one line that is written anew.

    Args:
        query: a running query.
        rows: rows done so far, by kind.
        to: where to.
        verb: what is done with a row, such as `archived`.
        clock: seconds, monotonic.

    Returns:
        The rows that were done, by kind.

    Raises:
        PipelineError: the query failed.
    """
    start, shown = clock(), ""
    while not _ended(query):
        line = _line(rows(), clock() - start, verb)
        if line != shown and to.isatty():
            to.write(f"\r{line:<{len(shown)}}")
            to.flush()
        shown = line
    done = rows()
    ending = "\r" if to.isatty() else ""
    to.write(f"{ending}{_line(done, clock() - start, verb):<{len(shown)}}; done\n")
    return done


def _ended(query: StreamingQuery) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return query.awaitTermination(_POLL)
    except StreamingQueryException as error:
        raise PipelineError(_cause(str(error))) from error


def _cause(text: str) -> str:
    """Return the line in which Python says what failed, of a text that holds the stacks of two languages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.removeprefix("stompy.errors.") for line in lines if line.startswith("stompy.errors.")]
    return (ours or lines or ["the query failed"])[-1 if ours else 0]


def _line(rows: Mapping[str, int], seconds: float, verb: str) -> str:
    total = sum(rows.values())
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(rows.items())) if len(rows) > 1 else ""
    rate = f"{total / seconds:,.0f} a second" if seconds > 0 else ""
    parts = [part for part in (kinds, f"{seconds:,.0f} s", rate) if part]
    return f"{verb} {total:,} ({', '.join(parts)})"
