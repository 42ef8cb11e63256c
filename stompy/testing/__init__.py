"""For tests of programs that use stompy: a TCP proxy that fails on demand, a recording listener, pytest fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stompy.testing.brokers import BrokerSettings as BrokerSettings
    from stompy.testing.brokers import BrokerUnavailableError as BrokerUnavailableError
    from stompy.testing.brokers import Certificates as Certificates
    from stompy.testing.brokers import RunningBroker as RunningBroker
    from stompy.testing.containers import ActiveMQContainer as ActiveMQContainer
    from stompy.testing.containers import ArtemisContainer as ArtemisContainer
    from stompy.testing.containers import BrokerOptions as BrokerOptions
    from stompy.testing.containers import RabbitMQStompContainer as RabbitMQStompContainer
    from stompy.testing.containers import broker_or_skip as broker_or_skip
    from stompy.testing.containers import start_broker as start_broker
    from stompy.testing.faults import GARBAGE as GARBAGE
    from stompy.testing.faults import STRAY_MESSAGE as STRAY_MESSAGE
    from stompy.testing.faults import Cut as Cut
    from stompy.testing.faults import CutAfter as CutAfter
    from stompy.testing.faults import Delay as Delay
    from stompy.testing.faults import Double as Double
    from stompy.testing.faults import Drop as Drop
    from stompy.testing.faults import Fault as Fault
    from stompy.testing.faults import FaultPlan as FaultPlan
    from stompy.testing.faults import FrameFault as FrameFault
    from stompy.testing.faults import Insert as Insert
    from stompy.testing.faults import Range as Range
    from stompy.testing.faults import Refuse as Refuse
    from stompy.testing.faults import Rewrite as Rewrite
    from stompy.testing.faults import Strike as Strike
    from stompy.testing.listener import Event as Event
    from stompy.testing.listener import EventName as EventName
    from stompy.testing.listener import RecordingListener as RecordingListener
    from stompy.testing.proxied import Direction as Direction
    from stompy.testing.proxied import Ending as Ending
    from stompy.testing.proxied import FaultControls as FaultControls
    from stompy.testing.proxied import ProxyLink as ProxyLink
    from stompy.testing.proxied import State as State
    from stompy.testing.proxied import Which as Which
    from stompy.testing.proxy import FaultProxy as FaultProxy
    from stompy.testing.proxy import ProxyStats as ProxyStats
    from stompy.testing.simulation import Simulation as Simulation
    from stompy.testing.simulation import SimulationError as SimulationError
    from stompy.testing.simulation import simulate as simulate
    from stompy.testing.worker import RunningWorker as RunningWorker
    from stompy.testing.worker import message as message

_LAZY = {
    "stompy.testing.brokers": "BrokerSettings BrokerUnavailableError Certificates RunningBroker",
    "stompy.testing.containers": (
        "ActiveMQContainer ArtemisContainer BrokerOptions RabbitMQStompContainer broker_or_skip start_broker"
    ),
    "stompy.testing.faults": (
        "Cut CutAfter Delay Double Drop Fault FaultPlan FrameFault GARBAGE Insert Range Refuse Rewrite STRAY_MESSAGE "
        "Strike"
    ),
    "stompy.testing.listener": "Event EventName RecordingListener",
    "stompy.testing.proxied": "Direction Ending FaultControls ProxyLink State Which",
    "stompy.testing.proxy": "FaultProxy ProxyStats",
    "stompy.testing.simulation": "Simulation SimulationError simulate",
    "stompy.testing.worker": "RunningWorker message",
}
"""Imported on first use; type checkers read the imports above."""

if not TYPE_CHECKING:
    from stompy.exports import late

    __getattr__, __dir__ = late(__name__, _LAZY)
