"""`stompy spark`, as far as it goes without Spark; the pipelines have their own tests."""

from __future__ import annotations

import importlib.util

import pytest

from stompy.cli.exits import Exit
from tests.cli.conftest import Run

HAS_SPARK = importlib.util.find_spec("pyspark") is not None
ARCHIVE = ("spark", "archive", "/queue/a", "out", "--spool", "spool", "--checkpoint", "checkpoint")
REPLAY = ("spark", "replay", "out", "/queue/a", "--checkpoint", "checkpoint")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("spark", "archive", "/queue/a", "out", "--checkpoint", "c"), "--spool"),
        (("spark", "replay", "out"), "--checkpoint"),
        ((*REPLAY, "--since", "yesterday"), "2026-01-31T08:00+00:00"),
        ((*REPLAY, "--until", "2026-01-31T08:00"), "time zone"),
        ((*REPLAY, "--option", "spoolDir"), "NAME=VALUE"),
        ((*REPLAY, "--rate", "0"), "1 or more"),
        ((*ARCHIVE, "--passcode", "sesame"), "unknown option --passcode"),
    ],
)
def test_a_wrong_command_line_is_named(run: Run, arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.code == Exit.USAGE
    assert words in result.err
    assert "sesame" not in result.err


@pytest.mark.skipif(HAS_SPARK, reason="Spark is installed here")
def test_without_spark_it_says_what_to_install(run: Run) -> None:
    for arguments in (ARCHIVE, REPLAY):
        result = run(*arguments)
        assert result.code == Exit.USAGE
        assert "pip install 'stompy-client[spark]'" in result.error
