"""The stand-ins of Python's modules for stompy and users in a simulated world: threads, clocks, chance, files."""

from __future__ import annotations

import functools
import gc
import importlib.util
import logging
import os
import pkgutil
import queue
import random
import secrets
import sqlite3
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, TypeVar

import tenacity  # its clock is replaced too

import stompy.locks as locking
import stompy.world as seam
from stompy.testing.world import (
    AbandonedError,
    Event,
    OutsideError,
    PlainLock,
    Semaphore,
    SimpleQueue,
    SimulatedLock,
    Thread,
    World,
    condition,
    current_world,
    inside,
)

T = TypeVar("T")
_LOCKED = 0.01
"""Seconds after which a locked database is tried again."""


def _clock() -> float:
    return current_world().now


def _nanoseconds() -> int:
    return int(_clock() * 1e9)


def _sleep(seconds: float) -> None:
    current_world().switch(lambda: False, seconds, "the clock")


def _copy(module: ModuleType, **replaced: object) -> ModuleType:
    copy = ModuleType(module.__name__)
    vars(copy).update({**vars(module), **replaced})
    return copy


def _drawn(name: str) -> Callable[..., Any]:
    return lambda *arguments, **options: getattr(current_world().random, name)(*arguments, **options)


def _on_disk(name: str, operate: Callable[..., T], *arguments: Any) -> T:
    """Do an operation on files, before which others may go, as the disk of the world lets it be done."""
    world = current_world()
    if not world.finished:
        world.switch()
    return operate(*arguments) if world.disk is None else world.disk(name, operate, *arguments)


def _open(path: str, flags: int, mode: int = 0o777) -> int:
    world = current_world()
    number = _on_disk("open", os.open, path, flags, mode)
    world.files[number] = world.current.process
    world.closed_files.discard(number)
    return number


def _close(number: int) -> None:
    world = current_world()
    owned = world.files.pop(number, None) is not None
    if owned or not (world.over or number in world.closed_files):
        os.close(number)


def _others_first(name: str) -> Callable[..., Any]:
    """Return an operation on files before which others may go; a killed process does nothing more to its files."""
    real = getattr(os, name)

    def call(*arguments: Any, **options: Any) -> Any:
        return _on_disk(name, functools.partial(real, **options), *arguments)

    return call


def _named(name: str) -> Callable[..., Any]:
    """Return an operation that gives a file another name; it has been modified now, by the clock of the world."""
    operate = _others_first(name)

    def call(source: str, target: str) -> None:
        operate(source, target)
        _touch(target)

    return call


def _touch(path: str) -> None:
    os.utime(path, (_clock(), _clock()))


def _patiently(function: Callable[..., T], seconds: float, *arguments: Any) -> T:
    """Call a function of a database, and again while another connection has locked it."""
    world = current_world()
    end = world.now + seconds
    while True:
        try:
            return function(*arguments)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or world.now >= end or world.finished:
                raise
        world.switch(lambda: False, _LOCKED, "a database")


class Cursor(sqlite3.Cursor):
    """A cursor of such a database."""

    connection: Database

    def execute(self, *arguments: Any) -> Cursor:
        """Execute a statement."""
        return _patiently(super().execute, self.connection.patience, *arguments)

    def executemany(self, *arguments: Any) -> Cursor:
        """Execute a statement for each row."""
        return _patiently(super().executemany, self.connection.patience, *arguments)


class Database(sqlite3.Connection):
    """A database of the simulated world: others may go first at each statement, and it closes with its process."""

    patience, path = 0.0, ""
    """Seconds that it waits for another's lock, and its file."""

    def cursor(self, factory: Callable[..., Any] = Cursor) -> Any:  # type: ignore[override]
        """Return a new cursor."""
        return super().cursor(factory)

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        """Execute a statement."""
        return _on_disk("execute", sqlite3.Connection.execute, self, *arguments)

    def commit(self) -> None:
        """Commit."""
        _on_disk("commit", _patiently, super().commit, self.patience)

    def close(self) -> None:
        """Close it."""
        current_world().files.pop(self, None)
        super().close()


_OF_DATABASES = {"check_same_thread": False, "timeout": 0.0}
"""Any thread may close one; and a thread that waits for another's lock would keep the baton."""


def _connect(path: str, **options: Any) -> sqlite3.Connection:
    world = current_world()
    looked, world.looks = world.looks, True
    try:
        database: Database = sqlite3.connect(path, factory=Database, **{**options, **_OF_DATABASES})
    finally:
        world.looks = looked
    database.patience, database.path = options.get("timeout", 5.0), path
    world.files[database] = world.current.process
    return database


def _bytes(size: int = 32) -> bytes:
    return current_world().random.randbytes(size)


