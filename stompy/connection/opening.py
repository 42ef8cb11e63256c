"""Opening a link to one of several addresses."""

from __future__ import annotations

import logging
import random
from dataclasses import replace

from stompy.connection.config import Config
from stompy.connection.dialects.brokers import RABBITMQ
from stompy.connection.dialects.refusals import client_id_in_use, knows_no_such_host
from stompy.deadline import Deadline
from stompy.errors import AllBrokersFailed, ClientIdInUse, ConnectError, ConnectRefused
from stompy.link.handshake import Opened, open_session
from stompy.transport.address import TLS, UNIX, Address
from stompy.transport.base import Dialer
from stompy.transport.proxy import ProxyDialer
from stompy.transport.tcp import TcpDialer
from stompy.transport.tls_options import Tls
from stompy.transport.unix import UnixDialer

_LOG = logging.getLogger("stompy.connection")


def dialer_of(address: Address, config: Config) -> Dialer:
    """Return what dials `address`."""
    if address.scheme == UNIX:
        return UnixDialer(address.path or "")
    tcp = (
        TcpDialer(address.host, address.port, options=config.tcp)
        if config.proxy is None
        else ProxyDialer(config.proxy, address.host, address.port, options=config.tcp)
    )
    if address.scheme != TLS:
        return tcp
    # Imported where it is needed: `ssl` costs a good part of an import of stompy.
    from stompy.transport.tls_dialer import TlsDialer

    return TlsDialer(tcp, Tls() if config.tls is None else config.tls)


def open_first(config: Config) -> Opened:
    """Return a session with the first address that gives one; each has its own connect timeout.

    The order is that of the configuration, or one of chance if it says so.

    Raises:
        ConnectError: the only address failed, or one refused for good (wrong login, no common version).
        AllBrokersFailed: all of several addresses failed; it names each.
    """
    attempts: list[ConnectError] = []
    addresses = random.sample(config.addresses, len(config.addresses)) if config.randomize else config.addresses
    for address in addresses:
        try:
            return _open(config, address)
        except ConnectError as error:
            if not error.retryable or len(config.addresses) == 1:
                raise
            attempts.append(error)
    raise AllBrokersFailed(attempts) from attempts[-1]


def _open(config: Config, address: Address) -> Opened:
    """Open a session with one address."""
    dialer, settings = dialer_of(address, config), config.link_settings(address, config.credentials(address))
    deadline = Deadline(config.connect_timeout)
    try:
        return open_session(dialer, settings, deadline)
    except ConnectRefused as refused:
        if client_id_in_use(refused.frame):
            raise ClientIdInUse(_words(refused), frame=refused.frame, address=refused.address) from refused
        if settings.vhost is not None or config.dialect is not None or not knows_no_such_host(refused.frame):
            raise
    # Nobody named a virtual host, and the specification's default, the name of the machine, is none of this broker's.
    _LOG.info("%s is a RabbitMQ: trying its virtual host %r", dialer.address, RABBITMQ.host)
    return open_session(dialer, replace(settings, vhost=RABBITMQ.host), deadline)


def _words(error: ConnectRefused) -> str:
    return str(error).removeprefix(f"{error.address}: ")
