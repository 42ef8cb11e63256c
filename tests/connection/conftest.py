"""Connections over TCP whose other end is a scripted broker, and listeners that keep what they hear."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import pytest

import stompy
from stompy.frames.frame import Frame
from stompy.transport.tcp import TcpListener
from tests.support.peer import WITHIN, Peer, Served, until
from tests.support.ports import reserved_port
from tests.transport.conftest import Call, Calling
from tests.transport.conftest import calling as calling

QUICK = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
"""A policy that does not keep a test waiting."""

ACTIVEMQ, ARTEMIS, RABBITMQ, EMBEDDED = "ActiveMQ/6.3.1", "ActiveMQ-Artemis/2.56.0", "RabbitMQ/4.3.6", "stompy-broker/1"


class Events(stompy.Listener):
    """Keeps every event but messages, which are left to whoever receives, with the thread it came on."""

    def __init__(self, name: str = "", shared: list[tuple[str, str]] | None = None) -> None:
        self.name = name
        self.shared = shared if shared is not None else []
        self.events: list[tuple[str, Any]] = []
        self.threads: set[str] = set()
        self.over = threading.Event()

    def _note(self, event: str, what: Any = None) -> None:
        self.threads.add(threading.current_thread().name)
        self.events.append((event, what))
        self.shared.append((self.name, event))

    def on_connected(self, event: stompy.ConnectedEvent) -> None:
        self._note("connected", event.frame)

    def on_receipt(self, frame: Frame) -> None:
        self._note("receipt", frame)

    def on_error(self, frame: Frame) -> None:
        self._note("error", frame)

    def on_heartbeat_timeout(self, event: stompy.HeartbeatTimeoutEvent) -> None:
        self._note("heartbeat_timeout")

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        self._note("disconnected", event.reason)
        self.over.set()

    def on_closed(self, event: stompy.ClosedEvent) -> None:
        self._note("closed", event.reason)

    @property
    def names(self) -> list[str]:
        """The events so far."""
        return [event for event, _ in self.events]

    def await_event(self, event: str, count: int = 1) -> Any:
        """Wait until an event has come so often, and return what it came with."""
        until(lambda: self.names.count(event) >= count, event)
        return [what for name, what in self.events if name == event][count - 1]


class Recorder(Events):
    """Keeps messages, too."""

    def on_message(self, message: stompy.Message) -> None:
        self._note("message", message)


class Failing(Recorder):
    """A handler that raises for the bodies named, and a listener that records it."""

    def __init__(self, *bad: str, error: BaseException | None = None) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.error = error or ZeroDivisionError("handler")
        self._bad = bad

    def on_handler_error(self, event: stompy.HandlerErrorEvent) -> None:
        self._note("handler_error", (event.message.text, event.error, event.message.settled))

    def __call__(self, message: stompy.Message) -> None:
        self.seen.append(message.text)
        if message.text in self._bad:
            raise self.error
        if message.ack_mode != "auto":
            message.ack()


class Acting(stompy.Listener):
    """Does something at an event, and keeps what it raised."""

    def __init__(self, event: str, action: Any) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._action = action
        setattr(self, event, self._act)

    def _act(self, *what: Any) -> None:
        try:
            self._action(*what)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def finished(self) -> None:
        """Wait for the action; raise what it raised."""
        assert self.done.wait(WITHIN)
        if self.error is not None:
            raise self.error


class Talk:
    """A connection, the broker's end of it, and the CONNECT frame that came there."""

    def __init__(self, conn: stompy.Connection, peer: Peer, calling: Calling, *, request: Frame) -> None:
        self.conn = conn
        self.request = request
        self.peer = peer
        self._calling = calling

    def subscribe(self, *arguments: Any, **options: Any) -> stompy.Subscription:
        """Subscribe while the peer confirms."""
        call = self._calling(lambda: self.conn.subscribe(*arguments, **options))
        self.peer.expect_and_confirm("SUBSCRIBE")
        subscription: stompy.Subscription = call.result()
        return subscription

    def received(self, body: bytes | str = b"", **options: Any) -> stompy.Message:
        """Subscribe, and return a message that came by the subscription."""
        mode = options.pop("mode", "client-individual")
        subscription = self.subscribe("/queue/a", ack=mode)
        if mode != "auto" and self.peer.version.value == "1.2":
            options.setdefault("ack", "ack-1")
        self.peer.deliver(body, subscription=subscription.id, **options)
        return subscription.receive(timeout=WITHIN)

    def leave(self, **options: Any) -> Call:
        """Begin to disconnect."""
        return self._calling(lambda: self.conn.close(**options))

    def close(self) -> None:
        """End both."""
        self.peer.close()
        self.conn.close(timeout=WITHIN)


