"""Links over memory streams whose other end is a scripted broker."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default
from stompy.frames.encoder import encode
from stompy.link.link import Link
from stompy.link.receipts import Receipt
from stompy.transport.tcp import TcpDialer, TcpTransport
from tests.support.memory import memory_pair
from tests.support.peer import WITHIN, Linked, Peer, link_over
from tests.transport.conftest import Calling
from tests.transport.conftest import calling as calling  # the fixture serves here too


class Linking(Protocol):
    def __call__(self, *, capacity: int = 65_536, **options: Any) -> Linked: ...


@pytest.fixture
def linking(calling: Calling) -> Iterator[Linking]:
    """Return a function that makes a link; all are closed before `calling` looks for calls that never ended."""
    with contextlib.ExitStack() as stack:

        def make(*, capacity: int = 65_536, **options: Any) -> Linked:
            ours, theirs = memory_pair(capacity)
            linked = link_over(ours, theirs, **options)
            stack.callback(linked.close)
            return linked

        yield make


SEND = {"destination": "/queue/a"}


def send(link: Link, body: bytes = b"x", *, timeout: float | Default | None = DEFAULT) -> None:
    link.writer.write(encode("SEND", SEND.items(), body, grammar=link.protocol.grammar), timeout=timeout)


def send_many(link: Link, body: bytes, count: int) -> None:
    for _ in range(count):
        send(link, body)


def asked(link: Link, body: bytes = b"x") -> Receipt:
    receipt = link.receipts.make()
    fields = {**SEND, "receipt": receipt.id}
    link.writer.write(encode("SEND", fields.items(), body, grammar=link.protocol.grammar), receipt=receipt)
    return receipt


def reset(peer: Peer) -> None:
    """Close the stream so that the other side gets RST instead of the end of the stream."""
    transport = peer.transport
    assert isinstance(transport, ResettableTransport)
    transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.sock.close()


class ResettableTransport(TcpTransport):
    """A TCP stream whose socket a test may treat roughly."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock, peer="client")
        self.sock = sock


@pytest.fixture
def tcp_linked(calling: Calling) -> Iterator[Linked]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = TcpDialer(*server.getsockname()).dial(Deadline(WITHIN))
        theirs, _ = server.accept()
    linked = link_over(ours, ResettableTransport(theirs))
    yield linked
    linked.close()
