"""Dialer for WebSocket, and a listener that takes WebSocket clients and others on one port.

| thread | may call | blocks on |
|---|---|---|
| the reader of an accepted connection | `recv`, whose first calls do the handshake | the underlying transport |
| its writer | `sendall` | until the peer's first bytes have shown its protocol; then as the transport chosen |
| any | `shutdown` | nothing |
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stompy.deadline import Budget, Deadline, deadline_of
from stompy.errors import ConnectError, ConnectionLostError, TlsError
from stompy.secret import Secret, without_traceback
from stompy.transport.base import LayerListener, with_handshake
from stompy.transport.diagnosis import detect_protocol
from stompy.transport.sockets import SocketTransport
from stompy.transport.websocket import handshake
from stompy.transport.websocket.handshake import HandshakePolicy, HandshakeRefused, WebSocketOptions
from stompy.transport.websocket.transport import WebSocketTransport
from stompy.world import os, threading

if TYPE_CHECKING:
    from stompy.transport.base import UnderlyingDialer, UnderlyingListener, UnderlyingTransport

_LOG = logging.getLogger("stompy.transport")

_FORBIDDEN = 403
_START = b"GET "
"""The first bytes of a WebSocket client; no STOMP frame begins so."""

_DECIDED_WITHIN = 1.0
"""Seconds that the writer waits for the peer's first bytes; it writes before them only to refuse a client."""

_RESPONSE_WITHIN = 5.0
"""Seconds in which a client must take a response that is no upgrade."""


class WebSocketDialer:
    """Connects by WebSocket.

    Args:
        dialer: makes the connections below.
        host: the `Host` header.
        target: path and query, percent-encoded; not shown, as the query may hold a token.
        subprotocols: to offer, the preferred one first.
        options: headers and the like.
    """

    def __init__(
        self,
        dialer: UnderlyingDialer,
        *,
        host: str,
        target: str = "/",
        subprotocols: Sequence[str] = (),
        options: WebSocketOptions | None = None,
    ) -> None:
        self._dialer = dialer
        self._host = host
        self._target = Secret(target)
        self._subprotocols = subprotocols
        self._options = options or WebSocketOptions()
        self.address = dialer.address
        """The host and the port."""
        self.host = dialer.host
        """The host as given."""

    def dial(self, deadline: Deadline) -> WebSocketTransport:
        """Return a new WebSocket.

        Raises:
            ConfigurationError: a setting cannot be used; nothing was sent.
            ConnectError: the address cannot be reached, or does not speak WebSocket; or `WebSocketRefusedError`.
            ConnectTimeoutError: the deadline passed first.
        """
        headers = self._options.headers_now(self.address)
        underlying = self._dialer.dial(deadline)
        return with_handshake(
            underlying,
            lambda: self._handshake(underlying, headers, deadline),
            address=self.address,
            late="the peer did not answer the WebSocket handshake in time; does it speak HTTP on this port?",
            lost=lambda error: ConnectError(f"in the WebSocket handshake: {error}", address=self.address),
        )

    def _handshake(
        self, underlying: UnderlyingTransport, headers: Secret[Mapping[str, str]], deadline: Deadline
    ) -> WebSocketTransport:
        key = os.urandom(16)
        without_traceback(lambda: underlying.sendall(self._request(key, headers), deadline))
        head, received = self._response(underlying, deadline)
        subprotocol = handshake.check_response(head, key, self._subprotocols, received, address=self.address)
        return WebSocketTransport(
            underlying, client=True, subprotocol=subprotocol, text=self._options.text, received=received
        )

    def _request(self, key: bytes, headers: Secret[Mapping[str, str]]) -> bytes:
        return handshake.request_head(
            self._target.reveal(), self._host, key, subprotocols=self._subprotocols, headers=headers.reveal()
        )

    def _response(self, underlying: UnderlyingTransport, deadline: Deadline) -> tuple[bytes, bytes]:
        """Return the head of the response, and the bytes after it."""
        received = b""
        while (end := received.find(handshake.END)) < 0:
            if len(received) > handshake.MAX_HEAD:
                raise ConnectError("the peer answered with too long a head of HTTP", address=self.address)
            data = underlying.recv(deadline)
            if not data:
                detected = "closed the connection instead of answering" if not received else "sent half an answer"
                raise ConnectError(f"the peer {detected} the WebSocket handshake", address=self.address)
            received += data
            self._check_greeting(received)
        end += len(handshake.END)
        return received[:end], received[end:]

    def _check_greeting(self, received: bytes) -> None:
        detected = detect_protocol(received)
        if detected == "TLS":
            message = "the broker speaks TLS on this port: write wss:// instead of ws://"
            raise TlsError(message, reason="needs-tls", address=self.address)
        if detected is not None and detected != "HTTP":
            message = f"the peer speaks {detected} on this port, not WebSocket"
            raise ConnectError(message, address=self.address)

    def __repr__(self) -> str:
        return f"<WebSocketDialer {self.address}>"


class WebSocketListener(LayerListener["AcceptedTransport"]):
    """Accepts clients that speak WebSocket, and clients that do not; their first bytes decide.

    Args:
        listener: accepts the connections below; the `WebSocketListener` then owns it.
        policy: which clients it accepts.
    """

    def __init__(self, listener: UnderlyingListener, policy: HandshakePolicy) -> None:
        super().__init__(listener, lambda underlying: AcceptedTransport(underlying, policy))


