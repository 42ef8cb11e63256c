"""What an operating-system error means, in plain words."""

from __future__ import annotations

import errno
import socket

GREETING_SIZE = 16
"""How many bytes are enough to tell."""

_BEGINNINGS = (
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"AMQP", "AMQP"),
    (b"HTTP/", "HTTP"),
    (b"GET ", "HTTP"),
    (b"ERROR\n", "STOMP"),
    (b"ERROR\r\n", "STOMP"),
    (b"CONNECT\n", "STOMP"),
    (b"CONNECT\r\n", "STOMP"),
    (b"STOMP\n", "STOMP"),
    (b"STOMP\r\n", "STOMP"),
)
_OPENWIRE = b"\x01ActiveMQ"
"""WIREFORMAT_INFO and its magic; the size of the command may stand before it."""
_MQTT_ANSWERS = (0x20, 0xE0)
"""CONNACK and DISCONNECT; the second byte is the number of those that follow."""


def protocol_of(start: bytes) -> str | None:
    """Return the protocol whose peers begin like this, or `None`.

    Args:
        start: the first bytes of a peer, `GREETING_SIZE` of them where there are so many.
    """
    for beginning, protocol in _BEGINNINGS:
        if start.startswith(beginning):
            return protocol
    if start.startswith(_OPENWIRE) or start[4:].startswith(_OPENWIRE):
        return "OpenWire"
    if len(start) >= 2 and start[0] in _MQTT_ANSWERS and start[1] == len(start) - 2:
        return "MQTT"
    return None


_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the peer",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "the peer takes no more bytes",
    errno.ENOTCONN: "the connection is gone",
    errno.ETIMEDOUT: "the network gave up waiting for the peer",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRINUSE: "the address is already in use",
    errno.EADDRNOTAVAIL: "the address does not exist on this machine",
    errno.EACCES: "permission denied",
    errno.EMFILE: "too many open files in this process",
    errno.ENFILE: "too many open files on this machine",
    errno.EAFNOSUPPORT: "this machine does not speak that address family",
}

_NAME_NOT_FOUND = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
}


def in_words(error: OSError) -> str:
    """Return what happened, without the numbers, e.g. `connection refused`."""
    words = _WORDS.get(error.errno) if error.errno is not None else None
    return words or error.strerror or str(error) or type(error).__name__


def lookup_in_words(error: OSError, *, host: str) -> str:
    """Return why the name `host` has no address, e.g. `host name not found: example.invalid`."""
    if isinstance(error, socket.gaierror):
        if error.errno in _NAME_NOT_FOUND:
            return f"host name not found: {host}"
        if error.errno == socket.EAI_AGAIN:
            return f"the name service gave no answer for {host}; it may later"
    return f"host name lookup failed for {host}: {in_words(error)}"
