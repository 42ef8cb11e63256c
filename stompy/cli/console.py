"""Standard input, output and error of the command, and the progress of many messages."""

from __future__ import annotations

import contextlib
import io
import logging
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from stompy.cli.exits import Exit, Failure
from stompy.deadline import Deadline
from stompy.printable import printable
from stompy.world import os, select, time

if sys.platform != "win32":
    import termios

    from stompy.world import fcntl

INTERVAL = 1.0
"""Seconds between two updates of the progress, and before the first."""
_FORMAT = "stompy: %(levelname)s: %(name)s: %(message)s"


def report(text: str) -> None:
    """Write a line of progress to standard error."""
    _to_stderr(f"stompy: {printable(text)}\n")


def report_error(text: str) -> None:
    """Write the one line that says why the command failed; on a terminal in red, unless `NO_COLOR` is set."""
    shown = f"stompy: error: {printable(text)}"
    colour = sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    _to_stderr(f"\x1b[31m{shown}\x1b[0m\n" if colour else f"{shown}\n")


def _to_stderr(text: str) -> None:
    # There is no way to report that standard error is closed or broken.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def stdin_bytes() -> BinaryIO:
    """Return standard input as bytes.

    Raises:
        Failure: it is closed.
    """
    if sys.stdin is None:
        raise Failure("standard input is closed", Exit.DATA)
    return sys.stdin.buffer


def stdin_is_terminal() -> bool:
    """Whether a person would have to type the input."""
    return sys.stdin is None or sys.stdin.isatty()


class Output:
    """Writes bytes to standard output; a message counts as written only after `flush`."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise Failure("standard output is closed", Exit.DATA)
        self._stream: IO[bytes] = sys.stdout.buffer
        if isinstance(self._stream, io.RawIOBase):
            # PYTHONUNBUFFERED: then a write may take a part only, and may be cut off by a signal.
            self._stream = io.BufferedWriter(io.FileIO(self._stream.fileno(), "wb", closefd=False))

    def write(self, data: bytes) -> None:
        """Write bytes.

        Raises:
            BrokenPipeError: the reader has ended.
            Failure: they cannot be written for another reason.
        """
        with _output_errors():
            self._stream.write(data)

    def flush(self) -> None:
        """Hand everything to the system; raises as `write` does."""
        with _output_errors():
            self._stream.flush()

    @property
    def is_terminal(self) -> bool:
        """Whether it is a terminal."""
        return self._stream.isatty()

    @property
    def is_pipe(self) -> bool:
        """Whether it is a pipe that tells how much of it was read."""
        with contextlib.suppress(OSError, ValueError):
            return stat.S_ISFIFO(os.fstat(self._stream.fileno()).st_mode) and self._unread() is not None
        return False

    def await_reader(self, deadline: Deadline) -> int:
        """Wait until the reader of the pipe has read everything that was flushed; return the number of unread bytes.

        It is 0, unless the reader has ended or the deadline has passed.
        """
        pause = 0.0005
        while self._unread() and not self._reader_has_ended() and not deadline.expired:
            time.sleep(deadline.sooner(pause).remaining() or 0.0)
            pause = min(2 * pause, 0.05)
        return self._unread() or 0

    def _unread(self) -> int | None:
        if sys.platform == "win32":
            return None
        try:
            return int.from_bytes(fcntl.ioctl(self._stream.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, ValueError):
            return None

    def check_reader(self) -> None:
        """Check whether the reader of a pipe has ended, which a write would only detect later.

        Raises:
            BrokenPipeError: it has.
        """
        if self._reader_has_ended():
            raise BrokenPipeError

    def _reader_has_ended(self) -> bool:
        events: list[tuple[int, int]] = []
        # Where the system has no poll, or the stream no descriptor, the next write tells.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            looking = select.poll()
            looking.register(self._stream.fileno(), 0)
            events = looking.poll(0)
        return any(happened & select.POLLERR for _, happened in events)


@contextlib.contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        forget_stdout()
        raise Failure(f"cannot write to standard output: {error.strerror or error}", Exit.DATA) from error


def say(text: str = "") -> None:
    """Write a line of plain text to standard output; raises as `Output.write` does."""
    if sys.stdout is None:
        raise Failure("standard output is closed", Exit.DATA)
    with _output_errors():
        # A terminal of another encoding gets `\\u....` for what it cannot show.
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()


def forget_stdout() -> None:
    """Redirect standard output to the null device, so that flushing its buffer at exit does not fail."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, sys.stdout.fileno())
        finally:
            os.close(nowhere)


@contextlib.contextmanager
def logging_to_stderr(*, verbosity: int, quiet: int = logging.ERROR) -> Iterator[None]:
    """Show the library's log on standard error.

    Args:
        verbosity: 1 for the events of connections, 2 or more for the frames too.
        quiet: the level for verbosity 0. A command reports its own failures, so warnings would repeat them.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    logger = logging.getLogger("stompy")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel({0: quiet, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def first_line(path: Path, what: str) -> str:
    """Return the first line of a file that holds a secret, without its end.

    Raises:
        Failure: it cannot be read.
    """
    with files(f"read the {what} file {str(path)!r}"), path.open(encoding="utf-8") as file:
        return file.readline().removesuffix("\n")


@contextlib.contextmanager
def files(purpose: str) -> Iterator[None]:
    """Raise `Failure` with the reason where a file in the block cannot be used.

    Args:
        purpose: of the block, such as `read 'a.txt'`.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        raise Failure(f"cannot {purpose}: {why(error)}", Exit.DATA) from error


def why(error: Exception) -> str:
    """Return the reason of a failed read or write, without the path, which the caller names."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return printable(getattr(error, "strerror", None) or str(error))


class Progress:
    """Shows a count on standard error, if that is a terminal, in one line that is renewed.

    Args:
        done: the word for the messages, such as `sent`.
        hidden: show nothing until the summary, as standard output is the same terminal.
    """

    def __init__(self, done: str, *, hidden: bool = False) -> None:
        self._done = done
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shows = self._terminal and not hidden
        self._began = self._last = time.monotonic()
        self._counted = 0
        self._shown = False

    def show(self, count: int) -> None:
        """Show a count and the rate since the last one, unless that was shown a moment ago."""
        now = time.monotonic()
        if self._shows and now - self._last >= INTERVAL:
            rate = _rate(count - self._counted, now - self._last)
            self._last, self._counted, self._shown = now, count, True
            self._write(f"\r\x1b[Kstompy: {count:,} {self._done}, {rate}")

    def summary(self, count: int) -> str:
        """Remove the line, and return the time and the rate for the end of a report; empty without a terminal."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False
        if not self._terminal or count < 2:
            return ""
        seconds = time.monotonic() - self._began
        return f" in {seconds:.1f} s, {_rate(count, seconds)}"

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._shows = False


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 0.001):,.0f}/s"
