"""Who we are to a broker: text that was given once, or what a caller's function says at each connect.

| thread | does here | may block on |
|---|---|---|
| whoever connects: the caller, later the supervisor | `Credentials.now` | the caller's function |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any

from stompy.errors import ConfigurationError, ConnectError, StompError
from stompy.secret import Secret, closed, hidden

Login = str | Callable[[], str | tuple[str | None, str | Secret[str] | None]]
"""The login, or what says it at each connect: with the passcode as a pair, where one source has both."""
Passcode = str | Secret[str] | Callable[[], str | Secret[str]]
"""The passcode, or what says it at each connect."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Login and passcode for one connect.

    Attributes:
        login: `None` sends none.
        passcode: `None` sends none.
    """

    login: str | None = None
    passcode: Secret[str] | None = None


def credentials_now(login: Login | None, passcode: Passcode | None, *, address: str) -> Credentials:
    """Return what to say to the broker now; functions are called, in the thread that connects.

    Raises:
        ConnectError: a function raised; it may do better the next time. Its own error is the cause.
        ConfigurationError: it returned something else than text.
    """
    passcode = hidden(passcode)
    try:
        return _said(login, passcode, address)
    except ConfigurationError as error:
        wrong = error
    raise closed(wrong)


def _said(login: Login | None, passcode: Passcode | None, address: str) -> Credentials:
    name = _asked(login, "login", address)
    if isinstance(name, tuple) and len(name) == 2:
        if passcode is not None:
            raise ConfigurationError("the login function gave a passcode, and passcode= is set too")
        name, code = name
    else:
        code = _asked(passcode, "passcode", address)
    if not isinstance(name, (str, NoneType)) or not isinstance(code, (str, Secret, NoneType)):
        kinds = f"{type(name).__name__} and {type(code).__name__}"
        raise ConfigurationError(f"login and passcode must be text, not {kinds}")
    return Credentials(name, hidden(code))


def _asked(given: Any, what: str, address: str) -> Any:
    if not callable(given):
        return given
    try:
        return given()
    except StompError:
        raise
    except Exception as error:
        # Not its words: whoever fetches a token may put it there.
        raise ConnectError(f"the {what} function raised {type(error).__name__}", address=address) from error
