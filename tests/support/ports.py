"""Ports that the system gives to no other program while a test needs them."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Return a port that refuses connections until a server is started on it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that the server may bind it too
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def free_port() -> int:
    """Return a free port of this machine, outside the range of the kernel's ephemeral ports."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
            sock.bind(("0.0.0.0", port))
            return port
