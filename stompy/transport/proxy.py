"""Connect through a proxy: HTTP CONNECT or SOCKS5.

The proxy resolves the host name of the broker. The connection to the proxy itself is not encrypted; TLS to the broker
passes through it end to end.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_to_bytes

from stompy.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionLostError,
    ConnectTimeoutError,
    ProxyError,
    SendTimeoutError,
    StompTimeoutError,
)
from stompy.secret import Secret, as_secret, check_text, without_traceback
from stompy.transport.address import host_port, masked
from stompy.transport.proxy_handshake import ProxyStream, http_connect, socks5_connect
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
        self._host = host
        self._port = port
        self._dialer = TcpDialer(proxy.host, proxy.port, options=options)

    @property
    def address(self) -> str:
        """The host and the port of the broker."""
        return host_port(self._host, self._port)

    @property
    def host(self) -> str:
        """The host of the broker as given."""
        return self._host

    def dial(self, deadline: Deadline) -> TcpTransport:
        """Return a new connection to the broker.

        Raises:
            ConfigurationError: the host of the broker cannot be encoded in a request to a proxy.
            ProxyError: the proxy cannot be reached, refused, or is not a proxy; `ProxyLoginRefusedError` if it refused
                the login.
            ConnectTimeoutError: the deadline passed first.
        """
        try:
            transport = self._dialer.dial(deadline)
        except ConnectTimeoutError as error:
            raise ConnectTimeoutError(
                f"the proxy {self._proxy} cannot be reached: {error}", address=self.address
            ) from error
        except ConnectError as error:
            raise self._error(f"cannot be reached: {error}") from error
        try:
            self._request(transport, deadline)
        except BaseException:
            transport.close()
            raise
        return transport

    def _request(self, transport: TcpTransport, deadline: Deadline) -> None:
        proxy, stream = self._proxy, ProxyStream(transport, str(self._proxy), self.address, deadline)
        connect = http_connect if proxy.kind == "http" else socks5_connect
        try:
            connect(stream, self._host, self._port, login=proxy.login, passcode=as_secret(proxy.passcode))
        except (StompTimeoutError, SendTimeoutError) as error:
            message = f"the proxy {proxy} did not connect to the broker in time"
            raise ConnectTimeoutError(message, address=self.address) from error
        except ConnectionLostError as error:
            raise self._error(f"closed the connection: {error}") from error
        stream.check_end()

    def _error(self, what: str) -> ProxyError:
        return ProxyError(f"the proxy {self._proxy} {what}", proxy=str(self._proxy), address=self.address)

    def __repr__(self) -> str:
        return f"<ProxyDialer {self.address} through {self._proxy}>"
