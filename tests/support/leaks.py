"""Watches everything that the suite logs and prints for passcodes.

Wherever a test has a passcode that could show, one of `MARKS` stands in it. Every record of our loggers, at any
level and with the local variables of our frames where it has a traceback, everything that a test wrote to the standard
streams, and what the programs that it started wrote, is searched for them; the test that showed one fails. What a test
reads from a stream by itself (`capsys`, a pipe of `subprocess`) is searched when it reads it.
"""

from __future__ import annotations

import logging
import subprocess
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import pytest

MARKS = ("sesame", "s3cret", "s3cr3t", "hunter2")
"""What stands in the passcodes of the tests, and nowhere else."""

_OURS = "/stompy/"


class Watch(logging.Handler):
    """Collects where a mark has shown."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.found: list[str] = []
        self.seen = 0
        """Characters that were searched."""

    def emit(self, record: logging.LogRecord) -> None:
        """Search a record."""
        self.look(self._text(record), f"the log of {record.name}")

    def _text(self, record: logging.LogRecord) -> str:
        text = _filled(record.msg, record.args)
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += shown_with_our_locals(record.exc_info[1])
        return text

    def look(self, shown: object, where: str) -> None:
        """Search what was shown somewhere."""
        text = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown or "")
        self.seen += len(text)
        for mark in MARKS:
            if mark in text:
                start = text.index(mark)
                self.found.append(f"{where}: …{text[max(0, start - 80) : start + 80]!r}…")

    def take(self) -> list[str]:
        """Return what was found since the last time."""
        found, self.found = self.found, []
        return found


def _filled(message: object, arguments: Any) -> str:
    """Return a message with its arguments filled in, as a `logging.LogRecord` does it."""
    if isinstance(arguments, tuple) and len(arguments) == 1 and isinstance(arguments[0], Mapping):
        arguments = arguments[0]
    try:
        return str(message) % arguments if arguments else str(message)
    except Exception as error:
        return repr(error)


def shown_with_our_locals(error: BaseException) -> str:
    """Return an error as a tool shows it that prints local variables, those of frames of ours."""
    parts = []
    for one in traceback.TracebackException.from_exception(error, capture_locals=True).format():
        head = one.lstrip().split("\n", 1)[0]
        parts.append(one if not head.startswith("File ") or _OURS in head else head)
    return "".join(parts)


@contextmanager
def watching() -> Iterator[Watch]:
    """Let a watch see every record of the package, whatever the levels, and what tests read from streams."""
    watch = Watch()
    is_enabled, make_record = logging.Logger.isEnabledFor, logging.Logger._log

    def enabled(self: logging.Logger, level: int) -> bool:
        return is_enabled(self, level) or self.name.startswith("stompy")

    def log(
        self: logging.Logger, level: int, message: object, arguments: Any, exc_info: Any = None, **more: Any
    ) -> None:
        if exc_info or is_enabled(self, level):
            make_record(self, level, message, arguments, exc_info, **more)
        else:  # nobody else gets it, and each frame has one, so that a whole record would cost much
            watch.look(_filled(message, arguments), f"the log of {self.name}")

    def handle(
        self: logging.Logger, record: logging.LogRecord, *, usual: Callable[..., None] = logging.Logger.handle
    ) -> None:
        if self.name.startswith("stompy"):
            watch.emit(record)
        # Without this hook it would have gone unnoticed, so it is reported.
        if record.levelno >= self.getEffectiveLevel() and record.levelno > self.manager.disable:
            usual(self, record)

    with (
        mock.patch.object(logging.Logger, "isEnabledFor", enabled),
        mock.patch.object(logging.Logger, "_log", log),
        mock.patch.object(logging.Logger, "handle", handle),
        _seen(watch, pytest.CaptureFixture, "readouterr", "what it printed"),
        _seen(watch, subprocess.Popen, "communicate", "what a program printed"),
    ):
        yield watch


def _seen(watch: Watch, owner: Any, name: str, where: str) -> Any:
    usual = getattr(owner, name)

    @wraps(usual)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        result = usual(*arguments, **options)
        for part in result:
            watch.look(part, where)
        return result

    return mock.patch.object(owner, name, wrapped)
