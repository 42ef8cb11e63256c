"""Signals of a process: which of them stop it, and the one that asks for the stacks of its threads."""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from stompy.forks import Owner
from stompy.threads import Repeats
from stompy.world import os, signal, threading


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a process in order: SIGHUP too, unless it is ignored, as by `nohup`."""
    found = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


@contextlib.contextmanager
def stacks_on_request(forward: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Write the stacks of all threads to standard error at SIGUSR1, unless the program handles it; main thread only.

    They are written from C, so also while the main thread waits in C code.

    Args:
        forward: called then, in the main thread.
    """
    number = getattr(signal, "SIGUSR1", None)
    if (
        number is None
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(number) is not signal.SIG_DFL
    ):
        yield
        return
    try:
        signal.signal(number, lambda *_: forward())
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # there is no standard error
            faulthandler.register(number, all_threads=True, chain=True)
        yield
    finally:
        faulthandler.unregister(number)
        signal.signal(number, signal.SIG_DFL)


class Interrupted(BaseException):
    """A signal came that must not wait: while connecting, or the second one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """Stops a worker at a signal, and raises `Interrupted` in the main thread, once, if that must not wait.

    It raises wherever the main thread is, also in `install`.

    Args:
        stop: called with the reason.
        started: whether the worker is past connecting.
        told_to_stop: of a child process, which ignores signals until its parent has asked it to stop.

    Attributes:
        received: number of signals.
        raises: whether it may raise.
    """

    def __init__(
        self, stop: Callable[[str], None], *, started: Callable[[], bool], told_to_stop: Callable[[], bool] | None
    ) -> None:
        self._stop = stop
        self._started = started
        self._told_to_stop = told_to_stop
        self._before: dict[int, Any] = {}
        self._repeats = Repeats()
        self.received = 0
        self.raises = True
        self._owner = Owner("worker")

    def install(self) -> None:
        """Begin; only in the main thread, as others get no signals."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in stop_signals()}
            for number in self._before:
                signal.signal(number, self._handle)

    def restore(self) -> None:
        """End."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._owner.forked:  # a child of a task, which `multiprocessing.Process.terminate` is to end
            self.restore()
            os.kill(os.getpid(), number)
            return
        if self._told_to_stop is not None and (self.received or not self._told_to_stop()):
            return
        if self._repeats(number):
            return
        self.received += 1
        self._stop(f"received {signal.Signals(number).name}")
        if self.raises and self.received == (2 if self._started() else 1):
            raise Interrupted(number)  # the second signal, or the first one while connecting
