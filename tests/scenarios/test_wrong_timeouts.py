"""What is no duration is refused before anything happens, wherever one is taken."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import stompy
from stompy.broker import Broker, BrokerLimits
from tests.support.peer import WITHIN

WRONG: list[Any] = [math.nan, -1, -0.001, "1", b"1", True, False, [1], 1j]
ENDLESS = [*WRONG, math.inf]


class Things(NamedTuple):
    """What is waited for."""

    connection: stompy.Connection
    subscription: stompy.Subscription
    receipt: stompy.Receipt
    message: stompy.Message
    """With a `reply-to`."""


CALLS: dict[str, Callable[[Things, Any], object]] = {
    "Connection.send": lambda on, wrong: on.connection.send("/queue/a", "x", timeout=wrong),
    "Connection.send_async": lambda on, wrong: on.connection.send_async("/queue/a", "x", timeout=wrong),
    "Connection.flush": lambda on, wrong: on.connection.flush(timeout=wrong),
    "Connection.request": lambda on, wrong: on.connection.request("/queue/a", timeout=wrong),
    "Connection.subscribe": lambda on, wrong: on.connection.subscribe(
        "/queue/b", print, own_thread=True, timeout=wrong
    ),
    "Connection.browse": lambda on, wrong: on.connection.browse("/queue/a", timeout=wrong),
    "Connection.close": lambda on, wrong: on.connection.close(timeout=wrong),
    "Connection.wait_closed": lambda on, wrong: on.connection.wait_closed(timeout=wrong),
    "Subscription.receive": lambda on, wrong: on.subscription.receive(timeout=wrong),
    "Subscription.close": lambda on, wrong: on.subscription.close(timeout=wrong),
    "Subscription.unsubscribe": lambda on, wrong: on.subscription.unsubscribe(delete=True, timeout=wrong),
    "Receipt.result": lambda on, wrong: on.receipt.result(wrong),
    "Receipt.exception": lambda on, wrong: on.receipt.exception(wrong),
    "Message.reply": lambda on, wrong: on.message.reply("x", timeout=wrong),
    "Message.forward": lambda on, wrong: on.message.forward("/queue/a", timeout=wrong),
    "Transaction.commit": lambda on, wrong: _commit(on.connection, wrong),
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
        receipt = connection.send_async("/queue/c", headers={"reply-to": "/queue/a"})
        receipt.result()
        things = Things(connection, subscription, receipt, subscription.receive(timeout=WITHIN))
        before, sent = connection.stats().subscriptions, broker.stats().messages_in
        for wrong in WRONG:
            with pytest.raises(stompy.ConfigurationError, match="timeout must be a number of seconds, 0 or more"):
                CALLS[call](things, wrong)
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
