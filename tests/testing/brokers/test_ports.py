"""Ports that nobody else takes."""

from __future__ import annotations

import random
import socket

import pytest

from stompy.testing.brokers.container import free_port


def test_a_free_port_is_below_those_that_clients_get() -> None:
    assert 20_000 <= free_port() <= 32_000


def test_one_that_is_taken_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    proposed = iter([taken, free])
    monkeypatch.setattr(random, "randint", lambda first, last: next(proposed))
    with socket.create_server(("0.0.0.0", taken)):
        assert free_port() == free
