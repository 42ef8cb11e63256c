"""URLs of brokers: `stomp://[login[:passcode]@]host[:port][/vhost][?name=value&...]`.

`stomp+ssl://` is the same over TLS; `stomp+unix://[login[:passcode]@]/path/of/the/socket` connects to a Unix socket.
`ws://[login[:passcode]@]host[:port][/path][?query]` connects by WebSocket, and `wss://` by WebSocket over TLS.

Percent-encoded bytes are decoded as UTF-8, and `+` stays `+`. In the login and the passcode, `@ : / ? #` and `%` have
to be written `%40 %3A %2F %3F %23 %25`.

Errors show the URL without its passcode. As it is unclear where the passcode of a malformed URL ends, they may hide
more than the passcode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from stompy.errors import ConfigurationError

DEFAULT_PORT = 61613
DEFAULT_TLS_PORT = 61614
PLAIN, TLS, UNIX, WS, WSS = "stomp", "stomp+ssl", "stomp+unix", "ws", "wss"
_DEFAULT_PORTS = {PLAIN: DEFAULT_PORT, TLS: DEFAULT_TLS_PORT, WS: 80, WSS: 443}
# The documentation of brokers uses the names of their connectors (ActiveMQ's nio) in clients' addresses.
_CANONICAL = {
    "stomp": PLAIN,
    "stomp+nio": PLAIN,
    "stomp+ssl": TLS,
    "stomps": TLS,
    "stomp+tls": TLS,
    "stomp+nio+ssl": TLS,
    "stomp+unix": UNIX,
    "ws": WS,
    "wss": WSS,
}
_SCHEME = r"[A-Za-z][A-Za-z0-9+.\-]*"
# Patterns as text: most programs need few of them, and `re` keeps those that are used.
_NEXT_URL = rf",(?={_SCHEME}:(?://|\())"
_KNOWN_PREFIX = "(?i:" + "|".join(map(re.escape, (*_CANONICAL, "failover"))) + ")://"
_SECRET_OPTION = "(?i)[?&][^=&]*(?:pass|pwd|secret|token)[^=&]*="  # noqa: S105 - a pattern
# `stomp://user:secret`, without a host, has the passcode in place of the port.
_MISSING_HOST = rf"(?is)\A(?!failover:)((?:{_SCHEME}://)?[^:/?#\[]*:)(?!//|[0-9]+(?:[/?#]|\Z)|\Z).*"
_BAD_PERCENT = "%(?![0-9A-Fa-f]{2})"
_PORT = "[0-9]{1,5}"
_NOT_IN_A_HOST = r"[\[\]%\\<>\"^`{|}]"
_ENDS_A_HEADER = "[\r\n\0]"


class Address(NamedTuple):
    """The address of one broker.

    Attributes:
        scheme: `stomp`, `stomp+ssl`, `stomp+unix`, `ws` or `wss`; aliases are replaced.
        host: a host name, or an IP address without brackets; empty for a Unix socket.
        port: 1 to 65535; 0 for a Unix socket.
        login: decoded; `None` if the URL has none.
        passcode: decoded; `None` if the URL has none. Never in `repr` or `str`.
        path: decoded, with its leading slash; `None` if the URL has none. The path of a Unix socket. For a WebSocket,
            as in the URL.
        query: for a WebSocket, as in the URL; `None` if it has none. Not in `repr`, as it may contain a token.
        options: the decoded pairs of the query, in order, for the caller to interpret. Not in `repr`, as it could show
            a mistaken `?passcode=`.
    """

    scheme: str
    host: str
    port: int = DEFAULT_PORT
    login: str | None = None
    passcode: str | None = None
    path: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    query: str | None = None

    @property
    def secure(self) -> bool:
        """Whether the connection uses TLS."""
        return self.scheme in (TLS, WSS)

    @property
    def vhost(self) -> str | None:
        """The virtual host in the path, e.g. `/` for `stomp://h/%2F`; `None` if the path is missing or only a slash."""
        return self.path[1:] or None if self.path and self.scheme in (PLAIN, TLS) else None

    @property
    def target(self) -> str:
        """Path and query of a WebSocket, for the HTTP request."""
        return (self.path or "/") + ("" if self.query is None else f"?{self.query}")

    @property
    def authority(self) -> str:
        """Host and port of a WebSocket, for the HTTP request; without the port where it is the usual one."""
        host = host_port(self.host.partition("%")[0].encode("idna").decode("ascii"), self.port)
        return host.rpartition(":")[0] if self.port == _DEFAULT_PORTS[self.scheme] else host

    def __repr__(self) -> str:
        return f"<Address {self} login={self.login!r}>"

    def __str__(self) -> str:
        """Return the URL without login, passcode, options and query."""
        if self.scheme == UNIX:
            return unix_url(self.path or "")
        path = self.path or ""
        if path and self.scheme in (PLAIN, TLS):
            from urllib.parse import quote  # late, as `urllib` is slow to import

            path = "/" + quote(path[1:], safe="")
        # An IPv6 zone is written after %25 in a URL (RFC 6874).
        return f"{self.scheme}://{host_port(self.host.replace('%', '%25'), self.port)}{path}"


def host_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unix_url(path: str) -> str:
    """Return the URL of a Unix socket."""
    from urllib.parse import quote  # late, as `urllib` is slow to import

    return f"{UNIX}://{quote(path)}"


def parse_addresses(url: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses in `url`, at least one, in order.

    Args:
        url: a URL, several URLs separated by commas, or a sequence of these.

    Raises:
        ConfigurationError: a URL is malformed or has an unknown scheme, or there is none.
    """
    urls = _texts(url)
    if not urls:
        raise ConfigurationError("no broker address was given")
    return tuple(_parse(part) for text in urls for part in _split(text))


