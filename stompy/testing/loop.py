"""The one thread of a proxy, which alone touches its sockets.

| thread | owns | may block on |
|---|---|---|
| `stompy-proxy-<port>` | every socket of the proxy, the selector | the selector, which `call` and `stop` wake |

| lock | guards | held over I/O? |
|---|---|---|
| `Loop._lock` (a leaf) | the calls that wait for the thread, and whether it still takes any | no |

A socket with `SO_LINGER` 0 that one thread closes while another is in `recv` on it sends no reset: the system keeps it
open until that `recv` returns. So nobody but this thread closes, and none of its calls blocks.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from stompy.errors import NotConnected
from stompy.threads import DaemonThread

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

T = TypeVar("T")


class Member(Protocol):
    """Something with sockets that the loop serves; all of it runs on the loop's thread."""

    @property
    def closed(self) -> bool:
        """Whether it is over; the loop then lets go of it."""
        ...

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        """Return what to watch: `READ`, `WRITE`, both, or 0, for each open socket."""
        ...

    def due(self, now: float) -> float | None:
        """Return when, later than now, to look again though nothing is ready."""
        ...

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Act on a socket that is ready."""
        ...

    def look(self, now: float) -> None:
        """Act on the time."""
        ...

    def close(self) -> None:
        """Close the sockets, each given to `Loop.close_socket`."""
        ...


class Loop(DaemonThread):
    """Serves members until it is stopped.

    Args:
        name: of the thread.
        after_turn: called after everything that may have changed something.
    """

    def __init__(self, name: str, *, after_turn: Callable[[], None]) -> None:
        super().__init__(name)
        self._after_turn = after_turn
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, READ)
        self._watched: dict[socket.socket, int] = {}
        self._members: dict[Member, None] = {}
        self._lock = threading.Lock()
        self._calls: list[tuple[Callable[[], Any], Future[Any]]] = []
        self._over = False
        self._stopping = False

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop's thread and return what it returns; from any thread.

        Raises:
            NotConnected: the loop has ended.
        """
        if self.is_current():
            return function()
        future: Future[T] = Future()
        with self._lock:
            if self._over:
                raise NotConnected("the proxy is closed")
            self._calls.append((function, future))
        self._wake()
        return future.result()  # the loop answers every call that it took, at the latest when it ends

    def add(self, member: Member) -> None:
        """Serve a member from now on; on the loop's thread, or before its start."""
        self._members[member] = None

    def stop(self) -> None:
        """End the thread, from any thread; what the members have is closed."""
        self._stopping = True
        self._wake()

    def close_socket(self, sock: socket.socket) -> None:
        """Stop watching a socket and close it; on the loop's thread."""
        if self._watched.pop(sock, 0):
            self._selector.unregister(sock)
        sock.close()

    def release(self) -> None:
        """Close what the loop holds, where its thread was never started."""
        for member in list(self._members):
            member.close()
        self._selector.close()
        self._woken.close()
        self._waker.close()

    def run(self) -> None:
        """Serve until stopped."""
        try:
            while not self._stopping:
                self._turn()
        finally:
            with self._lock:
                self._over = True
            self._answer()
            self.release()
            self._after_turn()

    def _turn(self) -> None:
        now = time.monotonic()
        timeout = self._prepare(now)
        events = self._selector.select(timeout)
        now = time.monotonic()
        for key, mask in events:
            if key.fileobj is self._woken:
                self._drain()
            elif not key.data.closed:
                key.data.ready(key.fileobj, mask, now)
        for member in list(self._members):
            member.look(now)
        self._answer()
        self._after_turn()

    def _prepare(self, now: float) -> float | None:
        """Watch what members want; return the seconds until one of them must look at the time."""
        soonest: float | None = None
        for member in list(self._members):
            if member.closed:
                del self._members[member]
                continue
            for sock, events in member.wanted(now).items():
                self._watch(sock, events, member)
            due = member.due(now)
            if due is not None:
                soonest = due if soonest is None else min(soonest, due)
        return None if soonest is None else max(0.0, soonest - now)

    def _watch(self, sock: socket.socket, events: int, member: Member) -> None:
        before = self._watched.get(sock, 0)
        if events == before:
            return
        if not events:
            self._selector.unregister(sock)
        elif not before:
            self._selector.register(sock, events, member)
        else:
            self._selector.modify(sock, events, member)
        self._watched[sock] = events

    def _answer(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for function, future in calls:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            self._waker.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
