"""A test of your own program against real brokers in containers: `python -m pytest examples/test_with_real_brokers.py`.

Needs `pip install stompy-client[testing]` and docker. A broker that cannot be had skips its tests, with the reasons.
"""

from __future__ import annotations

import stompy
from stompy.testing import RecordingListener, RunningBroker


def answer(conn: stompy.Connection, message: stompy.Message) -> None:
    """Answer an order; the program under test."""
    conn.send("/queue/answers", {"id": message.json()["id"]}, confirm=True)


def test_an_order_is_answered(stomp_activemq: RunningBroker) -> None:
    """Five lines against the broker that you will run; `stomp_artemis` and `stomp_rabbitmq` are the others."""
    with stompy.connect(stomp_activemq.url()) as conn:
        conn.subscribe("/queue/orders", lambda message: answer(conn, message))
        conn.send("/queue/orders", {"id": 1}, confirm=True)
        assert conn.subscribe("/queue/answers").receive(timeout=10).json() == {"id": 1}


def test_an_order_is_answered_after_the_broker_was_killed(stomp_rabbitmq: RunningBroker) -> None:
    """The broker comes back at the same address, with the orders that were not yet answered."""
    heard = RecordingListener()
    with stompy.connect(stomp_rabbitmq.url(), reconnect=True, listeners=[heard]) as conn:
        conn.send("/queue/late-orders", {"id": 2}, persistent=True, confirm=True)
        stomp_rabbitmq.kill()
        stomp_rabbitmq.start()
        heard.wait_for("connected", count=2, timeout=60)
        conn.subscribe("/queue/late-orders", lambda message: answer(conn, message))
        with stompy.connect(stomp_rabbitmq.url()) as other:  # as `heard` gets all messages of the first
            assert other.subscribe("/queue/answers").receive(timeout=10).json() == {"id": 2}
