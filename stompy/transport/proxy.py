"""Connect through a proxy: HTTP CONNECT (RFC 9110, 9.3.6; RFC 7617) or SOCKS5 (RFC 1928, RFC 1929).

The proxy resolves the host name of the broker. The connection to the proxy itself is not encrypted; TLS to the broker
passes through it end to end.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_to_bytes

from stompy.errors import ConfigurationError, ConnectError, ConnectTimeoutError, ProxyError, ProxyLoginRefusedError
from stompy.secret import Secret, as_secret, check_text, revealed, without_traceback
from stompy.transport.address import host_port, masked
from stompy.transport.base import with_handshake
from stompy.transport.tcp import DEFAULT_OPTIONS, TcpDialer, TcpOptions

if TYPE_CHECKING:
    from stompy.deadline import Deadline
    from stompy.transport.base import Transport, UnderlyingTransport

ProxyKind = Literal["http", "socks5"]

_SCHEMES: dict[str, ProxyKind] = {"http": "http", "socks5": "socks5", "socks5h": "socks5"}
_SOCKS_PORT = 1080
_FORM = re.compile(
    r"(?P<scheme>[A-Za-z0-9+.\-]+)://(?:(?P<login>[^:@/?#]*)(?::(?P<passcode>[^@/?#]*))?@)?"
    r"(?P<host>\[[0-9A-Za-z:.%_\-]+\]|[^\[\]:@/?#,%\\]+)(?::(?P<port>[0-9]{1,5}))?/?"
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """The address of a proxy.

    Attributes:
        kind: `http` or `socks5`.
        host: a host name, or an IP address without brackets.
        port: 1 to 65535.
        login: decoded; `None` if the URL has none.
        passcode: decoded, and stored as a `Secret`; a pickle contains it.
    """

    kind: ProxyKind
    host: str
    port: int
    login: str | None = None
    passcode: Secret[str] | str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passcode", as_secret(self.passcode))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the passcode, which the process that unpickles it needs in order to connect."""
        passcode = self.passcode.reveal() if isinstance(self.passcode, Secret) else self.passcode
        return Proxy, (self.kind, self.host, self.port, self.login, passcode)

    def __str__(self) -> str:
        """Return the URL without login and passcode."""
        return f"{self.kind}://{host_port(self.host, self.port)}"


def parse_proxy(url: str | Secret[str]) -> Proxy:
    """Return the proxy in `url`: `http://[login:passcode@]host:port` or `socks5://[login:passcode@]host[:port]`.

    `socks5h://` means the same as `socks5://`: the proxy always resolves host names.

    Raises:
        ConfigurationError: the URL is malformed; the error shows it without its passcode.
    """
    secret_url, url = url if isinstance(url, Secret) else Secret(url), ""
    check_text("the address of a proxy", secret_url)
    return without_traceback(lambda: _parsed(secret_url.reveal()))


def _parsed(url: str) -> Proxy:
    match = _FORM.fullmatch(url) if url.isprintable() and " " not in url else None
    kind = _SCHEMES.get(url.partition("://")[0].lower())
    if kind is None or match is None:
        raise ConfigurationError(
            f"the address of a proxy is http://[login:passcode@]host:port or socks5://...: {masked(url)!r}"
        )
    port = int(match["port"]) if match["port"] else _SOCKS_PORT if kind == "socks5" else 0
    if not 1 <= port <= 65535:
        raise ConfigurationError(f"the address of a proxy needs a port from 1 to 65535: {masked(url)!r}")
    login, passcode = (_decoded(match[name], url) for name in ("login", "passcode"))
    if kind == "http" and login is not None and ":" in login:
        raise ConfigurationError(f"the login for an HTTP proxy cannot contain ':': {masked(url)!r}")
    if kind == "socks5" and any(len((text or "").encode()) > 255 for text in (login, passcode)):
        raise ConfigurationError(f"login and passcode for a SOCKS5 proxy have at most 255 bytes: {masked(url)!r}")
    return Proxy(kind, match["host"].strip("[]").replace("%25", "%"), port, login, passcode)


def _decoded(text: str | None, url: str) -> str | None:
    if text is None:
        return None
    value = unquote_to_bytes(text).decode("utf-8", "replace")
    if "\ufffd" in value or re.search("%(?![0-9A-Fa-f]{2})", text) or re.search("[\r\n\0]", value):
        raise ConfigurationError(f"login or passcode for the proxy is not percent-encoded UTF-8: {masked(url)!r}")
    return value


