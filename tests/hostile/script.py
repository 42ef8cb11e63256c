"""What a hostile end of a stream does, as data, and who does it."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

MIB = 1024 * 1024
WITHIN = 20.0
"""Seconds after which something hangs."""


@dataclass(frozen=True)
class Drip:
    """Say bytes one at a time, with a pause between them, over and over for so long as somebody listens."""

    data: bytes
    pause: float = 0.01


@dataclass(frozen=True)
class Flood:
    """Say the same again and again, until so many bytes have left or nobody listens any more."""

    data: bytes
    total: int
    deaf: bool = False
    """Whether to read nothing meanwhile."""


@dataclass(frozen=True)
class Await:
    """Wait for bytes from the other end."""

    data: bytes


class Ready:
    """Wait until the test says that the victim stands where it shall stand."""


class Fin:
    """End the outgoing direction."""


class Rst:
    """Tear the stream down."""


class Deaf:
    """Read nothing from here on, and keep the stream open."""


Step = bytes | Drip | Flood | Await | Ready | Fin | Rst | Deaf


class Actor(threading.Thread):
    """Plays a script on a socket, then reads to the end of the other's stream and keeps what it read.

    Args:
        sock: owned from here on.
        steps: of the script.
    """

    def __init__(self, sock: socket.socket, steps: tuple[Step, ...]) -> None:
        super().__init__(name="test-actor", daemon=True)
        self._sock = sock
        self._steps = steps
        self._over = threading.Event()
        self.ready = threading.Event()
        self.heard = bytearray()
        self.said = 0

    def run(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.settimeout(0.05)
            if all(self._play(step) for step in self._steps):
                while not self._over.is_set() and self._hear():
                    pass
        self._sock.close()

    def _play(self, step: Step) -> bool:
        """Do one step; return whether the script goes on."""
        if isinstance(step, bytes):
            return self._say(step)
        if isinstance(step, Drip):
            return self._drip(step)
        if isinstance(step, Flood):
            return self._flood(step)
        if isinstance(step, Await):
            while step.data not in self.heard:
                if self._over.is_set() or not self._hear():
                    return False
            return True
        if isinstance(step, Ready):
            return self.ready.wait(WITHIN)
        if isinstance(step, Fin):
            self._sock.shutdown(socket.SHUT_WR)
            return True
        if isinstance(step, Rst):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        self._over.wait(WITHIN)
        return False

    def _drip(self, step: Drip) -> bool:
        while not self._over.is_set():
            for byte in step.data:
                if self._over.wait(step.pause) or not self._say(bytes((byte,))):
                    return False
        return False

    def _flood(self, step: Flood) -> bool:
        block = step.data * max(1, 65_536 // len(step.data))
        end = self.said + step.total
        while self.said < end:
            if not self._say(block, deaf=step.deaf):
                return False
        return True

    def _say(self, data: bytes, *, deaf: bool = False) -> bool:
        """Say bytes, hearing what the other says meanwhile; return whether all of them left."""
        left = memoryview(data)
        while left and not self._over.is_set():
            # What the other says last would be lost when it closes with our bytes unread.
            if not deaf and select.select([self._sock], [], [], 0)[0] and not self._hear():
                return False
            with contextlib.suppress(TimeoutError):
                count = self._sock.send(left[:65_536])
                left = left[count:]
                self.said += count
        return not left

    def _hear(self) -> bool:
        try:
            data = self._sock.recv(65_536)
        except TimeoutError:
            return True
        self.heard += data
        return bool(data)

    def leave(self) -> None:
        """Stop, and wait for the thread."""
        self._over.set()
        self.join(WITHIN)
        assert not self.is_alive()


@contextlib.contextmanager
def bounded(size: int) -> Iterator[None]:
    """Assert that no more than so many bytes of memory are taken at any moment."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before <= size, f"{(peak - before) / MIB:.1f} MiB were taken, {size / MIB:.1f} allowed"
