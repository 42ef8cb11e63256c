"""Ports for brokers that must come back where they were."""

from __future__ import annotations

import contextlib
import random
import socket

_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Below what the kernel gives to clients, so that nobody takes the port while the broker is down."""


def free_port() -> int:
    """Return a port of this machine on which nobody listens, and which the kernel gives to nobody by itself."""
    while True:
        port = random.randint(_FIRST_PORT, _LAST_PORT)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock, contextlib.suppress(OSError):
            sock.bind(("0.0.0.0", port))
            return port
