"""The closing handshake of a WebSocket while another thread writes."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from stompy.deadline import Budget
from stompy.errors import ConnectionLostError
from stompy.transport.sockets import SocketTransport
from stompy.transport.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    Decoder,
    close_payload,
    encode,
    parse_close,
)
from stompy.transport.websocket.transport import WebSocketTransport
from tests.support.seed import chance
from tests.transport.conftest import GIVE_UP, Calling, ample

CLOSING, NORMAL = close_payload(4001), close_payload(1000)


class Gate:
    """A place in which a thread waits until it may go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.opened.wait(GIVE_UP)


class Gated(SocketTransport):
    """A transport whose first write waits."""

    gate = Gate()

    def send(self, data: bytes | memoryview, deadline: Budget) -> int:
        self.gate.pass_through()
        return super().send(data, deadline)


class GatedText(bytes):
    """Bytes that take their time to say whether they are text, which is asked before they are written."""

    gate = Gate()

    def isascii(self) -> bool:
        self.gate.pass_through()
        return True


@pytest.fixture
def pair() -> Iterator[tuple[Gated, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(GIVE_UP)
    with theirs:
        transport = Gated(ours, peer="server")
        transport.gate = Gate()
        yield transport, theirs
        transport.close()


def received(peer: socket.socket, *, masks: bool = True) -> list[tuple[int, bytes, bool]]:
    """Return what comes up to a Close frame, and end the connection."""
    decoder = Decoder(masks=masks)
    pieces: list[tuple[int, bytes, bool]] = []
    while not decoder.closed:
        data = peer.recv(65_536)
        assert data, "the end, without a Close frame"
        pieces += decoder.receive(data)
    peer.close()
    return pieces


def test_a_message_that_is_being_written_is_followed_by_the_answer_to_a_close_frame(
    pair: tuple[Gated, socket.socket], calling: Calling
) -> None:
    underlying, peer = pair
    client = WebSocketTransport(underlying, client=True)
    writing = calling(lambda: client.sendall(b"x", ample()))
    assert underlying.gate.reached.wait(GIVE_UP)
    peer.sendall(encode(CLOSE, CLOSING))
    with pytest.raises(ConnectionLostError, match="4001"):
        client.recv(ample())
    client.shutdown()
    underlying.gate.opened.set()
    writing.result()
    assert received(peer) == [(BINARY, b"x", True), (CLOSE, CLOSING, True)]
    client.close()


@pytest.mark.parametrize("pings", [[b"a"], [b"a", b"b"]], ids=["one", "two"])
def test_a_message_waits_for_the_end_of_a_control_frame_that_is_being_written(
    pair: tuple[Gated, socket.socket], calling: Calling, pings: list[bytes]
) -> None:
    underlying, peer = pair
    client = WebSocketTransport(underlying, client=True)
    peer.sendall(b"".join(encode(PING, ping) for ping in pings) + encode(BINARY, b"y"))
    reading = calling(lambda: client.recv(ample()))
    assert underlying.gate.reached.wait(GIVE_UP)
    writing = calling(lambda: client.sendall(b"x", ample()))
    writing.until_blocked()
    underlying.gate.opened.set()
    assert reading.result() == b"y"
    writing.result()
    client.shutdown()
    pongs = [(PONG, ping, True) for ping in pings]
    assert received(peer) == [*pongs, (BINARY, b"x", True), (CLOSE, NORMAL, True)]
    client.close()


def test_a_message_that_is_too_late_does_not_keep_the_answer_to_a_close_frame_back(
    pair: tuple[Gated, socket.socket], calling: Calling
) -> None:
    underlying, peer = pair
    underlying.gate.opened.set()
    client, text = WebSocketTransport(underlying, client=True, text=True), GatedText(b"x")
    text.gate = Gate()
    writing = calling(lambda: client.sendall(text, ample()))
    assert text.gate.reached.wait(GIVE_UP)
    peer.sendall(encode(CLOSE, CLOSING))
    with pytest.raises(ConnectionLostError, match="4001"):
        client.recv(ample())
    client.shutdown()
    text.gate.opened.set()
    with pytest.raises(ConnectionLostError, match="shut down"):
        writing.result()
    assert received(peer) == [(CLOSE, CLOSING, True)]
    client.close()


def empty_frames(draw: random.Random, count: int, *, client: bool) -> bytes:
    """Return frames that bring no byte of a message; `client` sends them."""
    key = bytes(4) if client else None
    frames: list[bytes] = []
    while len(frames) < count:
        kind = draw.choice((PING, PONG, BINARY, CONTINUATION))
        if kind == CONTINUATION:  # a message of empty fragments alone
            frames += [encode(BINARY, b"", key, last=False), encode(CONTINUATION, b"", key)]
        else:
            frames.append(encode(kind, b"" if kind == BINARY else draw.randbytes(draw.randrange(126)), key))
    return b"".join(frames)


@pytest.mark.parametrize("client", [True, False], ids=["client", "broker"])
def test_a_flood_of_frames_without_content_ends_the_connection(
    client: bool, calling: Calling, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="stompy.transport")
    draw = chance("a flood", client)
    ours, theirs = socket.socketpair()
    theirs.settimeout(GIVE_UP)
    with theirs:
        transport = WebSocketTransport(SocketTransport(ours, peer="peer"), client=client)
        few = empty_frames(draw, 1_000, client=not client)
        flood = empty_frames(draw, 10_000, client=not client) * 20

        def write() -> None:
            with contextlib.suppress(OSError):
                theirs.sendall(few + encode(BINARY, b"x", None if client else bytes(4)) + flood)

        writing = calling(write)
        reading = calling(lambda: received(theirs, masks=client))
        assert transport.recv(ample()) == b"x"
        with pytest.raises(ConnectionLostError, match="flood of frames without content"):
            transport.recv(ample())
        transport.close()
        writing.result()
        *_, (opcode, payload, _) = reading.result()
        assert (opcode, parse_close(payload)[0]) == (CLOSE, 1008)
        said = "peer: ended: the WebSocket peer sent a flood of frames without content (more than 1000 a second)"
        assert caplog.messages == ([] if client else [said]), "a client's own error says so"


@pytest.mark.parametrize("client", [True, False], ids=["client", "broker"])
def test_messages_and_answers_to_pings_leave_whole_and_in_order(client: bool, calling: Calling) -> None:
    """The peer reads little at a time, so that frames are written in parts."""
    draw = chance("messages and pings", client)
    bodies = [bytes([draw.randrange(255)]) * draw.choice((1, 130, 5_000)) for _ in range(400)]
    key, decoder = None if client else bytes(4), Decoder(masks=client)
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    theirs.settimeout(GIVE_UP)
    transport = WebSocketTransport(SocketTransport(ours, peer="peer"), client=client)

    def read() -> list[tuple[int, bytes, bool]]:
        pieces: list[tuple[int, bytes, bool]] = []
        while not pieces or pieces[-1][1] != b"\xff":
            data = theirs.recv(1_000)
            assert data, "the end came early"
            pieces += decoder.receive(data)
        return pieces

    def ping() -> None:
        for number in range(2_000):
            theirs.sendall(encode(PING, b"%d" % number, key))

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with theirs:
            reading, peer = calling(lambda: transport.recv(ample())), calling(read)
            pinging = calling(ping)
            for body in bodies:
                transport.sendall(body, ample())
            pinging.result()
            theirs.sendall(encode(BINARY, b"x", key))
            assert reading.result() == b"x"
            transport.sendall(b"\xff", ample())
            pieces = peer.result()
    finally:
        sys.setswitchinterval(switching)
        transport.close()
    assert b"".join(payload for opcode, payload, _ in pieces if opcode == BINARY) == b"".join((*bodies, b"\xff"))
    answered = [int(payload) for opcode, payload, _ in pieces if opcode == PONG]
    assert answered == sorted(set(answered))
