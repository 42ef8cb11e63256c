"""How the command ends: exit codes, and which error gets which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import IntEnum

from stompy.errors import (
    REFUSALS,
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    NotConnectedError,
    StompError,
    StompTimeoutError,
)
from stompy.world import signal


class Exit(IntEnum):
    """Exit codes of the command; scripts rely on them."""

    OK = 0
    FAILED = 1
    """A check of `stompy demo` failed, or stompy has a bug."""
    USAGE = 2
    """The command line, an address or a setting is wrong; nothing was sent."""
    CONNECTION = 3
    """No broker could be reached, the connection was lost, or the broker cannot listen."""
    BROKER = 4
    """The broker refused: an ERROR frame, a wrong login or certificate, no version in common."""
    DATA = 5
    """Input or output failed, or a frame is against the protocol."""
    TIMEOUT = 6
    """What was waited for did not come in time."""
    INTERRUPTED = 130
    """Ended by SIGINT."""
    BROKEN_PIPE = 141
    """The reader of the output has ended, as with SIGPIPE."""
    TERMINATED = 143
    """Ended by SIGTERM."""


class Failure(Exception):
    """The command cannot go on.

    Args:
        message: one line for the user.
        code: of the exit.
    """

    def __init__(self, message: str, code: Exit) -> None:
        self.code = code
        super().__init__(message)


class Terminated(KeyboardInterrupt):
    """SIGTERM came; it unwinds as SIGINT does."""


def code_of(error: StompError) -> Exit:
    """Return the exit code for an error of the library."""
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    if isinstance(error, REFUSALS):
        return Exit.BROKER
    if isinstance(error, (ConnectError, ConnectionLostError, NotConnectedError)):
        return Exit.CONNECTION
    if isinstance(error, StompTimeoutError):
        return Exit.TIMEOUT
    return Exit.DATA


def interruption(error: KeyboardInterrupt) -> Exit:
    """Return the exit code for the signal that caused `error`."""
    return Exit.TERMINATED if isinstance(error, Terminated) else Exit.INTERRUPTED


@contextlib.contextmanager
def handling(handler: Callable[[int, object], None], *numbers: int) -> Iterator[None]:
    """Call a function at each of these signals, until the end of the block. Main thread only."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