def masked(url: str) -> str:
    """Return `url`, which may be malformed, with everything that may be a passcode replaced by `***`."""
    prefix = re.match(_KNOWN_PREFIX, url)
    start = prefix.end() if prefix else 0
    if re.search(_SECRET_OPTION, url):
        return url[:start] + "***"
    before, at, after = url.rpartition("@")
    if at:
        login, colon, _ = before[start:].partition(":")
        return before[:start] + login + (":***@" if colon else "@") + after
    return re.sub(_MISSING_HOST, r"\1***", url)


def _texts(given: object) -> list[str]:
    """Return the URLs as a list of text; the caller may have passed anything."""
    urls = given if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]
    for item in urls:
        if not isinstance(item, str):
            raise ConfigurationError(
                f"url must be text like 'stomp://localhost:61613', or a list of such, not {type(item).__name__}"
            )
    return list(urls)


def _refuse(reason: str, url: str) -> NoReturn:
    raise ConfigurationError(f"{reason}: {masked(url)!r}")


def _split(text: str) -> list[str]:
    if text.lower().startswith("failover:"):
        return [text]
    # Only a comma before another URL is a separator: others belong to a passcode or a virtual host.
    return re.split(_NEXT_URL, text)


def _parse(url: str) -> Address:
    if not url:
        raise ConfigurationError("a broker address is empty; write it as 'stomp://localhost:61613'")
    if any(character == " " or not character.isprintable() for character in url):
        _refuse("a broker address has no spaces or control characters", url)
    scheme = _scheme(url)
    authority, path, query, fragment = _split_url(url)
    if fragment is not None:
        _refuse("a broker address has no fragment (a '#' in a passcode is written %23)", url)
    if "@" in (path or "") or "@" in (query or ""):
        _refuse("'@' after the host is written %40 (and a '/' or '?' in a passcode %2F or %3F)", url)
    login, passcode, location = _user_info(authority, url)
    if scheme == UNIX:
        path = _socket_path(location, path, url)
        return Address(scheme, "", 0, login, passcode, path, _options(query, url))
    host, port = _host_and_port(location, url, _DEFAULT_PORTS[scheme])
    if scheme in (WS, WSS):
        _check_target(path, query, url)
        return Address(scheme, host, port, login, passcode, path, query=query)
    path = None if path is None else _header_value(path, "virtual host", url)
    return Address(scheme, host, port, login, passcode, path, _options(query, url))


def _scheme(url: str) -> str:
    lower = url.lower()
    if lower.startswith(("failover://", "failover:(")):
        _refuse("a failover address has to stand alone, and cannot be given where one broker is meant", url)
    written, separator, _ = lower.partition("://")
    if separator and written in _CANONICAL:
        return _CANONICAL[written]
    if re.match(rf"{_SCHEME}://", url):
        _refuse("unknown scheme of a broker address (known are stomp, stomp+ssl, stomp+unix, ws and wss)", url)
    if re.match(r"stomp:(?![0-9]+(?:[/?#]|\Z))", lower):
        _refuse("two slashes are missing after 'stomp:' in a broker address", url)
    _refuse(f"a broker address begins with its scheme; did you mean {'stomp://' + masked(url).lstrip('/')!r}", url)


