"""WebSocket settings of a client as a value that can be pickled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stompy.arguments import check_value
from stompy.errors import ConfigurationError, ConnectError
from stompy.secret import Secret, without_traceback
from stompy.threads import must_propagate
from stompy.transport.websocket.handshake import header_fault

HttpHeaders = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""HTTP headers, or a function that returns them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketOptions:
    """Settings for `ws://` and `wss://` addresses.

    Attributes:
        headers: of the HTTP request, such as `Origin`, `Cookie` or `Authorization`; or a function that is called for
            each connect, reconnects included, in the thread that connects. Stored as a `Secret`; a pickle contains
            them.
        text: whether a frame that is UTF-8 is sent as a text message, the only kind that ActiveMQ Classic reads, rather
            than a binary one.

    Raises:
        ConfigurationError: a header cannot be sent, or is one that the handshake sets itself.
    """

    headers: HttpHeaders | Secret[HttpHeaders] | None = field(default=None, repr=False)
    text: bool = True

    def __init__(self, *, headers: HttpHeaders | Secret[HttpHeaders] | None = None, text: bool = True) -> None:
        # Not that of the dataclass, whose local variables a traceback would show.
        given = headers if headers is None or isinstance(headers, Secret) else Secret(headers)
        headers = None
        check_value("text", text, bool)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "headers", without_traceback(lambda: _stored(given)))

    def headers_now(self, address: str) -> Secret[Mapping[str, str]]:
        """Return the headers for one connect.

        Raises:
            ConnectError: the function raised; safe to retry. Only the type of its error is shown.
            ConfigurationError: the function returned something else than headers.
        """
        return without_traceback(lambda: _current(self.headers, address))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the headers, which the process that unpickles it needs in order to connect."""
        headers = self.headers.reveal() if isinstance(self.headers, Secret) else None
        return partial(WebSocketOptions, headers=headers, text=self.text), ()


def _stored(given: Secret[HttpHeaders] | None) -> Secret[HttpHeaders] | None:
    if given is None or given.reveal() is None:
        return None
    if callable(given.reveal()):
        return given
    return Secret(dict(checked(given.reveal()).reveal()))


def checked(headers: object) -> Secret[Mapping[str, str]]:
    """Return headers.

    Raises:
        ConfigurationError: they cannot be sent; the error does not show a value.
    """
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"the headers of a WebSocket are a mapping of text, not {type(headers).__name__}")
    for name, value in headers.items():
        fault = header_fault(name, value)
        if fault is not None:
            raise ConfigurationError(fault)
    return Secret(headers)


def _current(headers: object, address: str) -> Secret[Mapping[str, str]]:
    given: Any = headers.reveal() if isinstance(headers, Secret) else {}
    if not callable(given):
        return Secret(given)
    try:
        return checked(given())
    except BaseException as error:
        if must_propagate(error) or isinstance(error, ConfigurationError):
            raise
        kind = type(error).__name__
    # Without the error itself as cause or context: its message and traceback may show a token.
    raise ConnectError(f"the function for the WebSocket's headers raised {kind}", address=address)
