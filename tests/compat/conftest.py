"""Programs as they are written for stomp.py, against the embedded broker."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stompy.compat as stomp
from stompy.broker import Broker
from tests.support.peer import WITHIN

RELEASES = {"9.0.0": Path(__file__).parents[2]}
"""The releases of stomp.py that are here, and where to look for them; `make test` adds 8.2."""
if (_older := Path(sys.prefix, "stomp.py-8.2.0")).exists():
    RELEASES["8.2.0"] = _older


class Recorder(stomp.ConnectionListener):
    """Keeps every event with its argument."""

    def __init__(self, name: str = "", shared: list[tuple[str, str]] | None = None) -> None:
        self.name = name
        self.shared = shared if shared is not None else []
        self.events: list[tuple[str, Any]] = []
        self.over = threading.Event()

    def _note(self, event: str, what: Any = None) -> None:
        self.events.append((event, what))
        self.shared.append((self.name, event))

    def named(self, event: str) -> list[Any]:
        """Return the arguments of one kind of event."""
        return [what for name, what in list(self.events) if name == event]

    def on_connecting(self, host_and_port: tuple[str, int]) -> None:
        self._note("connecting", host_and_port)

    def on_connected(self, frame: stomp.utils.Frame) -> None:
        self._note("connected", frame)

    def on_before_message(self, frame: stomp.utils.Frame) -> None:
        self._note("before_message", frame)

    def on_message(self, frame: stomp.utils.Frame) -> None:
        self._note("message", frame)

    def on_receipt(self, frame: stomp.utils.Frame) -> None:
        self._note("receipt", frame)

    def on_error(self, frame: stomp.utils.Frame) -> None:
        self._note("error", frame)

    def on_send(self, frame: stomp.utils.Frame) -> None:
        self._note("send", frame)

    def on_heartbeat(self) -> None:
        self._note("heartbeat")

    def on_heartbeat_timeout(self) -> None:
        self._note("heartbeat_timeout")

    def on_disconnected(self) -> None:
        self._note("disconnected")
        self.over.set()

    def on_receiver_loop_completed(self, frame: stomp.utils.Frame | None) -> None:
        self._note("receiver_loop_completed", frame)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


Connect = Callable[..., Any]


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Return what opens a connection to the broker, of a class and with arguments of its constructor."""
    opened: list[Any] = []

    def connect(kind: Any = stomp.Connection, listener: Any = None, **options: Any) -> Any:
        connection = kind([host_of(broker)], **options)
        opened.append(connection)
        if listener is not None:
            connection.set_listener("recorder", listener)
        connection.connect("guest", "guest", wait=True)
        return connection

    yield connect
    for connection in opened:
        connection.transport.disconnect_socket()
        connection.transport.stop()


def host_of(broker: Broker) -> tuple[str, int]:
    """Return the host and the port of a broker."""
    host, port = broker.url.removeprefix("stomp://").rsplit(":", 1)
    return host, int(port)


def within(event: threading.Event) -> None:
    """Wait for an event, and fail if it does not come."""
    assert event.wait(WITHIN)
