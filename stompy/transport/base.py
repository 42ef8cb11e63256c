"""What the rest of the house may expect of a way to move bytes.

One contract, several carriers (TCP, memory). Every implementation maps its own faults to `stompy.errors`, so that
nobody above this folder meets an `OSError`.

Threads: a transport serves at most one thread in `recv` and one in `sendall` at a time, which may be two threads at
once. `shutdown` may come from any thread; `close` comes from the one owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stompy.deadline import Budget, Deadline

RECV_SIZE = 262_144
"""The most bytes that one `recv` returns."""


class Transport(Protocol):
    """A reliable two-way byte stream."""

    @property
    def peer(self) -> str:
        """The other end, for messages; never credentials."""
        ...

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes, at most `RECV_SIZE` of them.

        Bytes that are already there are returned even if the deadline has passed.

        Args:
            deadline: when to give up; `None` waits until there are bytes, the stream ends or `shutdown` is called.

        Returns:
            The bytes; `b""` at the end of the peer's stream, and at once after `shutdown` even if bytes are unread.

        Raises:
            StompTimeout: the deadline passed; the stream is unharmed.
            ConnectionLost: the stream broke.
        """
        ...

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Hand all of `data` over to the carrier (for TCP: to the kernel; it does not mean that the peer has it).

        What fits at once goes out even if the deadline has passed.

        Args:
            data: the bytes.
            deadline: when to give up, or how many seconds from the moment that something is in the way.

        Raises:
            SendTimeout: the deadline passed with bytes left.
            ConnectionLost: the stream broke or was shut down.

            Of both the outcome is `"not-sent"` if the carrier took no byte of `data`, else `"unknown"`.
        """
        ...

    def shutdown(self) -> None:
        """End both directions, from any thread, as often as you like.

        Wakes a `recv` (which returns `b""`) and a `sendall` (which raises `ConnectionLost`). What was sent before still
        travels. Never blocks.
        """
        ...

    def shutdown_write(self) -> None:
        """End the outgoing direction only: the peer reads what was sent, then the end of the stream. Never blocks."""
        ...

    def close(self) -> None:
        """Shut down and release what the operating system holds, as often as you like.

        Called by the one owner. A thread that is still inside `recv` or `sendall` is woken, and the release then
        happens when it leaves. Closing with bytes unread may destroy bytes sent shortly before (TCP answers with a
        reset): who has last words does `shutdown_write`, reads to the end of the stream, then closes.
        """
        ...


class Dialer(Protocol):
    """Makes transports to one address; it can be used again and again."""

    @property
    def address(self) -> str:
        """The address for messages; never credentials."""
        ...

    @property
    def host(self) -> str:
        """The host name that was asked for."""
        ...

    def dial(self, deadline: Deadline) -> Transport:
        """Return a new transport.

        Raises:
            ConnectError: nobody answers there.
            ConnectTimeout: the deadline passed first.
        """
        ...


class Listener(Protocol):
    """Waits for dialers."""

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens: host and port, or a name."""
        ...

    def accept(self) -> Transport | None:
        """Wait for the next dialer and return its transport, or `None` once the listener is closed."""
        ...

    def close(self) -> None:
        """Stop listening, from any thread, as often as you like; wakes `accept`. Accepted transports live on."""
        ...
