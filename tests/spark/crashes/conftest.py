"""Brokers for the tests that kill: the embedded one, whose ids name deliveries, and ActiveMQ, whose ids name "
"messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from stompy.testing.required import broker_or_skip


@dataclass(frozen=True)
class Target:
    """A broker, and what can be expected of it.

    Attributes:
        name: `embedded` or `activemq`.
        url: without credentials.
        stable: whether its message ids are the messages', so that nothing comes twice.
    """

    name: str
    url: str
    stable: bool


@pytest.fixture(scope="session", params=["embedded", "activemq"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from _targets(request.param)


@pytest.fixture(scope="session")
def activemq() -> Iterator[Target]:
    yield from _targets("activemq")


def _targets(kind: str) -> Iterator[Target]:
    options = {} if kind == "embedded" else {"persistent": True}
    with broker_or_skip(kind, **options) as broker:
        yield Target(kind, broker.url(), stable=kind == "activemq")
