"""The two directions of a proxied connection: the faults of each, and the bytes in flight.

`ProxyDirection` is used by the proxy's thread alone; only its counters are read by others.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from stompy.errors import ConfigurationError
from stompy.world import socket

Direction: TypeAlias = Literal["up", "down"]
"""`"up"` is from the client to the broker."""

Which: TypeAlias = Literal["up", "down", "both"]

Ending: TypeAlias = Literal["fin", "rst"]
"""How a connection ends: closed in order, or reset."""

DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


HELD = 65_536
"""Maximum bytes that a direction buffers; then it stops reading, so that the sender's TCP window fills up."""

_SLICE = 0.01
"""Seconds of a throttled direction's bytes that go out in one write."""

_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


@dataclass(frozen=True, slots=True)
class DirectionFaults:
    """The faults of one direction.

    Attributes:
        stalled: nothing is read or forwarded.
        chop: the most bytes that go out in one write; 0 for no limit.
        rate: bytes per second.
        latency: seconds that each byte is held.
        cut_after: bytes until the connection ends, counted from when it was set; `None` for never.
        ending: how it ends then.
    """

    stalled: bool = False
    chop: int = 0
    rate: float = math.inf
    latency: float = 0.0
    cut_after: int | None = None
    ending: Ending = "fin"


class FaultControls:
    """Sets faults, from any thread; when a call returns, it has taken effect."""

    def stall(self, direction: Which = "both") -> None:
        """Stop forwarding and reading, so that the sender's TCP window fills up and its writes block."""
        self._set(direction, stalled=True)

    def resume(self, direction: Which = "both") -> None:
        """Resume after `stall`."""
        self._set(direction, stalled=False)

    def chop(self, count: int = 1, *, direction: Which = "both") -> None:
        """Forward at most so many bytes in one write; 0 for no limit.

        Raises:
            ConfigurationError: a negative number.
        """
        _check("count", count, count >= 0)
        self._set(direction, chop=count)

    def throttle(self, rate: float, *, direction: Which = "both") -> None:
        """Forward `rate` bytes per second; `math.inf` for no limit.

        Raises:
            ConfigurationError: not a positive number.
        """
        _check("rate", rate, rate > 0)
        self._set(direction, rate=rate)

    def delay(self, seconds: float, *, direction: Which = "both") -> None:
        """Forward each byte that arrives from now on with a delay in seconds; 0 for none.

        Of each direction 64 KiB are on their way at most.

        Raises:
            ConfigurationError: not a finite number of 0 or more.
        """
        _check("seconds", seconds, 0 <= seconds < math.inf)
        self._set(direction, latency=seconds)

    def cut_after(self, count: int, *, direction: Which, ending: Ending = "fin") -> None:
        """Forward exactly so many bytes from now on, then end the connection both ways.

        Each connection counts for itself, and each direction too. With `"rst"` the peer loses those of the bytes that
        did not fit its TCP window.

        Raises:
            ConfigurationError: a negative number, or no such ending.
        """
        _check("count", count, count >= 0)
        check_ending(ending)
        self._set(direction, cut_after=count, ending=ending)

    def heal(self) -> None:
        """End all of these faults."""
        none = DirectionFaults()
        self._set("both", **{name: getattr(none, name) for name in DirectionFaults.__slots__})

    def _set(self, direction: Which, **changes: Any) -> None:
        if direction not in (*DIRECTIONS, "both"):
            raise ConfigurationError(f"a direction is 'up', 'down' or 'both', not {direction!r}")
        self._change(DIRECTIONS if direction == "both" else (direction,), changes)

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Apply changes of `DirectionFaults`; overridden."""
        raise NotImplementedError


def check_ending(ending: str) -> None:
    """Raise `ConfigurationError` unless `ending` is one."""
    _check("ending", ending, ending in ("fin", "rst"))


def _check(name: str, value: object, holds: bool) -> None:
    if not holds:
        raise ConfigurationError(f"{name} cannot be {value!r}")


class ProxyDirection:
    """Moves bytes from one socket to another.

    Args:
        source: non-blocking.
        sink: non-blocking.
        faults: what is wrong from the start.
        record: bytes to remember of what was forwarded, the first ones.
    """

    def __init__(self, source: socket.socket, sink: socket.socket, *, faults: DirectionFaults, record: int) -> None:
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
        """Whether bytes, or the end of the stream, may be written now."""
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
        """Whether all bytes that may be forwarded were forwarded."""
        return self._left() == 0

    def read(self, now: float) -> None:
        """Read from the source.

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
        """Write the bytes that are due to the sink, in one write, and the end of the stream after the last ones.

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

    def _note(self, data: memoryview, now: float) -> None:
        self.recorded += data[: self._record - len(self.recorded)]
        self.forwarded += len(data)
        self._held -= len(data)
        if self.faults.rate < math.inf:
            self._next_write = max(now, self._next_write) + len(data) / self.faults.rate

    def _left(self) -> int | None:
        if self.faults.cut_after is None:
            return None
        return max(0, self._counted_from + self.faults.cut_after - self.forwarded)
