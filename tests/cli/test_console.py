from __future__ import annotations

import errno
import io
import logging
import os
import sys
from pathlib import Path

import pytest

from stompy.cli import console
from stompy.cli.exits import Exit, Failure


def test_what_a_broker_says_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.report_error("it\nfailed \x1b[31mbadly")
    assert capsys.readouterr().err == "stompy: error: it\\nfailed \\x1b[31mbadly\n"


def test_a_closed_standard_error_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    console.report("to nobody")


@pytest.mark.parametrize("make", [console.stdin_bytes, console.Output, console.say])
def test_a_closed_stream_is_a_clear_failure(make: object, monkeypatch: pytest.MonkeyPatch) -> None:
    assert callable(make)
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(Failure, match="is closed") as caught:
        make()
    assert caught.value.code is Exit.DATA


class Full(io.BytesIO):
    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


class Stream:
    """Standard output over another stream of bytes."""

    def __init__(self, buffer: io.IOBase) -> None:
        self.buffer = buffer


def test_output_that_cannot_be_written_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(Full(errno.ENOSPC)))
    output = console.Output()
    output.write(b"x")
    with pytest.raises(Failure, match="No space left"):
        output.flush()


def test_a_reader_that_has_ended_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stream(Full(errno.EPIPE)))
    with pytest.raises(BrokenPipeError):
        console.Output().flush()


def test_a_closed_pipe_is_noticed_without_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        output = console.Output()
        output.check_reader()
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            output.check_reader()


def test_what_an_encoding_lacks_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    console.say("né")
    assert written.getvalue() == b"n\\xe9\n"


def test_output_that_python_would_not_buffer_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out"
    with file.open("wb", buffering=0) as raw:
        monkeypatch.setattr(sys, "stdout", Stream(raw))
        output = console.Output()
        output.write(b"one")
        assert file.read_bytes() == b""
        output.flush()
    assert file.read_bytes() == b"one"


@pytest.mark.parametrize(("verbosity", "shown"), [(0, "E"), (1, "EWI"), (2, "EWID"), (3, "EWID")])
def test_the_log_goes_to_standard_error_by_verbosity(
    verbosity: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("stompy.link")
    with console.logging_to_stderr(verbosity=verbosity):
        for level in (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG):
            logger.log(level, logging.getLevelName(level)[0])
    logger.warning("behind the end")
    assert "".join(line[-1] for line in capsys.readouterr().err.splitlines()) == shown


def test_a_command_may_show_warnings_too(capsys: pytest.CaptureFixture[str]) -> None:
    with console.logging_to_stderr(verbosity=0, quiet=logging.WARNING):
        logging.getLogger("stompy.broker").warning("open to all")
    assert capsys.readouterr().err == "stompy: WARNING: stompy.broker: open to all\n"
