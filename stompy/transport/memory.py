"""Byte streams inside one process, with the manners of TCP: bounded windows, half-close, deadlines.

| thread | may call | blocks on |
|---|---|---|
| the reader (owner) | `recv`, then `close` | the incoming pipe, until its deadline or `shutdown` |
| one writer at a time | `sendall`, `shutdown_write` | room in the outgoing pipe, until its deadline or `shutdown` |
| any | `shutdown` | nothing |

Locks (rank 5, leaves): one per pipe (a pair has two) and one per listener; no thread holds two of them.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import TYPE_CHECKING

from stompy.deadline import deadline_of
from stompy.errors import ConnectError, ConnectionLost, ConnectTimeout, SendTimeout, StompTimeout
from stompy.transport.base import RECV_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompy.deadline import Budget, Deadline
    from stompy.errors import Outcome

CAPACITY = 65_536
"""Bytes that one direction holds before its writer must wait."""

_numbers = itertools.count(1)


class _Pipe:
    """One direction: at most `capacity` bytes on their way from one writer to one reader."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._buffer = bytearray()
        self._changed = threading.Condition(threading.Lock())
        self._written_off = False  # the writer ended it: the reader gets the rest, then the end
        self._deaf = False  # the reader left: its writer fails

    def read(self, deadline: Deadline | None, *, peer: str) -> bytes:
        with self._changed:
            if not _wait_for(self._changed, lambda: self._buffer or self._written_off or self._deaf, deadline):
                raise StompTimeout(f"no bytes from {peer} in time")
            data = bytes(self._buffer[:RECV_SIZE])
            del self._buffer[:RECV_SIZE]
            self._changed.notify_all()
            return data

    def write(self, data: bytes, deadline: Deadline, *, peer: str) -> None:
        sent = 0
        with self._changed:
            while sent < len(data):
                in_time = _wait_for(self._changed, lambda: self._room() or self._written_off or self._deaf, deadline)
                outcome: Outcome = "unknown" if sent else "not-sent"
                if self._deaf or self._written_off:
                    what = "was shut down" if self._written_off else "lost: the peer takes no more bytes"
                    raise ConnectionLost(f"connection to {peer} {what}", outcome=outcome)
                # Asked after each part too: a peer that reads drop by drop must not stretch the deadline.
                if not in_time or (sent and deadline.expired):
                    taken = f"{sent} of {len(data)} handed over"
                    raise SendTimeout(f"{peer} did not take our bytes in time ({taken})", outcome=outcome)
                part = data[sent : sent + self._room()]
                self._buffer += part
                sent += len(part)
                self._changed.notify_all()

    def _room(self) -> int:
        return self._capacity - len(self._buffer)

    def end(self) -> None:
        """Take no more bytes from the writer."""
        with self._changed:
            self._written_off = True
            self._changed.notify_all()

    def drop(self) -> None:
        """Deliver no more bytes to the reader."""
        with self._changed:
            self._deaf = True
            self._buffer.clear()  # so that read() finds the end
            self._changed.notify_all()


class MemoryTransport:
    """One end of a `memory_pair`; see `stompy.transport.base.Transport` for what each method promises."""

    def __init__(self, *, incoming: _Pipe, outgoing: _Pipe, peer: str) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._peer = peer
        self._shut = False

    @property
    def peer(self) -> str:
        """The other end, e.g. `memory:3`."""
        return self._peer

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeout: the deadline passed.
        """
        return self._incoming.read(deadline, peer=self._peer)

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Return when the outgoing pipe has all of `data`.

        Raises:
            SendTimeout: the deadline passed first.
            ConnectionLost: this end was shut down, or the other one.
        """
        self._outgoing.write(data, deadline_of(deadline), peer=self._peer)

    def shutdown(self) -> None:
        """End both directions and wake whoever waits at either end; from any thread."""
        self._shut = True
        self._outgoing.end()
        self._incoming.drop()

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads what was sent, then the end."""
        self._outgoing.end()

    def close(self) -> None:
        """Shut down; there is nothing to release."""
        self.shutdown()

    def __repr__(self) -> str:
        return f"<MemoryTransport {self._peer} {'shut down' if self._shut else 'open'}>"


def memory_pair(capacity: int = CAPACITY) -> tuple[MemoryTransport, MemoryTransport]:
    """Return two connected transports.

    Args:
        capacity: bytes that each direction holds, at least 1; small values make full windows easy to reach.
    """
    if capacity < 1:
        raise ValueError(f"capacity must be at least 1, not {capacity}")
    forth, back = _Pipe(capacity), _Pipe(capacity)
    number = next(_numbers)
    return (
        MemoryTransport(incoming=back, outgoing=forth, peer=f"memory:{number}"),
        MemoryTransport(incoming=forth, outgoing=back, peer=f"memory:{number}"),
    )


class MemoryListener:
    """Where a `MemoryDialer` of the same process finds a broker.

    Args:
        name: for messages.
        capacity: as for `memory_pair`.
        backlog: how many dialers may wait for `accept`; further ones wait for a place.
    """

    def __init__(self, name: str = "memory", *, capacity: int = CAPACITY, backlog: int = 128) -> None:
        self._name = name
        self._capacity = capacity
        self._backlog = backlog
        self._waiting: deque[MemoryTransport] = deque()
        self._closed = False
        self._changed = threading.Condition(threading.Lock())

    @property
    def address(self) -> str:
        """Its name."""
        return self._name

    def accept(self) -> MemoryTransport | None:
        """Wait for the next dialer; `None` once the listener is closed."""
        with self._changed:
            _wait_for(self._changed, lambda: self._waiting or self._closed, None)
            if self._closed:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def meet(self, deadline: Deadline) -> MemoryTransport:
        """Return the dialer's end of a new pair whose other end goes to `accept`; called by `MemoryDialer`."""
        ours, theirs = memory_pair(self._capacity)
        with self._changed:
            in_time = _wait_for(self._changed, lambda: len(self._waiting) < self._backlog or self._closed, deadline)
            if self._closed:
                raise ConnectError("connection refused", address=self._name)
            if not in_time:
                raise ConnectTimeout("no answer in time", address=self._name)
            self._waiting.append(theirs)
            self._changed.notify_all()
        return ours

    def close(self) -> None:
        """Stop listening, wake `accept` and hang up on dialers that nobody accepted; from any thread."""
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
        listener: whom to meet.
        host: what to give as the host name.
    """

    def __init__(self, listener: MemoryListener, *, host: str = "localhost") -> None:
        self._listener = listener
        self._host = host

    @property
    def address(self) -> str:
        """The listener's name."""
        return self._listener.address

    @property
    def host(self) -> str:
        """The host as it was given."""
        return self._host

    def dial(self, deadline: Deadline) -> MemoryTransport:
        """Return a new connection.

        Raises:
            ConnectError: the listener is closed.
            ConnectTimeout: the deadline passed before it had a place in its queue.
        """
        return self._listener.meet(deadline)

    def __repr__(self) -> str:
        return f"<MemoryDialer {self.address}>"


def _wait_for(condition: threading.Condition, ready: Callable[[], object], deadline: Deadline | None) -> bool:
    """Wait, holding `condition`, until `ready()`; `False` when the deadline passed first."""
    while not ready():
        remaining = None if deadline is None else deadline.remaining()
        if remaining == 0:
            return False
        condition.wait(None if remaining is None else min(remaining, threading.TIMEOUT_MAX))
    return True
