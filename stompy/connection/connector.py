"""Opening a session with one of several addresses.

| thread | calls | may block on |
|---|---|---|
| the caller of `connect`, later the reconnect thread | `Connector.open` | dial and handshake, until their deadline |
| the closing thread | `Connector.cancel` | nothing |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 5 | connector (leaf) | the transport of the handshake, whether it was cancelled | no |
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from stompy.connection.config import Config
from stompy.connection.reconnect import Order
from stompy.deadline import Deadline
from stompy.dialects.brokers import RABBITMQ, is_client_id_in_use, is_unknown_virtual_host
from stompy.errors import (
    AllBrokersFailedError,
    ClientIdInUseError,
    ConnectError,
    ConnectRefusedError,
    NotConnectedError,
)
from stompy.link.handshake import OpenedSession, open_session
from stompy.link.settings import Credentials, LinkSettings
from stompy.locks import Rank, make_lock
from stompy.protocol.subprotocols import subprotocols
from stompy.transport.address import UNIX, WS, WSS, Address
from stompy.transport.base import Dialer, Transport
from stompy.transport.proxy import ProxyDialer
from stompy.transport.tcp import TcpDialer
from stompy.transport.tls.options import Tls
from stompy.transport.unix import UnixDialer
from stompy.world import random

_LOG = logging.getLogger("stompy.connection")


def dialer_of(address: Address, config: Config) -> Dialer:
    """Return the dialer for `address`."""
    if address.scheme == UNIX:
        return UnixDialer(address.path or "")
    tcp = (
        TcpDialer(address.host, address.port, options=config.tcp)
        if config.proxy is None
        else ProxyDialer(config.proxy, address.host, address.port, options=config.tcp)
    )
    stream: TcpDialer | ProxyDialer | TlsDialer = tcp
    # Imported late, as `ssl` is slow to import, and as few connections need WebSocket.
    if address.secure:
        from stompy.transport.tls.endpoints import TlsDialer

        stream = TlsDialer(tcp, Tls() if config.tls is None else config.tls)
    if address.scheme not in (WS, WSS):
        return stream
    from stompy.transport.websocket.endpoints import WebSocketDialer

    return WebSocketDialer(
        stream,
        host=address.authority,
        target=address.target,
        subprotocols=subprotocols(config.versions),
        options=config.websocket,
    )


class Connector:
    """Opens sessions for one connection, one at a time.

    Args:
        config: addresses, their order, timeouts.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = make_lock(Rank.LEAF, "connector")
        self._transport: Transport | None = None
        self._cancelled = False

    def open(self, deadline: Deadline) -> OpenedSession:
        """Try the addresses in order, each with its own connect timeout, and return the first session.

        Args:
            deadline: for all addresses together.

        Raises:
            ConnectError: the only address failed, or one failed with an error that will not pass.
            AllBrokersFailedError: all of several addresses failed; has the error of each.
            NotConnectedError: cancelled.
        """
        attempts: list[ConnectError] = []
        for address in in_order(self._config.addresses, self._config.order):
            self._check()
            try:
                return self._open(address, deadline)
            except ConnectError as error:
                if not error.safe_to_retry or len(self._config.addresses) == 1:
                    raise
                attempts.append(error)
        raise AllBrokersFailedError(attempts) from attempts[-1]

    def cancel(self) -> None:
        """End the current handshake and start no other. Any thread; never blocks."""
        with self._lock:
            self._cancelled = True
            transport = self._transport
        if transport is not None:
            transport.shutdown()

    def _open(self, address: Address, until: Deadline) -> OpenedSession:
        """Open a session with one address."""
        config = self._config
        dialer = _WatchedDialer(dialer_of(address, config), self)
        settings, credentials = config.for_address(address), config.credentials(address)
        deadline = until.sooner(config.timeouts.connect)
        try:
            return self._session(dialer, settings, credentials, deadline)
        except ConnectRefusedError as refused:
            if is_client_id_in_use(refused.frame):
                raise ClientIdInUseError(_message(refused), frame=refused.frame, address=refused.address) from refused
            if settings.vhost is not None or config.dialect is not None or not is_unknown_virtual_host(refused.frame):
                raise
        # No virtual host was configured, and RabbitMQ has none of the default name, the host name.
        _LOG.info("%s is RabbitMQ: trying virtual host %r", dialer.address, RABBITMQ.host)
        return self._session(dialer, replace(settings, vhost=RABBITMQ.host), credentials, deadline)

    def _session(
        self, dialer: Dialer, settings: LinkSettings, credentials: Credentials, deadline: Deadline
    ) -> OpenedSession:
        try:
            return open_session(dialer, settings, deadline, credentials)
        finally:
            with self._lock:
                self._transport = None

    def _check(self) -> None:
        with self._lock:
            if self._cancelled:
                raise NotConnectedError("the connection was closed")

    def watch(self, transport: Transport) -> None:
        """Remember the transport of a handshake, so that `cancel` can end it."""
        with self._lock:
            self._transport = transport
            cancelled = self._cancelled
        if cancelled:
            transport.shutdown()  # the handshake then fails at the end of the stream


class _WatchedDialer:
    """A dialer that hands its transports to the connector, so that it can end the handshake."""

    def __init__(self, dialer: Dialer, connector: Connector) -> None:
        self._dialer = dialer
        self._connector = connector

    @property
    def address(self) -> str:
        return self._dialer.address

    @property
    def host(self) -> str:
        return self._dialer.host

    def dial(self, deadline: Deadline) -> Transport:
        transport = self._dialer.dial(deadline)
        self._connector.watch(transport)
        return transport


def in_order(addresses: Sequence[Address], order: Order) -> Sequence[Address]:
    """Return the addresses in the order of one pass."""
    if order == "given":
        return addresses
    fixed = 1 if order == "priority" else 0
    return [*addresses[:fixed], *random.sample(addresses[fixed:], len(addresses) - fixed)]


def _message(error: ConnectRefusedError) -> str:
    return str(error).removeprefix(f"{error.address}: ")
