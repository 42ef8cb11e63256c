"""A test of your own program with the fixtures of stompy: `python -m pytest examples/test_with_stompy.py`."""

from __future__ import annotations

import stompy
from stompy.broker import Broker
from stompy.testing import FaultProxy, RecordingListener


def answer(conn: stompy.Connection, message: stompy.Message) -> None:
    """Answer an order; the program under test."""
    conn.send("/queue/answers", {"id": message.json()["id"]}, confirm=True)


def test_an_order_is_answered(stomp_broker: Broker, stomp_connection: stompy.Connection) -> None:
    """Five lines, and no broker to install."""
    stomp_connection.subscribe("/queue/orders", lambda message: answer(stomp_connection, message))
    stomp_connection.send("/queue/orders", {"id": 1}, confirm=True)
    assert stomp_connection.subscribe("/queue/answers").receive(timeout=5).json() == {"id": 1}
    stomp_connection.close(drain=True)
    assert stomp_broker.depth("/queue/orders") == 0


def test_an_order_is_answered_after_the_network_failed(
    stomp_proxy: FaultProxy, stomp_connection: stompy.Connection
) -> None:
    """The subscription comes back with the next link."""
    heard = RecordingListener()
    with stompy.connect(stomp_proxy.url, reconnect=True, listeners=[heard]) as conn:
        conn.subscribe("/queue/orders", lambda message: answer(conn, message))
        stomp_proxy.cut("rst")
        heard.wait_for("connected", count=2)
        conn.send("/queue/orders", {"id": 2}, confirm=True)
        assert stomp_connection.subscribe("/queue/answers").receive(timeout=5).json() == {"id": 2}
