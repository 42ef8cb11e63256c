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

from stompy.errors import ConfigurationError, ConnectError
from stompy.link.thread import is_for_caller
from stompy.secret import Secret, check_text, closed, hidden

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


def check_credentials(login: Secret[Login | None], passcode: object) -> Login | None:
    """Return the login; both must be text or a function.

    Args:
        login: hidden, as it may be a pair by mistake, which holds the passcode.
        passcode: hidden.

    Raises:
        ConfigurationError: one is something else; the error does not show it.
    """
    check_text("passcode", passcode)
    if login.reveal() is not None and not callable(login.reveal()):
        check_text("login", login)
    return login.reveal()


def credentials_now(login: Login | None, passcode: Passcode | None, *, address: str) -> Credentials:
    """Return what to say to the broker now; functions are called, in the thread that connects.

    Raises:
        ConnectError: a function raised; it may do better the next time. Only the type of its own error is shown.
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
    code = hidden(code)
    if not isinstance(name, (str, NoneType)) or not isinstance(code, (Secret, NoneType)):
        kinds = f"{type(name).__name__} and {type(code).__name__}"
        raise ConfigurationError(f"login and passcode must be text (str), not {kinds}")
    check_text("passcode", code)
    return Credentials(name, code)


def _asked(given: Any, what: str, address: str) -> Any:
    if not callable(given):
        return given
    try:
        return given()
    except BaseException as error:
        if is_for_caller(error):
            raise
        kind = type(error).__name__
    # Neither its words nor its frames, which would be its cause or context: whoever fetches a token may have it there.
    raise ConnectError(f"the {what} function raised {kind}", address=address)
