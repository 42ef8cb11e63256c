"""One direction of a proxied connection. Used by the proxy's thread alone; only the counters are read by others."""

from __future__ import annotations

import math
import socket
from collections import deque
from dataclasses import replace
from typing import Any

from stompy.testing.switches import LaneFaults

HELD = 65_536
"""Octets that a direction holds; with so many it does not read, so that the sender's TCP window fills up."""

_SLICE = 0.01
"""Seconds of a throttled direction's octets that go out in one write."""

_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class Lane:
    """Takes octets from one socket and gives them to another.

    Args:
        source: non-blocking.
        sink: non-blocking.
        faults: what is wrong from the start.
        record: octets to remember of what was forwarded, the first ones.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, *, faults: LaneFaults, record: int) -> None:
        self.source = source
        self.sink = sink
        self.faults = faults
        self.forwarded = 0
        self.recorded = bytearray()
        self.source_ended = False
        self.finished = False
        """Whether the end of the source's stream was passed on."""
        self._record = record
        self._chunks: deque[tuple[float, memoryview]] = deque()
        self._held = 0
        self._next_write = -math.inf
        self._counted_from = 0

    def change(self, changes: dict[str, Any]) -> None:
        """Set faults."""
        self.faults = replace(self.faults, **changes)
        if "cut_after" in changes:
            self._counted_from = self.forwarded
        if "rate" in changes:
            self._next_write = -math.inf

    @property
    def wants_to_read(self) -> bool:
        """Whether the source may be read."""
        return not self.faults.stalled and not self.source_ended and self._held < HELD

    def wants_to_write(self, now: float) -> bool:
        """Whether something, if only the end of the stream, may go out now."""
        due = self.due()
        return due is not None and due <= now

    def due(self) -> float | None:
        """Return when the next write may be done; `None` if there is nothing to write, or a stall."""
        if self.faults.stalled or self.finished:
            return None
        if self._chunks:
            return max(self._chunks[0][0], self._next_write)
        return -math.inf if self.source_ended else None

    @property
    def is_cut(self) -> bool:
        """Whether all octets passed that may."""
        return self._left() == 0

    def read(self, now: float) -> None:
        """Take what the source has.

        Raises:
            OSError: the source is broken; `BlockingIOError` if it has nothing yet.
        """
        data = self.source.recv(HELD - self._held)
        if data:
            self._chunks.append((now + self.faults.latency, memoryview(data)))
            self._held += len(data)
        else:
            self.source_ended = True

    def write(self, now: float) -> None:
        """Give the sink what is due, in one write, or the end of the stream after everything.

        Raises:
            OSError: the sink is broken; `BlockingIOError` if its window is full.
        """
        if not self._chunks:
            self.sink.shutdown(socket.SHUT_WR)
            self.finished = True
            return
        due, chunk = self._chunks[0]
        sent = self.sink.send(chunk[: self._portion(len(chunk))], _NO_SIGNAL)
        self._note(chunk[:sent], now)
        if sent == len(chunk):
            self._chunks.popleft()
        else:
            self._chunks[0] = (due, chunk[sent:])

    def _portion(self, size: int) -> int:
        limits = [size]
        if self.faults.chop:
            limits.append(self.faults.chop)
        if self.faults.rate < math.inf:
            limits.append(max(1, int(self.faults.rate * _SLICE)))
        left = self._left()
        if left is not None:
            limits.append(left)
        return min(limits)

    def _note(self, octets: memoryview, now: float) -> None:
        self.recorded += octets[: self._record - len(self.recorded)]
        self.forwarded += len(octets)
        self._held -= len(octets)
        if self.faults.rate < math.inf:
            self._next_write = max(now, self._next_write) + len(octets) / self.faults.rate

    def _left(self) -> int | None:
        if self.faults.cut_after is None:
            return None
        return max(0, self._counted_from + self.faults.cut_after - self.forwarded)
