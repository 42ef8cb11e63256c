"""A simulated world: threads of which one runs at a time, a clock that jumps, and a choice of the next.

The threads are real, and hand on a baton: at each lock, condition, event, start, end and sleep its holder asks
which goes on. So a run is decided by its choices alone. The clock only moves when all wait, to the first deadline;
if there is none, that is a deadlock, and its error says where each thread waits.

A process has other threads of stompy's, such as those of a broker that many tests use. They see no simulated world.
"""

from __future__ import annotations

import _thread
import math
import os
import queue
import random
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from types import FrameType
from typing import Any, Literal, TypeVar

from stompy.forks import be_process, forks, tracked

T = TypeVar("T")
Chooser = Callable[[Sequence["Thread"], "Thread"], int]
"""From those that can go on, and the one that had the baton: the index of the one that gets it."""

_ABANDONED_WITHIN = 10.0
"""Real seconds that the threads of a failed run have to end."""
STUCK_AFTER = 30.0
"""Real seconds without a step after which the thread that has the baton waits for something outside of the world."""
_GRACE = 2.0
"""Simulated seconds that whoever made a predicate true has to notify those that wait for it."""
_TICK = 1e-6
"""Seconds that the clock passes a deadline by, so that none is missed by a rounding."""
_STANDS_STILL = 10_000
"""Steps after which the clock passes a tick by itself: to wait for no time, again and again, takes some."""
LINE = "its line"
"""What a thread waits for that may lose its turn before a line."""
PATIENT = 10**9
"""Steps that no run takes."""
_SWALLOWED = 50
"""How often a thread may catch the end of its run before it is left where it is."""


def at_once() -> bool:
    """Return that a thread can go on."""
    return True


class DeadlockError(AssertionError):
    """All threads wait, and no deadline ends it."""


class LostWakeupError(AssertionError):
    """A thread waits for a predicate that has long been true, without a notification."""


class EndlessError(AssertionError):
    """The program takes more steps than it may."""


class OutsideError(AssertionError):
    """The program uses a part that the world lacks."""


class AbandonedError(BaseException):
    """The run, or the process of this thread, is over; raised in every thread that is left, where it waits."""


