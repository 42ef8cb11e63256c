"""Waiting until a descriptor is ready, each wait with its own deadline.

A socket has one timeout for both directions, so the timeout of a reader would break another thread's `sendall`. Sockets
here are therefore non-blocking for ever, and each direction waits by itself.
"""

from __future__ import annotations

import math
import select
import selectors
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompy.deadline import Deadline

_LONGEST_WAIT = 86_400.0
"""Seconds of one system call; poll(2) takes a C int of milliseconds, and a caller's deadline may be longer."""


def wait_readable(*fds: int, deadline: Deadline | None) -> bool:
    """Wait until one of `fds` has bytes, its end or an error; `False` when the deadline passed first."""
    return _wait(fds, writing=False, deadline=deadline)


def wait_writable(fd: int, *, deadline: Deadline | None) -> bool:
    """Wait until `fd` takes bytes or has an error; `False` when the deadline passed first."""
    return _wait((fd,), writing=True, deadline=deadline)


def _wait(fds: Sequence[int], *, writing: bool, deadline: Deadline | None) -> bool:
    while True:
        remaining = None if deadline is None else deadline.remaining()
        seconds = _LONGEST_WAIT if remaining is None else min(remaining, _LONGEST_WAIT)
        if _wait_once(fds, writing=writing, seconds=seconds):
            return True
        if deadline is not None and deadline.expired:
            return False


def _by_poll(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLOUT if writing else select.POLLIN)
    # Rounded up: rounded down, the last fraction of a millisecond would be spent spinning.
    return bool(poller.poll(math.ceil(seconds * 1000)))


def _by_selector(fds: Sequence[int], *, writing: bool, seconds: float) -> bool:
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_WRITE if writing else selectors.EVENT_READ)
        return bool(selector.select(seconds))


_wait_once = _by_poll if hasattr(select, "poll") else _by_selector  # Windows, and gevent's patched select, have no poll
