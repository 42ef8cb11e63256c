"""The opening handshake of WebSocket (RFC 6455, section 4) for both sides: heads of HTTP messages in, heads out."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stompy.printable import printable

MAX_HEAD = 16_384
"""Bytes of the head of a request or a response."""

END = b"\r\n\r\n"
"""What a head ends with."""

_MAX_LINES = 128
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS = re.compile(r"HTTP/1\.[0-9] ([0-9]{3})(?: ([^\r\n]*))?")
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]+)?", re.IGNORECASE)
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


class HandshakeFailed(Exception):
    """A response that is not an upgrade.

    Attributes:
        status: the HTTP status, if the peer refused; `None` if it does not speak WebSocket.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class HandshakeRefused(Exception):
    """A request that is refused.

    Attributes:
        status: the HTTP status to answer with.
    """

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


# The client.


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


def check_response(head: bytes, key: bytes, offered: Sequence[str], rest: bytes = b"") -> str | None:
    """Check a server's response; return the subprotocol that it chose, or `None` if it chose none.

    Args:
        head: the response up to its blank line.
        key: of the request.
        offered: the subprotocols of the request.
        rest: what arrived after the head; if the server refused, its explanation.

    Raises:
        HandshakeFailed: the server refused, or does not speak WebSocket.
    """
    line, _, lines = head.removesuffix(END).decode("latin-1").partition("\r\n")
    found = _STATUS.fullmatch(line)
    if found is None:
        raise HandshakeFailed(f"the peer does not speak HTTP: {head[:40]!r}")
    headers = _headers(lines)
    if headers is None:
        raise HandshakeFailed("the server answered with malformed HTTP headers")
    status = int(found[1])
    if status != 101:
        raise HandshakeFailed(_refusal(status, found[2] or "", headers, rest), status)
    if not _lists(headers, "upgrade", "websocket") or not _lists(headers, "connection", "upgrade"):
        raise HandshakeFailed("the server switched to another protocol than WebSocket")
    if headers.get("sec-websocket-accept") != [accept_of(base64.b64encode(key).decode())]:
        raise HandshakeFailed("the server answered with a wrong Sec-WebSocket-Accept")
    if "sec-websocket-extensions" in headers:
        raise HandshakeFailed("the server chose an extension that was not offered")
    chosen = headers.get("sec-websocket-protocol", [])
    if len(chosen) > 1 or any(name not in offered for name in chosen):
        raise HandshakeFailed(f"the server chose a subprotocol that was not offered: {', '.join(chosen)[:60]!r}")
    return chosen[0] if chosen else None


def _refusal(status: int, reason: str, headers: dict[str, list[str]], rest: bytes) -> str:
    words = f"the server refused the WebSocket handshake: {status} {reason[:100]}".rstrip()
    if 300 <= status < 400 and "location" in headers:
        return f"{words}; it redirects to {headers['location'][0][:200]}"
    if headers.get("content-type", [""])[0].startswith("text/plain") and rest.strip():
        return f"{words}: {printable(rest[:200].decode('utf-8', 'replace').strip())}"
    return words


# The server.


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
    if not _lists(headers, "upgrade", "websocket") or not _lists(headers, "connection", "upgrade"):
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
    except (binascii.Error, ValueError):
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


def _lists(headers: dict[str, list[str]], name: str, token: str) -> bool:
    return any(part.strip().lower() == token for value in headers.get(name, []) for part in value.split(","))
