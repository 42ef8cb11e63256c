"""The exceptions; the `__cause__` of each is the error of stompy, if there is one."""

from __future__ import annotations

from stompy.errors import ConnectError, NotConnectedError, SessionError, StompError


class StompException(Exception):
    """Base class of the exceptions."""


class ConnectionClosedException(StompException):
    """The connection ended while a call waited for it."""


class NotConnectedException(StompException):
    """There is no connection; nothing was sent."""


class ConnectFailedException(StompException):
    """No connection could be opened, or the broker refused it; the message says why."""


class InterruptedException(StompException):
    """Never raised; kept for programs that catch it."""


class _ConnectionLost(NotConnectedException, ConnectionClosedException, ConnectionError):
    """The connection broke during a send; also an `OSError`, as it is with stomp.py."""


def translated(error: StompError) -> StompException:
    """Return the exception to raise instead of an error of stompy."""
    for kind, exception in (
        (NotConnectedError, NotConnectedException),
        (ConnectError, ConnectFailedException),
        (SessionError, _ConnectionLost),
    ):
        if isinstance(error, kind):
            return exception(str(error))
    return StompException(str(error))
