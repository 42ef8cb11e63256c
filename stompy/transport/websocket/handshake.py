"""The opening handshake of WebSocket (RFC 6455, section 4) for both sides: heads of HTTP messages in, heads out.

With it the settings of a client and of a server.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from stompy.arguments import check_value
from stompy.errors import ConfigurationError, ConnectError, WebSocketRefusedError
from stompy.printable import printable
from stompy.secret import Secret, without_traceback
from stompy.threads import must_propagate

MAX_HEAD = 16_384
"""Bytes of the head of a request or a response."""

END = b"\r\n\r\n"
"""What a head ends with."""

_MAX_LINES = 128
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS = re.compile(r"HTTP/1\.[0-9] ([0-9]{3})(?: ([^\r\n]*))?")
_MAYBE_LATER = (408, 425, 429)
"""HTTP statuses of 400 to 499 after which the same request may succeed later."""
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_NAMES = re.compile(r"//(127\.0\.0\.1|\[::1\])(?=:|$)")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_REASONS = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 426: "Upgrade Required"}
_REASONS |= {431: "Request Header Fields Too Large", 505: "HTTP Version Not Supported"}
_OWN = {
    "host",
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
    "sec-websocket-accept",
    "content-length",
    "transfer-encoding",
}
"""The headers that a client sets itself, or must not have."""


class HandshakeRefused(Exception):
    """A request that is refused.

    Attributes:
        status: the HTTP status to answer with.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


# The client.

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
        ConfigurationError: a header cannot be sent, or the handshake sets it itself.
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


def header_fault(name: object, value: object) -> str | None:
    """Return why a client cannot send a header, or `None` if it can; the value is not shown."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return f"{name!r} is not the name of an HTTP header"
    if name.lower() in _OWN:
        return f"the HTTP header {name} is set by the WebSocket handshake itself"
    if not isinstance(value, str):
        return f"the HTTP header {name} must be text, not {type(value).__name__}"
    if not value.isascii() or not _VALUE.fullmatch(value):
        return f"the HTTP header {name} has a character that cannot be sent"
    return None


def request_head(
    target: str, host: str, key: bytes, *, subprotocols: Sequence[str] = (), headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a client's request.

    Args:
        target: path and query, percent-encoded.
        host: the `Host` header.
        key: 16 random bytes.
        subprotocols: to offer, the preferred one first.
        headers: further headers, which `header_fault` accepts.
    """
    lines = [f"GET {target} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {base64.b64encode(key).decode()}", "Sec-WebSocket-Version: 13"]
    if subprotocols:
        lines.append(f"Sec-WebSocket-Protocol: {', '.join(subprotocols)}")
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode("ascii") + END


def check_response(
    head: bytes, key: bytes, offered: Sequence[str], rest: bytes = b"", *, address: str = ""
) -> str | None:
    """Check a server's response; return the subprotocol that it chose, or `None` if it chose none.

    Args:
        head: the response up to its blank line.
        key: of the request.
        offered: the subprotocols of the request.
        rest: the bytes after the head; if the server refused, its explanation.
        address: the address of the server, for the error.

    Raises:
        WebSocketRefusedError: the server refused, and would refuse the same request again.
        ConnectError: the server refused for now, or does not speak WebSocket.
    """
    line, _, lines = head.removesuffix(END).decode("latin-1").partition("\r\n")
    found, headers, chosen = _STATUS.fullmatch(line), _headers(lines), []
    fault = None
    if found is None:
        fault = f"the peer does not speak HTTP: {head[:40]!r}"
    elif headers is None:
        fault = "the server answered with malformed HTTP headers"
    elif found[1] != "101":
        final = 300 <= int(found[1]) < 500 and int(found[1]) not in _MAYBE_LATER
        message = _refusal(int(found[1]), found[2] or "", headers, rest)
        raise (WebSocketRefusedError if final else ConnectError)(message, address=address)
    elif not _asks_for_websocket(headers):
        fault = "the server switched to another protocol than WebSocket"
    elif headers.get("sec-websocket-accept") != [accept_of(base64.b64encode(key).decode())]:
        fault = "the server answered with a wrong Sec-WebSocket-Accept"
    elif "sec-websocket-extensions" in headers:
        fault = "the server chose an extension that was not offered"
    else:
        chosen = headers.get("sec-websocket-protocol", [])
        if len(chosen) > 1 or any(name not in offered for name in chosen):
            fault = f"the server chose a subprotocol that was not offered: {', '.join(chosen)[:60]!r}"
    if fault is not None:
        raise ConnectError(fault, address=address)
    return chosen[0] if chosen else None


def _refusal(status: int, reason: str, headers: dict[str, list[str]], rest: bytes) -> str:
    words = f"the server refused the WebSocket handshake: {status} {reason[:100]}".rstrip()
    if 300 <= status < 400 and "location" in headers:
        return f"{words}; it redirects to {headers['location'][0][:200]}"
    if headers.get("content-type", [""])[0].startswith("text/plain") and rest.strip():
        return f"{words}: {printable(rest[:200].decode('utf-8', 'replace').strip())}"
    return words


