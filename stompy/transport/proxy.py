"""Dialing through a proxy: HTTP CONNECT (RFC 9110, 9.3.6) and SOCKS5 (RFC 1928, RFC 1929).

The name of the broker is resolved by the proxy. The connection to the proxy itself is not encrypted; TLS to the broker
goes through it untouched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_to_bytes

from stompy.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionLost,
    ConnectTimeout,
    ProxyError,
    SendTimeout,
    StompTimeout,
)
from stompy.secret import Secret, check_text, closed, hidden
from stompy.transport.address import host_port, masked
from stompy.transport.proxy_handshake import Answer, ask_http, ask_socks
from stompy.transport.tcp import DEFAULT_OPTIONS, TcpDialer, TcpOptions, TcpTransport

if TYPE_CHECKING:
    from stompy.deadline import Deadline

ProxyKind = Literal["http", "socks5"]

_SCHEMES: dict[str, ProxyKind] = {"http": "http", "socks5": "socks5", "socks5h": "socks5"}
_SOCKS_PORT = 1080
_FORM = re.compile(
    r"(?P<scheme>[A-Za-z0-9+.\-]+)://(?:(?P<login>[^:@/?#]*)(?::(?P<passcode>[^@/?#]*))?@)?"
    r"(?P<host>\[[0-9A-Za-z:.%_\-]+\]|[^\[\]:@/?#,%\\]+)(?::(?P<port>[0-9]{1,5}))?/?"
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, as its URL names it.

    Attributes:
        kind: `http` or `socks5`.
        host: a host name, or an IP address without brackets.
        port: 1 to 65535.
        login: decoded; `None` where the URL has none.
        passcode: decoded, and kept as a `Secret`; a pickle holds it.
    """

    kind: ProxyKind
    host: str
    port: int
    login: str | None = None
    passcode: Secret[str] | str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passcode", hidden(self.passcode))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the passcode: whoever pickles this wants to connect elsewhere."""
        passcode = self.passcode.reveal() if isinstance(self.passcode, Secret) else self.passcode
        return Proxy, (self.kind, self.host, self.port, self.login, passcode)

    def __str__(self) -> str:
        """Return the URL without login and passcode."""
        return f"{self.kind}://{host_port(self.host, self.port)}"


def parse_proxy(url: str | Secret[str]) -> Proxy:
    """Return the proxy that `url` names: `http://[login:passcode@]host:port` or `socks5://[login:passcode@]host[:port]`.

    `socks5h://` is the same as `socks5://`: names are always resolved by the proxy.

    Raises:
        ConfigurationError: the URL is wrong; it is shown without its passcode.
    """
    told, url = url if isinstance(url, Secret) else Secret(url), ""
    check_text("the address of a proxy", told)
    try:
        return _parsed(told.reveal())
    except ConfigurationError as error:
        failure = error
    raise closed(failure)  # the frames below hold the URL


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
        raise ConfigurationError(f"the login at an HTTP proxy has no ':' in it: {masked(url)!r}")
    if kind == "socks5" and any(len((text or "").encode()) > 255 for text in (login, passcode)):
        raise ConfigurationError(f"login and passcode at a SOCKS5 proxy have 255 bytes at most: {masked(url)!r}")
    return Proxy(kind, match["host"].strip("[]").replace("%25", "%"), port, login, passcode)


def _decoded(text: str | None, url: str) -> str | None:
    if text is None:
        return None
    value = unquote_to_bytes(text).decode("utf-8", "replace")
    if "\ufffd" in value or re.search("%(?![0-9A-Fa-f]{2})", text) or re.search("[\r\n\0]", value):
        raise ConfigurationError(f"login or passcode at the proxy is not percent-encoded UTF-8: {masked(url)!r}")
    return value


class ProxyDialer:
    """Connects to a host and port through a proxy.

    Args:
        proxy: the way.
        host: of the broker; a name is resolved by the proxy.
        port: of the broker.
        options: of the connection to the proxy.
    """

    def __init__(self, proxy: Proxy, host: str, port: int, *, options: TcpOptions = DEFAULT_OPTIONS) -> None:
        self._proxy = proxy
        self._host = host
        self._port = port
        self._dialer = TcpDialer(proxy.host, proxy.port, options=options)

    @property
    def address(self) -> str:
        """Host and port of the broker."""
        return host_port(self._host, self._port)

    @property
    def host(self) -> str:
        """The broker's host as it was given."""
        return self._host

    def dial(self, deadline: Deadline) -> TcpTransport:
        """Return a new connection to the broker.

        Raises:
            ConfigurationError: the broker's host cannot be told to a proxy.
            ProxyError: the proxy cannot be reached, refused, or is none; `ProxyLoginRefused` is one of them.
            ConnectTimeout: the deadline passed first.
        """
        try:
            transport = self._dialer.dial(deadline)
        except ConnectTimeout as error:
            raise ConnectTimeout(f"the proxy {self._proxy} cannot be reached: {error}", address=self.address) from error
        except ConnectError as error:
            raise self._error(f"cannot be reached: {error}") from error
        try:
            self._ask(transport, deadline)
        except BaseException:
            transport.close()
            raise
        return transport

    def _ask(self, transport: TcpTransport, deadline: Deadline) -> None:
        proxy, answer = self._proxy, Answer(transport, str(self._proxy), self.address, deadline)
        ask = ask_http if proxy.kind == "http" else ask_socks
        try:
            ask(answer, self._host, self._port, login=proxy.login, passcode=hidden(proxy.passcode))
        except (StompTimeout, SendTimeout) as error:
            message = f"the proxy {proxy} did not connect us in time"
            raise ConnectTimeout(message, address=self.address) from error
        except ConnectionLost as error:
            raise self._error(f"broke off: {error}") from error
        answer.finish()

    def _error(self, what: str) -> ProxyError:
        return ProxyError(f"the proxy {self._proxy} {what}", proxy=str(self._proxy), address=self.address)

    def __repr__(self) -> str:
        return f"<ProxyDialer {self.address} by {self._proxy}>"
