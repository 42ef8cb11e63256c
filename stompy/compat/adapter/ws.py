"""Connections over WebSocket."""

from __future__ import annotations

from typing import Any

from stompy.compat.connect import StompConnection12


class WSStompConnection(StompConnection12):
    """Not available yet.

    Raises:
        NotImplementedError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("stompy.compat has no WebSocket connections yet: use a STOMP port of the broker")
