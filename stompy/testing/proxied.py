"""One connection through a proxy, and its two directions with their faults.

Methods that are not marked as for tests run on the proxy's thread. `ProxyDirection` is used by that thread alone; other
threads read its counters only.
"""

from __future__ import annotations

import contextlib
import errno
import math
import struct
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from stompy.errors import ConfigurationError
from stompy.testing.faults import RECEIVED, SENT, Cut, Fault, FaultInjector, FaultPlan, FramePiece
from stompy.testing.proxy_loop import READ, WRITE, ProxyEventLoop
from stompy.transport.tcp import Endpoint
from stompy.world import os, socket, time

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

        Each connection counts for itself, and each direction too. With `"rst"` the peer loses the bytes that
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


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Bytes on their way.

    Attributes:
        data: the bytes.
        due: when they may be written.
        releases: more releases of the plan than these let them go at once.
        cut: the fault that ends the connection after them.
    """

    data: memoryview
    due: float
    releases: int
    cut: Cut | None


class ProxyDirection:
    """Moves bytes from one socket to another.

    Args:
        source: non-blocking.
        sink: non-blocking.
        faults: the faults from the start.
        record: how many of the first forwarded bytes to remember.
        injector: applies the frame faults; `None` forwards bytes without looking for frames.

    Attributes:
        forwarded: the number of bytes written to the sink.
        recorded: the first of these bytes.
        finished: whether the end of the source's stream was passed on.
    """

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        *,
        faults: DirectionFaults,
        record: int,
        injector: FaultInjector | None = None,
    ) -> None:
        self.source = source
        self.sink = sink
        self.faults = faults
        self.forwarded = 0
        self.recorded = bytearray()
        self.finished = False
        self._source_ended = False
        self._record = record
        self._injector = injector
        self._chunks: deque[_Chunk] = deque()
        self._held = 0
        self._next_write = -math.inf
        self._counted_from = 0
        self._cut: Cut | None = None

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
        return not self.faults.stalled and not self._source_ended and self._held < HELD

    def wants_to_write(self, now: float) -> bool:
        """Whether bytes, or the end of the stream, may be written now."""
        due = self.due()
        return due is not None and due <= now

    def due(self) -> float | None:
        """Return when the next write may be done; `None` while no time is known."""
        if self.faults.stalled or self.finished or self._cut is not None:
            return None
        if not self._chunks:
            return -math.inf if self._source_ended else None
        head = self._chunks[0]
        if self._injector is not None and self._injector.plan.releases > head.releases:
            return self._next_write
        due = max(head.due, self._next_write)
        return due if due < math.inf else None

    def cut(self) -> tuple[Ending, Fault | None] | None:
        """Return how the connection ends here, and the fault of the plan that ends it; `None` while it goes on."""
        if self._cut is not None:
            return "fin", self._cut
        for left, fault in self._limits():
            if left <= 0:
                return (self.faults.ending if fault is None else "fin"), fault
        return None

    def read(self, now: float) -> None:
        """Read from the source.

        Raises:
            OSError: the source is broken; `BlockingIOError` if it has nothing yet.
        """
        data = self.source.recv(HELD - self._held)
        self._source_ended = not data
        for piece in (FramePiece(data),) if self._injector is None else self._injector.feed(data):
            if piece.data or piece.cut is not None:
                due = now + self.faults.latency + piece.delay
                releases = piece.releases if piece.delay else sys.maxsize
                self._chunks.append(_Chunk(memoryview(piece.data), due, releases, piece.cut))
                self._held += len(piece.data)

    def write(self, now: float) -> None:
        """Write the bytes that are due to the sink, in one write, and the end of the stream after the last ones.

        Raises:
            OSError: the sink is broken; `BlockingIOError` if its window is full.
        """
        if not self._chunks:
            self.sink.shutdown(socket.SHUT_WR)
            self.finished = True
            return
        chunk = self._chunks[0]
        sent = self.sink.send(chunk.data[: self._portion(len(chunk.data))], _NO_SIGNAL) if chunk.data else 0
        self._note(chunk.data[:sent], now)
        if sent < len(chunk.data):
            self._chunks[0] = replace(chunk, data=chunk.data[sent:])
        else:
            self._cut = chunk.cut
            self._chunks.popleft()

    def _portion(self, size: int) -> int:
        limits = [size, *(left for left, _ in self._limits())]
        if self.faults.chop:
            limits.append(self.faults.chop)
        if self.faults.rate < math.inf:
            limits.append(max(1, int(self.faults.rate * _SLICE)))
        return min(limits)

    def _note(self, data: memoryview, now: float) -> None:
        self.recorded += data[: self._record - len(self.recorded)]
        self.forwarded += len(data)
        self._held -= len(data)
        if self.faults.rate < math.inf:
            self._next_write = max(now, self._next_write) + len(data) / self.faults.rate

    def _limits(self) -> Iterator[tuple[int, Fault | None]]:
        """Yield how many bytes may still pass before the connection ends, for each fault that counts bytes."""
        if self.faults.cut_after is not None:
            yield self._counted_from + self.faults.cut_after - self.forwarded, None
        if self._injector is not None:
            for end, fault in self._injector.limits(self.forwarded):
                yield end - self.forwarded, fault


State = Literal["dialing", "open", "black-hole", "ending", "closed"]

LINGER = 2.0
"""Seconds to wait for both peers to close after the proxy has ended the connection in order."""

_SOON = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
_RESET = struct.pack("ii", 1, 0)
_DISCARD_SIZE = 65_536


class ProxyLink(FaultControls):
    """A client's connection and the one to the broker that belongs to it; its fault controls apply to it alone.

    Made by `FaultProxy`.

    Args:
        client: the client's socket, owned by the link from here on.
        number: from 1, in the order of acceptance.
        target: the broker; `None` for a black hole.
        faults: the faults from the start, by direction.
        plan: the frame faults; `None` forwards bytes without looking for frames.
        record: bytes of each direction to remember.
        window: bytes of the kernel's receive buffer; `None` leaves it to the system.
        loop: the loop that serves the link.
    """

    def __init__(
        self,
        client: socket.socket,
        *,
        number: int,
        target: Endpoint | None,
        faults: Mapping[Direction, DirectionFaults],
        plan: FaultPlan | None,
        record: int,
        window: int | None,
        loop: ProxyEventLoop,
    ) -> None:
        self.number = number
        self._loop = loop
        self._client = client
        self._target = target
        self._state: State = "black-hole" if target is None else "dialing"
        self._broker = socket.socket(socket.AF_INET if target is None else target.family, socket.SOCK_STREAM)
        self._sockets = [client, self._broker]
        for sock in self._sockets:
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # the client may have reset it already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if window is not None:
            self._broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._plan = plan
        up, down = (
            None if plan is None else FaultInjector(plan, link=number, direction=direction)
            for direction in (RECEIVED, SENT)
        )
        self._directions: dict[Direction, ProxyDirection] = {
            "up": ProxyDirection(client, self._broker, faults=faults["up"], record=record, injector=up),
            "down": ProxyDirection(self._broker, client, faults=faults["down"], record=record, injector=down),
        }
        self._give_up_at: float | None = None

    # For tests

    @property
    def state(self) -> State:
        """`dialing` the broker, `open`, `black-hole` (never answered), `ending` (in order, not yet over), `closed`."""
        return self._state

    @property
    def running(self) -> bool:
        """Whether it has neither ended nor started to end."""
        return self._state in ("dialing", "open", "black-hole")

    @property
    def closed(self) -> bool:
        """Whether both sockets are closed."""
        return self._state == "closed"

    def forwarded(self, direction: Direction) -> int:
        """Return the number of bytes forwarded."""
        return self._directions[direction].forwarded

    def recorded(self, direction: Direction) -> bytes:
        """Return the first forwarded bytes, as many as the proxy records."""
        return bytes(self._directions[direction].recorded)

    def cut(self, ending: Ending = "fin") -> None:
        """End both directions of the connection, now; no effect if it has ended.

        `"fin"` closes in order: both peers read the end of the stream, and a peer that still sends is reset after a
        while. `"rst"` resets at once.

        Raises:
            ConfigurationError: no such ending.
        """
        check_ending(ending)
        self._loop.call(lambda: self.end(ending))

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        self._loop.call(lambda: self.change(directions, changes))

    # On the proxy's thread

    def change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Set faults."""
        for direction in directions:
            self._directions[direction].change(changes)
        self._end_if_due()

    def dial(self) -> None:
        """Start to connect to the broker, if the proxy has one."""
        if self._target is None or self._state != "dialing":
            return
        code = self._broker.connect_ex(self._target.sockaddr)
        if code and code not in _SOON:
            self.end("rst")

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        """Return the socket events that the state and the faults allow."""
        if self._state == "dialing":
            return {self._client: 0, self._broker: WRITE}
        if self._state == "open":
            up, down = self._directions["up"], self._directions["down"]
            return {self._client: _events(up, down, now), self._broker: _events(down, up, now)}
        # In a black hole or ending: what arrives is discarded, so that the end of the stream after it is found.
        return {sock: READ for sock in self._sockets if sock is self._client or self._state != "black-hole"}

    def due(self, now: float) -> float | None:
        """Return when held bytes may go on, or the time to close in order is up."""
        if self._state == "open":
            times = [due for flow in self._directions.values() if (due := flow.due()) is not None and due > now]
            return min(times, default=None)
        return self._give_up_at

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Forward or discard available bytes."""
        if sock not in self._sockets:
            return  # closed by an earlier event of the same poll
        try:
            if self._state == "dialing":
                self._dialed()
            elif self._state == "open":
                self._forward(sock, events, now)
            else:
                self._discard(sock)
        except BlockingIOError:
            pass
        except OSError:
            self.end("rst")  # if one peer resets, so does the proxy to the other
        self._end_if_due()

    def look(self, now: float) -> None:
        """Close a connection that was ended in order, if a peer does not close it in time."""
        if self._state == "ending" and self._give_up_at is not None and self._give_up_at <= now:
            self.close()

    def end(self, ending: Ending) -> None:
        """End the connection; a reset also ends a connection that is ending in order."""
        if self.closed or (self._state == "ending" and ending == "fin"):
            return
        if ending == "rst":
            for sock in self._sockets:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close()
            return
        if self._state != "open":
            self._drop(self._broker)
        self._state = "ending"
        self._give_up_at = time.monotonic() + LINGER
        # Closing with unread bytes would reset the connection, and earlier bytes could be lost.
        for sock in list(self._sockets):
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(sock)
        self._close_if_empty()

    def close(self) -> None:
        """Close both sockets."""
        for sock in list(self._sockets):
            self._drop(sock)
        self._state = "closed"

    def _dialed(self) -> None:
        code = self._broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._state = "open"

    def _forward(self, sock: socket.socket, events: int, now: float) -> None:
        outgoing, incoming = self._directions["up"], self._directions["down"]
        if sock is self._broker:
            outgoing, incoming = incoming, outgoing
        if events & READ and outgoing.wants_to_read:
            outgoing.read(now)
            if outgoing.wants_to_write(now):
                with contextlib.suppress(BlockingIOError):
                    outgoing.write(now)
        if events & WRITE and incoming.wants_to_write(now) and incoming.cut() is None:
            incoming.write(now)
        if outgoing.finished and incoming.finished:
            self.close()

    def _end_if_due(self) -> None:
        for flow in self._directions.values():
            if self._state == "open" and (cut := flow.cut()):
                ending, fault = cut
                self.end(ending)
                if self._plan is not None and fault is not None:
                    self._plan.struck(fault, link=self.number)

    def _discard(self, sock: socket.socket) -> None:
        if not sock.recv(_DISCARD_SIZE):
            self._drop(sock)
            if self._state == "black-hole":
                self._drop(self._broker)
            self._close_if_empty()

    def _drop(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self._sockets.remove(sock)
            self._loop.close_socket(sock)

    def _close_if_empty(self) -> None:
        if not self._sockets:
            self._state = "closed"

    def __repr__(self) -> str:
        counts = " ".join(f"{direction}={self.forwarded(direction)}" for direction in DIRECTIONS)
        return f"<ProxyLink {self.number} {self._state} {counts}>"


def _events(source_of: ProxyDirection, sink_of: ProxyDirection, now: float) -> int:
    return (READ if source_of.wants_to_read else 0) | (WRITE if sink_of.wants_to_write(now) else 0)
