"""A test on the embedded broker: `pytest examples/test_orders.py`."""

from __future__ import annotations

import stompy
from stompy.broker import Broker


def test_an_order_is_received() -> None:  # noqa: D103
    with Broker() as broker, stompy.connect(broker.url) as conn:
        conn.send("/queue/orders", {"id": 1}, confirm=True)
        assert conn.subscribe("/queue/orders").receive(timeout=5).json() == {"id": 1}
