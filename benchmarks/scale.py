"""What one process, one machine and many carry: arithmetic from the last measured run.

    python -m benchmarks.scale --rate 50000 --work 200 --cores 8

The rules, which `simulated` and its tests check:

- A process works on one core at a time, as Python does. Past `BUSY` of it, messages wait: with a fixed time each and
  arrivals at random, `busy / (2 - 2 * busy)` times that time (M/D/1).
- A broker that may send `prefetch` messages ahead delivers `prefetch / (round trip + time)` a second at most, so a
  prefetch of `rate * round trip` and one more keeps a consumer busy; more only takes memory.
- A topic's messages go to each of its subscribers: the broker writes `rate * fan-out`.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import results
from benchmarks.server import Feed

BUSY = 0.7
"""The part of a core that is planned for; the rest is for peaks."""
MIB = 2**20


@dataclass(frozen=True)
class Costs:
    """What was measured.

    Attributes:
        acknowledge: microseconds of CPU to receive and acknowledge a message.
        connection: bytes of memory of an idle connection.
        message: bytes of a message that waits.
        process: bytes of a process that receives.
        broker: messages a second through the slower of the real brokers, in and out; 0 where none was measured.
    """

    acknowledge: float
    connection: float
    message: float
    process: float
    broker: float

    @classmethod
    def of(cls, run: Mapping[str, Any]) -> Costs:
        """Take them from a run."""

        def figure(row: str, name: str = "value") -> float:
            return float(run["rows"][row]["clients"]["stompy"][name])

        through = (row["clients"] for row in run["rows"].values() if row["section"] == "brokers")
        return cls(
            acknowledge=figure("receive-ack"),
            connection=figure("idle"),
            message=figure("memory"),
            process=figure("receive", "peak_mib") * MIB,
            broker=min((max(one["rate"] for one in clients.values()) for clients in through), default=0.0),
        )


@dataclass(frozen=True)
class Load:
    """What is asked for.

    Attributes:
        rate: messages a second that are published.
        fan_out: subscribers that each get all of them.
        work: microseconds of CPU that a handler takes.
        round_trip: seconds from the broker and back.
        body: bytes.
        cores: of a machine.
        network: bytes a second that a machine takes.
    """

    rate: float
    fan_out: int = 1
    work: float = 100.0
    round_trip: float = 0.001
    body: int = 256
    cores: int = 8
    network: float = 125e6


@dataclass(frozen=True)
class Plan:
    """What a load takes.

    Attributes:
        processes: with one connection each.
        machines: that they run on.
        prefetch: of each.
        memory: bytes, of a machine.
        waiting: seconds that a message waits for its turn in a process, on average.
        written: messages a second that the broker takes and gives.
        brokers: like the one that was measured; 0 where none was.
    """

    processes: int
    machines: int
    prefetch: int
    memory: float
    waiting: float
    written: float
    brokers: int

    @property
    def spark(self) -> bool:
        """Whether it is more than one machine: Spark then distributes the work and handles failures."""
        return self.machines > 1


def service(costs: Costs, load: Load) -> float:
    """Return the seconds of CPU for a message that is received, worked on and acknowledged."""
    return (costs.acknowledge + load.work) / 1e6


def carried(costs: Costs, load: Load) -> float:
    """Return the messages a second that one process carries."""
    return BUSY / service(costs, load)


def wire(load: Load) -> int:
    """Return the bytes of a message with its headers."""
    return len(Feed(body=load.body).message(1, b"1"))


def plan(costs: Costs, load: Load) -> Plan:
    """Return what a load takes."""
    delivered = load.rate * load.fan_out
    processes = load.fan_out * max(1, math.ceil(load.rate / carried(costs, load)))
    by_cores = math.ceil(processes / load.cores)
    by_network = math.ceil(delivered * wire(load) / load.network)
    machines = max(by_cores, by_network)
    ahead = prefetch(delivered / processes, load.round_trip)
    each = costs.process + costs.connection + ahead * (costs.message + max(0, load.body - Feed.body))
    busy = delivered / processes * service(costs, load)
    return Plan(
        processes=processes,
        machines=machines,
        prefetch=ahead,
        memory=each * math.ceil(processes / machines),
        waiting=waiting(busy, service(costs, load)),
        written=load.rate + delivered,
        brokers=math.ceil(delivered / costs.broker) if costs.broker else 0,
    )


def prefetch(rate: float, round_trip: float) -> int:
    """Return how many messages must be on their way for a consumer of that rate never to wait."""
    return math.ceil(rate * round_trip) + 1


def throughput(ahead: int, seconds: float, round_trip: float) -> float:
    """Return the messages a second of a busy consumer with that prefetch."""
    return min(1 / seconds, ahead / (round_trip + seconds))


def waiting(busy: float, seconds: float) -> float:
    """Return the seconds that a message waits for its turn on average, where arrivals are random."""
    return seconds * busy / (2 - 2 * busy)


def connections(costs: Costs, memory: float) -> int:
    """Return how many idle connections a process holds in so many bytes."""
    return int((memory - costs.process) / costs.connection)


def simulated_throughput(ahead: int, seconds: float, round_trip: float, count: int = 5000) -> float:
    """Deliver messages one by one, never more than `ahead` unacknowledged; return messages a second."""
    credits = [0.0] * ahead  # when the broker may send each
    heapq.heapify(credits)
    free = 0.0
    for _ in range(count):
        arrives = heapq.heappop(credits) + round_trip / 2
        free = max(free, arrives) + seconds
        heapq.heappush(credits, free + round_trip / 2)
    return count / free


def simulated_waiting(busy: float, seconds: float, count: int = 200_000, seed: int = 1) -> float:
    """Let messages arrive at random; return the seconds that one waits for its turn on average."""
    random_ = random.Random(seed)
    now = free = waited = 0.0
    for _ in range(count):
        now += random_.expovariate(busy / seconds)
        began = max(now, free)
        waited += began - now
        free = began + seconds
    return waited / count


def simulated_share(processes: int, rate: float, seconds: float, ahead: int, *, lasting: float = 5.0) -> float:
    """Let a broker give messages to the first process with room; return messages a second that are finished."""
    ready: deque[int] = deque(range(processes))
    room = [ahead] * processes
    free = [0.0] * processes
    ends: list[tuple[float, int]] = []
    finished = 0
    for number in range(int(rate * lasting)):
        now = number / rate
        while ends and ends[0][0] <= now:
            ended = heapq.heappop(ends)[1]
            room[ended] += 1
            finished += 1
        for _ in range(processes):
            ready.rotate(-1)
            taker = ready[0]
            if room[taker]:
                room[taker] -= 1
                free[taker] = max(free[taker], now) + seconds
                heapq.heappush(ends, (free[taker], taker))
                break
    return finished / lasting


def table(costs: Costs) -> Iterator[str]:
    """Yield the table of the page: what grows with the load."""
    yield "| messages/s | processes | machines of 8 cores | prefetch | memory of a machine | waiting | brokers |"
    yield "|---|---|---|---|---|---|---|"
    for rate in (100, 1_000, 10_000, 50_000, 200_000):
        one = plan(costs, Load(rate))
        yield (
            f"| {rate:,} | {one.processes} | {one.machines}{', so Spark' if one.spark else ''} | {one.prefetch} "
            f"| {one.memory / MIB:,.0f} MiB | {one.waiting * 1e6:,.0f} µs | {one.brokers or '-'} |"
        )


def main() -> None:
    """Print the plan for a load."""
    parser = argparse.ArgumentParser(description="What a load takes, by the last measured run.")
    parser.add_argument("--rate", type=float, required=True, help="messages a second")
    parser.add_argument("--fan-out", type=int, default=1, help="subscribers that each get all of them")
    parser.add_argument("--work", type=float, default=100.0, help="microseconds of CPU of a handler")
    parser.add_argument("--round-trip", type=float, default=0.001, help="seconds to the broker and back")
    parser.add_argument("--body", type=int, default=256, help="bytes of a body")
    parser.add_argument("--cores", type=int, default=8, help="of a machine")
    load = Load(**vars(parser.parse_args()))
    costs = Costs.of(results.last())
    one = plan(costs, load)
    print(f"one process carries {carried(costs, load):,.0f} messages/s; {load.rate:,.0f} take:")
    print(f"{one.processes} processes on {one.machines} machines, prefetch {one.prefetch} each,")
    print(f"{one.memory / MIB:,.0f} MiB on a machine; a message waits {one.waiting * 1e6:,.0f} µs for its turn.")
    print(f"Brokers take and give {one.written:,.0f} messages/s: {one.brokers or '?'} like the one that was measured.")
    if one.spark:
        print("That is more than one machine: let Spark share out the work.")


if __name__ == "__main__":
    main()