def _hex(size: int = 32) -> str:
    return _bytes(size).hex()


def _inside_only(simulated: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls the simulated one in threads that see the world, the real one in others."""
    ident = threading.get_ident

    def call(*arguments: Any, **options: Any) -> Any:
        return (simulated if ident() in inside else real)(*arguments, **options)

    return call


_OUTSIDE = {
    "socket.__new__": "socket",
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.posix_spawn": "process",
    "os.system": "process",
    "sqlite3.connect": "database",
    "time.sleep": "sleep",
}


def _refuse(what: str) -> NoReturn:
    """Fail the run: the program uses a part that the world lacks."""
    error = OutsideError(f"a simulated world has no real {what}; is a module missing in `modules`?")
    current_world().errors.append(error)  # also if the program catches it
    raise error


def _refused(what: str, real: Callable[..., object], *arguments: object) -> object:
    if current_world().guarded:
        _refuse(what)
    return real(*arguments)


@functools.cache
def guard() -> None:
    """Refuse from now on, in the threads of a guarded world, the parts outside of it."""
    ident = threading.get_ident

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _OUTSIDE and ident() in inside and current_world().guarded and not current_world().looks:
            _refuse(_OUTSIDE[event])

    sys.addaudithook(hook)


def _instead(module: ModuleType, **simulated: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {name: _inside_only(function, getattr(module, name)) for name, function in simulated.items()}


class _Threading(SimpleNamespace):
    """The stand-in of `threading`."""

    def __getattr__(self, name: str) -> Any:
        if current_world().guarded and not name.startswith("__"):
            raise OutsideError(f"a simulated world has no threading.{name}")
        return getattr(threading, name)


def _queues() -> dict[str, Callable[..., Any]]:
    """Return Python's own queues, made of simulated locks."""
    spec = importlib.util.find_spec("queue")
    assert spec is not None
    assert spec.loader is not None
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    vars(copied).update(Full=queue.Full, ShutDown=getattr(queue, "ShutDown", None), time=_clock)
    vars(copied)["threading"] = SimpleNamespace(Lock=PlainLock, Condition=condition)
    return {name: getattr(copied, name) for name in ("Queue", "LifoQueue", "PriorityQueue")}


_REPLACED: dict[str, object] = {
    "threading": _Threading(
        **_instead(
            threading,
            Thread=Thread,
            Lock=PlainLock,
            RLock=SimulatedLock,
            Condition=condition,
            Event=Event,
            Semaphore=Semaphore,
            BoundedSemaphore=Semaphore,
            current_thread=lambda: current_world().current,
            main_thread=lambda: current_world().threads[0],
            enumerate=lambda: [thread for thread in current_world().threads if thread.is_alive()],
        ),
        local=threading.local,
        get_ident=threading.get_ident,
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
    ),
    "time": _copy(
        time, **_instead(time, monotonic=_clock, perf_counter=_clock, time=_clock, time_ns=_nanoseconds, sleep=_sleep)
    ),
    "random": _copy(
        random,
        **_instead(
            random,
            **{
                name: _drawn(name)
                for name, value in vars(random).items()
                if isinstance(getattr(value, "__self__", None), random.Random)
            },
        ),
    ),
    "secrets": _copy(
        secrets,
        **_instead(secrets, token_bytes=_bytes, token_hex=_hex, token_urlsafe=_hex, randbelow=_drawn("randrange")),
    ),
    "os": _copy(
        os,
        **_instead(
            os,
            urandom=_bytes,
            open=_open,
            close=_close,
            utime=_touch,
            **{name: _others_first(name) for name in ("write", "pwrite", "fsync", "unlink", "listdir", "makedirs")},
            **{name: _named(name) for name in ("link", "replace", "rename")},
        ),
    ),
    "sqlite3": _copy(sqlite3, **_instead(sqlite3, connect=_connect)),
    "queue": _copy(queue, **_instead(queue, SimpleQueue=SimpleQueue, **_queues())),
    "_monotonic": _inside_only(_clock, time.monotonic),
    **_instead(
        locking,
        Condition=SimulatedLock,
        SafeEvent=Event,
        make_lock=lambda rank, name: SimulatedLock(name=name),
        make_condition=lambda name, rank=None: SimulatedLock(name=name),
    ),
}
"""The stand-ins, by the names in stompy's modules."""


@functools.cache
def _import_all() -> None:
    """Import modules that are imported late otherwise, and would keep a world's stand-ins."""
    for name in ("connection", "broker", "link", "transport", "worker", "outbox"):
        package = importlib.import_module(f"stompy.{name}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)


class _Bugs(logging.Handler):
    """Notes in the world the errors that stompy logs as its own."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        world = current_world()
        if world.guarded and isinstance(error, AssertionError):
            world.errors.append(error)  # of a handler or a task of the user's, which stompy only logs
        elif (
            not world.finished
            and record.exc_info
            and "ended by a bug" in record.getMessage()
            and not isinstance(error, AbandonedError)
        ):
            world.bugs.append(f"{record.getMessage()}: {error!r}")


_OURS = (__name__, World.__module__)
_OF_PYTHON = ("os", "queue", "random", "secrets", "sqlite3", "threading", "time")


@functools.lru_cache(maxsize=4)
def _places(
    modules: tuple[ModuleType, ...], more: tuple[tuple[str, object], ...]
) -> tuple[list[tuple[ModuleType, str, object]], list[tuple[ModuleType, str]]]:
    """Return where modules have the replaced names, and their counters."""
    real = {name: getattr(locking, name, None) for name in _REPLACED}
    real |= {name: sys.modules[name] for name in _OF_PYTHON}
    real |= {"_monotonic": time.monotonic, **dict(more)}
    places = [
        (module, name, before)
        for module in modules
        for name, before in real.items()
        if vars(module).get(name) is before and before is not None
    ]
    return places, [
        (module, name) for module in modules for name, value in vars(module).items() if type(value) is count
    ]


_MADE: dict[type, Callable[[], object]] = {
    type(threading.Lock()): PlainLock,
    type(threading.RLock()): SimulatedLock,
    threading.Condition: SimulatedLock,
    threading.Event: Event,
    queue.SimpleQueue: SimpleQueue,
}
"""The stand-ins of objects that a module made when it was imported; new ones for each run."""


def _imported(modules: Iterable[ModuleType]) -> Iterator[tuple[ModuleType, str, object, object]]:
    """Yield the replaced functions that modules of users have by other names, and their stand-ins."""
    by_id: dict[int, object] = {}
    for name in _OF_PYTHON:
        simulated = vars(_REPLACED[name])
        for key, value in vars(sys.modules[name]).items():
            if callable(value) and simulated.get(key, value) is not value:
                by_id[id(value)] = simulated[key]
    for module in modules:
        for name, value in list(vars(module).items()):
            if id(value) in by_id:
                yield module, name, value, by_id[id(value)]
            elif type(value) in _MADE:
                yield module, name, value, _MADE[type(value)]()


@contextmanager
def installed(
    also: Iterable[ModuleType] = (), *, quiet: int = logging.WARNING, **more: tuple[object, object]
) -> Iterator[None]:
    """Let stompy's modules see the simulated world in the block.

    Args:
        also: other modules that see it, by any names.
        quiet: up to which level stompy logs nothing.
        more: by a name in stompy's modules, the original and its stand-in.
    """
    _import_all()
    for name in _OF_PYTHON:
        getattr(seam, name)  # so that it is there to be replaced
    own = {name: module for name, module in sys.modules.items() if name.startswith("stompy.") and name not in _OURS}
    modules = (*own.values(), tenacity, uuid, *also)
    places, counters = _places(modules, tuple((name, before) for name, (before, _) in more.items()))
    replaced = _REPLACED | {name: after for name, (_, after) in more.items()}
    undo: list[tuple[Any, str, object, object]]
    undo = [(module, name, before, replaced[name]) for module, name, before in places]
    if also:
        undo += _imported(also)
        for owner, name, what in ((threading.Thread, "start", "thread"), (time, "sleep", "sleep")):
            real = vars(owner)[name]
            undo.append((owner, name, real, _inside_only(functools.partial(_refused, what, real), real)))
    # Counters of modules begin anew, as the length of a name decides where a stream breaks.
    undo += [(module, name, vars(module)[name], count(1)) for module, name in counters]
    collects, disabled, bugs = gc.isenabled(), logging.root.manager.disable, _Bugs()
    logs = [logging.getLogger(name) for name in ("stompy", "stomp.py")]
    propagate, unraisable = [log.propagate for log in logs], sys.unraisablehook
    sys.unraisablehook = lambda raised: None if isinstance(raised.exc_value, AbandonedError) else unraisable(raised)
    gc.disable()  # finalizers would run at a moment that nobody chose
    me = threading.get_ident()
    inside.add(me)
    logging.disable(quiet)
    for log in logs:
        log.addHandler(bugs)
        log.propagate = False
    try:
        for module, name, _, value in undo:
            setattr(module, name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a killed program closes nothing
            yield
    finally:
        for module, name, value, _ in undo:
            setattr(module, name, value)
        inside.discard(me)
        sys.unraisablehook = unraisable
        for log, propagates in zip(logs, propagate, strict=True):
            log.removeHandler(bugs)
            log.propagate = propagates
        logging.disable(disabled)
        if collects:
            gc.enable()
