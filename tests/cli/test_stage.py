from __future__ import annotations

import pytest

from stompy.cli.stage import WIDTH, Stage
from stompy.errors import ConnectionLost


def test_steps_are_numbered_and_fit_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    for title in ("First", "Second"):
        with stage.step(title, "what it means " * 12):
            stage.happened("sent", "something " * 12)
            stage.check("it went well " * 12, holds=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line for line in lines if line[:1].isdigit()] == ["1. First", "2. Second"]
    assert (stage.passed, stage.failed) == (2, [])


def test_a_check_that_does_not_hold_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    stage.check("the sky is green", holds=False)
    assert stage.failed == ["the sky is green"]
    assert "[FAILED] the sky is green" in capsys.readouterr().out


def test_an_error_fails_its_step_and_not_the_tour(capsys: pytest.CaptureFixture[str]) -> None:
    def lose() -> None:
        raise ConnectionLost("gone")

    stage = Stage()
    with stage.step("A step", "it means"):
        lose()
    assert stage.failed == ["A step: gone"]
