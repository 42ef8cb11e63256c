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
from stompy.dialects.options import SEND_OPTIONS
from stompy.testing.brokers import BrokerSettings
from stompy.testing.containers import ActiveMQContainer, BrokerOptions

QUIET = (0.0, 0.0)
OWN_OPTIONS = ("url", "reconnect", "listeners", "name", "misspelt")
"""What an outbox and a worker give `connect` themselves."""


class Order(TypedDict):
    """A body with fields."""

    number: int
    items: list[str]


@pytest.fixture
def url() -> Iterator[str]:
    with Broker() as broker:
        yield broker.url


def test_a_send_returns_nothing_and_one_in_flight_its_receipt(url: str) -> None:
    with stompy.connect(url, heartbeat=QUIET) as conn:
        receipt: stompy.Receipt = conn.send_async("/queue/a", "x", content_length=True, timeout=5)
        receipt.result()
        for confirm in (True, False):
            nothing: None = conn.send("/queue/a", "x", confirm=confirm, headers={"n": 1})  # type: ignore[func-returns-value]
            assert nothing is None
        subscription = conn.subscribe("/queue/a", ack="client-individual")
        subscription.receive(timeout=5).ack_async().result()
        for confirm in (True, False):
            nothing = subscription.receive(timeout=5).ack(confirm=confirm)  # type: ignore[func-returns-value]
            assert nothing is None
        conn.send("/queue/a", "x")
        subscription.receive(timeout=5).nack_async(requeue=None).result()
        subscription.receive(timeout=5).nack(confirm=True)


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
            conn.send("/queue/a", object())  # type: ignore[arg-type]
        with pytest.raises(stompy.LocalProtocolError, match="body of set"):
            conn.send("/queue/a", {"a"})  # type: ignore[arg-type]
        with pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            conn.send("/queue/a", None)  # type: ignore[arg-type]
        with pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            conn.request("/queue/a", None)  # type: ignore[arg-type]
        with conn.transaction() as transaction, pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"):
            transaction.send("/queue/a", None)  # type: ignore[arg-type]
        for send in (conn.send, conn.send_async, conn.request):
            with pytest.raises(stompy.ConfigurationError, match=r"no option 'prioritty'; did you mean 'priority'\?"):
                send("/queue/a", "x", prioritty=4)  # type: ignore[call-arg]


def test_options_are_known_by_name_and_type(url: str, tmp_path: Path) -> None:
    with (
        stompy.Outbox(
            tmp_path / "outbox", url, timeouts=stompy.Timeouts(receipt=5.0), heartbeat=QUIET, login="ann"
        ) as outbox,
        pytest.raises(stompy.LocalProtocolError, match="a body cannot be None"),
    ):
        outbox.put("/queue/a", None)  # type: ignore[arg-type]
    with pytest.raises(stompy.ConfigurationError, match="receipt"):
        stompy.Outbox(tmp_path / "outbox", url, timeouts=stompy.Timeouts(receipt="5"))  # type: ignore[arg-type]
    with pytest.raises(stompy.ConfigurationError, match="no option 'speed'"):
        stompy.Outbox(tmp_path / "outbox", url, speed=5)  # type: ignore[call-arg]
    ActiveMQContainer(users={"ann": "secret"}, memory_limit=1_000_000)
    with pytest.raises(stompy.ConfigurationError, match="no such option of a broker: user"):
        ActiveMQContainer(user="ann")  # type: ignore[call-arg]


def test_the_lists_of_options_are_those_of_the_functions() -> None:
    options = inspect.signature(connect).parameters
    assert declared(ConnectOptions) == {
        name: parameter.annotation for name, parameter in options.items() if name not in OWN_OPTIONS
    }
    assert list(declared(stompy.SendOptions)) == list(SEND_OPTIONS)
    assert declared(BrokerOptions) == {one.name: one.type for one in fields(BrokerSettings)}


def declared(kind: type) -> dict[str, Any]:
    return {name: getattr(value, "__forward_arg__", value) for name, value in kind.__annotations__.items()}