class ProxyStream:
    """Exchange messages with a proxy, without reading any byte after its answer.

    Args:
        transport: the connection to the proxy.
        proxy: the address of the proxy without credentials, for messages.
        address: the address of the broker, for messages.
        deadline: the time limit for the whole exchange.
    """

    def __init__(self, transport: Transport, proxy: str, address: str, deadline: Deadline) -> None:
        self._transport = transport
        self._proxy = proxy
        self._address = address
        self._deadline = deadline
        self._buffer = b""

    def send(self, data: Secret[bytes]) -> None:
        """Send bytes to the proxy, which no traceback shows; raises the errors of `Transport.sendall`."""
        without_traceback(lambda: self._transport.sendall(data.reveal(), self._deadline))

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; raises the errors of `Transport.recv`, and `ProxyError` at the end."""
        while len(self._buffer) < size:
            self._receive()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def read_until(self, end: bytes, *, limit: int) -> bytes:
        """Return the bytes up to and including `end`; raises as `read`, and `ProxyError` beyond `limit` bytes."""
        while (index := self._buffer.find(end)) < 0:
            if len(self._buffer) > limit:
                raise self.error("sent an answer that is too long")
            self._receive()
        return self.read(index + len(end))

    def _receive(self) -> None:
        received = self._transport.recv(self._deadline)
        if not received:
            raise self.error("closed the connection instead of answering")
        self._buffer += received

    def check_end(self) -> None:
        """Check that no bytes follow the answer: in STOMP and TLS the client sends first."""
        if self._buffer:
            raise self.error("sent more than its answer")

    def error(self, what: str) -> ProxyError:
        """Return an error about the proxy; `what` follows its address in the message."""
        return ProxyError(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)

    def login_refused(self, what: str) -> ProxyLoginRefusedError:
        """Return an error about the login at the proxy; `what` follows its address in the message."""
        return ProxyLoginRefusedError(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)


_MAX_HEAD = 65_536
"""Bytes of the status line and the headers of an answer."""

_STATUS = re.compile(r"HTTP/1\.[0-9] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
_LOGIN_REQUIRED = 407
_LONGEST_NAME = 253
"""Characters of a host name (RFC 1035); SOCKS5 has space for two more."""


def http_connect(stream: ProxyStream, host: str, port: int, *, login: str | None, passcode: Secret[str] | None) -> None:
    """Request a connection to `host` and `port` by HTTP CONNECT.

    Raises:
        ConfigurationError: the host cannot be encoded in a request.
        ProxyError: the proxy refused.
    """
    stream.send(_request(host, port, login, passcode))
    status, reason = 100, ""
    while 100 <= status < 200:  # interim responses
        head = stream.read_until(b"\r\n\r\n", limit=_MAX_HEAD).decode("latin-1")
        found = _STATUS.match(head)
        if found is None:
            raise stream.error(f"does not speak HTTP: {head[:40]!r}")
        status, reason = int(found[1]), found[2] or ""
    if status == _LOGIN_REQUIRED:
        raise stream.login_refused("rejected the login and passcode" if login else "requires a login and a passcode")
    if not 200 <= status < 300:
        raise stream.error(f"refused: {status} {reason[:100]}".rstrip())


def _request(host: str, port: int, login: str | None, passcode: Secret[str] | None) -> Secret[bytes]:
    target = host_port(ascii_host(host), port)
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode("ascii")
    if login is None:
        return Secret(head + b"\r\n")
    credentials = Secret(base64.b64encode(f"{login}:{revealed(passcode) or ''}".encode()))
    return Secret(head + b"Proxy-Authorization: Basic " + credentials.reveal() + b"\r\n\r\n")


def ascii_host(host: str) -> str:
    """Return a host name in ASCII, for the request to a proxy.

    Raises:
        ConfigurationError: the host cannot be encoded.
    """
    try:
        name = host if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ConfigurationError(f"not a usable host name: {host!r}") from error
    if not name or not name.isascii() or not name.isprintable() or " " in name or len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"not a usable host name: {host!r}")
    return name.partition("%")[0]  # the zone of an IPv6 address is only valid on this machine


_VERSION, _LOGIN_VERSION = 5, 1
_NO_LOGIN, _LOGIN, _NO_METHOD = 0, 2, 0xFF
_CONNECT, _RESERVED = 1, 0
_IPV4, _NAME, _IPV6 = 1, 3, 4

_REFUSALS = {
    1: "failed",
    2: "does not allow this connection by its rules",
    3: "cannot reach the broker's network",
    4: "cannot reach the broker's host, or does not know it",
    5: "was refused by the broker: connection refused",
    6: "timed out on the way to the broker: TTL expired",
    7: "does not support the CONNECT command",
    8: "does not support this type of address",
}


def socks5_connect(
    stream: ProxyStream, host: str, port: int, *, login: str | None, passcode: Secret[str] | None
) -> None:
    """Request a connection to `host` and `port` by SOCKS5.

    Raises:
        ConfigurationError: the host cannot be encoded in a request.
        ProxyError: the proxy refused.
    """
    target = _target(host)
    methods = bytes([_NO_LOGIN] if login is None else [_NO_LOGIN, _LOGIN])
    stream.send(Secret(bytes([_VERSION, len(methods)]) + methods))
    version, method = stream.read(2)
    if version != _VERSION:
        raise stream.error(f"does not speak SOCKS5: it began with byte {version}")
    if method == _LOGIN and login is not None:
        _log_in(stream, login.encode(), Secret((revealed(passcode) or "").encode()))
    elif method == _NO_METHOD:
        raise stream.login_refused(
            "supports no authentication method that was offered" if login else "requires a login and a passcode"
        )
    elif method != _NO_LOGIN:
        raise stream.error(f"requires an authentication method that was not offered ({method})")
    stream.send(Secret(bytes([_VERSION, _CONNECT, _RESERVED]) + target + port.to_bytes(2, "big")))
    _read_reply(stream)


def _target(host: str) -> bytes:
    name = ascii_host(host)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        encoded = name.encode("ascii")
        return bytes([_NAME, len(encoded)]) + encoded
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _log_in(stream: ProxyStream, login: bytes, passcode: Secret[bytes]) -> None:
    prefix = bytes([_LOGIN_VERSION, len(login)]) + login + bytes([len(passcode.reveal())])
    stream.send(Secret(prefix + passcode.reveal()))
    _, status = stream.read(2)
    if status:
        raise stream.login_refused("rejected the login and passcode")


def _read_reply(stream: ProxyStream) -> None:
    version, reply, _, kind = stream.read(4)
    if version != _VERSION:
        raise stream.error(f"does not speak SOCKS5: it answered with byte {version}")
    if reply:
        raise stream.error(_REFUSALS.get(reply, f"refused with an unknown code ({reply})"))
    # The address that the proxy connects from, which is not needed.
    length = {_IPV4: 4, _IPV6: 16}.get(kind) or (stream.read(1)[0] if kind == _NAME else None)
    if length is None:
        raise stream.error(f"answered with an unknown type of address ({kind})")
    stream.read(length + 2)


class ProxyDialer:
    """Connects to a host and port through a proxy.

    Args:
        proxy: the proxy.
        host: the host of the broker; the proxy resolves a name.
        port: the port of the broker.
        options: the options of the connection to the proxy.
    """

    def __init__(self, proxy: Proxy, host: str, port: int, *, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        self._proxy = proxy
        self._port = port
        self._dialer = TcpDialer(proxy.host, proxy.port, options=options)
        self.host = host
        """The host of the broker as given."""
        self.address = host_port(host, port)
        """The host and the port of the broker."""

    def dial(self, deadline: Deadline) -> UnderlyingTransport:
        """Return a new connection to the broker.

        Raises:
            ConfigurationError: the host of the broker cannot be encoded in a request to a proxy.
            ProxyError: the proxy cannot be reached, refused, or is not a proxy; `ProxyLoginRefusedError` if it refused
                the login.
            ConnectTimeoutError: the deadline passed first.
        """
        name = str(self._proxy)
        try:
            transport = self._dialer.dial(deadline)
        except ConnectError as error:
            message = f"the proxy {name} cannot be reached: {error}"
            if isinstance(error, ConnectTimeoutError):
                raise ConnectTimeoutError(message, address=self.address) from error
            raise ProxyError(message, proxy=name, address=self.address) from error
        stream = ProxyStream(transport, name, self.address, deadline)
        with_handshake(
            transport,
            lambda: self._request(stream),
            address=self.address,
            late=f"the proxy {name} did not connect to the broker in time",
            lost=lambda error: stream.error(f"closed the connection: {error}"),
        )
        return transport

    def _request(self, stream: ProxyStream) -> None:
        proxy = self._proxy
        connect = http_connect if proxy.kind == "http" else socks5_connect
        connect(stream, self.host, self._port, login=proxy.login, passcode=as_secret(proxy.passcode))
        stream.check_end()

    def __repr__(self) -> str:
        return f"<ProxyDialer {self.address} through {self._proxy}>"
