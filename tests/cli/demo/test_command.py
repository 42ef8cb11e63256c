from __future__ import annotations

from pathlib import Path

import pytest

from stompy.cli.demo import command
from stompy.cli.demo.printer import DemoPrinter
from tests.cli.conftest import Run, Start


@pytest.mark.broker
def test_the_demo_shows_everything_and_passes(start: Start) -> None:
    process = start("demo")
    out, err = process.communicate(timeout=50)
    text = out.decode()
    assert (process.returncode, err) == (0, b"")
    assert max(map(len, text.splitlines())) <= 80
    for shown in (
        "A listener",
        "A receipt",
        "committed",
        "aborted",
        "redelivered=yes",
        "Heartbeats",
        "5,000 messages",
    ):
        assert shown in text
    assert "FAILED" not in text
    assert "checks passed" in text


def test_a_file_of_ones_own_is_sent(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "STEPS", ())
    file = tmp_path / "mine"
    file.write_bytes(b"1\n2\n")
    result = run("demo", "--file", str(file))
    assert (result.code, result.err) == (0, "")
    assert b"2 messages" in result.out


def test_a_check_that_fails_fails_the_demo(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(printer: DemoPrinter, broker: object, conn: object) -> None:
        printer.check("water runs uphill", holds=False)

    monkeypatch.setattr(command, "STEPS", (broken,))
    file = tmp_path / "mine"
    file.write_bytes(b"1\n")
    result = run("demo", "--file", str(file))
    assert result.code == 1
    assert b"1 of 3 checks FAILED:\n   water runs uphill\n" in result.out


def test_an_unreadable_file_is_told_before_the_demo(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--file", str(tmp_path / "missing"))
    assert (result.code, result.out) == (5, b"")
    assert "No such file" in result.error
