"""Brokers for the tests that kill: the embedded one, whose ids name deliveries, and ActiveMQ, whose name messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.work import Target, targets


@pytest.fixture(scope="session", params=["embedded", "activemq"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from targets(request.param)


@pytest.fixture(scope="session")
def activemq() -> Iterator[Target]:
    yield from targets("activemq")
