"""A simulated world whose processes start others, get signals and have exit codes, as a worker with children needs.

A process is its threads: at its end they end all at once, wherever they are, its connections are closed, and so are its
ends of pipes. A handler of a signal runs in its first thread, where that waits or may lose its turn.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from stompy.testing.world import Thread, World, at_once, current_world
from stompy.worker import processes, service

Program = Callable[[], int]
"""What a process runs; it returns its exit code, and is what its children run too."""
_PIPES = 1_000_000
"""The number of the first end of a pipe: no file has it."""
_IMPORTS = 0.6
"""Seconds, at most, in which a new process imports its program."""


class System(World):
    """A world with processes.

    Attributes:
        folder: where their temporary folders are.
        codes: the exit codes of those that have ended; that of a signal is its number, negative.
        on_start, on_end: called with the name of a child, and with that of a process and its code.
    """

    folder: Path

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.codes: dict[str, int] = {}
        self.on_start: Callable[[str], object] = str
        self.on_end: Callable[[str, int], object] = lambda name, code: None
        self.numbers = count(1)
        self.environments: dict[str, dict[str, str]] = {}
        self.ends: set[tuple[str, int]] = set()
        """The ends of pipes, each with a process that has it; the number of the end that is written to is odd."""
        self.handlers: dict[str, dict[int, Any]] = {}
        self.first: dict[str, Thread] = {}
        """The first thread of each process."""
        self._programs: dict[str, Program] = {}
        self._parents: dict[str, Thread] = {}
        self._pending: dict[Thread, list[Callable[[], object]]] = {}

    def start(self, name: str, program: Program, *, imports: float = 0.0) -> None:
        """Start a process."""

        def run() -> None:
            self.switch(lambda: False, imports, "its imports")
            self.end(name, program())

        self.codes.pop(name, None)
        self.handlers[name] = {}
        self._programs[name] = program
        thread = self.first[name] = Thread(run, name)
        thread.process = name
        thread.start()

    def start_child(self, environment: Mapping[str, str], ends: Sequence[int]) -> str:
        """Start the program of this process once more; return the name of the new process."""
        self.switch()
        parent = self.current.process
        name = f"{parent}.{next(self.numbers)}"
        self.environments[name] = dict(environment)
        self.ends |= {(name, end) for end in ends}
        self._parents[name] = self.first[parent]
        self.on_start(name)
        self.start(name, self._programs[parent], imports=_IMPORTS * self.random.random())
        return name

    def children(self, name: str) -> list[str]:
        """Return the children of a process that live."""
        first = self.first.get(name)
        return [child for child, parent in self._parents.items() if parent is first and child not in self.codes]

    def end(self, name: str, code: int) -> None:
        """End a process, if it lives."""
        if name in self.codes:
            return
        self.codes[name] = code
        self.kill(name)
        self.ends = {end for end in self.ends if end[0] != name}
        self.on_end(name, code)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process."""
        if name in self.codes:
            return
        handler = self.handlers[name].get(number, signal.SIG_DFL)
        if number == signal.SIGKILL or handler == signal.SIG_DFL:
            self.end(name, -number)
        elif handler != signal.SIG_IGN:
            first = self.first[name]
            self._pending.setdefault(first, []).append(partial(handler, number, None))
            first.deadline = self.now  # so that it gets its turn, whatever it waits for

    def switch(
        self, ready: Callable[[], object] = at_once, timeout: float | None = None, what: str = "its turn"
    ) -> bool:
        """As `World.switch`; a thread to which a signal came runs its handlers, and goes on waiting."""
        me, end = self.current, math.inf if timeout is None else self.now + timeout
        while True:
            able = super().switch(ready, timeout, what)
            if self.looks or me not in self._pending:
                return able
            for handler in self._pending.pop(me):
                handler()
            if ready is at_once:
                return True
            timeout = None if end == math.inf else max(0.0, end - self.now)


def _system() -> System:
    world = current_world()
    assert isinstance(world, System)
    return world


