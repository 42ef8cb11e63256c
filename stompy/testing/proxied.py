"""One connection through a proxy: its two directions with their faults, and its sockets.

| lock | guards | held over I/O? |
|---|---|---|
| `ProxySelector.changed` | the whole state of a proxy: faults, connections, listening | no, as no socket blocks |

The proxy's thread alone uses the selector; it waits without the lock, and handles each event with it. Any other thread
changes the state inside `ProxySelector.changing`, so a change is complete when its caller goes on. The lock is held
where `ProxyDirection` and the methods of `ProxyLink` that are not for tests are called; counters are read without it.

A socket with `SO_LINGER` 0 that one thread closes while another is in `recv` on it sends no reset: the system keeps it
open until that `recv` returns. With the lock no thread is in `recv` then.
"""

from __future__ import annotations

import contextlib
import errno
import math
import struct
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from stompy.errors import ConfigurationError, NotConnectedError
from stompy.forks import Owner
from stompy.locks import make_condition
from stompy.testing.faults import RECEIVED, SENT, Cut, Fault, FaultInjector, FaultPlan, FramePiece
from stompy.transport.tcp import Endpoint
from stompy.world import os, selectors, socket, time

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
        self._set("both", **asdict(DirectionFaults()))

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
        self._pieces: deque[tuple[float, FramePiece]] = deque()
        """Each with the time when it may be written."""
        self._written = 0
        """Bytes of the first piece."""
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
        if not self._pieces:
            return -math.inf if self._source_ended else None
        due, piece = self._pieces[0]
        if piece.delay and self._injector is not None and self._injector.plan.releases > piece.releases:
            return self._next_write
        due = max(due, self._next_write)
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
                self._pieces.append((now + self.faults.latency + piece.delay, piece))
                self._held += len(piece.data)

    def write(self, now: float) -> None:
        """Write the bytes that are due to the sink, in one write, and the end of the stream after the last ones.

        Raises:
            OSError: the sink is broken; `BlockingIOError` if its window is full.
        """
        if not self._pieces:
            self.sink.shutdown(socket.SHUT_WR)
            self.finished = True
            return
        _, piece = self._pieces[0]
        rest = memoryview(piece.data)[self._written :]
        sent = self.sink.send(rest[: self._portion(len(rest))], _NO_SIGNAL) if rest else 0
        self.recorded += rest[: min(sent, self._record - len(self.recorded))]
        self.forwarded += sent
        self._held -= sent
        if self.faults.rate < math.inf:
            self._next_write = max(now, self._next_write) + sent / self.faults.rate
        self._written += sent
        if self._written == len(piece.data):
            self._pieces.popleft()
            self._written = 0
            self._cut = piece.cut

    def _portion(self, size: int) -> int:
        limits = [size, *(left for left, _ in self._limits())]
        if self.faults.chop:
            limits.append(self.faults.chop)
        if self.faults.rate < math.inf:
            limits.append(max(1, int(self.faults.rate * _SLICE)))
        return min(limits)

    def _limits(self) -> Iterator[tuple[int, Fault | None]]:
        """Yield how many bytes may still pass before the connection ends, for each fault that counts bytes."""
        if self.faults.cut_after is not None:
            yield self._counted_from + self.faults.cut_after - self.forwarded, None
        if self._injector is not None:
            for end, fault in self._injector.limits(self.forwarded):
                yield end - self.forwarded, fault


READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE


