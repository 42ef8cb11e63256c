"""A broker with a console, a client of that, and a browser."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from tests.support.stacks import gave_up


class Ask(Protocol):
    """Asks a console, and returns the reply."""

    def __call__(self, call: str, **arguments: object) -> dict[str, Any]: ...


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(console=True, attempts=1) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Connection]:
    with connect(broker.url) as client:
        yield client


@pytest.fixture
def console(broker: Broker) -> Iterator[Connection]:
    """A client of the console, as its page is one."""
    with connect(console_ws(broker)) as console:
        yield console


@pytest.fixture
def ask(console: Connection) -> Ask:
    return asks(console)


def asks(console: Connection) -> Ask:
    """Return what asks over a connection to a console."""

    def ask(call: str, **arguments: object) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(console.request("/console", json.dumps({"call": call, **arguments})).body)
        return reply

    return ask


def console_ws(broker: Broker) -> str:
    """Return the address of the console for STOMP over WebSocket."""
    return f"ws://{urlsplit(broker.console_url).netloc}{urlsplit(broker.console_url).path}stomp"


def until(value: Callable[[], Any]) -> Any:
    """Wait until a value is true; return it."""
    give_up = time.monotonic() + 20
    while not (found := value()):
        if time.monotonic() > give_up:
            gave_up("it did not come about")
        time.sleep(0.005)
    return found
