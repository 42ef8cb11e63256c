"""Error messages for the operating system's errors, and detection of a peer that speaks another protocol."""

from __future__ import annotations

import errno

from stompy.world import socket

_MESSAGES = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the peer",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "the peer accepts no more bytes",
    errno.ENOTCONN: "the connection is closed",
    errno.ETIMEDOUT: "the network timed out waiting for the peer",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRINUSE: "the address is already in use",
    errno.EADDRNOTAVAIL: "the address does not exist on this machine",
    errno.EACCES: "permission denied",
    errno.EMFILE: "too many open files in this process",
    errno.ENFILE: "too many open files on this machine",
    errno.EAFNOSUPPORT: "this machine does not support that address family",
}

_NAME_NOT_FOUND = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
}


def describe_os_error(error: OSError) -> str:
    """Return an error message without error numbers, e.g. `connection refused`."""
    message = _MESSAGES.get(error.errno) if error.errno is not None else None
    return message or error.strerror or str(error) or type(error).__name__


def describe_lookup_error(error: OSError, *, host: str) -> str:
    """Return an error message for a failed name lookup, e.g. `host name not found: example.invalid`."""
    if isinstance(error, socket.gaierror):
        if error.errno in _NAME_NOT_FOUND:
            return f"host name not found: {host}"
        if error.errno == socket.EAI_AGAIN:
            return f"the name service gave no answer for {host}; it may do so later"
    return f"host name lookup failed for {host}: {describe_os_error(error)}"


GREETING_SIZE = 16
"""The number of bytes that `detect_protocol` needs."""

_PREFIXES = (
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
"""WIREFORMAT_INFO and its magic; the size of the command may come before it."""
_MQTT_ANSWERS = (0x20, 0xE0)
"""CONNACK and DISCONNECT; the second byte is the number of bytes that follow."""


def detect_protocol(start: bytes) -> str | None:
    """Return the protocol of a peer by its first bytes, or `None` if it is unknown.

    Args:
        start: the first bytes of the peer, `GREETING_SIZE` of them if there are so many.
    """
    for prefix, protocol in _PREFIXES:
        if start.startswith(prefix):
            return protocol
    if start.startswith(_OPENWIRE) or start[4:].startswith(_OPENWIRE):
        return "OpenWire"
    if len(start) >= 2 and start[0] in _MQTT_ANSWERS and start[1] == len(start) - 2:
        return "MQTT"
    return None
