"""A simulated world: threads of which one runs at a time, a clock that jumps, and a choice of who is next.

The threads are real, and hand on a baton: at each lock, condition, event, start, end and sleep the one that has it asks
who goes on. So a run is decided by its choices alone. The clock only moves when all wait, to the first deadline; if
there is none, that is a deadlock, and its error says where each thread waits.
"""

from __future__ import annotations

import _thread
import gc
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import stompy.locks

T = TypeVar("T")
Chooser = Callable[[Sequence["Thread"], "Thread"], int]
"""From those that can go on, and the one that had the baton: the index of the one that gets it."""

_ABANDONED_WITHIN = 10.0
"""Real seconds that the threads of a failed run have to end."""


class DeadlockError(AssertionError):
    """All threads wait, and no deadline ends it."""


class _AbandonedError(BaseException):
    """The run is over; raised in every thread that is left, where it waits."""


class Thread:
    """A thread of the simulated world; the part of `threading.Thread` that stompy uses."""

    def __init__(
        self, target: Callable[..., object], name: str = "", args: Iterable[Any] = (), *, daemon: bool | None = None
    ) -> None:
        self.world = current_world()
        self.name = name or f"thread-{len(self.world.threads)}"
        self.daemon = daemon
        self.ident: int | None = None
        self.ready: Callable[[], object] = bool
        self.deadline = math.inf
        self.waits_for = ""
        self.ended = False
        self.gate, self.done = threading.Lock(), threading.Lock()
        """Locked, but while it gets the baton, and after its end."""
        self.gate.acquire()
        self.done.acquire()
        self._target, self._arguments = target, tuple(args)

    def start(self) -> None:
        """Let the thread take its part from now on."""
        self.ready = lambda: True
        self.enter()
        self.world.switch()

    def enter(self) -> None:
        """Start the real thread, which waits for the baton."""
        self.world.threads.append(self)
        _thread.start_new_thread(self._run, ())  # a `threading.Thread` takes three times as long

    def _run(self) -> None:
        self.gate.acquire()
        self.ident = threading.get_ident()
        try:
            if not self.world.over:
                sys.settrace(self.world.tracer)
                self._target(*self._arguments)
        except _AbandonedError:
            pass
        except BaseException as error:
            self.world.errors.append(error)
        finally:
            sys.settrace(None)
            self.ended = True
            self.world.hand_on(self)
            self.done.release()

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended."""
        return self in self.world.threads and not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self.world.switch(lambda: self.ended, timeout, f"the end of {self.name}")


class World:
    """One run.

    Args:
        choose: who is next.
        traced: the files in which the baton may be handed on before each line too, not only where a thread waits.
    """

    def __init__(self, choose: Chooser, *, traced: Iterable[str] = ()) -> None:
        self.now = 1000.0
        self.threads: list[Thread] = []
        self.errors: list[BaseException] = []
        self.over = False
        self._choose = choose
        self._traced = frozenset(traced)
        self.tracer = self._trace if self._traced else None
        self.current: Thread

    def run(self, program: Callable[[], T]) -> T:
        """Run a program, with `installed`; return what it returned.

        Raises:
            DeadlockError: the program waits forever.
        """
        _worlds.append(self)
        outcome: list[T] = []
        main = Thread(lambda: outcome.append(program()), "main")
        self.current = main
        main.enter()
        main.gate.release()
        main.done.acquire()
        self.abandon()
        _worlds.pop()
        if self.errors:
            raise self.errors[0]
        return outcome[0]

    def abandon(self) -> None:
        """End all threads that are left."""
        self.over = True
        for thread in self.threads:
            if not thread.ended:
                self.current = thread
                thread.gate.release()
                assert thread.done.acquire(timeout=_ABANDONED_WITHIN), f"{thread.name} does not end"

    def switch(
        self, ready: Callable[[], object] = lambda: True, timeout: float | None = None, what: str = "its turn"
    ) -> bool:
        """Let another thread run, or this one if `ready()`; return whether it is, or the timeout passed first."""
        if self.over:
            raise _AbandonedError
        me = self.current
        me.ready, me.waits_for = ready, what
        me.deadline = math.inf if timeout is None else self.now + timeout
        self.hand_on(me)
        if self.over:
            raise _AbandonedError
        return bool(ready())

    def hand_on(self, me: Thread) -> None:
        """Give the baton to the thread that is chosen, and return when this one has it again, unless it has ended."""
        if self.over:
            return
        try:
            following = self._next(me)
        except DeadlockError as error:
            self.errors.append(error)
            self.over = True
            if me is not self.threads[0]:
                self.threads[0].gate.release()  # `run` waits for its end, and ends the others
                if not me.ended:
                    me.gate.acquire()
            return
        if following is me:
            return
        self.current = following
        following.gate.release()
        if not me.ended:
            me.gate.acquire()

    def _next(self, me: Thread) -> Thread:
        alive = [thread for thread in self.threads if not thread.ended]
        if self.threads[0].ended:
            self.over = True  # the others are abandoned
            return me
        while not (able := [thread for thread in alive if thread.ready() or thread.deadline <= self.now]):
            soonest = min(thread.deadline for thread in alive)
            if soonest == math.inf:
                raise DeadlockError("\n".join(f"{one.name} waits for {one.waits_for}\n{_stack(one)}" for one in alive))
            self.now = soonest
        return able[self._choose(able, me)] if len(able) > 1 else able[0]

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in self._traced:
            return None
        if event == "line" and not self.over:
            self.switch()
        return self._trace


def _stack(thread: Thread) -> str:
    frame = sys._current_frames().get(thread.ident or -1)
    lines = traceback.format_stack(frame) if frame else []
    return "".join(line for line in lines if __file__ not in line and "threading.py" not in line)


class Lock:
    """A reentrant lock, and a condition; the part of both that stompy uses."""

    reentrant = True

    def __init__(self, lock: Lock | None = None, name: str = "lock") -> None:
        assert lock is None, "a condition has a lock of its own"
        self._name = name
        self._owner: Thread | None = None
        self._depth = 0
        self._waiters: list[list[bool]] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; others may go first."""
        world = current_world()
        if self._owner is not world.current or not self.reentrant:
            world.switch()
            if self._owner is not None:
                seconds = None if timeout < 0 else timeout
                if not blocking or not world.switch(lambda: self._owner is None, seconds, self._name):
                    return False
            self._owner = world.current
        self._depth += 1
        return True

    def release(self) -> None:
        """Release it; `RuntimeError` if this thread does not hold it."""
        world = current_world()
        if world.over:
            return  # each thread ends where it is, and the locks with the world
        if self._owner is None or (self.reentrant and self._owner is not world.current):
            raise RuntimeError("this thread does not have the lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def locked(self) -> bool:
        """Return whether a thread holds it."""
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release it, wait for a notification, and acquire it again."""
        assert self._owner is current_world().current
        assert self._depth == 1
        waiter = [False]
        self._waiters.append(waiter)
        self.release()
        try:
            current_world().switch(lambda: waiter[0], timeout, f"a notification of {self._name}")
        finally:
            self._waiters.remove(waiter)
            if not current_world().over:
                self.acquire()
        return waiter[0]

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until `predicate()` is true, or the timeout; return its last value."""
        end = math.inf if timeout is None else current_world().now + timeout
        while not (result := predicate()) and current_world().now < end:
            self.wait(None if timeout is None else end - current_world().now)
        return result

    def notify_all(self) -> None:
        """Wake all that wait."""
        assert self._owner is current_world().current, "notify called without the lock"
        for waiter in self._waiters:
            waiter[0] = True

    def notify(self, n: int = 1) -> None:
        """Wake all that wait, as stompy's own condition does."""
        self.notify_all()


class PlainLock(Lock):
    """A lock that its thread cannot acquire twice, and any thread may release."""

    reentrant = False


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._flag = False

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._flag

    def set(self) -> None:
        """Set it."""
        current_world().switch()
        self._flag = True

    def clear(self) -> None:
        """Unset it."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""
        return self._flag or current_world().switch(self.is_set, timeout, "an event")


_worlds: list[World] = []


def current_world() -> World:
    """Return the world that runs."""
    return _worlds[-1]


def _clock() -> float:
    return current_world().now


def _sleep(seconds: float) -> None:
    current_world().switch(lambda: False, seconds, "the clock")


_REPLACED: dict[str, object] = {
    "threading": SimpleNamespace(
        Thread=Thread,
        Lock=PlainLock,
        RLock=Lock,
        Condition=Lock,
        Event=Event,
        local=threading.local,
        get_ident=threading.get_ident,
        current_thread=lambda: current_world().current,
        main_thread=lambda: current_world().threads[0],
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
    ),
    "time": SimpleNamespace(monotonic=_clock, time=_clock, sleep=_sleep),
    "_monotonic": _clock,
    "Condition": Lock,
    "Event": Event,
    "make_lock": lambda rank, name: Lock(name=name),
    "make_condition": lambda name, rank=None: Lock(name=name),
}
"""What stompy's modules see instead, by the names in stompy's modules."""


@contextmanager
def installed() -> Iterator[None]:
    """Let stompy's modules see the simulated world in the block."""
    real = {name: getattr(stompy.locks, name, None) for name in _REPLACED}
    real |= {"threading": threading, "time": time, "_monotonic": time.monotonic}
    modules = [module for name, module in sys.modules.items() if name.startswith("stompy.")]
    undo = [(module, name) for module in modules for name in _REPLACED if vars(module).get(name) is real[name]]
    collects, disabled = gc.isenabled(), logging.root.manager.disable
    gc.disable()  # finalizers would run at a moment that nobody chose
    logging.disable()  # its locks are real ones
    try:
        for module, name in undo:
            setattr(module, name, _REPLACED[name])
        yield
    finally:
        for module, name in undo:
            setattr(module, name, real[name])
        logging.disable(disabled)
        if collects:
            gc.enable()


class Schedules:
    """Every schedule up to a number of preemptions, one after the other; a depth-first search over the choices.

    A preemption takes the baton from a thread that could go on. Few of them find most errors (CHESS), and bounding them
    keeps what is to be tried finite. A schedule repeats the choices of the one before up to the last that is not
    exhausted, and takes the next alternative there.

    Args:
        preemptions: how many.
    """

    def __init__(self, preemptions: int) -> None:
        self._most = preemptions
        self._plan: list[list[int]] = []
        """Of each choice: the alternatives that are left, the current one first."""
        self.count = 0

    def __iter__(self) -> Iterator[Chooser]:
        while True:
            self.count += 1
            self._at = self._spent = 0
            yield self._choose
            while self._plan and len(self._plan[-1]) == 1:
                self._plan.pop()
            if not self._plan:
                return
            self._plan[-1].pop(0)

    def _choose(self, able: Sequence[Thread], current: Thread) -> int:
        if self._at == len(self._plan):
            own = able.index(current) if current in able else -1
            others = [index for index in range(len(able)) if index != own]
            self._plan.append(others if own < 0 else [own, *others] if self._spent < self._most else [own])
        chosen = self._plan[self._at][0]
        self._at += 1
        self._spent += current in able and able[chosen] is not current
        return chosen
