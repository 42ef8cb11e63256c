"""Where an embedded broker listens, the threads that accept clients, one for each listener, and their sessions.

| thread | owns | may block on |
|---|---|---|
| `stompy-broker-acceptor` | new connections | `accept`, which closing the listener ends |

Locks: `Acceptor._lock` guards the thread and the list of sessions; it is held over nothing that waits.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
import mimetypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stompy.broker.session import ClientSession
from stompy.broker.users import Admission
from stompy.default import given
from stompy.errors import ConfigurationError, NotConnectedError
from stompy.frames.grammar import Version
from stompy.locks import Rank, make_lock
from stompy.protocol.rules import subprotocols
from stompy.transport.address import PLAIN, TLS, WS, WSS, host_port
from stompy.transport.tcp import TcpListener
from stompy.transport.unix import UnixListener
from stompy.transport.websocket.handshake import END, HandshakePolicy, HandshakeRefused, parse_head
from stompy.world import os, threading

if TYPE_CHECKING:
    import ssl

    from stompy.broker.commands import Commands
    from stompy.broker.router import BrokerRouter
    from stompy.broker.settings import Settings
    from stompy.deadline import Deadline
    from stompy.transport.base import Transport, TransportListener
    from stompy.transport.tls.options import Tls
    from stompy.transport.tls.transport import TlsListener

_LOG = logging.getLogger("stompy.broker")

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#@\s]+|null|\*")


def _respond(folder: Path, head: bytes) -> bytes | None:
    """Return the response to a browser: a file of the folder; `None` to a request for a WebSocket.

    Raises:
        HandshakeRefused: there is no such file in the folder, or the request is malformed.
    """
    target, headers = parse_head(head)
    if "upgrade" in headers:
        return None
    try:
        path = (folder / unquote(target.partition("?")[0]).lstrip("/")).resolve()  # follows links, and `..`
        path = (path / "index.html").resolve() if path.is_dir() else path
        body = path.read_bytes() if path.is_relative_to(folder) else None
    except (OSError, ValueError):
        body = None
    if body is None:
        raise HandshakeRefused(404, "there is no such file in the folder of the broker's pages")
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {kind}{'; charset=utf-8' if kind.startswith('text/') else ''}"]
    lines += ["Cache-Control: no-store", "Connection: close", "X-Content-Type-Options: nosniff"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode("ascii") + END + body


def _is_origin(origin: object) -> bool:
    return isinstance(origin, str) and _ORIGIN.fullmatch(origin) is not None


@dataclass(eq=False, repr=False)
class Listening:
    """Makes the listeners of a broker, and remembers their addresses.

    Attributes:
        guarded: whether the broker has users.
        listener: of another transport, in place of `host` and `port`; for tests of the broker.

    The other fields are arguments of `stompy.broker.Broker`; 0 in `port` and `ws` becomes the port that was taken.

    Raises:
        ConfigurationError: the fields contradict each other, or one is invalid.
    """

    host: str
    port: int
    tls: Tls | ssl.SSLContext | None
    unix: str | os.PathLike[str] | None
    unix_mode: int
    ws: bool | int
    origins: Sequence[str]
    serve: str | os.PathLike[str] | None
    versions: Sequence[Version]
    guarded: bool
    listener: TransportListener | None = None

    def __post_init__(self) -> None:
        if self.tls is not None and self.unix is not None:
            raise ConfigurationError("a broker has TLS over TCP only, not with unix")
        web = self.ws is not False
        if web and self.unix is not None:
            raise ConfigurationError("a broker has WebSocket over TCP only, not with unix")
        if isinstance(self.origins, str) or any(not _is_origin(origin) for origin in self.origins):
            raise ConfigurationError(
                "origins must be a list of origins such as 'http://localhost:3000', 'null' or '*', without a path"
            )
        if self.origins and not web:
            raise ConfigurationError("origins are for WebSocket: set ws too")
        if self.serve is not None and not web:
            raise ConfigurationError("the pages of serve connect by WebSocket: set ws too")
        if self.serve is not None and not Path(self.serve).is_dir():
            raise ConfigurationError(f"serve must be a folder, not {self.serve!r}")
        self._address: tuple[str, int] | str | None = None

    def open(self) -> list[TransportListener]:
        """Return new listeners; on the same ports, when it is called again.

        Raises:
            ConfigurationError: an address cannot be listened on.
        """
        if self.listener is not None:
            self._address = self.listener.address
            return [self.listener]
        if self.unix is not None:
            unix = UnixListener(self.unix, mode=self.unix_mode)
            self._address = unix.address
            return [unix]
        secured = self._secured()
        first = self._listen(self.port)
        self._address = first.address
        self.port = first.address[1]
        listeners: list[TransportListener] = [self._web(secured(first)) if self.ws is True else secured(first)]
        if not isinstance(self.ws, bool):
            try:
                second = self._listen(self.ws)
            except BaseException:
                listeners[0].close()
                raise
            self.ws = second.address[1]
            listeners.append(self._web(secured(second)))
        return listeners

    def _listen(self, port: int) -> TcpListener:
        listener = TcpListener(self.host, port)
        host, port = listener.address
        if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            unsafe = ", and this broker has no TLS" if self.tls is None else ""
            everybody = "" if self.guarded else "; everybody there may come in, as it has no users"
            _LOG.warning("%s can be reached from other machines%s%s", host_port(host, port), unsafe, everybody)
        return listener

    def _secured(self) -> Callable[[TcpListener], TcpListener | TlsListener]:
        """Return a function that puts TLS over a listener, if the broker has TLS; its files are read now."""
        if self.tls is None:
            return lambda listener: listener
        # Imported where it is needed: `ssl` costs a good part of an import of stompy.
        from stompy.transport.tls.context import server_context
        from stompy.transport.tls.transport import TlsListener

        context = server_context(self.tls)
        return lambda listener: TlsListener(listener, context)

    def _web(self, listener: TcpListener | TlsListener) -> TransportListener:
        from stompy.transport.websocket.endpoints import WebSocketListener

        folder = self.serve
        policy = HandshakePolicy(
            subprotocols=subprotocols(self.versions),
            origins=self.origins,
            respond=None if folder is None else partial(_respond, Path(folder).resolve()),
        )
        return WebSocketListener(listener, policy)

    @property
    def url(self) -> str:
        """The address for clients of this machine.

        Raises:
            NotConnectedError: it was never opened, so that it has no port yet.
        """
        if self._address is None:
            raise NotConnectedError("the broker was not started yet")
        if isinstance(self._address, str):
            return self._address
        return f"{PLAIN if self.tls is None else TLS}://{self._near(self.port)}"

    @property
    def ws_url(self) -> str:
        """The same by WebSocket.

        Raises:
            NotConnectedError: it was never opened, or has no WebSocket.
        """
        if self._address is None or self.ws is False:
            raise NotConnectedError("the broker was not started yet, or not with ws=True")
        port = self.port if self.ws is True else self.ws
        return f"{WS if self.tls is None else WSS}://{self._near(port)}/"

    def _near(self, port: int) -> str:
        host = str(self._address[0]) if self._address else ""
        return host_port({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read


class Acceptor:
    """Serves the clients of a broker, each in a session of its own.

    Args:
        router: where messages go.
        commands: the effects of frames.
        settings: limits, users, times.
        instance: the first part of every session id.
    """

    def __init__(self, router: BrokerRouter, commands: Commands, settings: Settings, *, instance: str) -> None:
        self._router = router
        self._instance = instance
        self._admission = Admission(
            max_sessions=settings.max_sessions,
            max_handshakes=settings.max_handshakes,
            max_handshakes_per_address=given(settings.max_handshakes_per_address, None),
        )
        self._session = partial(
            ClientSession, router=router, commands=commands, settings=settings, admission=self._admission
        )
        self._numbers = itertools.count(1)
        self._lock = make_lock(Rank.BROKER_LEAF, "sessions")
        self._threads: list[threading.Thread] = []
        self._sessions: list[ClientSession] = []

    @property
    def runs(self) -> bool:
        """Whether it accepts clients."""
        return bool(self._threads)

    def start(self, listeners: Sequence[TransportListener]) -> None:
        """Accept connections from now on, each listener in a thread of its own."""
        threads = [
            threading.Thread(target=self._run, args=(listener,), name="stompy-broker-acceptor", daemon=True)
            for listener in listeners
        ]
        with self._lock:
            self._threads = threads
        for thread in threads:
            thread.start()

    def stop(self, listeners: Sequence[TransportListener], deadline: Deadline, *, grace: float) -> bool:
        """Close the listeners and end all sessions; return whether it ran."""
        with self._lock:
            threads, self._threads = self._threads, []
        if not threads:
            return False
        for listener in listeners:
            listener.close()
        for thread in threads:
            thread.join(deadline.remaining())
        self.end_sessions(deadline, grace=grace)
        return True

    def end_sessions(self, deadline: Deadline, *, grace: float) -> None:
        """End the sessions of this moment; clients get `grace` seconds to take the end of the stream."""
        with self._lock:
            sessions, self._sessions = self._sessions, []
        with self._router.turn():  # all at once, so that what comes back from one is not given to the next
            for session in sessions:
                self._router.hang_up(session.state)
        graceful = deadline.sooner(grace)
        for session in sessions:
            session.join(graceful.remaining())
        for session in sessions:
            session.abort()
        for session in sessions:
            session.join(deadline.remaining())
        left = sum(not session.ended for session in sessions)
        if left:
            _LOG.error("%d sessions did not end in time", left)

    def _run(self, listener: TransportListener) -> None:
        while (transport := listener.accept()) is not None:
            self._serve(transport)

    def _serve(self, transport: Transport) -> None:
        slot = self._admission.enter(transport.peer)
        if slot is None:  # a storm: not even the words that there is no room have room
            transport.close()
            return
        number = next(self._numbers)
        session = self._session(transport, slot=slot, name=f"{self._instance}-{number}", number=number)
        with self._lock:
            # A `stop` that did not wait for this thread has taken the list already.
            stopped = threading.current_thread() not in self._threads
            if not stopped:
                self._add(session)
        if stopped:
            transport.close()
            self._admission.leave(slot)
            return
        try:
            session.start()
        except RuntimeError as error:  # no more threads
            _LOG.error("cannot serve %s: %s", transport.peer, error)

    def _add(self, session: ClientSession) -> None:
        # Ended sessions are left out now and then, so that the list does not grow with the clients served.
        if len(self._sessions) >= 2 * self._router.sessions + 16:
            self._sessions = [other for other in self._sessions if not other.ended]
        self._sessions.append(session)
