"""A user's program under `mypy --strict`: what must pass stands here as it is, what must not has an ignored error.

`make types` reads it (an ignored error that is none is an error there); the tests run it as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.connecting import ConnectOptions, connect
from stompy.connection.connection import Connection
from stompy.connection.sending import SendArguments
from stompy.outbox.outbox import _OWN_OPTIONS
from stompy.testing.brokers.settings import BrokerSettings
from stompy.testing.containers import ActiveMQContainer, BrokerOptions

QUIET = (0.0, 0.0)


class Order(TypedDict):
    """A body with fields."""

    number: int
    items: list[str]


@pytest.fixture
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.url


def test_a_receipt_that_was_asked_for_needs_no_look(url: str) -> None:
    with stompy.connect(url, heartbeat=QUIET) as conn:
        conn.send("/queue/a", "x", receipt=True).wait()
        conn.send("/queue/a", "x", receipt=True, content_length=True, timeout=5).wait()
        sure: stompy.Receipt = conn.send("/queue/a", "x", confirm=True, headers={"n": 1})
        both: stompy.Receipt = conn.send("/queue/a", "x", receipt=True, confirm=True)
        assert sure.outcome == both.outcome == "confirmed"
        perhaps: stompy.Receipt | None = conn.send("/queue/a", "x")
        assert perhaps is None
        for wanted in (True, False):
            perhaps = conn.send("/queue/a", "x", receipt=wanted)
            assert (perhaps is not None) is wanted
        subscription = conn.subscribe("/queue/a", ack="client-individual")
        subscription.receive(timeout=5).ack(receipt=True).wait()
        nothing: stompy.Receipt | None = subscription.receive(timeout=5).ack()
        assert nothing is None
        subscription.receive(timeout=5).nack(receipt=True).wait()
        with pytest.raises(AttributeError):
            conn.send("/queue/a").wait()  # type: ignore[union-attr]


def test_a_body_is_what_can_be_sent(url: str) -> None:
    order: Order = {"number": 7, "items": ["pen"]}
    counts: dict[str, int] = {"a": 1}
    nested: dict[str, list[tuple[int, str]]] = {"a": [(1, "b")]}
    with stompy.connect(url, heartbeat=QUIET) as conn:
        for body in ("x", b"x", bytearray(b"x"), memoryview(b"x"), 7, 7.5, True, ["a", 1], ("a", 1)):
            conn.send("/queue/a", body)
        conn.send("/queue/a", order)
        conn.send("/queue/a", counts)
        conn.send("/queue/a", nested)
        with pytest.raises(stompy.LocalProtocolError, match="body of object"):
            conn.send("/queue/a", object())  # type: ignore[call-overload]
        with pytest.raises(stompy.LocalProtocolError, match="body of set"):
            conn.send("/queue/a", {"a"})  # type: ignore[call-overload]
        with pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            conn.send("/queue/a", None)  # type: ignore[call-overload]
        with pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            conn.request("/queue/a", None)  # type: ignore[arg-type]
        with conn.transaction() as transaction, pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            transaction.send("/queue/a", None)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="prioritty"):
            conn.send("/queue/a", "x", prioritty=4)  # type: ignore[call-overload]


def test_options_are_known_by_name_and_type(url: str, tmp_path: Path) -> None:
    with (
        stompy.Outbox(tmp_path / "outbox", url, receipt_timeout=5.0, heartbeat=QUIET, login="ann") as outbox,
        pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"),
    ):
        outbox.put("/queue/a", None)  # type: ignore[arg-type]
    with pytest.raises(stompy.ConfigurationError, match="receipt_timeout"):
        stompy.Outbox(tmp_path / "outbox", url, receipt_timeout="5")  # type: ignore[arg-type]
    with pytest.raises(stompy.ConfigurationError, match="no setting 'speed'"):
        stompy.Outbox(tmp_path / "outbox", url, speed=5)  # type: ignore[call-arg]
    ActiveMQContainer(users={"ann": "secret"}, memory_limit=1_000_000)
    with pytest.raises(stompy.ConfigurationError, match="no such option of a broker: user"):
        ActiveMQContainer(user="ann")  # type: ignore[call-arg]


def test_the_lists_of_options_are_those_of_the_functions() -> None:
    options = inspect.signature(connect).parameters
    assert declared(ConnectOptions) == {
        name: parameter.annotation for name, parameter in options.items() if name not in _OWN_OPTIONS
    }
    options = inspect.signature(Connection.send).parameters
    assert declared(SendArguments) == {
        name: parameter.annotation
        for name, parameter in options.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in ("receipt", "confirm")
    }
    assert declared(BrokerOptions) == {one.name: one.type for one in fields(BrokerSettings)}


def declared(kind: type) -> dict[str, Any]:
    return {name: getattr(value, "__forward_arg__", value) for name, value in kind.__annotations__.items()}
