"""A message that the broker never takes does not hold up the outbox, however large it is and however it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from stompy.testing.faults import Cut, FaultPlan
from stompy.testing.proxy import FaultProxy

MIB = 1024 * 1024
ABOVE_ALL_BUFFERS = 24 * MIB
"""Bytes that no pair of sockets takes while nobody reads."""

QUICK: dict[str, Any] = {
    "backoff": stompy.Backoff(first=0.01, longest=0.05),
    "batch": 10,
    "timeouts": stompy.Timeouts(receipt=20),
}

WITH_ERROR: dict[str, Any] = {}
WITH_RESET: dict[str, Any] = {"linger": 0}


def without_error() -> FaultPlan:
    """Return the faults of a broker that ends the connection without an ERROR."""
    return FaultPlan(Cut("ERROR", keep=0))


def bodies_around(poison: bytes, place: int) -> list[bytes]:
    bodies = [str(number).encode() for number in range(6)]
    bodies[place] = poison
    return bodies


def check_dead_letter(outbox: stompy.Outbox, broker: Broker, poison: bytes, place: int) -> str:
    """Put messages, wait until the outbox is empty, and return the error message of the dead letter."""
    bodies = bodies_around(poison, place)
    for body in bodies:
        outbox.put("/queue/a", body)
    outbox.flush(timeout=50)
    (aside,) = outbox.dead_letters()
    assert aside.body == poison
    assert outbox.stats().sent == 5
    depth = broker.depth("/queue/a")
    with stompy.connect(broker.url) as connection:
        subscription = connection.subscribe("/queue/a")
        came = [subscription.receive(timeout=20).body for _ in range(depth)]
    assert list(dict.fromkeys(came)) == [body for body in bodies if body != poison]
    return aside.error_message


@pytest.mark.parametrize(
    ("size", "place"),
    [
        (5_000, 0),
        (5_000, 3),
        (5_000, 5),
        (ABOVE_ALL_BUFFERS, 3),
        pytest.param(ABOVE_ALL_BUFFERS, 0, marks=pytest.mark.load),
        pytest.param(ABOVE_ALL_BUFFERS, 5, marks=pytest.mark.load),
    ],
)
@pytest.mark.parametrize("ending", [WITH_ERROR, WITH_RESET, None], ids=["error", "reset", "no error"])
def test_a_message_above_the_brokers_limit_becomes_a_dead_letter_and_the_rest_arrives_in_order(
    tmp_path: Path, ending: dict[str, Any] | None, size: int, place: int
) -> None:
    with (
        Broker(limits=BrokerLimits(max_body=1_000, **(ending or {}))) as broker,
        FaultProxy(broker.url, faults=None if ending is not None else without_error()) as proxy,
        stompy.Outbox(tmp_path / "a", broker.url if ending is not None else proxy.url, attempts=2, **QUICK) as outbox,
    ):
        error = check_dead_letter(outbox, broker, b"x" * size, place)
    if ending is WITH_ERROR:
        assert "max_body=1000" in error
    if ending is None:
        assert "without a reason 4 times in a row" in error


def test_two_such_messages_in_a_row_both_become_dead_letters(tmp_path: Path) -> None:
    with (
        Broker(limits=BrokerLimits(max_body=1_000)) as broker,
        FaultProxy(broker.url, faults=without_error()) as proxy,
        stompy.Outbox(tmp_path / "a", proxy.url, attempts=1, **QUICK) as outbox,
    ):
        for body in (b"1", b"x" * 5_000, b"y" * 5_000, b"2"):
            outbox.put("/queue/a", body)
        outbox.flush(timeout=50)
        assert [aside.body[:1] for aside in outbox.dead_letters()] == [b"x", b"y"]
        assert outbox.stats().sent == 2


@pytest.mark.load
@pytest.mark.timeout(600)
def test_a_message_above_the_default_limit_becomes_a_dead_letter(tmp_path: Path) -> None:
    poison = b"x" * (140 * 1000 * 1000)
    with Broker() as broker, stompy.Outbox(tmp_path / "a", broker.url, attempts=2, **QUICK) as outbox:
        error = check_dead_letter(outbox, broker, poison, 3)
    assert "max_body=134217728" in error