class Thread:
    """A thread of the simulated world; the part of `threading.Thread` that stompy uses."""

    def __init__(
        self, target: Callable[..., object], name: str = "", args: Iterable[Any] = (), *, daemon: bool | None = None
    ) -> None:
        self.world = current_world()
        self.name = name or f"thread-{len(self.world.threads)}"
        self.process: str = self.world.current.process if self.world.threads else "main"
        self.killed = False
        self.predicate: Callable[[], object] | None = None
        """What it waits for a notification of, in `wait_for`."""
        self.true_since: float | None = None
        self._ends_caught = 0
        self.line = ""
        """Of what is traced, where it was last."""
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
        self.world.alive.append(self)
        _thread.start_new_thread(self._run, ())  # a `threading.Thread` takes three times as long

    def _run(self) -> None:
        self.gate.acquire()
        self.ident = threading.get_ident()
        inside.add(self.ident)
        try:
            if not self.world.over:
                sys.settrace(self.world.tracer)
                self._target(*self._arguments)
        except AbandonedError:
            pass
        except BaseException as error:
            self.world.errors.append(error)
        finally:
            sys.settrace(None)
            self.ended = True
            self.world.alive.remove(self)
            if not self.killed:
                self.world.hand_on(self)
            inside.discard(self.ident)
            self.done.release()

    def check(self) -> None:
        """Raise the end of the run, or of the process, in this thread."""
        if self.world.over or self.killed:
            self._ends_caught += 1
            if self._ends_caught > _SWALLOWED:  # it catches everything, and goes on; it is left here
                self.done.release()
                self.gate.acquire()
            raise AbandonedError

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended."""
        return not self.ended and self in self.world.threads

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        self.world.switch(lambda: self.ended, timeout, f"the end of {self.name}")


class World:
    """One run.

    Args:
        choose: returns the next thread. Its method `patience`, if it has one, says how often a thread that could go on
            keeps the baton before it is asked.
        traced: the files in which the baton may be handed on before each line too, not only where a thread waits.
        event: `line`, or `opcode` for each step of the interpreter in them.
        seed: of the random numbers that the program gets.
        steps: how often the baton may be handed on.
        program: its files, if it is a user's: only their part of stacks is shown, and what the program does outside of
            the world is an error.
    """

    def __init__(
        self,
        choose: Chooser,
        *,
        traced: Iterable[str] = (),
        event: Literal["line", "opcode"] = "line",
        seed: int = 0,
        steps: float = math.inf,
        program: frozenset[str] | None = None,
    ) -> None:
        self._program = program
        self.guarded = program is not None
        self.now = 1000.0
        self.random = random.Random(seed)  # noqa: S311 - it has to repeat
        self.steps = 0
        self._moved_at = 0
        """The step at which the clock moved last."""
        self._most_steps = steps
        self._draw_patience: Callable[[], int] = getattr(choose, "patience", int)
        self._patience = self._draw_patience()
        self.files: dict[Any, str] = {}
        """Open files and databases, each with the process that has it."""
        self.disk: Callable[..., Any] | None = None
        """Does an operation on files, of a name, by a function with its arguments; `None` calls the function."""
        self.closed_files: set[int] = set()
        """Numbers of files that were closed for a process, which may try it too."""
        self.kept: list[object] = []
        """What must not be finalized before the run is over."""
        self.bugs: list[str] = []
        """Errors that stompy logged: what it calls bugs of its own."""
        self.threads: list[Thread] = []
        self.alive: list[Thread] = []
        """Those that have not ended, in the order of their starts."""
        self.errors: list[BaseException] = []
        self.over = False
        self.looks = False
        self.finished = False
        """Whether all of its threads have ended; what is freed later finds locks that nobody holds."""
        self._choose = choose
        self._traced = {file: os.path.basename(file) for file in traced}
        self._event = event
        self.tracer = self._trace if self._traced else None
        self.current: Thread

    def run(self, program: Callable[[], T]) -> T:
        """Run a program, with `installed`; return its result.

        Raises:
            DeadlockError: the program waits forever.
        """
        _worlds.append(self)
        forked, (objects, held, unfreed) = forks(), tracked()
        before, held_before, unfreed_before = set(objects), set(held), len(unfreed)
        be_process(next(_processes))
        outcome: list[T] = []
        main = Thread(lambda: outcome.append(program()), "main")
        self.current = main
        main.enter()
        main.gate.release()
        self._await_end(main)
        self.abandon()
        self.release()
        be_process(forked)  # what is left does nothing more, as in a forked child
        self.finished = True
        for reference in (left := objects - before):
            if (thing := reference()) is not None:
                thing.after_fork()
        # A real fork has nothing to do with them.
        objects.difference_update(left)
        held.intersection_update(held_before)
        del unfreed[unfreed_before:]
        self.kept.clear()
        _worlds.pop()
        if self.errors:
            raise self.errors[0]
        return outcome[0]

    def _await_end(self, main: Thread) -> None:
        before = -1
        while not main.done.acquire(timeout=STUCK_AFTER):
            stuck = self.current
            if before == self.steps:
                self.errors.append(
                    OutsideError(f"{stuck.name} waits for what is outside of the world\n{_stack(stuck)}")
                )
                stuck.killed = True  # nobody can end it
                return
            before = self.steps

    def stacks(self) -> str:
        """Return where the threads of the program are, and their conditions."""
        if self._program is None:
            return _stacks(self.alive)
        parts = ((thread, _stack(thread, self._program)) for thread in self.alive)
        return "\n".join(f"{thread.name} waits for {thread.waits_for}\n{part}" for thread, part in parts if part)

    def fail(self, error: BaseException) -> None:
        """End the run with an error; called by the thread that has the baton, which waits until it is ended too."""
        self.errors.append(error)
        self.over = True
        me = self.current
        if me is not self.threads[0]:
            self.threads[0].gate.release()  # `run` waits for its end, and ends the others
            if not me.ended:
                me.gate.acquire()
        if not me.ended:
            me.check()

    def abandon(self) -> None:
        """End all threads that are left."""
        self.over = True
        for thread in self.threads:
            if not thread.ended and not thread.killed:
                self._end(thread)

    def kill(self, process: str) -> None:
        """End all threads of a process where they are, but the one that calls."""
        me = self.current
        for thread in [thread for thread in self.threads if thread.process == process and not thread.ended]:
            if thread is not me:
                thread.killed = True
                self._end(thread)
        self.current = me
        self.release(process)

    def release(self, process: str | None = None) -> None:
        """Close the files of a process, as its system does at its end; or of all."""
        for handle, owner in list(self.files.items()):
            if process in (None, owner):
                del self.files[handle]
                if isinstance(handle, int):
                    self.closed_files.add(handle)
                    os.close(handle)
                else:
                    handle.close()

    def _end(self, thread: Thread) -> None:
        self.current = thread
        thread.gate.release()
        assert thread.done.acquire(timeout=_ABANDONED_WITHIN), f"{thread.name} does not end"
        thread.ended = True
        if thread in self.alive:
            self.alive.remove(thread)

    def switch(
        self, ready: Callable[[], object] = at_once, timeout: float | None = None, what: str = "its turn"
    ) -> bool:
        """Let another thread run, or this one if `ready()`; return whether it is, or the timeout passed first."""
        me = self.current
        if self.looks:
            return bool(ready())
        if self.over or me.killed:
            me.check()
        stands_still = self.steps - self._moved_at > _STANDS_STILL
        if self._patience and not stands_still and (ready is at_once or ready()):
            self._patience -= 1
            self.steps += 1
            return True
        me.ready, me.waits_for = ready, what
        me.deadline = math.inf if timeout is None else self.now + timeout
        self.hand_on(me)
        if self.over or me.killed:
            me.check()
        return ready is at_once or bool(ready())

    def hand_on(self, me: Thread) -> None:
        """Give the baton to the thread that is chosen, and return when this one has it again, unless it has ended."""
        if self.over:
            return
        try:
            # What threads wait for may use locks, or have lines that are traced: who looks has its place already.
            self.looks = True
            following = self._next(me)
        except (DeadlockError, LostWakeupError, EndlessError) as error:
            self.looks = False
            self.fail(error)
            return
        finally:
            self.looks = False
        if following is me:
            return
        self.current = following
        following.gate.release()
        if not me.ended:
            me.gate.acquire()

    def _next(self, me: Thread) -> Thread:
        self.steps += 1
        if self.threads[0].ended:
            self.over = True  # the others are abandoned
            return me
        if self.steps > self._most_steps:
            raise EndlessError(f"{self.steps} steps\n{self.stacks()}")
        if self.steps - self._moved_at > _STANDS_STILL:
            self._moved_at = self.steps
            self.now += _TICK
        now = self.now
        while not (able := [each for each in self.alive if each.deadline <= now or each.ready()]):
            soonest = min([each.deadline for each in self.alive])
            if soonest == math.inf:
                raise DeadlockError(self.stacks())
            self._look_for_lost_wakeups(self.alive)
            now = self.now = soonest + _TICK
            self._moved_at = self.steps
        if len(able) == 1:
            return able[0]
        chosen = able[self._choose(able, me)]
        if not self._patience:
            self._patience = self._draw_patience()
        return chosen

    def _look_for_lost_wakeups(self, waiting: Sequence[Thread]) -> None:
        """Look at the predicates of waiting threads, while none can go on; a thread that made one true may wait."""
        for thread in waiting:
            if thread.predicate is None or not thread.predicate():
                thread.true_since = None
            elif thread.true_since is None:
                thread.true_since = self.now
            elif self.now - thread.true_since > _GRACE:
                raise LostWakeupError(f"{thread.name} waits for {thread.waits_for}\n{_stacks(waiting)}")

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if (name := self._traced.get(frame.f_code.co_filename)) is None:
            return None
        frame.f_trace_opcodes = self._event == "opcode"
        if event == self._event and not self.over:
            self.current.line = f"line {frame.f_lineno} of {name}"
            self.switch(what=LINE)
        return self._trace


def _stacks(threads: Sequence[Thread]) -> str:
    return "\n".join(f"{thread.name} waits for {thread.waits_for}\n{_stack(thread)}" for thread in threads)


def _stack(thread: Thread, program: frozenset[str] | None = None) -> str:
    frame = sys._current_frames().get(thread.ident or -1)
    if program is not None:
        return "".join(traceback.format_list([at for at in traceback.extract_stack(frame) if at.filename in program]))
    lines = traceback.format_stack(frame) if frame else []
    return "".join(line for line in lines if __file__ not in line and "threading.py" not in line)


class _Waiter:
    """A thread that waits for a notification."""

    def __init__(self) -> None:
        self.notified = False


class SimulatedLock:
    """A reentrant lock, and a condition; the part of both that stompy uses."""

    reentrant = True

    def __init__(self, lock: SimulatedLock | None = None, name: str = "lock") -> None:
        assert lock is None, "a condition has a lock of its own"
        self._name = name
        self._owner: Thread | None = None
        self._depth = 0
        self._waiters: list[_Waiter] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; others may go first."""
        world = current_world()
        if world.finished or world.looks:
            return True
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
        if world.finished or world.looks or world.over or world.current.killed:
            return  # each thread ends where it is, and its locks with it
        if self._owner is None or (self.reentrant and self._owner is not world.current):
            raise RuntimeError("this thread does not have the lock")
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def locked(self) -> bool:
        """Return whether a thread holds it."""
        return self._owner is not None

    def _is_owned(self) -> bool:
        return self._owner is current_world().current

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release it, wait for a notification, and acquire it again."""
        assert self._owner is current_world().current
        assert self._depth == 1
        waiter = _Waiter()
        self._waiters.append(waiter)
        self.release()
        try:
            current_world().switch(lambda: waiter.notified, timeout, f"a notification of {self._name}")
        finally:
            self._waiters.remove(waiter)
            if not (current_world().over or current_world().current.killed):
                self.acquire()
        return waiter.notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until `predicate()` is true, or the timeout; return its last value."""
        world = current_world()
        me = world.current
        end = math.inf if timeout is None else world.now + timeout
        while not (result := predicate()) and world.now < end:
            me.predicate, me.true_since = predicate, None
            try:
                self.wait(None if timeout is None else end - world.now)
            finally:
                me.predicate = None
        return result

    def notify_all(self) -> None:
        """Wake all that wait."""
        world = current_world()
        assert world.finished or self._owner is world.current, "notify called without the lock"
        for waiter in self._waiters:
            waiter.notified = True

    def notify(self, n: int = 1) -> None:
        """Wake all that wait, as stompy's own condition does."""
        self.notify_all()


