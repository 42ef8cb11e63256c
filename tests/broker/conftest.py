"""A broker over the memory transport or TCP, and raw clients to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from stompy.broker import Broker
from stompy.broker.message import MessageHead, StoredMessage, route_to
from stompy.broker.profile import Profile, SubscribeRequest
from stompy.broker.queues import Item, Queue
from stompy.broker.session_state import Consumer, OutgoingMessage, SessionState
from stompy.broker.settings import BrokerStats, MemoryBudget, SessionBudget
from stompy.broker.write_queue import WriteQueue
from stompy.deadline import Deadline
from stompy.frames.grammar import Version, grammar_of
from stompy.protocol.server import ServerProtocol
from stompy.transport.base import Dialer
from stompy.transport.tcp import TcpDialer
from tests.support.memory import MemoryDialer, MemoryListener
from tests.support.memory_broker import broker_over
from tests.support.peer import until
from tests.support.rawclient import WITHIN, RawClient


class Served:
    """A running broker and the clients that a test made."""

    def __init__(self, broker: Broker, dialer: Dialer) -> None:
        self.broker = broker
        self._dialer = dialer
        self._clients: list[RawClient] = []

    def dial(self, version: str = "1.2") -> RawClient:
        """Return a client that has not said anything yet."""
        client = RawClient(self._dialer.dial(Deadline(WITHIN)), version)
        self._clients.append(client)
        return client

    def client(self, version: str = "1.2", **headers: str) -> RawClient:
        """Return a connected client."""
        client = self.dial(version)
        client.connect(**headers)
        return client

    def depth(self, queue: str) -> tuple[int, int]:
        """Return ready and unacknowledged messages of a queue."""
        found = self.broker.stats().queues.get(queue)
        return (found.ready, found.unacked) if found else (0, 0)

    def until(self, holds: Callable[[BrokerStats], bool]) -> None:
        """Wait until the broker's statistics are as wanted."""
        until(lambda: holds(self.broker.stats()))

    def close(self) -> None:
        """Drop all clients."""
        for client in self._clients:
            client.close()


class Serve(Protocol):
    """Starts a broker."""

    def __call__(self, *, capacity: int = 65_536, **options: Any) -> Served: ...


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a broker over the memory transport."""
    with contextlib.ExitStack() as stack:

        def start(*, capacity: int = 65_536, **options: Any) -> Served:
            listener = MemoryListener(capacity=capacity)
            broker = stack.enter_context(broker_over(listener, **options))
            served = Served(broker, MemoryDialer(listener))
            stack.callback(served.close)
            return served

        yield start


@pytest.fixture
def served(serve: Serve) -> Served:
    """Return a broker with default settings over the memory transport."""
    return serve()


@pytest.fixture
def serve_tcp() -> Iterator[Serve]:
    """Return a function that starts a broker over TCP."""
    with contextlib.ExitStack() as stack:

        def start(*, capacity: int = 0, **options: Any) -> Served:
            broker = stack.enter_context(Broker(**options))
            served = Served(broker, tcp_dialer(broker))
            stack.callback(served.close)
            return served

        yield start


def a_session_state(version: str = "1.2", *, max_bytes: int = 1_000_000, max_frames: int = 1_000) -> SessionState:
    """Return the state of a session that is connected, without threads or transport."""
    protocol = ServerProtocol()
    protocol.receive(b"CONNECT\naccept-version:%b\nhost:h\n\n\0" % version.encode())
    protocol.connected("s-1")
    write_queue: WriteQueue[OutgoingMessage] = WriteQueue(max_bytes=max_bytes, max_frames=max_frames, touched={})
    budget = SessionBudget(MemoryBudget(1_000_000, 1_000_000), 1_000_000)
    return SessionState(
        "s-1", peer="test", protocol=protocol, write_queue=write_queue, budget=budget, max_unacked=1_000
    )


def a_message(destination: str = "/queue/a", body: bytes = b"x", **headers: str) -> StoredMessage:
    """Return a message that a 1.2 client has sent; in header names `_` stands for `-`."""
    pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
    route = route_to(destination, grammar_of(Version.V1_2), last=pairs)
    return StoredMessage(MessageHead(route, b"", len(body)), body)


def a_consumer(
    session: SessionState,
    queue: Queue,
    *,
    mode: str = "client",
    prefetch: int = 1_000,
    key: str = "k",
    identity: str = "1",
) -> Consumer:
    """Return a subscription that takes part in a queue."""
    options = SubscribeRequest(mode=mode, prefetch=prefetch)
    consumer = Consumer(
        session=session,
        name=f"#{identity}",
        identity=identity,
        destination=queue.name,
        options=options,
        key=key,
        rules=Profile(),
    )
    queue.join(consumer)
    return consumer


def a_queue(*, max_messages: int = 1_000, max_bytes: int = 1_000_000) -> Queue:
    """Return an empty queue."""
    return Queue("/queue/a", max_messages=max_messages, max_bytes=max_bytes)


def an_item(order: int = 1, queue: Queue | None = None, **headers: str) -> Item:
    """Return a message with its place, taken from a queue."""
    item = Item(a_message(body=b"x", **headers), order)
    item.queue = queue or a_queue()
    return item


def hand_out(queue: Queue) -> list[tuple[Item, str]]:
    """Hand out what a queue has; return what could not be delivered."""
    refused: list[tuple[Item, str]] = []
    queue.dispatch(lambda item, reason: refused.append((item, reason)), 0.0)
    return refused


def tcp_dialer(broker: Broker) -> TcpDialer:
    """Return a dialer to a broker that listens on TCP."""
    host, _, port = broker.url.removeprefix("stomp://").rpartition(":")
    return TcpDialer(host, int(port))
