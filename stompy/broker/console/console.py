"""The console of a broker: where it listens, and the sessions of its pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.acceptor import Acceptor
from stompy.broker.console.calls import Calls
from stompy.broker.console.commands import ConsoleCommands
from stompy.broker.console.site import Site
from stompy.broker.profile import OWN
from stompy.errors import NotConnectedError
from stompy.frames.grammar import NEGOTIABLE, Leniency
from stompy.protocol.heartbeat import HeartbeatOffer
from stompy.protocol.subprotocols import subprotocols
from stompy.transport.address import host_port
from stompy.transport.tcp import TcpListener
from stompy.transport.websocket.endpoints import WebSocketListener
from stompy.world import secrets

if TYPE_CHECKING:
    from stompy.broker.management import Management
    from stompy.broker.router import BrokerRouter
    from stompy.broker.settings import Settings
    from stompy.deadline import Deadline

_LOOPBACK = "127.0.0.1"
_GRACE = 0.1
"""Seconds that pages get to take the end of the stream."""
_MAX_PAGES = 100
"""Sessions of the console at one time."""


class Console:
    """Serves a page to whoever has its address, and lets it manage the broker, as a STOMP client over WebSocket.

    Args:
        management: of the broker.
        router: its state.
        settings: its settings; the console has neither its users nor the ways of another broker.
        port: 0 takes a free one.
        instance: the first part of the broker's session ids.
    """

    def __init__(
        self, management: Management, router: BrokerRouter, settings: Settings, *, port: int, instance: str
    ) -> None:
        own = replace(
            settings,
            users=None,
            on_frame=None,
            profile=OWN,
            leniency=Leniency.NONE,
            versions=NEGOTIABLE,
            heartbeat=HeartbeatOffer.from_seconds(1.0, 1.0),
            max_sessions=_MAX_PAGES,
            max_handshakes=_MAX_PAGES,
            max_handshakes_per_address=_MAX_PAGES,
        )
        name = f"{instance}-console"
        self._calls = Calls(management, router, own=name, server=settings.profile.server)
        self._acceptor = Acceptor(router, ConsoleCommands(router, own, self._calls), own, instance=name)
        self._subprotocols = subprotocols(own.versions)
        self._token = secrets.token_urlsafe(24)
        self._port = port
        self._listener: WebSocketListener | None = None

    def start(self) -> None:
        """Listen, on the same port if it is started again.

        Raises:
            ConfigurationError: the port cannot be listened on.
        """
        listener = TcpListener(_LOOPBACK, self._port)
        self._port = listener.address[1]
        site = Site(self._port, self._token)
        self._listener = WebSocketListener(
            listener, subprotocols=self._subprotocols, admits=lambda origin: True, respond=site.respond, streams=False
        )
        self._acceptor.start([self._listener])

    def stop(self, deadline: Deadline) -> None:
        """Stop listening, and end the sessions of pages."""
        if self._listener is not None and self._acceptor.stop([self._listener], deadline, grace=_GRACE):
            self._calls.watches.close()

    @property
    def url(self) -> str:
        """Its address.

        Raises:
            NotConnectedError: it was never started.
        """
        if self._listener is None:
            raise NotConnectedError("the broker was not started yet")
        return f"http://{host_port(_LOOPBACK, self._port)}/{self._token}/"
