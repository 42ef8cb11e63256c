"""What an operating-system error means, in plain words."""

from __future__ import annotations

import errno
import socket

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
