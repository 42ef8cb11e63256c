"""Find the cause of a failure in the long error messages of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from stompy.errors import PipelineError, StompError

_OURS = re.compile(r"^(?:.*[\s:])?stompy\.errors\.(\w+: .*)$")
_PYTHON = re.compile(r"^(?:.*Exception: )?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .*)?)$")
_JAVA = re.compile(r"^Caused by: ([\w.$]+(?:: .*)?)$")
_TRACEBACK = "Traceback (most recent call last):"


def cause(error: BaseException) -> str:
    """Return the cause of an error of Spark, in one line.

    It is the error that stompy raised, on the driver or an executor, as class and text; or else the last line of a
    Python traceback, the innermost cause in a Java traceback, or the first line of the error message.

    Args:
        error: an error that Spark raised, such as a `StreamingQueryException`, or `query.exception()`.
    """
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, StompError):
            return f"{type(found).__name__}: {found}"
        found = found.__cause__ or found.__context__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if ours := [match[1] for line in lines if (match := _OURS.match(line))]:
        return ours[-1]
    if of_python := _after_traceback(lines):
        return of_python
    if of_java := [match[1] for line in lines if (match := _JAVA.match(line))]:
        return of_java[-1]
    return lines[0] if lines else type(error).__name__


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Raise errors of Spark as a `PipelineError` with their cause."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise PipelineError(cause(error)) from error


def _after_traceback(lines: list[str]) -> str | None:
    """Return the last line of the last Python traceback, or `None`."""
    starts = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    rest = lines[starts[-1] + 1 :] if starts else []
    return next((match[1] for line in rest if (match := _PYTHON.match(line))), None)
