"""The end by SIGTERM, by which Spark stops the process of a streaming source, twice and without waiting."""

from __future__ import annotations

import contextlib
import signal
import threading
from types import FrameType


def end_on_sigterm() -> None:
    """Let SIGTERM unwind this process, so that the source can say goodbye to the broker.

    By default it would end at once: nothing is lost by that, and the broker has to find out by itself. Further signals
    are passed over, or the second one would cut the goodbye off. Only the main thread can take signals; elsewhere
    nothing happens.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(ValueError):
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)