class OtherCondition(SimulatedLock):
    """A condition of a lock that there is already."""

    def __init__(self, lock: SimulatedLock) -> None:
        super().__init__()
        self._of = lock
        del self._owner, self._depth  # they are the lock's

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock."""
        return self._of.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock."""
        self._of.release()


def condition(lock: SimulatedLock | None = None) -> SimulatedLock:
    """Return a condition, of a lock of its own or of one that there is."""
    return SimulatedLock() if lock is None else OtherCondition(lock)


class Semaphore:
    """As `threading.Semaphore`; no thread loses its turn where it need not wait, as stompy has one while it hashes."""

    def __init__(self, value: int = 1) -> None:
        self._value = value

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Take one."""
        if not self._value and not current_world().switch(
            lambda: self._value, timeout if blocking else 0.0, "a semaphore"
        ):
            return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        """Give some back."""
        self._value += n

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class PlainLock(SimulatedLock):
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
        if not current_world().finished:
            current_world().switch()
        self._flag = True

    def clear(self) -> None:
        """Unset it."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""
        return self._flag or current_world().switch(self.is_set, timeout, "an event")


class SimpleQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Append an item."""
        current_world().switch()
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next item; raise `queue.Empty` if there is none in time."""
        if not current_world().switch(lambda: self._items, timeout if block else 0.0, "an item of a queue"):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        """Return the next item, if there is one."""
        return self.get(block=False)

    def qsize(self) -> int:
        """Return how many there are."""
        return len(self._items)

    def empty(self) -> bool:
        """Return whether there is none."""
        return not self._items


_worlds: list[World] = []
_processes = count(-1, -1)
"""Of each run, a number that no process has: what it made belongs to another process afterwards."""


inside: set[int] = set()
"""The threads that see the simulated world: those of a run, and the one that is in `installed`."""


def current_world() -> World:
    """Return the world that runs, or a finished one."""
    return _worlds[-1]


_worlds.append(World(lambda able, current: 0))
_worlds[0].finished = True
