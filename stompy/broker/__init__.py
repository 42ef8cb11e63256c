"""The embedded broker: for development, tests and demos. Everything is in memory; it is not for production."""

from __future__ import annotations

from stompy.broker.broker import Broker as Broker

__all__ = ["Broker"]