def _split_url(url: str) -> tuple[str, str | None, str | None, str | None]:
    """Split what follows `scheme://` into authority, path with its slash, query and fragment, still encoded."""
    rest, hash_mark, fragment = url.partition("://")[2].partition("#")
    rest, question_mark, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    return authority, slash + path or None, query if question_mark else None, fragment if hash_mark else None


def _user_info(authority: str, url: str) -> tuple[str | None, str | None, str]:
    """Split `login:passcode@host:port` into decoded login, decoded passcode and the rest."""
    user_info, at, location = authority.rpartition("@")
    if not at:
        return None, None, location
    if "@" in user_info:
        _refuse("'@' in a login or passcode is written %40", url)
    name, colon, secret = user_info.partition(":")
    login = _header_value(name, "login", url)
    return login, _header_value(secret, "passcode", url) if colon else None, location


def _socket_path(location: str, path: str | None, url: str) -> str:
    if location:
        _refuse("the address of a Unix socket has three slashes, and no host: stomp+unix:///run/broker.sock", url)
    decoded = _decoded(path or "", "path", url)
    if not decoded.strip("/"):
        _refuse("the address of a Unix socket has no path: stomp+unix:///run/broker.sock", url)
    if "\0" in decoded:
        _refuse("the path of a Unix socket has a NUL in it", url)
    return decoded


def _check_target(path: str | None, query: str | None, url: str) -> None:
    for what, text in (("path", path), ("query", query)):
        _decoded(text or "", what, url)
        if not (text or "").isascii():
            _refuse(f"the {what} of a WebSocket address is percent-encoded", url)


def _host_and_port(location: str, url: str, default: int) -> tuple[str, int]:
    if location.startswith("["):
        host, bracket, tail = location[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            _refuse("an IPv6 address is written in brackets: stomp://[::1]:61613", url)
        import ipaddress  # late, as few addresses have a number

        host = _decoded(host, "host name", url)
        if not _is_accepted(ipaddress.IPv6Address, host):
            _refuse("not an IPv6 address in the brackets of a broker address", url)
        return host, _port_number(tail[1:], url) if tail else default
    host, colon, port = location.partition(":")
    if ":" in port:
        _refuse("more than one ':' in host and port (an IPv6 address is written in brackets: stomp://[::1]:61613)", url)
    return _host_name(host, url), _port_number(port, url) if colon else default


def _host_name(host: str, url: str) -> str:
    if not host:
        _refuse("a broker address has no host name", url)
    if "," in host:
        _refuse("several broker addresses are written in full each: stomp://a:61613,stomp://b:61613", url)
    if re.search(_NOT_IN_A_HOST, host) or not _is_accepted(str.encode, host, "idna"):
        _refuse("not a valid host name (a forbidden character, or an empty or too long part)", url)
    return host


def _is_accepted(function: Callable[..., object], *arguments: str) -> bool:
    try:
        function(*arguments)
    except ValueError:
        return False
    return True


def _port_number(text: str, url: str) -> int:
    # int() alone would accept non-ASCII digits, signs and underscores.
    if not re.fullmatch(_PORT, text) or not 1 <= int(text) <= 65535:
        _refuse("the port of a broker address is a number from 1 to 65535", url)
    return int(text)


def _options(query: str | None, url: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        if not name:
            _refuse("an option of a broker address has no name", url)
        pairs.append((_decoded(name, "option", url), _decoded(value, "option", url)))
    return tuple(pairs)


def _header_value(text: str, what: str, url: str) -> str:
    """Return a decoded value for a CONNECT header, which is not escaped and so cannot contain a line end."""
    value = _decoded(text, what, url)
    if re.search(_ENDS_A_HEADER, value):
        _refuse(f"the {what} of a broker address has a line end or NUL in it", url)
    return value


def _decoded(text: str, what: str, url: str) -> str:
    if re.search(_BAD_PERCENT, text):
        _refuse(
            f"'%' in the {what} of a broker address needs two hex digits after it (a plain '%' is written %25)", url
        )
    # Not in an except block: the UnicodeDecodeError, which holds the bytes, would be the context of the error raised.
    value = text
    if "%" in text:
        from urllib.parse import unquote_to_bytes  # late, as `urllib` is slow to import

        value = unquote_to_bytes(text).decode("utf-8", "surrogateescape")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        _refuse(f"the {what} of a broker address is not UTF-8 after percent-decoding", url)
    return value
