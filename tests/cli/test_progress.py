"""What a person at a terminal sees of many messages."""

from __future__ import annotations

import io
import re
import sys

import pytest

from stompy.broker import Broker
from stompy.cli import console, spark
from stompy.cli.main import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return what standard error is from now on."""
    monkeypatch.setattr(console, "INTERVAL", 0.0)
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_many_messages_are_counted_and_summed_up(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    stderr = terminal(monkeypatch)
    file = f"{tmp_path}/lines"
    with open(file, "w") as lines:
        lines.write("x\n" * 2000)
    assert main(["send", "/queue/a", "--lines", file, "--url", broker.url]) == 0
    shown = stderr.getvalue()
    assert "\r\x1b[Kstompy: 1,500 sent, " in shown
    assert re.search(r"\r\x1b\[Kstompy: sent 2000 messages to /queue/a in \d+\.\d s, [\d,]+/s\n$", shown)


def test_a_subscription_whose_output_goes_elsewhere_is_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    stderr = terminal(monkeypatch)
    for _ in range(3):
        assert main(["send", "/queue/a", "x", "--url", broker.url]) == 0
    assert main(["subscribe", "/queue/a", "--count", "3", "--url", broker.url]) == 0
    shown = stderr.getvalue()
    assert "\r\x1b[Kstompy: 3 received, " in shown
    assert re.search(r"\r\x1b\[Kstompy: 3 received from /queue/a in \d+\.\d s, [\d,]+/s\n$", shown)
    assert capfdbinary.readouterr().out == b"x\n" * 3


class Archive:
    """Writes ten messages before each of three looks, and a bad one before the first."""

    def __init__(self) -> None:
        self.query = self
        self.looks = 0
        self.stopped = False

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802  # Spark's name
        self.looks += 1
        return self.looks > 3

    def rows(self) -> dict[str, int]:
        return {"messages": 10 * self.looks, "bad": 1}

    def stop(self) -> None:
        self.stopped = True


def test_an_archive_is_counted_and_summed_up_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr, running = terminal(monkeypatch), Archive()
    spark._await_end(running, "out")
    shown = stderr.getvalue()
    assert re.findall(r"\r\x1b\[Kstompy: (\d+) archived, [\d,]+/s", shown) == ["11", "21", "31"]
    assert re.search(r"\r\x1b\[Kstompy: 40 messages and 1 bad archived in out in \d+\.\d s, [\d,]+/s\n$", shown)
    assert running.stopped


@pytest.mark.needs("pyarrow")
def test_a_spool_that_is_filled_is_counted(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    for _ in range(3):
        assert main(["send", "/queue/a", "x", "--url", broker.url]) == 0
    stderr = terminal(monkeypatch)
    arguments = ["spool", "fill", "/queue/a", f"{tmp_path}/s", "--url", broker.url, "--idle-timeout", "0.5"]
    assert main(arguments) == 0
    assert "\r\x1b[Kstompy: 3 received, " in stderr.getvalue()
    assert stderr.getvalue().endswith(f"\r\x1b[Kstompy: 3 messages in {tmp_path}/s so far\n")


def test_without_a_terminal_there_is_no_progress(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(console, "INTERVAL", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with open(f"{tmp_path}/lines", "w") as lines:
        lines.write("x\n" * 3)
    assert main(["send", "/queue/a", "--lines", f"{tmp_path}/lines", "--url", broker.url]) == 0
    assert written.getvalue() == "stompy: sent 3 messages to /queue/a\n"
