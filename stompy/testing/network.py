"""The network of a simulated world: a seed chooses in which pieces bytes arrive, when, and where a stream breaks.

It takes the place of `TcpDialer` in the client, and of the broker's listener. It has the parts of TCP that a
program sees: a limited window, partial reads and writes, latency, half-closed and reset streams, streams that no
longer carry anything and say nothing about it, refused connections. It has no packets, and no kernel.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, SendTimeoutError, StompTimeoutError
from stompy.testing.faults import RECEIVED, SENT, FaultInjector, FaultPlan, FramePiece
from stompy.testing.world import World, current_world
from stompy.world import random

Break = Literal["end", "reset", "silence"]
READ = "read"
Tap = Callable[[str, bytes], None]
"""Called with a side, and bytes that are written in its direction; with `READ`, and bytes that the client has read."""


@dataclass(frozen=True)
class Weather:
    """The faults of streams.

    Attributes:
        breaks: the chance that a stream breaks, at a byte that is drawn.
        refusals: the chance that a connection is refused.
        latency: seconds that bytes travel at most.
        window: bytes in flight in one direction at most.
        pieces: whether reads and writes are divided.
    """

    breaks: float = 0.0
    refusals: float = 0.0
    latency: float = 0.0
    window: int = 65_536
    pieces: bool = False


class Direction:
    """One direction of a stream: the bytes in flight, each piece with the time of its arrival."""

    def __init__(self, stream: Stream, side: str, breaks_at: float, how: Break, injector: FaultInjector | None) -> None:
        self._network, self.stream, self.side = stream.network, stream, side
        self._injector = injector
        self._breaks_at, self._how = breaks_at, how
        self.in_flight: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self._new = True
        """Whether nothing was written yet; the system of a new stream takes a first write as far as it has room."""
        self.ended = False
        """Whether the writer has ended it: the reader gets what is in flight, then the end."""
        self.dropped = False
        """Whether the reader takes no more."""
        self.silent = False
        """Whether bytes vanish."""

    def write(self, data: bytes) -> int:
        """Take a part of the bytes, as many as there is room for; 0 if there is none."""
        network = self._network
        room = network.weather.window - self.size
        if self.silent:
            return len(data)
        part = data[: max(0, room)]
        if network.weather.pieces and len(part) > 1 and not self._new and network.random.random() < 0.3:
            part = part[: network.random.randrange(1, len(part))]
        self._new = False
        broken = network.weather.breaks > 0 and len(part) >= self._breaks_at
        kept = part[: int(self._breaks_at)] if broken else part
        self._breaks_at -= len(part)
        if self.stream.tap is not None:
            self.stream.tap(self.side, part)
        pieces = [FramePiece(kept)] if self._injector is None else self._injector.feed(kept) if kept else []
        for piece in pieces:
            delay = piece.delay + network.random.uniform(0, network.weather.latency)
            arrival = max(network.world.now + delay, self.in_flight[-1][0] if self.in_flight else 0.0)
            if piece.data:
                self.in_flight.append((arrival, piece.data))
                self.size += len(piece.data)
            if piece.cut is not None:
                network.note(f"{self.stream.name}: cut at {piece.cut}")
                self.stream.broken("end", self)
                return len(part)
        if broken:
            network.note(f"{self.stream.name}: {self._how} after {len(kept)} of {len(part)} bytes")
            self.stream.broken(self._how, self)
        return len(part)

    def take(self, most: int) -> bytes:
        """Return the bytes that have arrived, perhaps a part of them."""
        got = bytearray()
        while self.in_flight and self.in_flight[0][0] <= self._network.world.now and len(got) < most:
            _, piece = self.in_flight.popleft()
            got += piece
            if self._network.weather.pieces and self._network.random.random() < 0.3:
                break
        if self._network.weather.pieces and len(got) > 1 and self._network.random.random() < 0.2:
            cut = self._network.random.randrange(1, len(got))
            self.in_flight.appendleft((0.0, bytes(got[cut:])))
            del got[cut:]
        self.size -= len(got)
        return bytes(got)

    def lose(self) -> None:
        """Lose the bytes in flight."""
        self.in_flight.clear()
        self.size = 0


class Stream:
    """Two directions between two ends."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.process = network.world.current.process
        self.reset = False
        plain = self.process not in network.opaque
        self.directions = [
            Direction(self, side, *network.fate(), network.injector(side) if plain else None)
            for side in (RECEIVED, SENT)
        ]
        self.tap = network.tap and network.tap()
        to_broker, to_client = self.directions
        self.client = SimulatedTransport(self, incoming=to_client, outgoing=to_broker)
        self.broker = SimulatedTransport(self, incoming=to_broker, outgoing=to_client)

    def broken(self, how: Break, direction: Direction) -> None:
        """Break it: `direction` has taken its last byte."""
        if how == "silence":
            direction.silent = True
        elif how == "end":
            for each in self.directions:
                each.ended = each.dropped = True
        else:
            self.reset = True
            for each in self.directions:
                each.lose()


