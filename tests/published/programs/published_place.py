"""A plugin of pytest: where the broker is, and port 61613 of this machine, which many tests name, leads there."""

from __future__ import annotations

import os
import socket
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

_USUAL = 61613
_connect, _connect_ex = socket.socket.connect, socket.socket.connect_ex


def _moved(address: Any) -> Any:
    if isinstance(address, tuple) and address[1] == _USUAL:
        return ("127.0.0.1" if ":" not in address[0] else address[0], int(os.environ["PUBLISHED_PORT"]), *address[2:])
    return address


socket.socket.connect = lambda self, address: _connect(self, _moved(address))  # type: ignore[method-assign]
socket.socket.connect_ex = lambda self, address: _connect_ex(self, _moved(address))  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def place() -> SimpleNamespace:
    return SimpleNamespace(
        host="127.0.0.1",
        port=int(os.environ["PUBLISHED_PORT"]),
        ca=os.environ["PUBLISHED_CA"],
        name=f"published.{uuid.uuid4().hex[:8]}",
    )
