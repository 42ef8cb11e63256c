"""Standard input, output and error of the command."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import select
import sys
from collections.abc import Iterator
from typing import IO, BinaryIO

from stompy.cli.exits import Exit, Failure

_FORMAT = "stompy: %(levelname)s: %(name)s: %(message)s"


def one_line(text: str) -> str:
    """Return `text` without line ends and control characters, which a broker's words may hold."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def tell(text: str) -> None:
    """Write a line about what happens to standard error."""
    _to_stderr(f"stompy: {one_line(text)}\n")


def tell_error(text: str) -> None:
    """Write the one line that says why the command failed."""
    tell(f"error: {text}")


def _to_stderr(text: str) -> None:
    # Nobody is left to hear of a standard error that is closed or broken.
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


def stdin_octets() -> BinaryIO:
    """Return standard input as octets.

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
    """Octets to standard output; a message counts as written only after `flush`."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise Failure("standard output is closed", Exit.DATA)
        self._stream: IO[bytes] = sys.stdout.buffer
        if isinstance(self._stream, io.RawIOBase):
            # PYTHONUNBUFFERED: then a write may take a part only, and may be cut off by a signal.
            self._stream = io.BufferedWriter(io.FileIO(self._stream.fileno(), "wb", closefd=False))

    def write(self, data: bytes) -> None:
        """Write octets.

        Raises:
            BrokenPipeError: the reader is gone.
            Failure: they cannot be written for another reason.
        """
        with _output_errors():
            self._stream.write(data)

    def flush(self) -> None:
        """Hand everything to the system; raises as `write` does."""
        with _output_errors():
            self._stream.flush()

    def check_reader(self) -> None:
        """Notice that the reader of a pipe is gone, which a write would only find out later.

        Raises:
            BrokenPipeError: it is.
        """
        events: list[tuple[int, int]] = []
        # Where the system has no poll, or the stream no descriptor, the next write tells.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            looking = select.poll()
            looking.register(self._stream.fileno(), 0)
            events = looking.poll(0)
        if any(happened & select.POLLERR for _, happened in events):
            raise BrokenPipeError


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
    """Point standard output to nowhere, so that what is left in its buffer does no harm at the exit."""
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
        verbosity: 1 for what happens to connections, 2 or more for the frames too.
        quiet: the level for verbosity 0. What a command fails of it tells itself, so that warnings would say it twice.
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
