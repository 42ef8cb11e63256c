"""Brokers for the tests that kill: ActiveMQ, which keeps messages on disk, and in `make test-long` the embedded one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.streaming_run import Target, targets


@pytest.fixture(scope="session", params=[pytest.param("embedded", marks=pytest.mark.long), "activemq"])
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    yield from targets(request.param)


@pytest.fixture(scope="session")
def activemq() -> Iterator[Target]:
    yield from targets("activemq")