class SimulatedTransport:
    """One end of a stream; see `stompy.transport.base.Transport` and `DirectTransport`."""

    def __init__(self, stream: Stream, *, incoming: Direction, outgoing: Direction) -> None:
        self._stream = stream
        self._in, self._out = incoming, outgoing
        self._shut = False

    @property
    def peer(self) -> str:
        """The name of the stream."""
        return self._stream.name

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes."""
        world, incoming = current_world(), self._in
        world.switch()
        while True:
            if self._shut:
                return b""
            if self._stream.reset:
                raise ConnectionLostError(f"connection to {self.peer} lost: reset")
            if data := incoming.take(262_144):
                if incoming.side == SENT and self._stream.tap is not None:
                    self._stream.tap(READ, data)
                return data
            if incoming.ended and not incoming.in_flight:
                return b""
            if deadline is not None and deadline.expired:
                raise StompTimeoutError(f"no bytes from {self.peer} in time")
            limit = math.inf if deadline is None else deadline.remaining()
            limit = math.inf if limit is None else limit
            if incoming.in_flight:
                limit = min(limit, incoming.in_flight[0][0] - world.now)
            readable = partial(self._readable, len(incoming.in_flight))
            world.switch(readable, None if limit == math.inf else limit, f"bytes of {self.peer}")

    def _readable(self, pieces: int) -> bool:
        """Return whether more is in flight than so many pieces, or the stream has ended."""
        incoming = self._in
        over = self._shut or self._stream.reset or (incoming.ended and not incoming.in_flight)
        return over or len(incoming.in_flight) > pieces

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write all of `data`."""
        limit, sent = deadline_of(deadline), 0
        current_world().switch()
        while True:
            sent += self._write(data[sent:], "unknown" if sent else "not-sent")
            if sent == len(data):
                return
            if limit.expired or not self._wait_for_room(limit):
                raise SendTimeoutError(
                    f"{self.peer} did not accept the bytes in time", outcome="unknown" if sent else "not-sent"
                )

    def send(self, data: bytes | memoryview, deadline: Budget) -> int:
        """Write a part of `data`."""
        limit = deadline_of(deadline)
        current_world().switch()
        while not (sent := self._write(bytes(data), "not-sent")):
            if limit.expired or not self._wait_for_room(limit):
                raise SendTimeoutError(f"{self.peer} did not accept the bytes in time", outcome="not-sent")
        return sent

    def send_now(self, messages: list[bytes]) -> list[bytes] | None:
        """Write as much as there is room for."""
        data = b"".join(messages)
        try:
            sent = self._write(data, "not-sent")
        except ConnectionLostError:
            return [data]
        return None if sent == len(data) else [data[sent:]]

    def send_held(self, data: bytes) -> int:
        """Write as much as there is room for."""
        current_world().switch()
        try:
            return self._write(data, "not-sent")
        except ConnectionLostError:
            return 0

    def _write(self, data: bytes, outcome: Literal["not-sent", "unknown"]) -> int:
        if self._shut or self._stream.reset or self._out.dropped or self._out.ended:
            raise ConnectionLostError(f"connection to {self.peer} lost", outcome=outcome)
        return self._out.write(data) if data else 0

    def _wait_for_room(self, limit: Deadline) -> bool:
        return current_world().switch(
            lambda: (
                self._shut
                or self._stream.reset
                or self._out.dropped
                or self._out.silent
                or self._out.size < self._stream.network.weather.window
            ),
            limit.remaining(),
            f"room to {self.peer}",
        )

    def shutdown(self) -> None:
        """End both directions."""
        self._shut = True
        self._out.ended = True
        self._in.dropped = True
        self._in.lose()

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        self._out.ended = True

    def close(self) -> None:
        """Shut down; there is nothing to release."""
        self.shutdown()
        self._stream.network.open.discard(self._stream)


