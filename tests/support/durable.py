"""Real brokers that keep their messages on disk, and what a test of failures must know of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import stompy
from stompy.testing.brokers import RunningBroker
from stompy.testing.containers import broker_or_skip

LOGIN, PASSCODE = "scenario", "sesame"

SURVIVES = {"persistent": "true"}
"""SEND headers without which a message does not outlive its broker, whichever that is."""


@dataclass(frozen=True)
class Ways:
    """Where a kind of broker has its own.

    Attributes:
        dialect: as `connect` takes it; in STOMP 1.0 not every broker says who it is.
        poison: SEND headers that it answers with ERROR.
        prefetch: what to ask for; `None` where it cannot be counted in messages.
    """

    dialect: str
    poison: tuple[Mapping[str, str], ...]
    prefetch: int | None = 50


# The first ERROR names the frame, the second one does not.
_ACTIVEMQ = Ways("activemq", poison=({"amq-msg-type": "map"}, {"note": "x" * 20_000}))
_RABBITMQ = Ways("rabbitmq", poison=({"priority": "abc"},))

KINDS: dict[str, Ways] = {
    "activemq": _ACTIVEMQ,
    "activemq5": _ACTIVEMQ,
    "artemis": Ways("artemis", poison=({"priority": "abc"},), prefetch=None),
    "rabbitmq3": _RABBITMQ,
    "rabbitmq4": _RABBITMQ,
}

NEWEST = ("activemq", "artemis", "rabbitmq4")
"""One of each product."""


@dataclass(frozen=True)
class Durable:
    """A broker under test.

    Attributes:
        machine: it runs; its address stays the same.
        ways: of its kind.
    """

    machine: RunningBroker
    ways: Ways
    options: dict[str, Any] = field(init=False, default_factory=lambda: {"login": LOGIN, "passcode": PASSCODE})
    """What `connect` needs."""

    def __post_init__(self) -> None:
        self.options["dialect"] = self.ways.dialect

    @property
    def url(self) -> str:
        """Its address."""
        return self.machine.url(login="")


def make_queues(broker: RunningBroker, url: str, *queues: str, **options: Any) -> None:
    """Make queues that are there after a kill: RabbitMQ 3.10 may forget one that is new, with all that is in it.

    Of 40 that were less than a second old, 4 were gone; of 56 that were older or had seen an orderly restart, none.
    """
    if broker.kind == "rabbitmq3":
        with stompy.connect(url, **options) as conn:
            for queue in queues:
                conn.subscribe(queue).close()
        broker.restart()


def durable_or_skip(kind: str) -> Durable:
    """Start a broker that keeps its messages on disk; skips or fails as `broker_or_skip` does."""
    return Durable(broker_or_skip(kind, users={LOGIN: PASSCODE}, persistent=True), KINDS[kind])