class _Popen:
    """As `subprocess.Popen`, for the program's own command line."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int], start_new_session: bool
    ) -> None:
        self._name = _system().start_child(env, pass_fds)
        self.pid = int(self._name.rpartition(".")[2])

    def poll(self) -> int | None:
        """Return the exit code, if it has ended."""
        _system().switch()
        return _system().codes.get(self._name)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        codes = _system().codes
        _system().switch(lambda: self._name in codes, None, f"the end of {self._name}")
        return codes[self._name]

    def terminate(self) -> None:
        """Send SIGTERM."""
        _system().switch()
        _system().signal(self._name, signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        _system().switch()
        _system().signal(self._name, signal.SIGKILL)


class _Map:
    """A file in memory; what a killed process writes is not in it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._map = mmap.mmap(*arguments, **options)

    def __getitem__(self, key: Any) -> Any:
        return self._map[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        _system().switch()
        self._map[key] = value


class _Environ(MutableMapping[str, str]):
    """The environment of the process that looks."""

    @property
    def _own(self) -> MutableMapping[str, str]:
        system = _system()
        return system.environments.setdefault(system.current.process, {})

    def __getitem__(self, key: str) -> str:
        return self._own[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._own[key] = value

    def __delitem__(self, key: str) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


@contextmanager
def _temporary_directory(*, prefix: str) -> Iterator[str]:
    system = _system()
    folder = system.folder / f"{prefix}{next(system.numbers)}"
    folder.mkdir()
    yield str(folder)
    system.switch()  # a killed process removes nothing
    shutil.rmtree(folder)


def _pipe() -> tuple[int, int]:
    system = _system()
    reading = _PIPES + 2 * next(system.numbers)
    system.ends |= {(system.current.process, reading), (system.current.process, reading + 1)}
    return reading, reading + 1


def _read(number: int, _: int) -> bytes:
    """Return the end of a pipe that nothing is written to, once nobody has its other end."""
    system = _system()
    system.switch()
    if (system.current.process, number) not in system.ends:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    if any(end == number + 1 for _, end in system.ends):
        raise BlockingIOError
    return b""


def _close(real: Callable[[int], None], number: int) -> None:
    if number < _PIPES:
        real(number)
    else:
        _system().switch()
        _system().ends.discard((_system().current.process, number))


def _process_id() -> int:
    _system().switch()  # a killed process does nothing more, such as keep records
    return next(_system().numbers)  # only its difference to others is looked at


def _first_thread() -> Thread:
    system = _system()
    return system.first.get(system.current.process, system.threads[0])


def _set_handler(number: int, handler: Any) -> None:
    _system().handlers.setdefault(_system().current.process, {})[number] = handler


def _handler(number: int) -> Any:
    return _system().handlers.get(_system().current.process, {}).get(number, signal.SIG_DFL)


@contextmanager
def with_processes() -> Iterator[None]:
    """Let workers see the processes of the world in the block, which is in that of `installed`."""
    # The stacks of threads on request are written from C: nobody sends that signal here.
    names = {name: value for name, value in vars(signal).items() if name != "SIGUSR1"}
    signals = SimpleNamespace(**{**names, "signal": _set_handler, "getsignal": _handler})
    maps = SimpleNamespace(mmap=_Map, ACCESS_READ=mmap.ACCESS_READ)
    replaced_os: Any = vars(processes)["os"]
    with (
        patch.multiple(
            processes,
            subprocess=SimpleNamespace(Popen=_Popen),
            tempfile=SimpleNamespace(TemporaryDirectory=_temporary_directory),
            mmap=maps,
            signal=signals,
        ),
        patch.object(service, "signal", signals),
        patch.object(vars(service)["threading"], "main_thread", _first_thread),
        patch.multiple(
            replaced_os,
            pipe=_pipe,
            read=_read,
            close=partial(_close, replaced_os.close),
            getpid=_process_id,
            environ=_Environ(),
            set_inheritable=lambda number, inheritable: None,
            set_blocking=lambda number, blocking: None,
        ),
    ):
        yield