class SimulatedListener:
    """Where a broker accepts; takes the place of a `TcpListener`."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self.address = host, port
        self._waiting: deque[Stream] = deque()
        self.closed = False

    def accept(self) -> SimulatedTransport | None:
        """Return the broker's end of the next stream."""
        while not self.closed:
            current_world().switch(lambda: self._waiting or self.closed, None, "clients")
            if self._waiting:
                return self._waiting.popleft().broker
        return None

    def close(self) -> None:
        """Accept no more."""
        self.closed = True
        while self._waiting:
            self._waiting.popleft().broker.shutdown()

    def connect(self) -> SimulatedTransport:
        """Return the client's end of a new stream."""
        stream = self._network.new_stream()
        self._waiting.append(stream)
        return stream.client


class Network:
    """Everything between the programs and the broker of a world.

    Args:
        world: its clock and threads.
        random: chooses.
        weather: the faults until `clear_up`.
        frames: the faults of single frames until then.
    """

    def __init__(self, world: World, random: random.Random, weather: Weather, frames: FaultPlan) -> None:
        self.world, self.random, self.weather, self._frames = world, random, weather, frames
        self.listeners: dict[tuple[str, int], SimulatedListener] = {}
        self.open: set[Stream] = set()
        self.log: list[str] = []
        self.tap: Callable[[], Tap | None] | None = None
        """Makes what looks at the bytes that pass a stream."""
        self.opaque: frozenset[str] = frozenset()
        """Processes whose streams are WebSockets, so that no fault is of a frame of STOMP."""
        self._streams = 0

    def note(self, what: str) -> None:
        """Note an event, for the report of a failure."""
        self.log.append(f"{self.world.now - 1000:9.3f} {what}")

    def hang_up(self, process: str) -> None:
        """End the streams of a process that was killed, as its system does."""
        for stream in [stream for stream in self.open if stream.process == process]:
            stream.broken("end", stream.directions[0])

    def clear_up(self) -> None:
        """Let nothing more break, neither of what is open."""
        self._frames.clear()
        self.weather = Weather(latency=self.weather.latency, window=self.weather.window, pieces=self.weather.pieces)

    def injector(self, side: str) -> FaultInjector | None:
        """Return the faults of the frames of one direction of the next stream."""
        return FaultInjector(self._frames, link=self._streams, direction=side) if self._frames.faults else None

    def fate(self) -> tuple[float, Break]:
        """Return after which byte a direction breaks, and how; infinity means never."""
        if self.random.random() >= self.weather.breaks:
            return math.inf, "end"
        how: Break = self.random.choice(("end", "reset", "silence"))
        return float(self.random.choice((1, 60, 300, 1500)) * self.random.random()), how

    def new_stream(self) -> Stream:
        """Return a stream whose fate is drawn."""
        self._streams += 1
        stream = Stream(self, f"stream-{self._streams}")
        self.open.add(stream)
        return stream

    def listen(self, host: str, port: int) -> SimulatedListener:
        """Return the stand-in of a `TcpListener`."""
        listener = self.listeners[host, port] = SimulatedListener(self, host, port)
        return listener

    def dialer(self, host: str, port: int, *, options: object = None) -> SimulatedDialer:
        """Return the stand-in of a `TcpDialer`."""
        return SimulatedDialer(self, host, port)


class SimulatedDialer:
    """Connects to a listener of the network; see `stompy.transport.base.Dialer`."""

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self.host = host
        self.address = f"{host}:{port}"
        self._where = host, port

    def dial(self, deadline: Deadline) -> SimulatedTransport:
        """Return a new stream."""
        current_world().switch()
        listener = self._network.listeners.get(self._where)
        if deadline.expired:
            raise ConnectTimeoutError("no answer in time", address=self.address)
        if listener is None or listener.closed or self._network.random.random() < self._network.weather.refusals:
            raise ConnectError("connection refused", address=self.address)
        return listener.connect()
