from __future__ import annotations

import pytest

from stompy.cli.demo.printer import WIDTH, DemoPrinter
from stompy.errors import ConnectionLostError


def test_steps_are_numbered_and_fit_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    printer = DemoPrinter()
    for title in ("First", "Second"):
        with printer.step(title, "what it means " * 12):
            printer.happened("sent", "something " * 12)
            printer.check("it went well " * 12, holds=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert [line for line in lines if line[:1].isdigit()] == ["1. First", "2. Second"]
    assert (printer.passed, printer.failed) == (2, [])


def test_a_check_that_does_not_hold_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    printer = DemoPrinter()
    printer.check("the sky is green", holds=False)
    assert printer.failed == ["the sky is green"]
    assert "[FAILED] the sky is green" in capsys.readouterr().out


def test_an_error_fails_its_step_and_not_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    def lose() -> None:
        raise ConnectionLostError("gone")

    printer = DemoPrinter()
    with printer.step("A step", "it means"):
        lose()
    assert printer.failed == ["A step: gone"]
