"""`simulate`: a program of the user's on an embedded broker, in worlds in which a seed chooses schedule and faults."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from types import ModuleType, TracebackType

from stompy.arguments import check_arguments, check_counts
from stompy.broker.broker import Broker, Like
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.encoding import Body
from stompy.frames.frame import Frame
from stompy.testing.faults import FaultPlan
from stompy.testing.network import Network, Weather
from stompy.testing.replaced import guard, installed
from stompy.testing.world import LINE, OutsideError, Thread, World
from stompy.transport.tcp import TcpDialer, TcpListener
from stompy.world import random

_PORT = 61613
_STEPS = 300_000
_KILLS = (0, 1, 1, 2)
_MOMENTS = ((LINE, 10), (LINE, 40), ("", 300))
"""A process is killed before one of so many lines, or at one of so many of its switches."""
_DOWN, _FAULTY, _SETTLED = 0.5, 3.0, 5.0
"""Seconds until a process is started again, that faults go on, and that programs get after their queue is empty."""
_FAILURES = 10
"""How often processes may raise when nothing breaks any more, before the simulation fails by the last error."""
_BROKER, _FAULTS = "broker", "faults"
_NOT_AGAIN = (
    "\nWith the same seed it did not fail in the same way again: what the program does depends on something outside of "
    "the world, such as variables of modules that outlive it, `datetime.now()`, or the order of a set."
)
_SHOWN = 60
"""Lines of a trace that an error shows, of its beginning and of its end."""


class SimulationError(AssertionError):
    """A program failed in a simulated world; raised from its own error.

    Attributes:
        seed: of the world: `simulate(program, seeds=1, first=seed)` runs it again.
        trace: a line for each event, with its time in seconds and its process.
    """

    def __init__(self, reason: object, seed: int, trace: Sequence[str]) -> None:
        self.seed = seed
        self.trace = tuple(trace)
        lines, left = [*self.trace], len(self.trace) - 2 * _SHOWN
        if left > 0:
            lines[_SHOWN:-_SHOWN] = [f"... {left} more lines, all of them in `trace` ..."]
        again = f"again: seeds=1, first={seed}; with the fixture stomp_simulate: pytest --stomp-seed {seed}"
        super().__init__("\n".join((f"seed {seed}: {reason}", *lines, again)))


@dataclass(frozen=True)
class _Dangers:
    """The draws of a seed; a failure is shown in the calmest world that has it too."""

    lines: bool
    """Whether others may go first before each line of the program."""
    kills: int
    """How many processes are killed at most."""
    breaks: float
    refusals: float
    pieces: bool
    latency: float
    rate: float

    @staticmethod
    def drawn(lot: random.Random) -> _Dangers:
        """Return the dangers of a seed."""
        return _Dangers(
            lines=lot.random() < 0.7,
            kills=lot.choice((0, 9, 9)),
            breaks=lot.choice((0.0, 0.0, 0.2)),
            refusals=lot.choice((0.0, 0.3)),
            pieces=lot.random() < 0.5,
            latency=lot.choice((0.0, 0.02)),
            rate=lot.choice((0.05, 0.3)),
        )

    def calmer(self) -> Iterator[_Dangers]:
        """Yield dangers without one of them."""
        for field in fields(self):
            was = getattr(self, field.name)
            if was:
                yield replace(self, **{field.name: type(was)(0)})
        if self.kills > 1:
            yield replace(self, kills=1)


class _Schedule:
    """A random schedule that is asked at each switch, so that a process is killed at the one that was drawn."""

    def __init__(self, lot: random.Random, rate: float) -> None:
        self._random, self._rate = lot, rate

    def __call__(self, able: Sequence[Thread], current: Thread) -> int:
        """Return the index of the next thread: one that kills, else mostly the holder of the baton."""
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
        trace: a line for each event so far.
    """

    url = f"stomp://127.0.0.1:{_PORT}"

    def __init__(self, world: World, network: Network, lot: random.Random, search: Search, kills: int) -> None:
        self._world, self._network, self._random = world, network, lot
        self._search, self._kills = search, kills
        self._calm = False
        self._connection: Connection | None = None
        self._failures = 0
        """How often a process has raised although nothing breaks any more."""
        self.broker: Broker
        self.trace: list[str] = []

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        process = self._world.current.process
        self.trace.append(f"{self._world.now - 1000:9.3f} {process:10} {what}")

    def start(self, function: Callable[..., object], *arguments: object, name: str = "") -> None:
        """Run a function as a process of its own, which may be killed; a killed or failed one starts again.

        Args:
            function: the process; an `AssertionError` that it raises fails the simulation.
            arguments: of the function.
            name: of the process; by default the function's.
        """
        self._search.look_at(function)
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
            except AssertionError as error:
                self._world.fail(error)
            except Exception as error:
                self._failures += self._calm
                self.note(f"{name} has ended by {type(error).__name__}: {error}")
                if self._failures > _FAILURES:
                    self._world.fail(error)
                self._world.kill(name)
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
        if self._calm or not self._kills:
            return
        self._kills -= 1
        where = next((f" before {each.line}" for each in self._world.alive if each.process == name and each.line), "")
        self._world.kill(name)
        self._network.hang_up(name)
        self.note(f"{name} is killed{where if what else ''}")
        self._wait(_DOWN)
        begin()

    def _wait(self, seconds: float) -> None:
        self._world.switch(lambda: False, seconds, "the clock")
        if self._world.errors:
            self._world.fail(self._world.errors[0])

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
            AssertionError: it is not empty in time, although nothing breaks any more; with the stacks of the threads
                of the program.
        """
        self._wait(_FAULTY)
        self._network.clear_up()
        self._calm = True
        end = self._world.now + timeout
        while (left := self._left(queue)) and self._world.now < end:
            self._wait(0.5)
        if left:
            text = f"{queue} has {left} messages after {timeout:g} s without a fault"
            raise AssertionError(f"{text}\n{self._world.stacks()}".rstrip())
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

    def _main(self, program: Callable[[Simulation], object], like: Like | None) -> None:
        """Run the program; called by `simulate`."""
        self._world.current.process = _BROKER
        self.broker = Broker(port=_PORT, like=like, on_frame=self._passes).start()
        self._world.current.process = "main"
        program(self)


@dataclass(frozen=True)
class Search:
    """A program, and how it is run."""

    program: Callable[[Simulation], object]
    like: Like | None
    modules: tuple[ModuleType, ...]

    @property
    def files(self) -> frozenset[str]:
        """The files of the program."""
        return frozenset(str(module.__file__) for module in self.modules)

    def run(self, seed: int, dangers: _Dangers) -> tuple[BaseException | None, list[str]]:
        """Run one world; return the error and the trace."""
        lot = random.Random(seed)  # noqa: S311 - it has to repeat
        schedule = _Schedule(random.Random(seed + 1), dangers.rate)  # noqa: S311
        world = World(schedule, traced=self.files if dangers.lines else (), seed=seed, steps=_STEPS, program=self.files)
        weather = Weather(dangers.breaks, dangers.refusals, dangers.latency, pieces=dangers.pieces)
        network = Network(world, lot, weather, FaultPlan(seed=seed))
        simulation = Simulation(world, network, random.Random(seed + 2), self, dangers.kills)  # noqa: S311
        network.note = simulation.note  # type: ignore[method-assign]
        seam = {"TcpDialer": (TcpDialer, network.dialer), "TcpListener": (TcpListener, network.listen)}
        with installed(self.modules, quiet=0, **seam):
            try:
                world.run(partial(simulation._main, self.program, self.like))
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                return error, simulation.trace
        return None, simulation.trace

    def look_at(self, function: Callable[..., object]) -> None:
        """Look that the module of a function sees the world."""
        module = _module_of(function)
        seen = {module.__name__ for module in self.modules}
        if module not in seen and module.partition(".")[0] not in (*sys.stdlib_module_names, "stompy"):
            raise OutsideError(f"{module} does not see the simulated world: simulate(..., modules=[{module}])")

    def repeated(self, seed: int, dangers: _Dangers, error: BaseException, trace: list[str]) -> SimulationError:
        """Return the error of a failure, in the calmest world in which it is the same one."""
        what, reason = self._where(error), ""
        if not isinstance(error, OutsideError):
            again, _ = self.run(seed, dangers)
            if again is None or self._where(again) != what:
                reason = _NOT_AGAIN
            else:
                error, trace = self._calmest(seed, dangers, error, trace)
        text = str(error) if type(error) is AssertionError else f"{type(error).__name__}: {error}"
        error.__traceback__ = self._own_part(error.__traceback__)
        failure = SimulationError(f"{text}{reason}", seed, trace)
        failure.__cause__ = error
        return failure

    def _calmest(
        self, seed: int, dangers: _Dangers, error: BaseException, trace: list[str]
    ) -> tuple[BaseException, list[str]]:
        what, tried = self._where(error), iter(dangers.calmer())
        for calmer in tried:
            other, others_trace = self.run(seed, calmer)
            if other is not None and self._where(other) == what:
                return self._calmest(seed, calmer, other, others_trace)
        return error, trace

    def _where(self, error: BaseException) -> tuple[type, object]:
        """Return the key by which two errors are one failure: the type, and the last line in the program."""
        lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        return type(error), [place for place in lines if place[0] in self.files][-1:]

    def _own_part(self, found: TracebackType | None) -> TracebackType | None:
        """Return a traceback from its first line in the program on, or all of it."""
        own = found
        while own is not None and own.tb_frame.f_code.co_filename not in self.files:
            own = own.tb_next
        return own or found


def _module_of(function: Callable[..., object]) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", "") or type(function).__module__)


def _seen_by(program: Callable[..., object], modules: Sequence[ModuleType]) -> tuple[ModuleType, ...]:
    """Return the modules that see the world: that of the program, those that are named, and its members."""
    names = {_module_of(program), *(module.__name__ for module in modules)}
    inside = tuple(f"{module.__name__}." for module in modules)
    return tuple(module for name, module in list(sys.modules.items()) if name in names or name.startswith(inside))


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
    happens. A failure is shown in the calmest world that was found in which the program fails at the same line with
    the same type of error.

    Args:
        program: called with each `Simulation`; an error of it fails the simulation.
        seeds: how many worlds.
        first: the seed of the first one.
        like: as for `Broker`.
        modules: and packages that see the world's `threading`, `time`, `random`, `sqlite3`, `os` and `queue` instead
            of Python's, as the module of the program does.

    Raises:
        SimulationError: the program failed; with the seed and the trace.
    """
    check_arguments(simulate, {"first": first, "like": like})
    check_counts(seeds=seeds)
    guard()
    search = Search(program, like, _seen_by(program, modules))
    for seed in range(first, first + seeds):
        dangers = _Dangers.drawn(random.Random(seed))  # noqa: S311 - it has to repeat
        error, trace = search.run(seed, dangers)
        if error is not None:
            raise search.repeated(seed, dangers, error, trace)
