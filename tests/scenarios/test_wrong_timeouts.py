"""What is no duration is refused before anything happens, wherever one is taken."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits

WRONG: list[Any] = [math.nan, -1, -0.001, "1", b"1", True, False, [1], 1j]
ENDLESS = [*WRONG, math.inf]
Call = Callable[[stompy.Connection, stompy.Subscription, stompy.Receipt, Any], object]

CALLS: dict[str, Call] = {
    "Connection.send": lambda connection, _1, _2, wrong: connection.send("/queue/a", "x", timeout=wrong),
    "Connection.flush": lambda connection, _1, _2, wrong: connection.flush(timeout=wrong),
    "Connection.request": lambda connection, _1, _2, wrong: connection.request("/queue/a", timeout=wrong),
    "Connection.subscribe": lambda connection, _1, _2, wrong: connection.subscribe(
        "/queue/b", print, own_thread=True, timeout=wrong
    ),
    "Connection.close": lambda connection, _1, _2, wrong: connection.close(timeout=wrong),
    "Subscription.receive": lambda _1, subscription, _2, wrong: subscription.receive(timeout=wrong),
    "Connection.wait_closed": lambda connection, _1, _2, wrong: connection.wait_closed(timeout=wrong),
    "Subscription.close": lambda _1, subscription, _2, wrong: subscription.close(timeout=wrong),
    "Subscription.unsubscribe": lambda _1, subscription, _2, wrong: subscription.unsubscribe(
        delete=True, timeout=wrong
    ),
    "Receipt.wait": lambda _1, _2, receipt, wrong: receipt.result(wrong),
    "Transaction.commit": lambda connection, _1, _2, wrong: _commit(connection, wrong),
}


def _commit(connection: stompy.Connection, wrong: Any) -> None:
    with connection.transaction() as transaction:
        transaction.send("/queue/a", "x")
        try:
            transaction.commit(timeout=wrong)
        finally:
            transaction.abort()


def test_every_method_with_a_timeout_is_tried_here() -> None:
    kinds = [stompy.Connection, stompy.Subscription, stompy.Receipt, stompy.Message, stompy.Transaction]
    found = {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value) and "timeout" in inspect.signature(value).parameters
    }
    assert found == set(CALLS)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_refuses_it_and_has_done_nothing(call: str) -> None:
    with Broker() as broker, stompy.connect(broker.url, heartbeat=(0, 0)) as connection:
        subscription = connection.subscribe("/queue/c")
        receipt = connection.send_async("/queue/a")
        assert receipt is not None
        receipt.result()
        before, sent = connection.stats().subscriptions, broker.stats().messages_in
        for wrong in WRONG:
            with pytest.raises(stompy.ConfigurationError, match="timeout must be a number of seconds, 0 or more"):
                CALLS[call](connection, subscription, receipt, wrong)
        connection.send("/queue/a", confirm=True)
        after = connection.stats()
        assert (after.subscriptions, broker.stats().messages_in, connection.connected) == (before, sent + 1, True)
        assert not subscription.closed


@pytest.mark.parametrize("name", ["connect", "send", "receipt", "close"])
@pytest.mark.parametrize("wrong", [*ENDLESS, 0, None], ids=repr)
def test_the_timeouts_of_a_connection_refuse_it(name: str, wrong: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match=name):
        stompy.Timeouts(**{name: wrong})


@pytest.mark.parametrize("name", ["heartbeat", "heartbeat_tolerance"])
@pytest.mark.parametrize("wrong", ENDLESS, ids=repr)
def test_so_it_does_with_heart_beats(name: str, wrong: Any) -> None:
    calls: dict[str, Any] = {
        "heartbeat": lambda: stompy.connect("stomp://127.0.0.1:1", heartbeat=(0, wrong)),
        "heartbeat_tolerance": lambda: stompy.Timeouts(heartbeat_tolerance=wrong),
    }
    with pytest.raises(stompy.ConfigurationError, match="heart"):
        calls[name]()


@pytest.mark.parametrize("name", ["first", "longest"])
@pytest.mark.parametrize("wrong", [*ENDLESS, 0, None], ids=repr)
def test_a_backoff_refuses_it(name: str, wrong: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match=name):
        stompy.Backoff(**{name: wrong})


@pytest.mark.parametrize("name", ["total", "attempts"])
@pytest.mark.parametrize("wrong", ENDLESS, ids=repr)
def test_a_policy_of_reconnecting_refuses_it(name: str, wrong: Any) -> None:
    with pytest.raises(stompy.ConfigurationError, match=name):
        stompy.Reconnect(**{name: wrong})


@pytest.mark.parametrize("name", ["expires", "delay"])
@pytest.mark.parametrize("wrong", ENDLESS, ids=repr)
def test_a_message_option_refuses_it(name: str, wrong: Any) -> None:
    with Broker() as broker, stompy.connect(broker.url, dialect="activemq") as connection:
        with pytest.raises(stompy.ConfigurationError, match=name):
            connection.send("/queue/a", **{name: wrong})
        assert broker.stats().messages_in == 0


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_an_outbox_refuses_it_and_stays_open(wrong: Any, tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    with stompy.Outbox(path, "stomp://127.0.0.1:1") as outbox:
        for call in (outbox.flush, outbox.close):
            with pytest.raises(stompy.ConfigurationError, match="timeout"):
                call(timeout=wrong)
        outbox.put("/queue/a", "still open")
    with pytest.raises(stompy.ConfigurationError, match="longest"):
        stompy.Outbox(path, "stomp://127.0.0.1:1", backoff=stompy.Backoff(first=0.1, longest=wrong))


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_broker_refuses_it_and_goes_on(wrong: Any) -> None:
    for name in ("connect_timeout", "login_delay", "send_timeout", "linger"):
        with pytest.raises(stompy.ConfigurationError, match=name):
            BrokerLimits(**{name: wrong})
    with Broker() as broker, stompy.connect(broker.url) as connection:
        for call in (broker.close, broker.restart):
            with pytest.raises(stompy.ConfigurationError, match="timeout"):
                call(timeout=wrong)
        connection.send("/queue/a", confirm=True)
