"""Ports that the system gives to no other program while a test needs them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Return a port that refuses connections until a server is started on it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that the server may bind it too
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
