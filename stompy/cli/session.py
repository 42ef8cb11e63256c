"""Connect as the options say, and disconnect with the broker's confirmation."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence

from stompy.cli.exits import Exit, Failure, code_of
from stompy.cli.options import passcode_from, tls_from
from stompy.connection.config import addresses_of
from stompy.connection.connecting import DEFAULT_URL, connect
from stompy.connection.connection import Connection
from stompy.connection.listeners import DisconnectedEvent, Listener
from stompy.errors import AckError, ConnectError, StompError
from stompy.frames.frame import Frame
from stompy.frames.grammar import NEGOTIABLE
from stompy.link.settings import DEFAULT_HEARTBEAT, Timeouts
from stompy.transport.address import Address
from stompy.world import os

_NO_BROKER = "'stompy broker' starts one for development; --url or STOMPY_URL names another"

_SHORT_DISCONNECT = 2.0
"""Seconds for DISCONNECT when the command was interrupted or has failed."""


class SessionObserver(Listener):
    """Notes how the session ends.

    Its attributes are final once `close` has returned, which joins the dispatcher.

    Attributes:
        receipts: the number of RECEIPT frames since it was added.
        reason: why the session ended; `None` if the command ended it.
    """

    def __init__(self) -> None:
        self.receipts = 0
        self.reason: StompError | None = None

    def on_receipt(self, frame: Frame) -> None:
        """Note a RECEIPT."""
        self.receipts += 1

    def on_disconnected(self, event: DisconnectedEvent) -> None:
        """Note the end."""
        self.reason = event.reason


@contextlib.contextmanager
def session(arguments: argparse.Namespace) -> Iterator[Connection]:
    """Connect; at the end of the block disconnect, and check that the broker has confirmed it.

    STOMP 1.2, DISCONNECT: the RECEIPT says that all previous frames have been received by the server. After a block
    that raised, the timeout of DISCONNECT is short and its outcome does not count.

    Raises:
        Failure: the broker did not confirm the end of the session.
        StompError: as `connect`; and the reason, where the broker ended the session itself.
    """
    observer = SessionObserver()
    conn = open_connection(arguments, observer)
    try:
        yield conn
    except BaseException as error:
        conn.close(timeout=_SHORT_DISCONNECT)
        if isinstance(error, AckError) and observer.reason is not None:
            raise observer.reason from error  # it could not be acknowledged since the link was lost
        raise
    # All other receipts were waited for, so a listener that is added here gets only that of DISCONNECT.
    last = SessionObserver()
    conn.add_listener(last)
    conn.close()
    if observer.reason is not None:
        raise observer.reason
    if not last.receipts:
        raise Failure(
            f"{conn.address} did not confirm the end of the session; the last frames may be lost", Exit.CONNECTION
        )


def open_connection(arguments: argparse.Namespace, observer: SessionObserver) -> Connection:
    """Connect as the options and the environment say; raises as `connect` does.

    It never reconnects, even with a failover address, as it would be unknown which messages of a stream have arrived.
    """
    urls = arguments.url or [os.environ.get("STOMPY_URL") or DEFAULT_URL]
    try:
        return _connected(arguments, urls[0] if len(urls) == 1 else urls, observer)
    except ConnectError as error:
        if "connection refused" not in str(error):
            raise
        raise Failure(f"{error}; {_NO_BROKER}", code_of(error)) from error


def _connected(arguments: argparse.Namespace, url: str | Sequence[str], observer: SessionObserver) -> Connection:
    addresses = addresses_of(url)
    return connect(
        url,
        login=arguments.login,
        passcode=_passcode(arguments, addresses),
        vhost=arguments.vhost,
        client_id=arguments.client_id,
        versions=arguments.versions or NEGOTIABLE,
        heartbeat=arguments.heartbeat or DEFAULT_HEARTBEAT,
        timeouts=Timeouts(start=arguments.start_timeout or 0.0),
        reconnect=False,
        listeners=[observer],
        name="cli",
        proxy=arguments.proxy or os.environ.get("STOMPY_PROXY") or None,
        tls=tls_from(arguments, wanted=any(address.secure for address in addresses)),
    )


def _passcode(arguments: argparse.Namespace, addresses: Sequence[Address]) -> str | None:
    asked_for = arguments.ask_passcode or arguments.passcode_file is not None or arguments.login is not None
    if not asked_for and any(address.passcode is not None for address in addresses):
        return None  # that of the URL is more specific than that of the environment
    return passcode_from(arguments, "STOMPY_PASSCODE")
