"""The interfaces of transports, dialers and listeners, and the handshake and the listener of layers over others.

Every implementation maps its errors to `stompy.errors`, so that callers never see an `OSError`.

Threads: one thread may call `recv` while another calls `sendall`; neither method is for two threads at once. Any thread
may call `shutdown`. Only the owner calls `close`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

from stompy.errors import ConnectError, ConnectionLostError, ConnectTimeoutError, SendTimeoutError, StompTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompy.deadline import Budget, Deadline

T = TypeVar("T")
LayerT = TypeVar("LayerT", bound="Transport", covariant=True)

RECV_SIZE = 262_144
"""The maximum number of bytes that `recv` returns."""


class Transport(Protocol):
    """A reliable, bidirectional byte stream."""

    @property
    def peer(self) -> str:
        """The name of the peer, for messages; without credentials."""

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes, at most `RECV_SIZE` of them.

        Bytes that have already arrived are returned even if the deadline has passed.

        Args:
            deadline: the time limit; `None` waits until bytes arrive, the stream ends or `shutdown` is called.

        Returns:
            The bytes; `b""` at the end of the stream, and after `shutdown` even if there are unread bytes.

        Raises:
            StompTimeoutError: the deadline passed; the stream is still usable.
            ConnectionLostError: the stream broke.
        """

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write all of `data` (over TCP: to the kernel, which does not mean that the peer has received it).

        Bytes that can be written without waiting are written even if the deadline has passed.

        Args:
            data: the bytes.
            deadline: the time limit; seconds count from the moment that the call has to wait.

        Raises:
            SendTimeoutError: the deadline passed before everything was written.
            ConnectionLostError: the stream broke or was shut down.

            The outcome of both is `"not-sent"` if no byte of `data` was written, else `"unknown"`.
        """

    def shutdown(self) -> None:
        """End both directions; from any thread; idempotent.

        Wakes a waiting `recv`, which returns `b""`, and a waiting `sendall`, which raises `ConnectionLostError`. Bytes
        that were written before are still delivered. Never blocks.
        """

    def shutdown_write(self) -> None:
        """End the outgoing direction: the peer reads all that was written, then the end of the stream. Never blocks."""

    def close(self) -> None:
        """Shut down and release the resources of the operating system; idempotent.

        Called by the owner. Threads in `recv` and `sendall` are woken; the resources are released after the last one
        has left. Closing a TCP socket with unread bytes resets the connection, which may destroy bytes that were
        written shortly before: to deliver them, call `shutdown_write` and read to the end of the stream first.
        """


@runtime_checkable
class DirectTransport(Transport, Protocol):
    """A transport to which a thread may write in the writer's place, as that takes no time."""

    def send_now(self, messages: list[bytes]) -> list[bytes] | None:
        """Write as much as possible without waiting; never raise.

        Args:
            messages: as for `MessageTransport.send_messages`; one by one of no meaning to a stream of bytes.

        Returns:
            `None` if everything was written; else the messages that must be written next, before anything else: perhaps
            one empty message, as a part may be kept here, which is written first.
        """


class MessageTransport(Transport, Protocol):
    """A transport, or one over it, that can keep messages apart, as WebSocket does."""

    @property
    def keeps_messages(self) -> bool:
        """Whether it keeps them apart; as long as that is not known, whether it may."""

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        """Write several messages together, each whole and by itself.

        Args:
            messages: none of them is joined with another or divided; of an empty one nothing is written.
            deadline: as for `sendall`; but seconds count anew for each 256 KiB.

        Raises as `sendall` does.
        """


class Dialer(Protocol):
    """Connects to one address, any number of times."""

    @property
    def address(self) -> str:
        """The address, for messages; without credentials."""

    @property
    def host(self) -> str:
        """The host name as given."""

    def dial(self, deadline: Deadline) -> Transport:
        """Return a new connection.

        Raises:
            ConnectError: the address cannot be reached.
            ConnectTimeoutError: the deadline passed first.
        """


class TransportListener(Protocol):
    """Accepts connections."""

    @property
    def address(self) -> tuple[str, int] | str:
        """The address that it listens on: host and port, or a name."""

    def accept(self) -> Transport | None:
        """Return the next connection; `None` after the listener was closed."""

    def close(self) -> None:
        """Stop listening and wake `accept`; from any thread; idempotent. Accepted connections stay open."""


class UnderlyingTransport(Transport, Protocol):
    """A transport that TLS or WebSocket can run over, with a `send` that may write a part."""

    def send(self, data: bytes | memoryview, deadline: Budget) -> int:
        """Write a part of `data` and return its size; see `stompy.transport.sockets.SocketTransport.send`."""


class UnderlyingDialer(Dialer, Protocol):
    """A dialer for such transports."""

    def dial(self, deadline: Deadline) -> UnderlyingTransport:
        """Return a new connection; raises as `Dialer.dial` does."""


class UnderlyingListener(TransportListener, Protocol):
    """A listener for such transports."""

    def accept(self) -> UnderlyingTransport | None:
        """Return the next connection; `None` after the listener was closed."""


def with_handshake(
    underlying: Transport,
    handshake: Callable[[], T],
    *,
    address: str,
    late: str,
    lost: Callable[[ConnectionLostError], ConnectError],
) -> T:
    """Return the result of a client's handshake over a connection; if it fails, close the connection.

    Args:
        underlying: the connection.
        handshake: does the handshake.
        address: the address that was dialed, for the error.
        late: the error message for a handshake that did not end in time.
        lost: returns the error for a connection that was lost.

    Raises:
        ConnectTimeoutError: the deadline of the handshake passed.
        ConnectError: the connection was lost.
    """
    try:
        return handshake()
    except BaseException as error:
        underlying.close()
        if isinstance(error, (StompTimeoutError, SendTimeoutError)):
            raise ConnectTimeoutError(late, address=address) from error
        if isinstance(error, ConnectionLostError):
            raise lost(error) from error
        raise


class LayerListener(Generic[LayerT]):
    """Accepts the connections of another listener, and puts a layer over each; the layer does its handshake.

    Args:
        listener: accepts the connections below; the `LayerListener` then owns it.
        layer: returns the transport over a connection.
    """

    def __init__(self, listener: UnderlyingListener, layer: Callable[[UnderlyingTransport], LayerT]) -> None:
        self._listener = listener
        self._layer = layer
        self.address = listener.address
        """The address that it listens on."""

    def accept(self) -> LayerT | None:
        """Return the next connection; `None` after the listener was closed."""
        underlying = self._listener.accept()
        return None if underlying is None else self._layer(underlying)

    def close(self) -> None:
        """Stop listening; from any thread."""
        self._listener.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._listener!r}>"