class AcceptedTransport:
    """A connection whose first bytes decide its protocol; see `stompy.transport.base.Transport`.

    Args:
        underlying: the transport below, which this one then owns.
        policy: as for `WebSocketListener`.
    """

    def __init__(self, underlying: UnderlyingTransport, policy: HandshakePolicy) -> None:
        self._underlying = underlying
        self._policy = policy
        self._start = b""
        self._chosen: UnderlyingTransport | WebSocketTransport | None = None
        self._decided = threading.Event()  # also set at the end
        self._refused = False
        self.peer = underlying.peer
        """The name of the peer."""
        self.subprotocol: str | None = None
        """The agreed subprotocol of a WebSocket."""

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Return the next bytes; `b""` at the end of the stream or after `shutdown`.

        Raises:
            StompTimeoutError: the deadline passed.
            ConnectionLostError: the stream broke, or the WebSocket handshake failed.
        """
        if self._chosen is None:
            self.do_handshake(deadline)
        if self._start:
            start, self._start = self._start, b""
            return start
        return b"" if self._chosen is None else self._chosen.recv(deadline)

    def do_handshake(self, deadline: Deadline | None) -> None:
        """Read until the first bytes have shown the protocol of the peer; raises as `recv` does."""
        while self._chosen is None:
            data = self._underlying.recv(deadline)
            if not data:
                self._start = b""
                self._decided.set()
                return
            if self._refused:
                continue  # unread bytes could destroy the response
            self._start += data
            if not self._policy.streams or _START.startswith(self._start[: len(_START)]):
                self._try_upgrade()
            else:
                self._choose(self._underlying)

    def _choose(self, transport: UnderlyingTransport | WebSocketTransport) -> None:
        self._chosen = transport
        self._decided.set()

    def _try_upgrade(self) -> None:
        """Do the handshake if its head is complete.

        Raises:
            ConnectionLostError: it is refused.
        """
        head, end, rest = self._start.partition(handshake.END)
        is_get = _START.startswith(self._start[: len(_START)])
        if is_get and not end and len(head) <= handshake.MAX_HEAD:
            return
        self._start = b""
        try:
            if not is_get:
                raise HandshakeRefused(405, "only GET is known here")
            if len(head) > handshake.MAX_HEAD:
                raise HandshakeRefused(431, f"the head of the request is longer than {handshake.MAX_HEAD} bytes")
            response = None if self._policy.respond is None else self._policy.respond(head)
            if response is not None:
                self._finish(response, Deadline(_RESPONSE_WITHIN))
                raise ConnectionLostError(f"the HTTP request of {self.peer} was answered")
            request = handshake.parse_request(head)
            if request.origin is not None and not (request.of_this_server or self._policy.admits(request.origin)):
                accepted = (f"http://{request.host}", *self._policy.origins)
                message = f"the origin {request.origin!r} is not among the broker's origins (option origins, --origin)"
                raise HandshakeRefused(403, message + handshake.told_apart(request.origin, accepted))
            self.subprotocol = handshake.choose_subprotocol(request.subprotocols, self._policy.subprotocols)
        except HandshakeRefused as refused:
            level = logging.WARNING if refused.status == _FORBIDDEN else logging.INFO
            _LOG.log(level, "%s: refused the WebSocket handshake: %s", self.peer, refused)
            self._finish(handshake.refusal(refused), Deadline(0))
            raise ConnectionLostError(f"refused the WebSocket handshake of {self.peer}: {refused}") from None
        self._underlying.sendall(handshake.accept_head(request.key, self.subprotocol), Deadline(0))
        _LOG.debug("%s: WebSocket, subprotocol %s", self.peer, self.subprotocol)
        self._choose(WebSocketTransport(self._underlying, client=False, subprotocol=self.subprotocol, received=rest))

    def _finish(self, response: bytes, deadline: Deadline) -> None:
        """Write a response, after which the connection ends."""
        self._refused = True
        self._decided.set()
        self._underlying.sendall(response, deadline)
        self._underlying.shutdown_write()

    def sendall(self, data: bytes, deadline: Budget) -> None:
        """Write all of `data`; raises as the chosen transport does."""
        self._transport_to_write(deadline).sendall(data, deadline)

    def _transport_to_write(self, deadline: Budget) -> UnderlyingTransport | WebSocketTransport:
        if (chosen := self._chosen) is None:
            self._decided.wait(deadline_of(deadline).sooner(_DECIDED_WITHIN).remaining())
            chosen = self._chosen
            if chosen is None and (self._start or self._decided.is_set()):
                raise ConnectionLostError(f"the WebSocket handshake with {self.peer} is not done", outcome="not-sent")
        return chosen or self._underlying  # a client that waits for the first bytes is no WebSocket client

    @property
    def keeps_messages(self) -> bool:
        """Whether it is a WebSocket, or may become one."""
        return self._chosen is None or isinstance(self._chosen, WebSocketTransport)

    def send_messages(self, messages: Sequence[bytes], deadline: Budget) -> None:
        """Write several messages; see `stompy.transport.base.MessageTransport.send_messages`."""
        chosen = self._transport_to_write(deadline)
        if isinstance(chosen, WebSocketTransport):
            chosen.send_messages(messages, deadline)
        else:
            chosen.sendall(b"".join(messages), deadline)

    def send_now(self, messages: list[bytes]) -> list[bytes] | None:
        """Write without waiting; see `stompy.transport.base.DirectTransport.send_now`."""
        chosen = self._chosen
        return chosen.send_now(messages) if isinstance(chosen, (SocketTransport, WebSocketTransport)) else messages

    @property
    def _current(self) -> UnderlyingTransport | WebSocketTransport:
        return self._chosen or self._underlying

    def shutdown(self) -> None:
        """End both directions and wake waiting threads; from any thread."""
        self._decided.set()
        self._current.shutdown()

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        self._current.shutdown_write()

    def close(self) -> None:
        """Shut down and release the resources of the operating system."""
        self._decided.set()
        self._current.close()

    def __repr__(self) -> str:
        return f"<AcceptedTransport over {self._current!r}>"
