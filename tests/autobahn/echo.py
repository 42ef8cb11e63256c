"""WebSocket ends that send each message back, made of stompy's transports, for the Autobahn test suite to talk to."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError
from stompy.transport.sockets import SocketTransport
from stompy.transport.websocket.endpoints import AcceptedTransport, WebSocketDialer, WebSocketListener
from stompy.transport.websocket.frames import BINARY, TEXT, Decoder, message_frames
from stompy.transport.websocket.handshake import END, HandshakePolicy, WebSocketOptions
from stompy.transport.websocket.transport import WebSocketTransport

HOST = "127.0.0.1"
WITHIN = 60.0
"""Seconds that the suite gets to read or write anything."""


class Tap(SocketTransport):
    """A socket that finds the messages in what it receives, as a WebSocket transport returns one stream of bytes.

    Args:
        sock: the socket.
        client: whether this is the client.
    """

    def __init__(self, sock: socket.socket, *, client: bool) -> None:
        super().__init__(sock, peer="autobahn")
        self._client = client
        self._transport: WebSocketTransport | AcceptedTransport | None = None
        self._head: bytes | None = b""
        self._decoder = Decoder(masks=not client, checks_text=not client)
        self._parts: list[bytes] = []
        self._messages: list[tuple[int, bytes]] = []  # not answered yet, each with its opcode

    def recv(self, deadline: Deadline | None = None) -> bytes:
        """Answer the messages that the transport has dealt with; then return the next bytes."""
        self._answer()
        data = super().recv(deadline)
        frames = data
        if self._head is not None:  # of the handshake
            self._head, end, frames = (self._head + data).partition(END)
            self._head = None if end else self._head
        for opcode, part, last in self._decoder.receive(frames):
            if opcode in (TEXT, BINARY):
                self._parts.append(part)
                if last:
                    self._messages.append((opcode, b"".join(self._parts)))
                    self._parts = []
        return data

    def echo(self, transport: WebSocketTransport | AcceptedTransport) -> None:
        """Send each message back by the transport over this one; then end it as links and sessions do."""
        self._transport = transport
        with contextlib.suppress(ConnectionLostError):
            while transport.recv(Deadline(WITHIN)):
                self._answer()
            self._answer()
        if not self._client:
            transport.shutdown_write()
            with contextlib.suppress(ConnectionLostError):
                while transport.recv(Deadline(WITHIN)):
                    pass
        transport.close()

    def _answer(self) -> None:
        transport = self._transport
        if transport is None or self._decoder.error is not None:  # after which a Close frame was sent
            return
        messages, self._messages = self._messages, []
        for opcode, message in messages:
            if message and (not self._client or opcode == TEXT):
                transport.sendall(message, WITHIN)
            else:  # the transport sends no empty message, as STOMP has none, and a client's are all text, if they can
                transport.sendall(b"", WITHIN)
                frames = message_frames(opcode, message, lambda: os.urandom(4) if self._client else None)
                self.sendall(b"".join(frames), WITHIN)


class _Dialer:
    def __init__(self, port: int) -> None:
        self.host = HOST
        self.address = f"{HOST}:{port}"
        self._port = port
        self.tap: Tap

    def dial(self, deadline: Deadline) -> Tap:
        self.tap = Tap(socket.create_connection((HOST, self._port), deadline.remaining()), client=True)
        return self.tap


def dial(port: int, target: str) -> tuple[Tap, WebSocketTransport]:
    """Connect to a server of the suite."""
    dialer = _Dialer(port)
    options = WebSocketOptions(text=True)
    transport = WebSocketDialer(dialer, host=dialer.address, target=target, options=options).dial(Deadline(WITHIN))
    return dialer.tap, transport


class _Listener:
    def __init__(self) -> None:
        self._sock = socket.create_server((HOST, 0))
        self.address: tuple[str, int] = self._sock.getsockname()
        self.tap: Tap

    def accept(self) -> Tap | None:
        try:
            sock, _ = self._sock.accept()
        except OSError:  # after `close`
            return None
        self.tap = Tap(sock, client=False)
        return self.tap

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Serve one client after another in the block; yields the port."""
    listener = _Listener()
    listening = WebSocketListener(listener, HandshakePolicy(subprotocols=(), origins=("*",)))
    thread = threading.Thread(target=_serve, args=(listener, listening))
    thread.start()
    try:
        yield listener.address[1]
    finally:
        listening.close()
        thread.join()


def _serve(listener: _Listener, listening: WebSocketListener) -> None:
    while (accepted := listening.accept()) is not None:
        accepted.do_handshake(Deadline(WITHIN))
        listener.tap.echo(accepted)
