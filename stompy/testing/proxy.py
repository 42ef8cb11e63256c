"""A TCP proxy that fails on demand, between a program under test and its broker.

::

    with FaultProxy(broker.url) as proxy, stompy.connect(proxy.url, reconnect=True) as conn:
        proxy.cut("rst")                                # every running connection, now
        proxy.stall("down")                             # the broker's frames no longer arrive
        proxy.upcoming.cut_after(100, direction="up")   # each connection from now on, at its 101st byte
        proxy.running[0].chop()                         # only this connection, byte by byte

A fault set on the proxy applies to open and future connections; on `upcoming` to future ones only, and on one of
`running` to that connection. A call returns when it has taken effect.

Threads: one, `stompy-proxy-<port>`, which alone waits for sockets; `stompy.testing.proxied` describes the lock.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from stompy.arguments import check_arguments
from stompy.closable import Closable
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, NotConnectedError, StompTimeoutError
from stompy.forks import ChildEnds, when_forked
from stompy.testing.faults import FaultPlan
from stompy.testing.proxied import (
    DIRECTIONS,
    READ,
    Direction,
    DirectionFaults,
    Ending,
    FaultControls,
    ProxyLink,
    ProxySelector,
    check_ending,
)
from stompy.threads import DaemonThread
from stompy.transport.address import UNIX, Address, host_port, parse_addresses
from stompy.transport.diagnosis import describe_os_error
from stompy.transport.tcp import Endpoint, resolve
from stompy.world import os, socket, time

_LOG = logging.getLogger("stompy.testing")

_REMEMBERED = 256
"""Number of ended connections whose data is kept."""

_RESOLVE_TIMEOUT = 10.0
_TRIES = 100
_PAUSE = 0.01
"""Seconds between two attempts to listen again, or to accept after an error of the system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyStats:
    """Counters of a proxy since its start.

    Attributes:
        accepted: connections.
        running: connections that are not over.
        up: bytes that went from clients to the broker.
        down: bytes that went from the broker to clients.
    """

    accepted: int
    running: int
    up: int
    down: int


