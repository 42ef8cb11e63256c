"""Two ends of a stream, over each carrier, and calls that run in threads of their own."""

from __future__ import annotations

import gc
import linecache
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from stompy.deadline import Deadline
from stompy.transport.base import Dialer, Transport, TransportListener
from stompy.transport.tcp import TcpDialer, TcpListener, TcpTransport
from stompy.transport.tls.context import server_context
from stompy.transport.tls.options import TlsVersion
from stompy.transport.tls.transport import TlsDialer, TlsListener, TlsTransport
from stompy.transport.unix import UnixDialer, UnixListener
from stompy.transport.websocket.endpoints import AcceptedTransport, WebSocketDialer, WebSocketListener
from stompy.transport.websocket.handshake import HandshakePolicy
from tests.support.certificates import Certificates
from tests.support.memory import MemoryDialer, MemoryListener, memory_pair
from tests.support.ports import reserved_port
from tests.support.stacks import gave_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

GIVE_UP = 20.0
"""Seconds after which a test that waits for something has failed."""

_WAITING_PLACES = (
    ("locks.py", "wait"),
    ("stompy/transport/sockets.py", "_by_poll"),
    ("stompy/link/writer.py", "_await_lock"),
    ("stompy/link/writer.py", "wait"),
    ("stompy/transport/websocket/transport.py", "with self._lock:"),  # a line: the rest of `_write` does not wait
    ("threading.py", "wait"),
    ("threading.py", "join"),
    ("threading.py", "_wait_for_tstate_lock"),  # in `join`, before Python 3.13
)


class Call(threading.Thread):
    """A function running in its own thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(name="test-call", daemon=True)
        self._function = function
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        """Wait for the end; return what the function returned or raise what it raised."""
        self.join(GIVE_UP)
        if self.is_alive():
            gave_up("the call did not end")
        if self._error is not None:
            raise self._error
        return self._value

    def until_blocked(self) -> None:
        """Wait until the function waits for its peer."""
        give_up = time.monotonic() + GIVE_UP
        while time.monotonic() < give_up:
            frame = _frame_of(self)
            # Its caller too: a lock that the tests watch has an `acquire` in Python.
            for each in filter(None, (frame, frame and frame.f_back)):
                code = each.f_code  # some instructions are of no line
                place = code.co_name, linecache.getline(code.co_filename, each.f_lineno or 0).strip()
                if any(code.co_filename.endswith(file) and name in place for file, name in _WAITING_PLACES):
                    return
            assert self.is_alive(), "the call ended instead of waiting"
            time.sleep(0.001)
        gave_up("the call never came to wait")


def _frame_of(thread: threading.Thread) -> FrameType | None:
    # Before CPython 3.11.9 and 3.12.3, a garbage collection inside of this call can stop all threads for good.
    gc.disable()
    try:
        return sys._current_frames().get(thread.ident or -1)
    finally:
        gc.enable()


class Calling(Protocol):
    def __call__(self, function: Callable[[], Any], /) -> Call: ...


@pytest.fixture
def calling() -> Iterator[Calling]:
    """Start functions in threads; what a test leaves running fails it."""
    calls = []

    def start(function: Callable[[], Any]) -> Call:
        call = Call(function)
        calls.append(call)
        call.start()
        return call

    yield start
    for call in calls:
        call.join(GIVE_UP)
    if any(call.is_alive() for call in calls):
        gave_up("a call did not end")


@pytest.fixture
def tcp_pair(calling: Calling) -> Iterator[tuple[Transport, Transport]]:
    """Two ends of a TCP connection; closed before `calling` looks for calls that never ended."""
    listener = TcpListener()
    dialed = TcpDialer(*listener.address).dial(Deadline(GIVE_UP))
    accepted = listener.accept()
    listener.close()
    assert accepted is not None
    yield dialed, accepted
    dialed.close()
    accepted.close()


def place(carrier: str, certificates: Certificates, folder: Path) -> tuple[TransportListener, Dialer]:
    """Return a listener of the carrier, and who dials it."""
    if carrier == "memory":
        memory = MemoryListener()
        return memory, MemoryDialer(memory)
    if carrier == "unix":
        path = folder / "socket"
        return UnixListener(path), UnixDialer(path)
    tcp = TcpListener()
    dialer = TcpDialer(*tcp.address)
    if carrier == "tcp":
        return tcp, dialer
    if carrier == "ws":
        return web(tcp, dialer)
    version: TlsVersion = "1.2" if carrier == "tls 1.2" else "1.3"
    context = server_context(certificates.broker_options(version=version))
    secure = TlsListener(tcp, context), TlsDialer(dialer, certificates.client_options())
    return web(*secure) if carrier == "wss" else secure


def web(listener: TcpListener | TlsListener, dialer: TcpDialer | TlsDialer) -> tuple[TransportListener, Dialer]:
    """Return WebSocket over a listener and who dials it."""
    return (
        WebSocketListener(listener, HandshakePolicy(subprotocols=["v12.stomp"], origins=())),
        WebSocketDialer(dialer, host="test", subprotocols=["v12.stomp"]),
    )


def meet(listener: TransportListener, dialer: Dialer) -> tuple[Transport, Transport]:
    """Return a new connection: what was dialed, and what was accepted."""
    accepted: list[Transport | None] = []

    def accept() -> None:
        transport = listener.accept()
        if isinstance(transport, (TlsTransport, AcceptedTransport)):
            transport.do_handshake(Deadline(GIVE_UP))
        accepted.append(transport)

    accepting = Call(accept)
    accepting.start()
    dialed = dialer.dial(Deadline(GIVE_UP))
    accepting.result()
    assert accepted[0] is not None
    return dialed, accepted[0]


@pytest.fixture(params=["tcp", "memory", "unix", "tls 1.2", "tls 1.3", "ws", "wss"])
def pair(
    request: pytest.FixtureRequest, calling: Calling, certificates: Certificates, tmp_path: Path
) -> Iterator[tuple[Transport, Transport]]:
    """Two ends of a stream, over each carrier in turn."""
    if request.param != "memory":
        listener, dialer = place(request.param, certificates, tmp_path)
        both = meet(listener, dialer)
        listener.close()
        yield both
        for end in reversed(both):  # the server first, whom a client by WebSocket waits for
            end.close()
        return
    ends = memory_pair()
    yield ends
    for end in ends:
        end.close()


@pytest.fixture
def raw_server() -> Iterator[socket.socket]:
    """A listening socket of nobody's class, on a free port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(GIVE_UP)
        yield server


def ample() -> Deadline:
    """Return a deadline that no test reaches."""
    return Deadline(20)


@pytest.fixture
def dialed(raw_server: socket.socket) -> Iterator[tuple[TcpTransport, socket.socket]]:
    """A transport and the bare socket of its peer."""
    transport = TcpDialer(*raw_server.getsockname()).dial(ample())
    peer, _ = raw_server.accept()
    with peer:
        yield transport, peer
    transport.close()


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port that nobody listens on."""
    with reserved_port() as port:
        yield port
