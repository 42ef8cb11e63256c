"""The arithmetic of benchmarks/scale.py, beside a simulation of what it is about."""

from __future__ import annotations

import pytest

from benchmarks import scale
from benchmarks.scale import Costs, Load, plan

COSTS = Costs(acknowledge=40, connection=50_000, message=1000, process=25 * scale.MIB, broker=20_000)


@pytest.mark.parametrize("ahead", [1, 2, 10, 50])
def test_prefetch_bounds_throughput(ahead: int) -> None:
    calculated = scale.throughput(ahead, 0.0005, 0.01)
    assert scale.simulated_throughput(ahead, 0.0005, 0.01) == pytest.approx(calculated, rel=0.02)


@pytest.mark.parametrize("round_trip", [0.0001, 0.001, 0.05])
def test_the_prefetch_that_is_planned_keeps_a_consumer_busy(round_trip: float) -> None:
    ahead = scale.prefetch(1 / 0.0005, round_trip)
    assert scale.simulated_throughput(ahead, 0.0005, round_trip) == pytest.approx(1 / 0.0005, rel=0.02)


@pytest.mark.parametrize("busy", [0.3, 0.7, 0.9])
def test_messages_that_arrive_at_random_wait_as_calculated(busy: float) -> None:
    assert scale.simulated_waiting(busy, 0.0001) == pytest.approx(scale.waiting(busy, 0.0001), rel=0.05)


@pytest.mark.parametrize("rate", [1_000, 20_000])
def test_the_processes_that_are_planned_carry_the_load(rate: int) -> None:
    load = Load(rate)
    one = plan(COSTS, load)
    seconds = scale.service(COSTS, load)
    carried = scale.simulated_share(one.processes, rate, seconds, one.prefetch, lasting=1.0)
    assert carried == pytest.approx(rate, rel=0.02)
    if one.processes > 1:
        too_few = scale.simulated_share(one.processes // 2, rate, seconds, one.prefetch, lasting=1.0)
        assert too_few < 0.9 * rate


def test_each_subscriber_of_a_topic_gets_every_message() -> None:
    alone, three = plan(COSTS, Load(10_000)), plan(COSTS, Load(10_000, fan_out=3))
    assert three.processes == 3 * alone.processes
    assert (alone.written, three.written) == (20_000, 40_000)
    assert (alone.brokers, three.brokers) == (1, 2)


def test_the_answer_becomes_spark_past_one_machine() -> None:
    assert not plan(COSTS, Load(10_000, cores=4)).spark
    assert plan(COSTS, Load(100_000, cores=4)).spark


def test_the_network_bounds_a_machine_too() -> None:
    assert plan(COSTS, Load(1_000, body=1_000_000, cores=64)).machines == 9


def test_idle_connections_are_bounded_by_memory() -> None:
    assert scale.connections(COSTS, 1025 * scale.MIB) == 20_971
