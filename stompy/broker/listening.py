"""Where an embedded broker listens: its sockets, and the addresses for clients."""

from __future__ import annotations

import ipaddress
import logging
import mimetypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stompy.errors import ConfigurationError, NotConnectedError
from stompy.frames.grammar import Version
from stompy.protocol.subprotocols import subprotocols
from stompy.transport.address import PLAIN, TLS, WS, WSS, host_port
from stompy.transport.tcp import TcpListener
from stompy.transport.unix import UnixListener
from stompy.transport.websocket.handshake import END, HandshakeRefused, parse_head

if TYPE_CHECKING:
    import ssl

    from stompy.transport.base import Listener
    from stompy.transport.tls.endpoints import TlsListener
    from stompy.transport.tls.options import Tls
    from stompy.world import os

_LOG = logging.getLogger("stompy.broker")

_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^/?#@\s]+|null|\*")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a broker is to listen; `stompy.broker.Broker` explains the fields.

    Attributes:
        listener: given by the user.
        guarded: whether the broker has users.
    """

    host: str
    port: int
    tls: Tls | ssl.SSLContext | None
    unix: str | os.PathLike[str] | None
    unix_mode: int
    listener: Listener | None
    ws: bool
    ws_port: int | None
    origins: Sequence[str]
    serve: str | os.PathLike[str] | None
    versions: Sequence[Version]
    guarded: bool

    def __post_init__(self) -> None:
        if self.tls is not None and (self.unix is not None or self.listener is not None):
            raise ConfigurationError("a broker has TLS over TCP only, not with unix or a listener of yours")
        if self.unix is not None and self.listener is not None:
            raise ConfigurationError("a broker listens on a Unix socket or on a listener of yours, not on both")
        web = self.ws or self.ws_port is not None
        if web and (self.unix is not None or self.listener is not None):
            raise ConfigurationError("a broker has WebSocket over TCP only, not with unix or a listener of yours")
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
        path = path / "index.html" if path.is_dir() else path
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


class Listening:
    """Makes the listeners of a broker, and remembers their addresses.

    Args:
        places: where to listen.
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._port, self._ws_port = places.port, places.ws_port
        self._address: tuple[str, int] | str | None = None

    def open(self) -> list[Listener]:
        """Return new listeners; on the same ports, when it is called again.

        Raises:
            ConfigurationError: an address cannot be listened on.
        """
        places = self._places
        if places.listener is not None:
            self._address = places.listener.address
            return [places.listener]
        if places.unix is not None:
            unix = UnixListener(places.unix, mode=places.unix_mode)
            self._address = unix.address
            return [unix]
        secured = self._secured()
        first = self._listen(self._port)
        self._address = first.address
        self._port = first.address[1]
        listeners: list[Listener] = [self._web(secured(first)) if places.ws else secured(first)]
        if self._ws_port is not None:
            try:
                second = self._listen(self._ws_port)
            except BaseException:
                listeners[0].close()
                raise
            self._ws_port = second.address[1]
            listeners.append(self._web(secured(second)))
        return listeners

    def _listen(self, port: int) -> TcpListener:
        listener = TcpListener(self._places.host, port)
        host, port = listener.address
        if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            unsafe = ", and this broker has no TLS" if self._places.tls is None else ""
            everybody = "" if self._places.guarded else "; everybody there may come in, as it has no users"
            _LOG.warning("%s can be reached from other machines%s%s", host_port(host, port), unsafe, everybody)
        return listener

    def _secured(self) -> Callable[[TcpListener], TcpListener | TlsListener]:
        """Return what puts TLS over a listener, if the broker has TLS; its files are read now."""
        if self._places.tls is None:
            return lambda listener: listener
        # Imported where it is needed: `ssl` costs a good part of an import of stompy.
        from stompy.transport.tls.context import server_context
        from stompy.transport.tls.endpoints import TlsListener

        context = server_context(self._places.tls)
        return lambda listener: TlsListener(listener, context)

    def _web(self, listener: TcpListener | TlsListener) -> Listener:
        from stompy.transport.websocket.endpoints import WebSocketListener

        folder = self._places.serve
        return WebSocketListener(
            listener,
            subprotocols=subprotocols(self._places.versions),
            admits=self._admits,
            respond=None if folder is None else partial(_respond, Path(folder).resolve()),
        )

    def _admits(self, origin: str) -> bool:
        """Whether a page of this origin may connect: browsers ask nobody else."""
        wanted = {allowed.lower() for allowed in self._places.origins}
        return "*" in wanted or origin.lower() in wanted

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
        return f"{PLAIN if self._places.tls is None else TLS}://{self._near(self._port)}"

    @property
    def ws_url(self) -> str:
        """The same by WebSocket.

        Raises:
            NotConnectedError: it was never opened, or has no WebSocket.
        """
        if self._address is None or not (self._places.ws or self._ws_port is not None):
            raise NotConnectedError("the broker was not started yet, or not with ws=True")
        port = self._port if self._ws_port is None else self._ws_port
        return f"{WS if self._places.tls is None else WSS}://{self._near(port)}/"

    def _near(self, port: int) -> str:
        host = str(self._address[0]) if self._address else ""
        return host_port({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104 - read
