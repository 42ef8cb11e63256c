"""Opening a link to one of several addresses."""

from __future__ import annotations

import random

from stompy.connection.config import Config
from stompy.deadline import Deadline
from stompy.errors import AllBrokersFailed, ConnectError
from stompy.link.handshake import Opened, open_session
from stompy.transport.address import Address
from stompy.transport.base import Dialer
from stompy.transport.tcp import TcpDialer


def dialer_of(address: Address) -> Dialer:
    """Return what dials `address`."""
    return TcpDialer(address.host, address.port)


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
            return open_session(dialer_of(address), config.link_settings(address), Deadline(config.connect_timeout))
        except ConnectError as error:
            if not error.retryable or len(config.addresses) == 1:
                raise
            attempts.append(error)
    raise AllBrokersFailed(attempts) from attempts[-1]
