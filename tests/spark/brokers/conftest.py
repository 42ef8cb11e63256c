"""Brokers that take a docker engine: `.ci/run` runs these tests when there is one, and then misses none of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.streaming_run import Target, targets


@pytest.fixture(scope="session")
def activemq() -> Iterator[Target]:
    yield from targets("activemq")


@pytest.fixture(scope="session")
def artemis() -> Iterator[Target]:
    yield from targets("artemis")


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[Target]:
    yield from targets("rabbitmq4")


@pytest.fixture(params=["artemis", "rabbitmq"])
def target(request: pytest.FixtureRequest) -> Target:
    found: Target = request.getfixturevalue(request.param)
    return found
