"""A listening socket in the place of a broker, raw clients, and a look at the descriptors."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.stacks import gave_up
from tests.testing.toys import Toy

WITHIN = 20.0
"""Seconds after which a test that waits for something has failed."""

_DESCRIPTORS = Path("/proc/self/fd")


class Upstream:
    """Where the proxy dials to; one thread does everything."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WITHIN)
        self.address: tuple[str, int] = self.listener.getsockname()
        self._accepted: list[socket.socket] = []

    def accept(self) -> socket.socket:
        """Return the next connection."""
        sock, _ = self.listener.accept()
        sock.settimeout(WITHIN)
        self._accepted.append(sock)
        return sock

    def close(self) -> None:
        for sock in (self.listener, *self._accepted):
            sock.close()


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def dial() -> Iterator[Callable[[int], socket.socket]]:
    """Return a function that connects to a port of this machine."""
    socks: list[socket.socket] = []

    def connect(port: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", port), timeout=WITHIN)
        socks.append(sock)
        return sock

    yield connect
    for sock in socks:
        sock.close()


def read(sock: socket.socket, count: int) -> bytes:
    """Return the next `count` bytes."""
    received = b""
    while len(received) < count:
        data = sock.recv(count - len(received))
        assert data, f"the stream ended after {received!r}"
        received += data
    return received


def rest(sock: socket.socket) -> bytes:
    """Return what comes up to the end of the stream."""
    received = b""
    while data := sock.recv(65_536):
        received += data
    return received


def reset(sock: socket.socket) -> None:
    """Close a socket by a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def fill(sock: socket.socket, *, at_most: int = 256 * 1024 * 1024) -> int:
    """Write until nothing more is taken; return how much was."""
    sock.setblocking(False)
    written, full_since = 0, 0.0
    block = b"x" * 65_536
    while written < at_most:
        try:
            written += sock.send(block)
            full_since = 0.0
        except BlockingIOError:
            # What is on its way may still make room; it counts as full when it has been so for a while.
            full_since = full_since or time.monotonic()
            if time.monotonic() - full_since > 0.2:
                break
            time.sleep(0.005)
    sock.settimeout(WITHIN)
    return written


def descriptors() -> int:
    """Return how many files this process has open; 0 where that is unknown."""
    return len(os.listdir(_DESCRIPTORS)) if _DESCRIPTORS.exists() else 0


def until(holds: Callable[[], object]) -> None:
    """Wait until something is so."""
    give_up = time.monotonic() + WITHIN
    while not holds():
        if time.monotonic() > give_up:
            gave_up("it did not come about")
        time.sleep(0.001)


@pytest.fixture
def no_descriptor_left() -> Iterator[None]:
    """Fail the test that leaves a file open; used before the fixtures that open some."""
    before = descriptors()
    yield
    until(lambda: descriptors() <= before)


@pytest.fixture
def toy() -> Iterator[Callable[..., Toy]]:
    """Return a function that makes a `Toy`."""
    made: list[Toy] = []

    def make(*answers: bytes) -> Toy:
        made.append(Toy(*answers))
        return made[-1]

    yield make
    for each in made:
        each.close()
