"""HTTP CONNECT: asking a proxy for a tunnel (RFC 9110, 9.3.6), with Basic credentials (RFC 7617)."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError
from stompy.secret import Secret, revealed
from stompy.transport.address import host_port

if TYPE_CHECKING:
    from stompy.transport.proxy_answer import Answer

_MOST = 65_536
"""Bytes of the head of an answer."""

_STATUS = re.compile(r"HTTP/1\.[0-9] ([0-9]{3})(?: ([^\r\n]*))?\r?\n")
_LOGIN_WANTED = 407
_LONGEST_NAME = 253
"""Characters of a host name (RFC 1035); SOCKS5 has room for two more."""


def ask_http(answer: Answer, host: str, port: int, *, login: str | None, passcode: Secret[str] | None) -> None:
    """Have the proxy connect us to `host` and `port`.

    Raises:
        ConfigurationError: the host cannot be written in a request.
        ProxyError: it does not.
    """
    answer.say_secretly(_request(host, port, login, passcode))
    status, reason = 100, ""
    while 100 <= status < 200:  # interim answers
        head = answer.take_until(b"\r\n\r\n", most=_MOST).decode("latin-1")
        found = _STATUS.match(head)
        if found is None:
            raise answer.error(f"does not speak HTTP: {head[:40]!r}")
        status, reason = int(found[1]), found[2] or ""
    if status == _LOGIN_WANTED:
        raise answer.login_refused("does not take our login and passcode" if login else "wants a login and a passcode")
    if not 200 <= status < 300:
        raise answer.error(f"refused: {status} {reason[:100]}".rstrip())


def _request(host: str, port: int, login: str | None, passcode: Secret[str] | None) -> Secret[bytes]:
    target = host_port(ascii_host(host), port)
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode("ascii")
    if login is None:
        return Secret(head + b"\r\n")
    credentials = Secret(base64.b64encode(f"{login}:{revealed(passcode) or ''}".encode()))
    return Secret(head + b"Proxy-Authorization: Basic " + credentials.reveal() + b"\r\n\r\n")


def ascii_host(host: str) -> str:
    """Return a host name as a proxy is told of it.

    Raises:
        ConfigurationError: it cannot be.
    """
    try:
        name = host if ":" in host else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ConfigurationError(f"not a usable host name: {host!r}") from error
    if not name or not name.isascii() or not name.isprintable() or " " in name or len(name) > _LONGEST_NAME:
        raise ConfigurationError(f"not a usable host name: {host!r}")
    return name.partition("%")[0]  # the zone of an IPv6 address is that of this machine
