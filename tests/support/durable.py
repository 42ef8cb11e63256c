"""Real brokers that keep their messages on disk, and what can be done to them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from tests.support.activemq import ActiveMQ

LOGIN, PASSCODE = "scenario", "sesame"


class Machine(Protocol):
    """A broker's process or container."""

    @property
    def url(self) -> str:
        """The address of its STOMP connector; the same after `start`."""
        ...

    def start(self) -> None:
        """Start it on its old port and store, and return when it answers; leave one that runs alone."""
        ...

    def kill(self) -> None:
        """End it without a word."""
        ...

    def pause(self) -> None:
        """Let it stand still."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


@dataclass(frozen=True)
class Durable:
    """A broker under test, and where its behaviour is its own choice.

    Attributes:
        name: of the broker, as in `STOMPY_REQUIRE_BROKERS`.
        machine: it runs.
        poison: SEND headers that it refuses with an ERROR, each with whether the ERROR names the frame.
        headers: SEND headers without which a message does not survive a restart.
    """

    name: str
    machine: Machine
    poison: tuple[tuple[Mapping[str, str], bool], ...]
    headers: dict[str, str] = field(default_factory=lambda: {"persistent": "true"})

    @property
    def url(self) -> str:
        """Its address."""
        return self.machine.url


_A_LONG_LINE = "x" * 20_000


@contextmanager
def _activemq() -> Iterator[Durable]:
    missing = ActiveMQ.available()
    if missing is not None:
        if "activemq" in os.environ.get("STOMPY_REQUIRE_BROKERS", ""):
            pytest.fail(f"ActiveMQ is required: {missing}")
        pytest.skip(f"no ActiveMQ: {missing}")
    with ActiveMQ(users={LOGIN: PASSCODE}, persistent=True) as broker:
        yield Durable("activemq", broker, poison=(({"amq-msg-type": "map"}, True), ({"note": _A_LONG_LINE}, False)))


DURABLES = {"activemq": _activemq}
"""How to get each of them."""
