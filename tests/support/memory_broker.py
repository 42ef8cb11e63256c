"""An embedded broker whose clients are in this process, without sockets."""

from __future__ import annotations

from typing import Any

from stompy.broker import Broker
from stompy.transport.base import TransportListener


def broker_over(listener: TransportListener, **options: Any) -> Broker:
    """Return a broker that accepts its clients from a listener."""
    broker = Broker(**options)
    broker._listening.listener = listener
    return broker
