"""Outboxes in a temporary folder, and a broker that does as a test tells it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from stompy.backoff import Backoff
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError
from stompy.frames.frame import Frame
from stompy.outbox.outbox import Outbox
from stompy.outbox.record import Row
from stompy.outbox.store import Room, Store
from stompy.transport.tcp import TcpListener
from tests.support.peer import WITHIN, Peer

DEDUPE = "stompy-dedupe-id"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.outbox")


def a_row(
    body: bytes = b"body", *, id: str = "id-1", seq: int = 0, destination: str = "/queue/a", headers: str = "{}"
) -> Row:
    return Row(seq, id, destination, headers, body, 1_700_000_000_000)


class Opens(Protocol):
    def __call__(self, **room: int) -> Store: ...


@pytest.fixture
def opens(path: str) -> Iterator[Opens]:
    """Return a function that opens a store on `path`; what is still open at the end is closed."""
    with contextlib.ExitStack() as stack:

        def open_store(**room: int) -> Store:
            store = Store(path, room=Room(**room), name="stompy-test", on_commit=lambda ledger: None)
            stack.callback(store.close, Deadline(WITHIN))
            return store

        yield open_store


def close(store: Store) -> None:
    """Close a store; it must have ended."""
    assert store.close(Deadline(WITHIN))


class MakesOutbox(Protocol):
    def __call__(self, url: str, **options: Any) -> Outbox: ...


@pytest.fixture
def outbox_to(path: str) -> Iterator[MakesOutbox]:
    """Return a function that opens an outbox on `path` that is in no mood to wait long."""
    with contextlib.ExitStack() as stack:

        def make(url: str, **options: Any) -> Outbox:
            outbox = Outbox(path, url, **{"backoff": Backoff(first=0.01, longest=0.05), **options})
            stack.callback(outbox.close)
            return outbox

        yield make


class Cut(Exception):
    """Raised by an answer: the broker drops the stream, and what it has read of it."""


Answer = Callable[[Peer, Frame], object]


class Scripted:
    """A broker for any number of clients, one after the other.

    It keeps every SEND and hands it to `answer`; it confirms what is no SEND by itself.
    """

    def __init__(self, answer: Answer, *, server: str | None = "peer/1", version: str = "1.2") -> None:
        self.sends: list[Frame] = []
        self.sessions = 0
        self.failure: BaseException | None = None
        self._answer = answer
        self._server, self._version = server, version
        self._peer: Peer | None = None
        self._listener = TcpListener()
        self._thread = threading.Thread(target=self._run, name="test-broker", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._listener.address
        return f"stomp://{host}:{port}"

    @property
    def bodies(self) -> list[bytes]:
        return [frame.body for frame in self.sends]

    def _run(self) -> None:
        while (transport := self._listener.accept()) is not None:
            self._peer = peer = Peer(transport, server=self._server, version=self._version)
            try:
                self._serve(peer)
            except Cut:
                pass
            except (ConnectionLostError, AssertionError) as error:
                self.failure = error
            finally:
                peer.close()

    def _serve(self, peer: Peer) -> None:
        peer.greet()
        self.sessions += 1
        while True:
            frame = peer.frame(Deadline(None))
            if frame.command == "SEND":
                self.sends.append(frame)
                self._answer(peer, frame)
            elif "receipt" in frame.headers:
                peer.receipt(frame)
            if frame.command == "DISCONNECT":
                peer.rest()
                return

    def close(self) -> None:
        self._listener.close()
        deadline = Deadline(WITHIN)
        while self._thread.is_alive() and not deadline.expired:
            # Each time anew: a client may have been taken just before the listener was closed.
            if self._peer is not None:
                self._peer.transport.shutdown()
            self._thread.join(0.1)
        assert not self._thread.is_alive()


class Scripts(Protocol):
    def __call__(self, answer: Answer, **options: Any) -> Scripted: ...


@pytest.fixture
def scripted() -> Iterator[Scripts]:
    """Return a function that starts a scripted broker."""
    with contextlib.ExitStack() as stack:

        def start(answer: Answer, **options: Any) -> Scripted:
            broker = Scripted(answer, **options)
            stack.callback(broker.close)
            return broker

        yield start
