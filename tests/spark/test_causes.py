from __future__ import annotations

import pytest

from stompy.errors import ConfigurationError, PipelineError
from stompy.spark import cause

OURS = """[STREAM_FAILED] Query [id = 7, runId = 8] terminated with exception: Job aborted due to stage failure: Task 0
in stage 3.0 failed 3 times, most recent failure: Lost task 0.2: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/lib/publisher.py", line 7, in publish
stompy.errors.ConnectTimeoutError: 127.0.0.1:1: connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/lib/pyspark/worker.py", line 3387, in process
stompy.errors.PublishError: no broker was reachable for 0 s: connection refused

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:784)
Caused by: java.io.EOFException
SQLSTATE: XXKST"""
BEHIND_JAVA = (
    "Py4JJavaError: x\nCaused by: org.apache.spark.Wrapped: stompy.errors.SpoolBusyError: spool /s: somebody has it"
)
USERS = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/me/etl.py", line 7, in <lambda>
    raise KeyError("mine")
KeyError: 'mine'
\tat org.apache.spark.Something
Caused by: java.lang.IllegalStateException: later"""
DOTTED = 'Traceback (most recent call last):\n  File "x"\njson.decoder.JSONDecodeError: Expecting value\n  at java'
JAVAS = (
    "Job aborted\n\tat a.B.c(B.java:1)\nCaused by: a.Outer: one\n\t... 7 more\nCaused by: java.io.EOFException\n\tat x"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (OURS, "PublishError: no broker was reachable for 0 s: connection refused"),
        (BEHIND_JAVA, "SpoolBusyError: spool /s: somebody has it"),
        (USERS, "KeyError: 'mine'"),
        (DOTTED, "json.decoder.JSONDecodeError: Expecting value"),
        (JAVAS, "java.io.EOFException"),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/nope.\n  at java",
            "[PATH_NOT_FOUND] Path does not exist: file:/nope.",
        ),
        ("", "RuntimeError"),
    ],
)
def test_one_line_says_what_failed(text: str, line: str) -> None:
    assert cause(RuntimeError(text)) == line


def test_an_error_of_ours_among_the_causes_comes_first() -> None:
    failure = RuntimeError(JAVAS)
    failure.__cause__ = ConfigurationError("option url is missing")
    assert cause(failure) == "ConfigurationError: option url is missing"
    assert cause(PipelineError("KeyError: 'mine'")) == "PipelineError: KeyError: 'mine'"
