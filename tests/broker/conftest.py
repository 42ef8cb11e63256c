"""A broker over the memory transport or TCP, and raw clients to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from stompy.broker import Broker
from stompy.broker.stats import BrokerStats
from stompy.deadline import Deadline
from stompy.transport.base import Dialer
from stompy.transport.memory import MemoryDialer, MemoryListener
from stompy.transport.tcp import TcpDialer
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
        give_up = time.monotonic() + WITHIN
        while not holds(self.broker.stats()):
            assert time.monotonic() < give_up, self.broker.stats()
            time.sleep(0.001)

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
            broker = stack.enter_context(Broker(listener=listener, **options))
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


def tcp_dialer(broker: Broker) -> TcpDialer:
    """Return a dialer to a broker that listens on TCP."""
    host, _, port = broker.url.removeprefix("stomp://").rpartition(":")
    return TcpDialer(host, int(port))