class ProxySelector:
    """What a proxy's thread waits for, and the lock over its state.

    Attributes:
        changed: the lock; notified after each change of the state.
        changes: how many there were.
        closed: whether the proxy has ended.
        owner: the process of the proxy.
    """

    def __init__(self) -> None:
        self.changed = make_condition("proxy", None)
        self.changes = 0
        self.closed = False
        self.owner = Owner("proxy")
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        for sock in (self._woken, self._waker):
            sock.setblocking(False)
        self._selector.register(self._woken, READ)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change the state in this block, from any thread.

        Raises:
            NotConnectedError: the proxy is closed.
        """
        self.owner.check()
        with self.changed:
            if self.closed:
                raise NotConnectedError("the proxy is closed")
            yield
            self.note()
        self.wake()

    def note(self) -> None:
        """Note a change; with the lock held."""
        self.changes += 1
        self.changed.notify_all()

    def wake(self) -> None:
        """End `wait` at once; from any thread, without the lock."""
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            self._waker.send(b"\0")

    def changed_since(self, seen: int) -> bool:
        """Return whether there were more changes than `seen`."""
        return self.changes != seen

    def drop(self, sock: socket.socket) -> None:
        """Close a socket; from any thread, with the lock held."""
        sock.close()
        self.wake()  # `forget_closed` is called then; some selectors keep a socket open as long as they wait for it

    # On the proxy's thread, which alone uses the selector

    def wait(self, timeout: float | None) -> list[tuple[ProxyLink | None, socket.socket, int]]:
        """Wait for the watched sockets, without the lock; return the ready ones, each with its link and its events."""
        try:
            ready = [
                (key.data, cast("socket.socket", key.fileobj), events) for key, events in self._selector.select(timeout)
            ]
        except OSError:  # how some systems report that another thread has closed a socket meanwhile
            return []
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        return [each for each in ready if each[1] is not self._woken]

    def watch(self, sock: socket.socket, events: int, link: ProxyLink | None) -> None:
        """Watch a socket for `READ`, `WRITE`, both, or nothing (0) from now on; `link` is `None` for the listener's."""
        key = self._selector.get_map().get(sock)
        if key is None:
            if events:
                self._selector.register(sock, events, link)
        elif not events:
            self._selector.unregister(sock)
        elif events != key.events:
            self._selector.modify(sock, events, link)

    def forget_closed(self) -> None:
        """Watch closed sockets no longer; called before others are watched, which may have their numbers."""
        for key in list(self._selector.get_map().values()):
            sock = cast("socket.socket", key.fileobj)
            if sock.fileno() < 0:
                self._selector.unregister(sock)

    def close(self) -> None:
        """Close what `wait` needs, before the other sockets: a forked child must not change what its parent watches."""
        self.closed = True
        for each in (self._selector, self._woken, self._waker):
            each.close()


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
        selector: of the proxy.
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
        selector: ProxySelector,
    ) -> None:
        self.number = number
        self._selector = selector
        self._target = target
        self._state: State = "black-hole" if target is None else "dialing"
        self._broker = broker = socket.socket(socket.AF_INET if target is None else target.family, socket.SOCK_STREAM)
        self._sockets = [client, broker]
        for sock in self._sockets:
            sock.setblocking(False)
            with contextlib.suppress(OSError):  # the client may have reset it already
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if window is not None:
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self._plan = plan

        def direction(name: Direction, source: socket.socket, sink: socket.socket, frames: str) -> ProxyDirection:
            injector = None if plan is None else FaultInjector(plan, link=number, direction=frames)
            return ProxyDirection(source, sink, faults=faults[name], record=record, injector=injector)

        self._directions: dict[Direction, ProxyDirection] = {
            "up": direction("up", client, broker, RECEIVED),
            "down": direction("down", broker, client, SENT),
        }
        self._give_up_at = math.inf
        if target is None:
            self._drop(broker)

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
        with self._selector.changing():
            self.end(ending)

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        with self._selector.changing():
            self.change(directions, changes)

    # For the proxy, with its lock held

    def change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Set faults."""
        for direction in directions:
            self._directions[direction].change(changes)
        self._end_if_due()

    def dial(self) -> None:
        """Start to connect to the broker, if the proxy has one."""
        if self._target is not None and self._state == "dialing":
            code = self._broker.connect_ex(self._target.sockaddr)
            if code and code not in _SOON:
                self.end("rst")

    def look(self, now: float) -> float:
        """Watch the sockets for the events that the state and the faults allow; return when to look again without one.

        A connection that was ended in order is closed, if a peer did not close it in time.
        """
        if self._give_up_at <= now:
            self.close()
        due = self._give_up_at
        # In a black hole or ending: what arrives is discarded, so that the end of the stream after it is found.
        wanted = dict.fromkeys(self._sockets, 0 if self._state in ("dialing", "open") else READ)
        if self._state == "dialing":
            wanted[self._broker] = WRITE
        elif self._state == "open":
            for flow in self._directions.values():
                wanted[flow.source] |= READ if flow.wants_to_read else 0
                wanted[flow.sink] |= WRITE if flow.wants_to_write(now) else 0
                if (time_of_write := flow.due()) is not None and time_of_write > now:
                    due = min(due, time_of_write)
        for sock, events in wanted.items():
            self._selector.watch(sock, events, self)
        return due

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Forward or discard available bytes, if it is one of the link's sockets."""
        if sock not in self._sockets:
            return
        try:
            if self._state == "dialing":
                if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(code, os.strerror(code))
                self._state = "open"
            elif self._state == "open":
                self._forward(sock, events, now)
            elif not sock.recv(_DISCARD_SIZE):
                self._drop(sock)
        except BlockingIOError:
            pass
        except OSError:
            self.end("rst")  # if one peer resets, so does the proxy to the other
        self._end_if_due()

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
        if self._state == "dialing":
            self._drop(self._broker)
        self._state = "ending"
        self._give_up_at = time.monotonic() + LINGER
        # Closing with unread bytes would reset the connection, and earlier bytes could be lost.
        for sock in list(self._sockets):
            try:
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._drop(sock)

    def close(self) -> None:
        """Close both sockets."""
        for sock in list(self._sockets):
            self._drop(sock)

    def _forward(self, sock: socket.socket, events: int, now: float) -> None:
        for flow in self._directions.values():
            if sock is flow.source and events & READ and flow.wants_to_read:
                flow.read(now)
                if flow.wants_to_write(now):
                    with contextlib.suppress(BlockingIOError):
                        flow.write(now)
            elif sock is flow.sink and events & WRITE and flow.wants_to_write(now) and flow.cut() is None:
                flow.write(now)
        if all(flow.finished for flow in self._directions.values()):
            self.close()

    def _end_if_due(self) -> None:
        for flow in self._directions.values():
            if self._state == "open" and (cut := flow.cut()):
                ending, fault = cut
                self.end(ending)
                if self._plan is not None and fault is not None:
                    self._plan.struck(fault, link=self.number)

    def _drop(self, sock: socket.socket) -> None:
        self._sockets.remove(sock)
        self._selector.drop(sock)
        if not self._sockets:
            self._state = "closed"
            self._give_up_at = math.inf

    def __repr__(self) -> str:
        counts = " ".join(f"{direction}={self.forwarded(direction)}" for direction in DIRECTIONS)
        return f"<ProxyLink {self.number} {self._state} {counts}>"