# The server.


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakePolicy:
    """Which clients a listener accepts.

    Attributes:
        subprotocols: that a client may choose from, the preferred one first.
        origins: whose web pages may connect, `"*"` for all; clients that are no browsers name none.
        respond: given the head of a request, returns a whole response, or `None` where it is one for a WebSocket; it
            may raise `HandshakeRefused`.
        streams: whether clients that do not speak HTTP are accepted.
    """

    subprotocols: Sequence[str]
    origins: Sequence[str]
    respond: Callable[[bytes], bytes | None] | None = None
    streams: bool = True

    def admits(self, origin: str) -> bool:
        """Whether a page of this origin may connect."""
        wanted = {allowed.lower() for allowed in self.origins}
        return "*" in wanted or origin.lower() in wanted


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request for a WebSocket.

    Attributes:
        target: path and query.
        key: the `Sec-WebSocket-Key`.
        host: the `Host` header.
        origin: of the page that asks; `None` unless the client is a browser, or names the server's own.
        subprotocols: that the client offers, the preferred one first.
    """

    target: str = field(repr=False)  # its query may hold a token
    key: str
    host: str
    origin: str | None
    subprotocols: tuple[str, ...]

    @property
    def of_this_server(self) -> bool:
        """Whether the origin is the address that the client connects to, on this machine.

        Some clients that are no browsers send it. A page cannot have it: this port serves none. Only loopback addresses
        count, as a page of any other name may have let its name point here since.
        """
        return (
            self.origin in (f"http://{self.host}", f"https://{self.host}")
            and _LOOPBACK.fullmatch(self.host) is not None
        )


def told_apart(origin: str, wanted: Iterable[str]) -> str:
    """Return what to add to a refusal where an accepted origin is the same but for the name of this machine."""
    plain = _NAMES.sub("//localhost", origin.lower(), count=1)
    same = next((one for one in wanted if _NAMES.sub("//localhost", one.lower(), count=1) == plain), None)
    return "" if same is None else f"; {same!r} is accepted: localhost, 127.0.0.1 and [::1] are different origins"


def parse_head(head: bytes) -> tuple[str, dict[str, list[str]]]:
    """Return the target of a GET request, and the values of its headers by name in lower case.

    Raises:
        HandshakeRefused: it is malformed, or another request.
    """
    line, _, lines = head.removesuffix(END).decode("latin-1").partition("\r\n")
    method, _, rest = line.partition(" ")
    target, _, version = rest.rpartition(" ")
    if version not in ("HTTP/1.1", "HTTP/1.0") or not target.startswith("/") or " " in target:
        raise HandshakeRefused(400, "the request line is malformed")
    if method != "GET":
        raise HandshakeRefused(405, "only GET is known here")
    if version == "HTTP/1.0":
        raise HandshakeRefused(505, "a WebSocket needs HTTP/1.1")
    headers = _headers(lines)
    if headers is None:
        raise HandshakeRefused(400, "the headers are malformed, or too many")
    if len(headers.get("host", [])) != 1:
        raise HandshakeRefused(400, "a request has one Host header")
    if len(headers.get("origin", [])) > 1:
        raise HandshakeRefused(400, "a request has one Origin header")
    return target, headers


def parse_request(head: bytes) -> Request:
    """Return the request in a head.

    Raises:
        HandshakeRefused: it does not ask for a WebSocket, or is malformed.
    """
    target, headers = parse_head(head)
    if not _asks_for_websocket(headers):
        raise HandshakeRefused(426, "this is a STOMP broker: connect by WebSocket")
    if headers.get("sec-websocket-version") != ["13"]:
        raise HandshakeRefused(426, "only version 13 of WebSocket is known here")
    keys, origins = headers.get("sec-websocket-key", []), headers.get("origin", [])
    if len(keys) != 1 or not _is_key(keys[0]):
        raise HandshakeRefused(400, "the Sec-WebSocket-Key is missing or malformed")
    offered = [name.strip() for value in headers.get("sec-websocket-protocol", []) for name in value.split(",")]
    origin = origins[0] if origins else None
    return Request(target, keys[0], headers["host"][0], origin, tuple(filter(None, offered)))


def choose_subprotocol(offered: Sequence[str], supported: Sequence[str]) -> str | None:
    """Return the first of the supported subprotocols that was offered; `None` if none was offered at all.

    Raises:
        HandshakeRefused: none of those that were offered is supported.
    """
    chosen = next((name for name in supported if name in offered), None)
    if chosen is None and offered:
        raise HandshakeRefused(400, f"no subprotocol in common: this broker has {', '.join(supported)}")
    return chosen


def accept_head(key: str, subprotocol: str | None) -> bytes:
    """Return the response that accepts a request."""
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {accept_of(key)}")
    if subprotocol is not None:
        lines.append(f"Sec-WebSocket-Protocol: {subprotocol}")
    return "\r\n".join(lines).encode("ascii") + END


def refusal(refused: HandshakeRefused) -> bytes:
    """Return the response that refuses a request."""
    body = f"{refused}\n".encode()
    lines = [f"HTTP/1.1 {refused.status} {_REASONS[refused.status]}", "Connection: close"]
    if refused.status == 426:
        lines += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    lines += ["Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff"]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("ascii") + END + body


def accept_of(key: str) -> str:
    """Return the `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`."""
    digest = hashlib.sha1(key.encode("ascii") + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except ValueError:
        return False


def _headers(lines: str) -> dict[str, list[str]] | None:
    """Return the values by name in lower case; `None` if a line is malformed."""
    headers: dict[str, list[str]] = {}
    listed = lines.split("\r\n") if lines else []
    for line in listed:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or len(listed) > _MAX_LINES:
            return None
        headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    return headers


def _asks_for_websocket(headers: dict[str, list[str]]) -> bool:
    return all(
        any(part.strip().lower() == token for value in headers.get(name, []) for part in value.split(","))
        for name, token in (("upgrade", "websocket"), ("connection", "upgrade"))
    )
