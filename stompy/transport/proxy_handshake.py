"""Request a connection from a proxy: HTTP CONNECT (RFC 9110, 9.3.6; RFC 7617) and SOCKS5 (RFC 1928, RFC 1929)."""

from __future__ import annotations

import base64
import ipaddress
import re
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError, ProxyError, ProxyLoginRefusedError
from stompy.secret import Secret, revealed, without_traceback
from stompy.transport.address import host_port

if TYPE_CHECKING:
    from stompy.deadline import Deadline
    from stompy.transport.base import Transport


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

    def send(self, data: bytes) -> None:
        """Send bytes to the proxy; raises the errors of `Transport.sendall`."""
        self._transport.sendall(data, self._deadline)

    def send_secret(self, data: Secret[bytes]) -> None:
        """Send bytes that no traceback may show; raises the errors of `send`."""
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
    stream.send_secret(_request(host, port, login, passcode))
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
    stream.send(bytes([_VERSION, len(methods)]) + methods)
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
    stream.send(bytes([_VERSION, _CONNECT, _RESERVED]) + target + port.to_bytes(2, "big"))
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
    stream.send_secret(Secret(prefix + passcode.reveal()))
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
