"""Brokers for queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stompy.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
