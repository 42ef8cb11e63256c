"""A TCP proxy that fails on demand, between a program under test and its broker.

::

    with FaultProxy(broker.url) as proxy, stompy.connect(proxy.url, reconnect=True) as conn:
        proxy.cut("rst")                                # every running connection, now
        proxy.stall("down")                             # the broker's frames no longer arrive
        proxy.upcoming.cut_after(100, direction="up")   # each connection from now on, at its 101st byte
        proxy.running[0].chop()                         # only this connection, byte by byte

A fault set on the proxy applies to open and future connections; on `upcoming` to future ones only, and on one of
`running` to that connection. A call returns when it has taken effect.

Threads: one, `stompy-proxy-<port>`; see `stompy.testing.proxy_loop`.

| lock | guards | held over I/O? |
|---|---|---|
| `FaultProxy._changed` (a leaf) | the number of turns that the loop has made, which wakes `await_that` | no |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from stompy.arguments import check_arguments
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, NotConnectedError, StompTimeoutError
from stompy.forks import ChildEnds
from stompy.locks import make_condition
from stompy.testing.faults import FaultPlan
from stompy.testing.proxied import (
    DIRECTIONS,
    Direction,
    DirectionFaults,
    Ending,
    FaultControls,
    ProxyLink,
    check_ending,
)
from stompy.testing.proxy_loop import ProxyEventLoop, ProxyListener
from stompy.transport.address import UNIX, Address, parse_addresses
from stompy.transport.tcp import Endpoint, resolve
from stompy.world import socket

_LOG = logging.getLogger("stompy.testing")

_REMEMBERED = 256
"""Number of ended connections whose data is kept."""

_RESOLVE_TIMEOUT = 10.0

T = TypeVar("T")


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

    def __init__(self, call: Callable[[Callable[[], None]], None]) -> None:
        self._call = call
        self.faults: dict[Direction, DirectionFaults] = {direction: DirectionFaults() for direction in DIRECTIONS}

    def change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Set faults; on the proxy's thread."""
        for direction in directions:
            self.faults[direction] = replace(self.faults[direction], **changes)

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        self._call(lambda: self.change(directions, changes))


