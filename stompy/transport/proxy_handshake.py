"""Ask a proxy for a connection to the broker: HTTP CONNECT and SOCKS5."""

from __future__ import annotations

import base64
import ipaddress
import re
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError, ProxyError, ProxyLoginRefused
from stompy.secret import Secret, closed, revealed
from stompy.transport.address import host_port

if TYPE_CHECKING:
    from stompy.deadline import Deadline
    from stompy.transport.base import Transport


class Answer:
    """A conversation with a proxy.

    Args:
        transport: to the proxy.
        proxy: its address without credentials, for messages.
        address: of the broker, for messages.
        deadline: of it all.
    """

    def __init__(self, transport: Transport, proxy: str, address: str, deadline: Deadline) -> None:
        self._transport = transport
        self._proxy = proxy
        self._address = address
        self._deadline = deadline
        self._buffer = b""

    def say(self, octets: bytes) -> None:
        """Send to the proxy; raises as `Transport.sendall` does."""
        self._transport.sendall(octets, self._deadline)

    def say_secretly(self, octets: Secret[bytes]) -> None:
        """Send what no traceback may show; raises as `say` does."""
        try:
            self._transport.sendall(octets.reveal(), self._deadline)
            return
        except BaseException as error:
            failure = error
        raise closed(failure)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; raises as `Transport.recv` does, and `ProxyError` at the end."""
        while len(self._buffer) < size:
            self._more()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def take_until(self, end: bytes, *, most: int) -> bytes:
        """Return what comes up to and with `end`; raises as `take` does, also if it is longer than `most`."""
        while (place := self._buffer.find(end)) < 0:
            if len(self._buffer) > most:
                raise self.error("sent an answer without an end")
            self._more()
        return self.take(place + len(end))

    def _more(self) -> None:
        received = self._transport.recv(self._deadline)
        if not received:
            raise self.error("closed the connection instead of answering")
        self._buffer += received

    def finish(self) -> None:
        """Make sure that nothing follows: neither STOMP nor TLS lets a broker speak first."""
        if self._buffer:
            raise self.error("sent more than its answer")

    def error(self, what: str) -> ProxyError:
        """Return an error that says what the proxy did."""
        return ProxyError(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)

    def login_refused(self, what: str) -> ProxyLoginRefused:
        """Return an error that says that the proxy does not know us."""
        return ProxyLoginRefused(f"the proxy {self._proxy} {what}", proxy=self._proxy, address=self._address)


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
    6: "lost the way to the broker: its time ran out",
    7: "does not know how to connect",
    8: "does not know that kind of address",
}


def ask_socks(answer: Answer, host: str, port: int, *, login: str | None, passcode: Secret[str] | None) -> None:
    """Have the proxy connect us to `host` and `port`.

    Raises:
        ConfigurationError: the host cannot be told to a proxy.
        ProxyError: it does not.
    """
    target = _target(host)
    methods = bytes([_NO_LOGIN] if login is None else [_NO_LOGIN, _LOGIN])
    answer.say(bytes([_VERSION, len(methods)]) + methods)
    version, method = answer.take(2)
    if version != _VERSION:
        raise answer.error(f"does not speak SOCKS5: it began with byte {version}")
    if method == _LOGIN and login is not None:
        _log_in(answer, login.encode(), Secret((revealed(passcode) or "").encode()))
    elif method == _NO_METHOD:
        raise answer.login_refused("takes no login of ours" if login else "wants a login and a passcode")
    elif method != _NO_LOGIN:
        raise answer.error(f"wants a way of logging in that was not offered ({method})")
    answer.say(bytes([_VERSION, _CONNECT, _RESERVED]) + target + port.to_bytes(2, "big"))
    _take_reply(answer)


def _target(host: str) -> bytes:
    name = ascii_host(host)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        octets = name.encode("ascii")
        return bytes([_NAME, len(octets)]) + octets
    return bytes([_IPV4 if address.version == 4 else _IPV6]) + address.packed


def _log_in(answer: Answer, login: bytes, passcode: Secret[bytes]) -> None:
    known = bytes([_LOGIN_VERSION, len(login)]) + login + bytes([len(passcode.reveal())])
    answer.say_secretly(Secret(known + passcode.reveal()))
    _, status = answer.take(2)
    if status:
        raise answer.login_refused("does not take our login and passcode")


def _take_reply(answer: Answer) -> None:
    version, reply, _, kind = answer.take(4)
    if version != _VERSION:
        raise answer.error(f"does not speak SOCKS5: it answered with byte {version}")
    if reply:
        raise answer.error(_REFUSALS.get(reply, f"refused for a reason that SOCKS5 does not have ({reply})"))
    # The address that the proxy dials from, which is of no use here.
    length = {_IPV4: 4, _IPV6: 16}.get(kind) or (answer.take(1)[0] if kind == _NAME else None)
    if length is None:
        raise answer.error(f"answered with an unknown kind of address ({kind})")
    answer.take(length + 2)
