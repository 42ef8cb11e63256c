"""The thread of a proxy, which alone uses its sockets.

| thread | owns | may block on |
|---|---|---|
| `stompy-proxy-<port>` | every socket of the proxy, the selector | the selector, which `call` and `stop` wake |

| lock | guards | held over I/O? |
|---|---|---|
| `ProxyEventLoop._lock` (a leaf) | the calls that wait for the thread, and whether it still takes any | no |

A socket with `SO_LINGER` 0 that one thread closes while another is in `recv` on it sends no reset: the system keeps it
open until that `recv` returns. So this thread alone closes, and none of its calls blocks.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from stompy.errors import ConfigurationError, NotConnectedError
from stompy.forks import Owner, free_when_forked, when_forked
from stompy.threads import DaemonThread
from stompy.transport.address import host_port
from stompy.transport.diagnosis import describe_os_error
from stompy.world import os, selectors, socket, threading, time

_LOG = logging.getLogger("stompy.testing")

_TRIES = 100
_PAUSE = 0.01
"""Seconds between two attempts to listen again, or to accept after an error of the system."""

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

T = TypeVar("T")


class Member(Protocol):
    """An object with sockets that the loop serves; its methods run on the loop's thread."""

    @property
    def closed(self) -> bool:
        """Whether it has ended; the loop then removes it."""
        ...

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        """Return the events to watch, `READ`, `WRITE`, both, or 0, for each open socket."""
        ...

    def due(self, now: float) -> float | None:
        """Return the time of the next call of `look`, if no socket is ready before."""
        ...

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Handle a ready socket."""
        ...

    def look(self, now: float) -> None:
        """Handle the events and timers that are due."""
        ...

    def close(self) -> None:
        """Close the sockets, each given to `ProxyEventLoop.close_socket`."""
        ...


class ProxyEventLoop(DaemonThread):
    """Serves members until it is stopped.

    Args:
        name: of the thread.
        after_turn: called after each turn that may have changed the state.
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
        self.owner = Owner("proxy")
        free_when_forked(self._lock)
        when_forked(self)

    def after_fork(self) -> None:
        """Close the copies of the sockets in a forked child; they stay registered in the parent's selector."""
        self._watched.clear()
        self.release()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop's thread and return its result; from any thread.

        Raises:
            NotConnectedError: the loop has ended.
        """
        self.owner.check()
        if self.is_current():
            return function()
        future: Future[T] = Future()
        with self._lock:
            if self._over:
                raise NotConnectedError("the proxy is closed")
            self._calls.append((function, future))
        self.wake()
        return future.result()  # the loop answers every call, at the latest when it ends

    def add(self, member: Member) -> None:
        """Serve a member from now on; on the loop's thread, or before its start."""
        self._members[member] = None

    def stop(self) -> None:
        """End the loop's thread, from any thread; all members' sockets are closed."""
        if self.owner.forked:
            return
        self._stopping = True
        self.wake()

    def close_socket(self, sock: socket.socket) -> None:
        """Stop watching a socket and close it; on the loop's thread."""
        if self._watched.pop(sock, 0):
            self._selector.unregister(sock)
        sock.close()

    def release(self) -> None:
        """Close the loop's sockets, if its thread was never started."""
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
        """Watch the members' sockets; return the seconds until the next timer is due."""
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

    def wake(self) -> None:
        """Make the thread look at its members again; from any thread."""
        with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
            self._waker.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass


class ProxyListener:
    """A listening socket.

    Args:
        host: an address of this machine.
        port: 0 uses a free one.
        window: bytes of the kernel's receive buffer of each connection; `None` leaves it to the system.
        enter: called with each client's socket.

    Raises:
        ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, host: str, port: int, *, window: int | None, enter: Callable[[socket.socket], None]) -> None:
        self._host = host
        self._window = window
        self._loop: ProxyEventLoop | None = None
        self._enter = enter
        self._listening = True
        self.closed = False
        try:
            self._sock = self._bind(port)
            self.port: int = self._sock.getsockname()[1]
            self._sock.listen(socket.SOMAXCONN)
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {host_port(host, port)}: {describe_os_error(error)}") from error

    def join(self, loop: ProxyEventLoop) -> None:
        """Add it to a loop, before the loop starts."""
        self._loop = loop
        loop.add(self)

    def refuse(self) -> None:
        """Stop listening: new connections are refused, also connections that wait to be accepted."""
        if self._listening:
            self._listening = False
            self._close_socket()
            # A bound socket that does not listen keeps the port, and the system refuses connections.
            self._sock = self._bind_again()

    def listen(self) -> None:
        """Listen again, on the same port."""
        if not self._listening:
            self._listening = True
            self._sock.listen(socket.SOMAXCONN)

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            if os.name == "posix":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._window is not None:  # before listening, as accepted sockets inherit it
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._window)
            sock.bind((self._host, port))
        except BaseException:
            sock.close()
            raise
        return sock

    def _bind_again(self) -> socket.socket:
        # A connecting client may have this port as its own for a moment.
        for _ in range(_TRIES):
            try:
                return self._bind(self.port)
            except OSError:
                time.sleep(_PAUSE)
        return self._bind(self.port)

    def wanted(self, now: float) -> Mapping[socket.socket, int]:
        """Watch for clients, while it listens."""
        return {self._sock: READ if self._listening else 0}

    def due(self, now: float) -> float | None:
        """Nothing depends on the time."""
        return None

    def look(self, now: float) -> None:
        """Nothing depends on the time."""

    def ready(self, sock: socket.socket, events: int, now: float) -> None:
        """Accept a client."""
        if not self._listening or sock is not self._sock:
            return
        try:
            client, _ = sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _LOG.warning("the proxy cannot accept: %s", describe_os_error(error))
            time.sleep(_PAUSE)
            return
        self._enter(client)

    def close(self) -> None:
        """Release the port."""
        self.closed = True
        self._close_socket()

    def _close_socket(self) -> None:
        if self._loop is None:
            self._sock.close()
        else:
            self._loop.close_socket(self._sock)