class _Upcoming(FaultControls):
    """The fault controls of future connections."""

    def __init__(self, changing: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._changing = changing
        self.faults: dict[Direction, DirectionFaults] = {direction: DirectionFaults() for direction in DIRECTIONS}

    def change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Set faults; with the lock held."""
        for direction in directions:
            self.faults[direction] = replace(self.faults[direction], **changes)

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        with self._changing():
            self.change(directions, changes)


class FaultProxy(FaultControls, Closable):
    """Forwards TCP connections to a broker, and injects faults.

    It holds at most 64 KiB of each direction; a stalled or slow one is not read, so that the sender's TCP window fills.
    Where an end of a stream comes through it is forwarded, and so is a reset. While a direction is stalled the proxy
    does not see that its sender has gone; such a connection stays until it is resumed, cut, or the proxy is closed.

    Use it as a context manager, or call `start` and `close`. Faults may be set before it is started.

    Args:
        target: the broker, as its URL or as host and port.
        host: where to listen: an IP address of this machine.
        port: 0 uses a free one.
        faults: the faults of single frames; `None` forwards bytes without looking for frames.
        record: bytes of each direction of each connection to remember, the first ones.
        window: bytes of the kernel's receive buffers on both sides, so that a stall is felt soon; `None` leaves it to
            the system, which may take megabytes.
        on_connection: called with each new connection before anything is forwarded, on the proxy's thread; it may use
            the connection's fault controls, and must not wait.

    Raises:
        ConfigurationError: the target's URL is wrong, or there are `faults` of frames that TLS or WebSocket hides.
    """

    def __init__(
        self,
        target: str | tuple[str, int],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: FaultPlan | None = None,
        record: int = 16_384,
        window: int | None = None,
        on_connection: Callable[[ProxyLink], None] | None = None,
    ) -> None:
        check_arguments(FaultProxy.__init__, locals(), skip=("target",))
        self._target = _address(target)
        self._host = host
        self._port = port
        self._faults = faults
        if faults is not None and self._target.scheme != "stomp":
            raise ConfigurationError(f"a fault plan needs a target without TLS and WebSocket, not {self._target}")
        self._record = record
        self._window = window
        self._on_connection = on_connection
        self._upcoming = _Upcoming(self._changing)
        self._endpoint: Endpoint | None = None
        self._listener: socket.socket | None = None
        self._accepting = True
        self._swallow = False
        self._selector: ProxySelector | None = None
        self._thread: DaemonThread | None = None
        self._stopping = False
        # The connections, and the bytes up and down of the forgotten ones: replaced as a whole, for readers without the
        # lock.
        self._kept: tuple[tuple[ProxyLink, ...], int, int] = (), 0, 0

    def start(self) -> FaultProxy:
        """Start to listen and forward; return the proxy. It can be started once only.

        Raises:
            ConfigurationError: the address cannot be listened on, or the proxy was started before.
            ConnectError: the target's host has no address.
        """
        if self._selector is not None:
            raise ConfigurationError("a proxy can be started once")
        self._endpoint = resolve(self._target.host, self._target.port, deadline=Deadline(_RESOLVE_TIMEOUT))[0]
        try:
            self._listener = self._bind(self._port)
            self._listener.listen(socket.SOMAXCONN)
            self._port = self._listener.getsockname()[1]
        except OSError as error:
            where = host_port(self._host, self._port)
            raise ConfigurationError(f"cannot listen on {where}: {describe_os_error(error)}") from error
        self._selector = ProxySelector()
        when_forked(self)
        if self._faults is not None:
            self._faults.when_released(self._selector.wake)
        self._thread = DaemonThread(f"stompy-proxy-{self._port}", self._serve)
        self._thread.start()
        return self

    def close(self, *, timeout: float = 5.0) -> None:
        """Stop listening, close all connections and wait for the thread. Idempotent.

        Raises:
            StompTimeoutError: the thread did not end, as an `on_connection` does not return.
        """
        if self._selector is None or self._thread is None:
            return
        self._stopping = True
        self._selector.wake()
        if not self._thread.join_until(Deadline(timeout)):
            raise StompTimeoutError(f"{self!r} did not end within {timeout:g} s")

    def __enter__(self) -> FaultProxy:
        return self.start()

    # State

    @property
    def url(self) -> str:
        """The address for clients: the target's, with the proxy's host and port, and without login and passcode.

        Raises:
            NotConnectedError: the proxy was not started.
        """
        return str(self._target._replace(host=self._host, port=self.port))

    @property
    def port(self) -> int:
        """The port that it listens on.

        Raises:
            NotConnectedError: the proxy was not started.
        """
        self._started()
        return self._port

    @property
    def running(self) -> tuple[ProxyLink, ...]:
        """The open connections, oldest first."""
        return tuple(link for link in self.links if link.running)

    @property
    def links(self) -> tuple[ProxyLink, ...]:
        """All open connections and the latest 256 ended ones, oldest first."""
        return self._kept[0]

    @property
    def upcoming(self) -> FaultControls:
        """The fault controls of future connections."""
        return self._upcoming

    def stats(self) -> ProxyStats:
        """Return the counters."""
        links, up, down = self._kept
        return ProxyStats(
            accepted=links[-1].number if links else 0,
            running=sum(link.running for link in links),
            up=up + sum(link.forwarded("up") for link in links),
            down=down + sum(link.forwarded("down") for link in links),
        )

    # Faults

    def cut(self, ending: Ending = "fin") -> int:
        """End every running connection both ways, now, and return how many there were; see `ProxyLink.cut`.

        Raises:
            ConfigurationError: no such ending.
        """
        check_ending(ending)
        with self._changing():
            links = self.running
            for link in links:
                link.end(ending)
            return len(links)

    def refuse(self) -> None:
        """Refuse new connections, until `listen`. Open connections continue."""
        selector = self._started()
        with selector.changing():
            if self._accepting and self._listener is not None:
                self._accepting = False
                selector.drop(self._listener)
                # A bound socket that does not listen keeps the port, and the system refuses connections.
                self._listener = self._bind_again()

    def black_hole(self) -> None:
        """Accept new connections and never answer on them. Open connections continue."""
        self._accept_again(swallow=True)

    def listen(self) -> None:
        """Accept connections again, after `refuse` or `black_hole`; on the same port."""
        self._accept_again(swallow=False)

    def heal(self) -> None:
        """End all faults of open and future connections; connections that were cut or black-holed stay so."""
        super().heal()
        if self._selector is not None:
            self.listen()

    def await_that(self, holds: Callable[[FaultProxy], object], *, timeout: float = 5.0) -> None:
        """Wait until `holds(proxy)` is true; it is asked again after every change.

        Raises:
            NotConnectedError: the proxy was not started.
            StompTimeoutError: it was not true within `timeout` seconds.
        """
        selector = self._started()
        selector.owner.check()
        deadline = Deadline(timeout)
        while True:
            seen = selector.changes
            if holds(self):
                return
            with selector.changed:
                if not selector.changed.wait_for(partial(selector.changed_since, seen), deadline.remaining()):
                    raise StompTimeoutError(f"the condition was not met within {timeout:g} s: {self!r}")

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        with self._changing():
            self._upcoming.change(directions, changes)
            for link in self.running:
                link.change(directions, changes)

    def _changing(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._selector is None else self._selector.changing()

    def _started(self) -> ProxySelector:
        if self._selector is None:
            raise NotConnectedError("the proxy was not started yet")
        return self._selector

    def _accept_again(self, *, swallow: bool) -> None:
        with self._started().changing():
            self._swallow = swallow
            if not self._accepting and self._listener is not None:
                self._listener.listen(socket.SOMAXCONN)
                self._accepting = True

    def _bind(self, port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET6 if ":" in self._host else socket.AF_INET, socket.SOCK_STREAM)
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
            with contextlib.suppress(OSError):
                return self._bind(self._port)
            time.sleep(_PAUSE)
        return self._bind(self._port)

    # On the proxy's thread

    def _serve(self) -> None:
        selector = self._started()
        try:
            while not self._stopping:
                for link, sock, events in selector.wait(self._look(selector)):
                    if link is None:
                        self._accept(selector)
                    else:
                        with selector.changed:
                            link.ready(sock, events, time.monotonic())
        finally:
            with selector.changed:
                self._release()
                selector.note()

    def _look(self, selector: ProxySelector) -> float | None:
        """Watch the sockets; return the seconds until something is due without them."""
        with selector.changed:
            selector.note()
            selector.forget_closed()
            now = time.monotonic()
            if self._accepting and self._listener is not None:
                selector.watch(self._listener, READ, None)
            due = min((link.look(now) for link in self.links if not link.closed), default=math.inf)
        return None if due == math.inf else max(0.0, due - now)

    def _accept(self, selector: ProxySelector) -> None:
        with selector.changed:
            link = self._entered(selector)
            if link is None:
                return
            refusal = None if self._faults is None else self._faults.refusal(link.number)
            if self._faults is not None and refusal is not None:
                link.end("fin")
                self._faults.struck(refusal, link=link.number)
                return
        failed = False
        try:
            if self._on_connection is not None:
                with ChildEnds():  # without the lock, as it may wait after all
                    self._on_connection(link)
        except BaseException:
            _LOG.exception("on_connection of the proxy failed")
            failed = True
        with selector.changed:
            if failed:
                link.end("rst")
            link.dial()

    def _entered(self, selector: ProxySelector) -> ProxyLink | None:
        """Return the connection of the next client."""
        if self._listener is None or not self._accepting:
            return None  # `refuse` was called meanwhile
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        except OSError as error:
            _LOG.warning("the proxy cannot accept: %s", describe_os_error(error))
            time.sleep(_PAUSE)
            return None
        links, up, down = self._kept
        link = ProxyLink(
            client,
            number=links[-1].number + 1 if links else 1,
            target=None if self._swallow else self._endpoint,
            faults=self._upcoming.faults,
            plan=self._faults,
            record=self._record,
            window=self._window,
            selector=selector,
        )
        forgotten = [each for each in links if each.closed][:-_REMEMBERED]
        self._kept = (
            (*(each for each in links if each not in forgotten), link),
            up + sum(each.forwarded("up") for each in forgotten),
            down + sum(each.forwarded("down") for each in forgotten),
        )
        return link

    def _release(self) -> None:
        self._started().close()
        for link in self.links:
            link.close()
        if self._listener is not None:
            self._listener.close()

    def after_fork(self) -> None:
        """Close the copies of the sockets in a forked child."""
        self._release()

    def __repr__(self) -> str:
        selector = self._selector
        state = "new" if selector is None else "closed" if selector.closed else f"running={len(self.running)}"
        return f"<FaultProxy {'?' if selector is None else self.url} -> {self._target} {state}>"


def _address(target: str | tuple[str, int]) -> Address:
    if isinstance(target, tuple):
        host, port = target
        return Address(scheme="stomp", host=host, port=port)
    addresses = parse_addresses(target)
    if len(addresses) > 1:
        raise ConfigurationError("a proxy stands before one broker")
    if addresses[0].scheme == UNIX:
        raise ConfigurationError("a proxy stands before a broker on TCP, not before a Unix socket")
    return addresses[0]
