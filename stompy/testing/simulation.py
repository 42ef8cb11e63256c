"""`simulate`: a program of the user's on an embedded broker, in worlds in which a seed chooses schedule and faults."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

from stompy.arguments import check_arguments, check_counts
from stompy.broker.broker import Broker, Like
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.encoding import Body
from stompy.frames.frame import Frame
from stompy.testing.faults import FaultPlan
from stompy.testing.network import Network, Weather
from stompy.testing.world import LINE, Thread, World, installed
from stompy.transport.tcp import TcpDialer, TcpListener
from stompy.world import random

_PORT = 61613
_STEPS = 300_000
_KILLS = (0, 1, 1, 2)
_MOMENTS = ((LINE, 10), (LINE, 40), ("", 300))
"""A process is killed before one of so many lines, or at one of so many of its switches."""
_DOWN, _FAULTY, _SETTLED = 0.5, 3.0, 5.0
"""Seconds until a process is started again, that faults go on, and that programs get after their queue is empty."""
_FAULTS = "faults"


class SimulationError(AssertionError):
    """A program failed in a simulated world.

    Attributes:
        seed: of the world: `simulate(program, seeds=1, first=seed)` runs it again.
        trace: what happened, a line for each event, with its time in seconds and its process.
    """

    def __init__(self, reason: object, seed: int, trace: Sequence[str]) -> None:
        self.seed = seed
        self.trace = tuple(trace)
        super().__init__("\n".join((f"seed {seed}: {reason}", *trace)))


class _Schedule:
    """A random schedule that is asked at each switch, so that a process is killed at the one that was drawn."""

    def __init__(self, lot: random.Random, rate: float) -> None:
        self._random, self._rate = lot, rate

    def __call__(self, able: Sequence[Thread], current: Thread) -> int:
        """Return the index of the next thread: what kills, else mostly the one that had the baton."""
        for index, thread in enumerate(able):
            if thread.process == _FAULTS:
                return index
        if current in able and self._random.random() >= self._rate:
            return able.index(current)
        return self._random.randrange(len(able))


class Simulation:
    """One simulated world, as its program sees it; passed by `simulate`.

    Attributes:
        url: of the broker.
        broker: the embedded broker.
        trace: what happened so far.
    """

    url = f"stomp://127.0.0.1:{_PORT}"

    def __init__(self, world: World, network: Network, lot: random.Random) -> None:
        self._world, self._network, self._random = world, network, lot
        self._calm = False
        self._connection: Connection | None = None
        self.broker: Broker
        self.trace: list[str] = []

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        process = self._world.current.process
        self.trace.append(f"{self._world.now - 1000:9.3f} {process:10} {what}")

    def start(self, function: Callable[..., object], *arguments: object, name: str = "") -> None:
        """Run a function as a process of its own, which may be killed; what was killed or has raised starts again.

        Args:
            function: the process; an `AssertionError` that it raises fails the simulation.
            arguments: of the function.
            name: of the process; by default the function's.
        """
        name = name or str(getattr(function, "__name__", "process"))
        begin = partial(self._begin, partial(self._run, name, function, arguments), name)
        begin()
        for _ in range(self._random.choice(_KILLS)):
            what, most = self._random.choice(_MOMENTS)
            self._begin(partial(self._kill, what, self._random.randrange(most), name, begin), _FAULTS)

    def _begin(self, function: Callable[[], object], process: str) -> None:
        thread = Thread(function, process)
        thread.process = process
        thread.start()

    def _run(self, name: str, function: Callable[..., object], arguments: Sequence[object]) -> None:
        while True:
            try:
                function(*arguments)
            except AssertionError:
                raise
            except Exception as error:
                self.note(f"{name} has ended by {type(error).__name__}: {error}")
                self._world.release(name)
                self._network.hang_up(name)
                self._wait(_DOWN)
            else:
                return

    def _kill(self, what: str, left: int, name: str, begin: Callable[[], None]) -> None:
        moments = iter(range(left))

        def now() -> bool:
            thread = self._world.current
            return self._calm or (
                thread.process == name and what in ("", thread.waits_for) and next(moments, None) is None
            )

        self._world.switch(now, None, "the time of a fault")
        if self._calm:
            return
        where = next((f" before {each.line}" for each in self._world.alive if each.process == name and each.line), "")
        self._world.kill(name)
        self._network.hang_up(name)
        self.note(f"{name} is killed{where if what else ''}")
        self._wait(_DOWN)
        begin()

    def _wait(self, seconds: float) -> None:
        self._world.switch(lambda: False, seconds, "the clock")

    def send(self, destination: str, body: Body = b"", **options: object) -> None:
        """Send a message, and wait until the broker has confirmed it; faults do not reach this call.

        Args:
            destination: as for `Connection.send`.
            body: as for `Connection.send`.
            options: as for `Connection.send`.
        """
        if self._connection is None:
            weather, self._network.weather = self._network.weather, Weather()  # which decides when it breaks
            self._connection = connect(self.url)
            self._network.weather = weather
        self._connection.send(destination, body, confirm=True, **options)  # type: ignore[arg-type]

    def wait_empty(self, queue: str, *, timeout: float = 300.0) -> None:
        """Wait until a queue has no message and its consumers have settled; after 3 s nothing breaks any more.

        Args:
            queue: its name.
            timeout: simulated seconds.

        Raises:
            AssertionError: it is not empty in time, although nothing breaks any more.
        """
        self._wait(_FAULTY)
        self._network.clear_up()
        self._calm = True
        end = self._world.now + timeout
        while (left := self._left(queue)) and self._world.now < end:
            self._wait(0.5)
        if left:
            raise AssertionError(f"{queue} has {left} messages after {timeout:g} s without a fault")
        self._wait(_SETTLED)

    def _left(self, queue: str) -> int:
        stats = self.broker.stats()
        return stats.scheduled + sum(
            depth.total for name, depth in stats.queues.items() if name == queue or name.startswith(f"{queue}.parked")
        )

    def _passes(self, side: str, _: str, frame: Frame) -> None:
        headers = frame.headers
        about = headers.get("destination") or headers.get("id") or headers.get("receipt-id") or ""
        self.note(f"{side} {frame.command} {about} {frame.body[:40].decode(errors='replace')}".rstrip())

    def main(self, program: Callable[[Simulation], object], like: Like | None) -> None:
        """Run the program."""
        self._world.current.process = "broker"
        self.broker = Broker(port=_PORT, like=like, on_frame=self._passes).start()
        self._world.current.process = "main"
        program(self)


def simulate(
    program: Callable[[Simulation], object],
    *,
    seeds: int = 1_000,
    first: int = 0,
    like: Like | None = None,
    modules: Sequence[ModuleType] = (),
) -> None:
    """Run a program in simulated worlds, until one fails or all have passed.

    A world has an embedded broker, a network and a clock of its own. Its seed chooses which thread runs at which
    moment, which connections break, are refused or are slow, and when a process is killed. With the same seed the same
    happens.

    Args:
        program: called with each `Simulation`; what it raises fails the simulation.
        seeds: how many worlds.
        first: the seed of the first one.
        like: as for `Broker`.
        modules: that see the world's `threading`, `time`, `random`, `sqlite3`, `os` and `queue` instead of Python's,
            as the module of the program does.

    Raises:
        SimulationError: the program failed; with the seed and the trace.
    """
    check_arguments(simulate, {"first": first, "like": like})
    check_counts(seeds=seeds)
    own = sys.modules.get(program.__module__)
    also = (*(() if own is None else (own,)), *modules)
    files = {str(module.__file__) for module in also}
    for seed in range(first, first + seeds):
        lot = random.Random(seed)  # noqa: S311 - it has to repeat
        schedule = _Schedule(random.Random(seed + 1), lot.choice((0.05, 0.3)))  # noqa: S311
        world = World(schedule, traced=files, seed=seed, steps=_STEPS)
        weather = Weather(
            breaks=lot.choice((0.0, 0.0, 0.2)),
            refusals=lot.choice((0.0, 0.3)),
            latency=lot.choice((0.0, 0.02)),
            pieces=lot.random() < 0.5,
        )
        network = Network(world, lot, weather, FaultPlan(seed=seed))
        simulation = Simulation(world, network, lot)
        network.note = simulation.note  # type: ignore[method-assign]
        with installed(also, TcpDialer=(TcpDialer, network.dialer), TcpListener=(TcpListener, network.listen)):
            try:
                world.run(partial(simulation.main, program, like))
            except Exception as error:
                raise SimulationError(error, seed, simulation.trace) from error
