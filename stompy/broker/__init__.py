"""The embedded broker: for development, tests and demos. Everything is in memory; it is not for production."""

from __future__ import annotations

from stompy.broker.broker import Broker as Broker
from stompy.broker.broker import Like as Like
from stompy.broker.management import ClientConnection as ClientConnection
from stompy.broker.management import QueuedMessage as QueuedMessage
from stompy.broker.settings import BrokerLimits as BrokerLimits
from stompy.broker.settings import BrokerStats as BrokerStats
from stompy.broker.settings import FrameHook as FrameHook
from stompy.broker.settings import QueueDepth as QueueDepth
from stompy.broker.users import User as User
from stompy.broker.users import hash_passcode as hash_passcode
from stompy.broker.work import Clock as Clock

__all__ = [
    "Broker",
    "BrokerLimits",
    "BrokerStats",
    "ClientConnection",
    "Clock",
    "FrameHook",
    "Like",
    "QueueDepth",
    "QueuedMessage",
    "User",
    "hash_passcode",
]
