"""One connection through a proxy. Methods that are not marked as for tests run on the proxy's thread."""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from stompy.testing.directions import (
    DIRECTIONS,
    Direction,
    DirectionFaults,
    Ending,
    FaultControls,
    ProxyDirection,
    check_ending,
)
from stompy.testing.proxy_loop import READ, WRITE, ProxyEventLoop
from stompy.transport.tcp import Endpoint
from stompy.world import os, socket, time

State = Literal["dialing", "open", "black-hole", "ending", "closed"]

LINGER = 2.0
"""Seconds to wait for both peers to close after the proxy has ended the connection in order."""

_SOON = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR)
_RESET = struct.pack("ii", 1, 0)
_DISCARD_SIZE = 65_536


class ProxyLink(FaultControls):
    """A client's connection and the one to the broker that belongs to it; its fault controls apply to it alone.

    Args:
        client: the client's socket, owned by the link from here on.
        number: from 1, in the order of acceptance.
        target: the broker; `None` for a black hole.
        faults: what is wrong from the start, by direction.
        record: bytes of each direction to remember.
        window: bytes of the kernel's receive buffer; `None` leaves it to the system.
        loop: what serves it.
    """

    def __init__(
        self,
        client: socket.socket,
        *,
        number: int,
        target: Endpoint | None,
        faults: Mapping[Direction, DirectionFaults],
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
        up = ProxyDirection(client, self._broker, faults=faults["up"], record=record)
        down = ProxyDirection(self._broker, client, faults=faults["down"], record=record)
        self._directions: dict[Direction, ProxyDirection] = {"up": up, "down": down}
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

        `"fin"` closes in order: both peers find the end of the stream, and who goes on sending is reset after a while.
        `"rst"` resets at once.

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
        if self._target is None or self.closed:
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
        """Return when something held may go on, or the time to close in order is up."""
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
        """End the connection; a reset also ends one that is already ending in order."""
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
        if events & WRITE and incoming.wants_to_write(now) and not incoming.is_cut:
            incoming.write(now)
        if outgoing.finished and incoming.finished:
            self.close()

    def _end_if_due(self) -> None:
        for direction in DIRECTIONS:
            flow = self._directions[direction]
            if self._state == "open" and flow.is_cut:
                self.end(flow.faults.ending)

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
