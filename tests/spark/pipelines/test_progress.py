from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from stompy.errors import PipelineError
from stompy.spark.monitoring import ProgressLine, show_progress


class Query:
    """Runs for some looks, then ends."""

    def __init__(self, looks: int, error: Exception | None = None) -> None:
        self.looks = looks
        self.error = error

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802  # Spark's name
        self.looks -= 1
        if self.looks < 0 and self.error is not None:
            raise self.error
        return self.looks < 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(to: io.StringIO, looks: int = 3) -> tuple[str, Mapping[str, int]]:
    query: Any = Query(looks)
    seconds = iter(range(100))
    line = ProgressLine(to, "archived", clock=lambda: next(seconds))
    done = show_progress(query, lambda: {"bad": 1, "messages": 10 * (looks - query.looks)}, line)
    return to.getvalue(), done


def test_a_terminal_shows_one_line_that_is_written_anew_and_then_the_summary() -> None:
    text, done = shown(Terminal())
    assert text.count("\n") == 1
    assert text.startswith("\rarchived 11 (bad 1, messages 10, 1 s, 11 a second)")
    assert text.rstrip().endswith("archived 41 (bad 1, messages 40, 4 s, 10 a second); done")
    assert done == {"bad": 1, "messages": 40}


def test_a_file_gets_the_summary_alone() -> None:
    text, _ = shown(io.StringIO())
    assert text == "archived 41 (bad 1, messages 40, 4 s, 10 a second); done\n"


JAVAS = """[STREAM_FAILED] Query terminated with exception: Traceback (most recent call last):
  File "publisher.py", line 7, in publish
stompy.errors.PublishError: the broker refused: not for you
  at org.apache.spark.sql.Something"""


def test_what_failed_the_query_is_said_in_one_line() -> None:
    query: Any = Query(1, StreamingQueryException(JAVAS))
    with pytest.raises(PipelineError, match=r"^PublishError: the broker refused: not for you$"):
        show_progress(query, dict, ProgressLine(io.StringIO(), "sent"))