class Talking(Protocol):
    def __call__(self, version: str = "1.2", **options: Any) -> Talk: ...


@pytest.fixture
def talking(calling: Calling) -> Iterator[Talking]:
    """Return a function that connects to a scripted peer."""
    with contextlib.ExitStack() as stack:

        def make(
            version: str = "1.2",
            *,
            server: str | None = "peer/1",
            peer_heartbeat: tuple[float, float] = (0.0, 0.0),
            connected: Mapping[str, str] | None = None,
            **options: Any,
        ) -> Talk:
            listener = TcpListener()
            host, port = listener.address
            options.setdefault("heartbeat", (0, 0))
            call = calling(lambda: stompy.connect(f"stomp://{host}:{port}", **options))
            transport = listener.accept()
            listener.close()
            assert transport is not None
            peer = Peer(transport, version=version, server=server, heartbeat=peer_heartbeat)
            request = peer.greet(connected)
            talk = Talk(call.result(), peer, calling, request=request)
            stack.callback(talk.close)
            return talk

        yield make


class Serving(Protocol):
    def __call__(
        self, version: str = "1.2", *, on: Callable[[Frame], object] | None = None, **options: Any
    ) -> tuple[stompy.Connection, Served]: ...


@pytest.fixture
def serving(talking: Talking) -> Iterator[Serving]:
    """Return a function that connects to a peer that confirms everything by itself."""
    with contextlib.ExitStack() as stack:

        def make(
            version: str = "1.2", *, on: Callable[[Frame], object] | None = None, **options: Any
        ) -> tuple[stompy.Connection, Served]:
            talk = talking(version, **options)
            served = Served(talk.peer, on)
            served.start()
            stack.callback(served.close)
            return talk.conn, served

        yield make


class Sessions:
    """An address whose sessions are scripted, one after the other."""

    def __init__(self, calling: Calling) -> None:
        self._reserved = contextlib.ExitStack()  # else another program may get the port while it is shut
        port = self._reserved.enter_context(reserved_port())
        self._listener = TcpListener("127.0.0.1", port)
        self.url = f"stomp://127.0.0.1:{port}"
        self._calling = calling
        self._open: list[Peer] = []
        self._conn: stompy.Connection | None = None

    def accept(self, version: str = "1.2", server: str | None = "peer/1", **options: Any) -> Peer:
        """Wait for the client's next session, and say nothing yet."""
        transport = self._listener.accept()
        assert transport is not None
        peer = Peer(transport, version=version, server=server, **options)
        self._open.append(peer)
        return peer

    @property
    def latest(self) -> Peer:
        """The newest session."""
        return self._open[-1]

    def next(self, version: str = "1.2", server: str | None = "peer/1", **options: Any) -> Peer:
        """Wait for the client's next session, and greet it."""
        peer = self.accept(version, server, **options)
        peer.greet()
        return peer

    def shut(self) -> None:
        """Refuse further sessions."""
        self._listener.close()

    def reopen(self) -> None:
        """Take sessions again, at the same address."""
        host, port = self._listener.address
        self._listener = TcpListener(host, port)

    def connect(
        self,
        version: str = "1.2",
        server: str | None = "peer/1",
        *,
        peer_heartbeat: tuple[float, float] = (0.0, 0.0),
        **options: Any,
    ) -> tuple[stompy.Connection, Peer]:
        """Return a connection that comes back, and its first session."""
        options.setdefault("reconnect", QUICK)
        options.setdefault("heartbeat", (0, 0))
        call = self._calling(lambda: stompy.connect(self.url, **options))
        peer = self.next(version, server, heartbeat=peer_heartbeat)
        self._conn = call.result()
        assert self._conn is not None
        return self._conn, peer

    def close(self) -> None:
        """End all of it."""
        self._listener.close()
        for peer in self._open:
            peer.close()
        if self._conn is not None:
            self._conn.close(timeout=WITHIN)
        self._reserved.close()


@pytest.fixture
def sessions(calling: Calling) -> Iterator[Sessions]:
    with contextlib.closing(Sessions(calling)) as made:
        yield made
