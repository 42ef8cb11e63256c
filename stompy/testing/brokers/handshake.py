"""One CONNECT over a plain socket, to check whether a broker is ready, and its `server` header.

Not by a connection of stompy, so that a fault of the client under test cannot hide the broker's, nor the other way
round.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass

from stompy.deadline import Deadline
from stompy.world import socket

_PATIENCE = 2.0
"""Seconds for one answer, as a proxy in front of the broker may accept connections before the broker is ready."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The frame that answered.

    Attributes:
        command: `CONNECTED`, or `ERROR`.
        headers: of the frame; the first of a name.
    """

    command: str
    headers: dict[str, str]

    @property
    def server(self) -> str:
        """The `server` header of the broker, such as `ActiveMQ/6.3.1`."""
        return self.headers.get("server", "")


def ask(
    host: str,
    port: int,
    *,
    vhost: str = "/",
    login: str | None = None,
    passcode: str | None = None,
    escape: bool = True,
    tls: ssl.SSLContext | None = None,
) -> Answer | None:
    """Connect, log in and disconnect; return the answer, or `None` if there was none within two seconds.

    Args:
        host: where.
        port: where.
        vhost: the `host` header.
        login: of the user, where there is one.
        passcode: of the user.
        escape: whether the broker unescapes the values of CONNECT, other than STOMP says.
        tls: speak TLS.
    """
    lines = ["CONNECT", "accept-version:1.2", f"host:{vhost}"]
    for name, value in (("login", login), ("passcode", passcode)):
        if value is not None:
            lines.append(f"{name}:{_escaped(value) if escape else value}")
    said = "\n".join([*lines, "", "\0"]).encode()
    received = _exchange(host, port, said, end=b"\0", last=b"DISCONNECT\n\n\0", tls=tls)
    return None if received is None else _parse(received)


def answers_http(host: str, port: int, *, tls: ssl.SSLContext | None = None) -> bool:
    """Return whether an HTTP server answers within two seconds, as for WebSockets."""
    said = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    return (_exchange(host, port, said, end=b"\r\n", last=b"", tls=tls) or b"").startswith(b"HTTP/")


def _exchange(
    host: str, port: int, said: bytes, *, end: bytes, last: bytes, tls: ssl.SSLContext | None
) -> bytes | None:
    deadline = Deadline(_PATIENCE)
    try:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(socket.create_connection((host, port), timeout=_PATIENCE))
            if tls is not None:
                sock = stack.enter_context(tls.wrap_socket(sock, server_hostname=host))
            sock.sendall(said)
            received = _read_until(end, sock, deadline)
            with contextlib.suppress(OSError):  # after an ERROR the broker may have closed already
                sock.sendall(last)
            return received
    except OSError:
        return None


def _read_until(end: bytes, sock: socket.socket, deadline: Deadline) -> bytes | None:
    received = b""
    while end not in received:
        if deadline.expired:
            return None
        sock.settimeout(max(0.001, deadline.remaining() or 0.0))
        chunk = sock.recv(65_536)
        if not chunk:
            return None
        received += chunk
    return received


def _parse(received: bytes) -> Answer:
    command, *lines = received.partition(b"\n\n")[0].decode(errors="replace").replace("\r", "").split("\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name, value)
    return Answer(command, headers)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace(":", "\\c")
