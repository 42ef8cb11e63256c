"""Limits of time, where a test that waits for a clock of the machine would depend on its load."""

from __future__ import annotations

import pytest

import stompy
from stompy.testing.faults import FaultPlan
from stompy.testing.network import Network, Weather
from stompy.testing.replaced import installed
from stompy.testing.world import World
from stompy.transport.tcp import TcpDialer
from tests.connection.conftest import QUICK, Recorder


def test_when_the_time_is_over_the_last_reasons_are_told() -> None:
    listener = Recorder()
    world = World(lambda able, current: 0)
    network = Network(world, world.random, Weather(), FaultPlan())

    def program() -> None:
        with pytest.raises(stompy.AllBrokersFailedError, match=r"refused.*refused") as failed:
            stompy.connect(
                ["stomp://one:1", "stomp://two:2"],
                timeouts=stompy.Timeouts(start=5),
                reconnect=QUICK,
                listeners=[listener],
            )
        assert len(failed.value.errors) == 2
        assert world.alive == [world.current]
        assert listener.names == []

    began = world.now
    with installed(TcpDialer=(TcpDialer, network.dialer)):
        world.run(program)
    # A tenth of the time is kept for the last attempt.
    assert world.now - began == pytest.approx(4.5, abs=0.01)
