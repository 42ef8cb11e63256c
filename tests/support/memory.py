"""Transports inside one process that behave like TCP: limited windows, half-close, deadlines.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | the incoming pipe, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `shutdown_write` | space in the outgoing pipe, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Locks (rank 5, leaves): one per pipe (a pair has two) and one per listener; no thread holds two of them.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from stompy.deadline import deadline_of
from stompy.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, SendTimeoutError, StompTimeoutError
from stompy.locks import make_condition
from stompy.transport.base import RECV_SIZE

if TYPE_CHECKING:
    from stompy.deadline import Budget, Deadline
    from stompy.errors import Outcome

CAPACITY = 65_536
"""Bytes that one direction holds before the writer has to wait."""

_numbers = itertools.count(1)


class _Pipe:
    """One direction: a buffer of at most `capacity` bytes between a writer and a reader."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = bytearray()
        self._changed = make_condition("pipe", None)
        self._write_closed = False  # the reader gets the remaining bytes, then the end
        self._read_closed = False  # writing fails

    def read(self, deadline: Deadline | None, *, peer: str) -> bytes:
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._buffer or self._write_closed or self._read_closed,
                deadline.remaining() if deadline else None,
            ):
                raise StompTimeoutError(f"no bytes from {peer} in time")
            data = bytes(self._buffer[:RECV_SIZE])
            del self._buffer[:RECV_SIZE]
            self._changed.notify_all()
            return data

    def write(self, data: bytes, deadline: Deadline, *, peer: str) -> None:
        sent = 0
        with self._changed:
            while sent < len(data):
                in_time = self._changed.wait_for(
                    lambda: self._room() or self._write_closed or self._read_closed, deadline.remaining()
                )
                outcome: Outcome = "unknown" if sent else "not-sent"
                if self._read_closed or self._write_closed:
                    what = "was shut down" if self._write_closed else "lost: the peer accepts no more bytes"
                    raise ConnectionLostError(f"connection to {peer} {what}", outcome=outcome)
                # Checked after each part too: a peer that reads slowly must not extend the deadline.
                if not in_time or (sent and deadline.expired):
                    written = f"{sent} of {len(data)} written"
                    raise SendTimeoutError(f"{peer} did not accept the bytes in time ({written})", outcome=outcome)
                part = data[sent : sent + self._room()]
                self._buffer += part
                sent += len(part)
                self._changed.notify_all()

    def write_now(self, data: bytes) -> int:
        with self._changed:
            if self._read_closed or self._write_closed:
                return 0
            part = data[: self._room()]
            self._buffer += part
            self._changed.notify_all()
            return len(part)

    def _room(self) -> int:
        return self._capacity - len(self._buffer)

    def end(self) -> None:
        """Close the write side: the reader gets the remaining bytes, then the end."""
        with self._changed:
            self._write_closed = True
            self._changed.notify_all()

    def drop(self) -> None:
        """Close the read side: the reader gets the end at once, and writing fails."""
        with self._changed:
            self._read_closed = True
            self._buffer.clear()  # so that read() returns the end
            self._changed.notify_all()


class MemoryTransport:
    """One end of a `memory_pair`; see `stompy.transport.base.Transport`."""

    def __init__(self, *, incoming: _Pipe, outgoing: _Pipe, peer: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._shut = False

    @property
    def peer(self) -> str:
        """The name of the peer, e.g. `memory:3`."""
        return self._peer

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeoutError: the deadline passed.
        """
        return self._incoming.read(deadline, peer=self._peer)

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write all of `data` to the outgoing pipe.

        Raises:
            SendTimeoutError: the deadline passed first.
            ConnectionLostError: one of the ends was shut down.
        """
        self._outgoing.write(data, deadline_of(deadline), peer=self._peer)

    def send_held(self, data: bytes) -> int:
        """Write what there is room for."""
        return self._outgoing.write_now(data)

    def shutdown(self) -> None:
        """End both directions and wake waiting threads at both ends; from any thread."""
        self._shut = True
        self._outgoing.end()
        self._incoming.drop()

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads what was written, then the end."""
        self._outgoing.end()

    def close(self) -> None:
        """Shut down; there is nothing to release."""
        self.shutdown()

    def __repr__(self) -> str:
        return f"<MemoryTransport {self._peer} {'shut down' if self._shut else 'open'}>"


def memory_pair(capacity: int = CAPACITY) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two connected transports.

    Args:
        capacity: bytes that each direction holds, at least 1; a small value fills quickly, for tests.

    Raises:
        ValueError: `capacity` is less than 1.
    """
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1, not {capacity}")
    forward, backward = _Pipe(capacity), _Pipe(capacity)
    number = next(_numbers)
    return (
        MemoryTransport(incoming=backward, outgoing=forward, peer=f"memory:{number}"),
        MemoryTransport(incoming=forward, outgoing=backward, peer=f"memory:{number}"),
    )


class MemoryListener:
    """Accepts connections of `MemoryDialer`s in the same process.

    Args:
        name: the name, for messages.
        capacity: as for `memory_pair`.
        backlog: the number of connections that may wait for `accept`; further dialers wait for space.
    """

    def __init__(self, name: str = "memory", *, capacity: int = CAPACITY, backlog: int = 128) -> None:
        self._name = name
        self._capacity = capacity
        self._backlog = backlog
        self._waiting: deque[MemoryTransport] = deque()
        self._closed = False
        self._changed = make_condition("memory listener", None)

    @property
    def address(self) -> str:
        """The name of the listener."""
        return self._name

    def accept(self) -> MemoryTransport | None:
        """Return the next connection; `None` after the listener was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def connect(self, deadline: Deadline) -> MemoryTransport:
        """Return the dialer's end of a new pair, and queue the other end for `accept`; called by `MemoryDialer`."""
        dialed, accepted = memory_pair(self._capacity)
        with self._changed:
            in_time = self._changed.wait_for(
                lambda: len(self._waiting) < self._backlog or self._closed, deadline.remaining()
            )
            if self._closed:
                raise ConnectError("connection refused", address=self._name)
            if not in_time:
                raise ConnectTimeoutError("no answer in time", address=self._name)
            self._waiting.append(accepted)
            self._changed.notify_all()
        return dialed

    def close(self) -> None:
        """Stop listening, wake `accept` and close the connections that were not accepted; from any thread."""
        with self._changed:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for transport in left:
            transport.close()

    def __repr__(self) -> str:
        return f"<MemoryListener {self._name} {'closed' if self._closed else 'open'}>"


class MemoryDialer:
    """Connects to a `MemoryListener`.

    Args:
        listener: the listener to connect to.
        host: the host name to report.
    """

    def __init__(self, listener: MemoryListener, *, host: str = "localhost") -> None:
        self._listener = listener
        self._host = host

    @property
    def address(self) -> str:
        """The name of the listener."""
        return self._listener.address

    @property
    def host(self) -> str:
        """The host as given."""
        return self._host

    def dial(self, deadline: Deadline) -> MemoryTransport:
        """Return a new connection.

        Raises:
            ConnectError: the listener is closed.
            ConnectTimeoutError: the listener's queue was full until the deadline.
        """
        return self._listener.connect(deadline)

    def __repr__(self) -> str:
        return f"<MemoryDialer {self.address}>"