class FaultProxy(FaultControls):
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
        self._upcoming = _Upcoming(self._call)
        self._endpoint: Endpoint | None = None
        self._swallow = False
        self._loop: ProxyEventLoop | None = None
        self._listener: ProxyListener | None = None
        self._changed = make_condition("proxy", None)
        self._turns = 0
        # Replaced as a whole by the proxy's thread, so that any thread may read it.
        self._links = _Links((), accepted=0, up=0, down=0)

    def start(self) -> FaultProxy:
        """Start to listen and forward; return the proxy. It can be started once only.

        Raises:
            ConfigurationError: the address cannot be listened on, or the proxy was started before.
            ConnectError: the target's host has no address.
        """
        if self._loop is not None:
            raise ConfigurationError("a proxy can be started once")
        self._endpoint = resolve(self._target.host, self._target.port, deadline=Deadline(_RESOLVE_TIMEOUT))[0]
        listener = ProxyListener(self._host, self._port, window=self._window, enter=self._enter)
        loop = ProxyEventLoop(f"stompy-proxy-{listener.port}", after_turn=self._turned)
        listener.join(loop)
        self._listener = listener
        self._loop = loop
        if self._faults is not None:
            self._faults.when_released(loop.wake)
        loop.start()
        return self

    def close(self, *, timeout: float = 5.0) -> None:
        """Stop listening, close all connections and wait for the thread. Idempotent.

        Raises:
            StompTimeoutError: the thread did not end, as an `on_connection` does not return.
        """
        if self._loop is None:
            return
        self._loop.stop()
        if not self._loop.join_until(Deadline(timeout)):
            raise StompTimeoutError(f"{self!r} did not end within {timeout:g} s")

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # State

    @property
    def url(self) -> str:
        """The address for clients: the target's, with the proxy's host and port, and without login and passcode.

        Raises:
            NotConnectedError: the proxy was not started.
        """
        return str(replace(self._target, host=self._host, port=self.port))

    @property
    def port(self) -> int:
        """The port that it listens on.

        Raises:
            NotConnectedError: the proxy was not started.
        """
        if self._listener is None:
            raise NotConnectedError("the proxy was not started yet")
        return self._listener.port

    @property
    def running(self) -> tuple[ProxyLink, ...]:
        """The open connections, oldest first."""
        return tuple(link for link in self._links.links if link.running)

    @property
    def links(self) -> tuple[ProxyLink, ...]:
        """All open connections and the latest 256 ended ones, oldest first."""
        return self._links.links

    @property
    def upcoming(self) -> FaultControls:
        """The fault controls of future connections."""
        return self._upcoming

    def stats(self) -> ProxyStats:
        """Return the counters."""
        state = self._links
        return ProxyStats(
            accepted=state.accepted,
            running=sum(link.running for link in state.links),
            up=state.up + sum(link.forwarded("up") for link in state.links),
            down=state.down + sum(link.forwarded("down") for link in state.links),
        )

    # Faults

    def cut(self, ending: Ending = "fin") -> int:
        """End every running connection both ways, now, and return how many there were; see `ProxyLink.cut`.

        Raises:
            ConfigurationError: no such ending.
        """
        check_ending(ending)

        def cut() -> int:
            links = self.running
            for link in links:
                link.end(ending)
            return len(links)

        return self._call(cut)

    def refuse(self) -> None:
        """Refuse new connections, until `listen`. Open connections continue."""
        self._call(self._the_listener().refuse)

    def black_hole(self) -> None:
        """Accept new connections and never answer on them. Open connections continue."""
        self._call(lambda: self._welcome(swallow=True))

    def listen(self) -> None:
        """Accept connections again, after `refuse` or `black_hole`; on the same port."""
        self._call(lambda: self._welcome(swallow=False))

    def heal(self) -> None:
        """End all faults of open and future connections; connections that were cut or black-holed stay so."""
        super().heal()
        if self._listener is not None:
            self.listen()

    def await_that(self, holds: Callable[[FaultProxy], object], *, timeout: float = 5.0) -> None:
        """Wait until `holds(proxy)` is true; it is asked again after every change.

        Raises:
            StompTimeoutError: it was not true within `timeout` seconds.
        """
        if self._loop is not None:
            self._loop.owner.check()
        deadline = Deadline(timeout)
        turns = self._turns
        while not holds(self):
            with self._changed:
                if not self._changed.wait_for(partial(self._has_turned, turns), deadline.remaining()):
                    raise StompTimeoutError(f"the condition was not met within {timeout:g} s: {self!r}")
                turns = self._turns

    def _has_turned(self, seen: int) -> bool:
        return self._turns != seen

    # On the proxy's thread

    def _enter(self, client: socket.socket) -> None:
        assert self._loop is not None
        state = self._links
        link = ProxyLink(
            client,
            number=state.accepted + 1,
            target=None if self._swallow else self._endpoint,
            faults=self._upcoming.faults,
            plan=self._faults,
            record=self._record,
            window=self._window,
            loop=self._loop,
        )
        self._links = state.with_link(link)
        self._loop.add(link)
        if self._faults is not None and (refusal := self._faults.refusal(link.number)):
            link.end("fin")
            self._faults.struck(refusal, link=link.number)
            return
        try:
            if self._on_connection is not None:
                with ChildEnds():
                    self._on_connection(link)
        except BaseException:
            _LOG.exception("on_connection of the proxy failed")
            link.end("rst")
        link.dial()

    def _welcome(self, *, swallow: bool) -> None:
        self._swallow = swallow
        self._the_listener().listen()

    def _turned(self) -> None:
        with self._changed:
            self._turns += 1
            self._changed.notify_all()

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        def change() -> None:
            self._upcoming.change(directions, changes)
            for link in self.running:
                link.change(directions, changes)

        self._call(change)

    def _call(self, function: Callable[[], T]) -> T:
        return function() if self._loop is None else self._loop.call(function)

    def _the_listener(self) -> ProxyListener:
        if self._listener is None:
            raise NotConnectedError("the proxy was not started yet")
        return self._listener

    def __repr__(self) -> str:
        state = "new" if self._loop is None else "closed" if self._loop.ended else f"running={len(self.running)}"
        return f"<FaultProxy {'?' if self._listener is None else self.url} -> {self._target} {state}>"


@dataclass(frozen=True, slots=True)
class _Links:
    """The connections of a proxy, and the byte counts of forgotten connections."""

    links: tuple[ProxyLink, ...]
    accepted: int
    up: int
    down: int

    def with_link(self, link: ProxyLink) -> _Links:
        """Return a copy with another connection, and with at most the kept number of ended ones."""
        over = [link for link in self.links if link.closed]
        forgotten = set(over[: max(0, len(over) - _REMEMBERED)])
        return _Links(
            (*(link for link in self.links if link not in forgotten), link),
            accepted=self.accepted + 1,
            up=self.up + sum(link.forwarded("up") for link in forgotten),
            down=self.down + sum(link.forwarded("down") for link in forgotten),
        )


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
