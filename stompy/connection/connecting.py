"""Connecting, and what a process must do for its connections at a fork and at its end."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from stompy.connection.closing import Closing
from stompy.connection.codec import user_headers
from stompy.connection.config import Config, Login, Order, Passcode, addresses_of, check_credentials, versions_of
from stompy.connection.connection import Connection
from stompy.connection.failover import Failover, is_failover, parse_failover
from stompy.connection.listeners import ConnectionListener
from stompy.connection.reconnect import Reconnect, ResendLimits, reconnect_of, resend_of
from stompy.dialects.brokers import DialectName
from stompy.errors import StompError
from stompy.frames.grammar import NEGOTIABLE, Leniency, Limits, Version
from stompy.link.flow import InboxLimits
from stompy.link.receipts import MAX_RECEIPTS
from stompy.link.settings import DEFAULT_HEARTBEAT
from stompy.protocol.heartbeat import DEFAULT_EOL_RATE, DEFAULT_TOLERANCE
from stompy.protocol.state import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.secret import Secret, as_secret, strip_tracebacks
from stompy.transport.address import Address
from stompy.transport.proxy import parse_proxy
from stompy.transport.tcp import TcpOptions
from stompy.transport.tls.options import Tls

if TYPE_CHECKING:
    import ssl


class ConnectOptions(TypedDict, total=False):
    """The keywords of `connect` but for those that an outbox sets itself."""

    login: Login | None
    passcode: Passcode | None
    vhost: str | None
    client_id: str | None
    dialect: DialectName | None
    versions: str | Version | Iterable[str | Version]
    heartbeat: tuple[float, float]
    heartbeat_tolerance: float
    connect_timeout: float
    send_timeout: float
    receipt_timeout: float
    close_timeout: float
    limits: Limits | None
    inbox: InboxLimits | None
    max_receipts: int
    max_subscriptions: int
    max_transactions: int
    max_eol_rate: int
    headers: Mapping[str, object] | None
    content_length: bool
    order: Order | None
    leniency: Leniency | None
    tls: Tls | ssl.SSLContext | None
    tcp: TcpOptions | None
    proxy: str | None


DEFAULT_URL = "stomp://localhost:61613"

_EXIT_TIMEOUT = 2.0
"""Seconds that a connection left open gets for its goodbye when the program ends."""

_open: weakref.WeakSet[Closing] = weakref.WeakSet()


def connect(
    url: str | Sequence[str] = DEFAULT_URL,
    *,
    login: Login | None = None,
    passcode: Passcode | None = None,
    vhost: str | None = None,
    client_id: str | None = None,
    dialect: DialectName | None = None,
    versions: str | Version | Iterable[str | Version] = NEGOTIABLE,
    heartbeat: tuple[float, float] = DEFAULT_HEARTBEAT,
    heartbeat_tolerance: float = DEFAULT_TOLERANCE,
    connect_timeout: float = 10.0,
    startup_timeout: float | None = None,
    send_timeout: float = 30.0,
    receipt_timeout: float = 30.0,
    close_timeout: float = 10.0,
    limits: Limits | None = None,
    inbox: InboxLimits | None = None,
    max_receipts: int = MAX_RECEIPTS,
    max_subscriptions: int = MAX_SUBSCRIPTIONS,
    max_transactions: int = MAX_TRANSACTIONS,
    max_eol_rate: int = DEFAULT_EOL_RATE,
    headers: Mapping[str, object] | None = None,
    content_length: bool = True,
    order: Order | None = None,
    reconnect: bool | Reconnect | None = None,
    resend_unconfirmed: bool | ResendLimits = False,
    leniency: Leniency | None = None,
    listeners: Iterable[ConnectionListener] = (),
    name: str = "connection",
    tls: Tls | ssl.SSLContext | None = None,
    tcp: TcpOptions | None = None,
    proxy: str | None = None,
) -> Connection:
    """Connect to a broker and return when the session is open.

    Args:
        url: `stomp://[login:passcode@]host[:port][/vhost]`, or `stomp+ssl://` for TLS, or `stomp+unix:///path`; or
            several of them; or ActiveMQ's `failover:(a,b)?randomize=...`, which also says how to reconnect.
        order: of several addresses, in each pass: `"given"`, `"random"`, or `"priority"`: the first one first and the
            others by chance; `None` takes what a `failover:` address says, else `"given"`. Each pass begins anew, so
            with `"given"` and `"priority"` a connection that is lost returns to the first address if it is back.
        login: overrides the address's. A function is asked at each connect, the later ones too, and returns the login,
            or login and passcode as a pair.
        passcode: overrides the address's. A function is asked at each connect, as for a token that is renewed.
        vhost: the `host` header of CONNECT; by default the path of the address, else its host name (RabbitMQ: `/`).
        client_id: a name for this client that stays the same from run to run; durable subscriptions belong to it.
        dialect: the broker's kind: `"activemq"`, `"artemis"`, `"rabbitmq"`, `"stompy"` (the embedded one) or
            `"generic"` (standard STOMP only). `None` takes the one that the broker names when it has answered; naming
            it matters for what is said before: how a login with special characters is written.
        versions: the STOMP versions to offer, such as `"1.2"` or `("1.1", "1.2")`.
        heartbeat: seconds between beats: what we can send, what we want to receive; 0 for none.
        heartbeat_tolerance: silence of this many agreed intervals counts as a dead broker.
        connect_timeout: seconds for each address, up to CONNECTED.
        startup_timeout: seconds for the first session: until then, an attempt that failed for a reason that may pass
            (nobody listens, the name is not known, no answer) is followed by another, with the delays of `reconnect` or
            of the usual policy. `None` makes one attempt.
        send_timeout: seconds for one frame to leave.
        receipt_timeout: default seconds to wait for a receipt, and for a message in `Subscription.receive`.
        close_timeout: default seconds for `disconnect`.
        limits: maxima for a frame of the broker.
        inbox: how much may wait for user code before the broker is held back.
        max_receipts: receipts under way at most; one more raises `LimitExceeded`, as do the next two.
        max_subscriptions: live subscriptions at most.
        max_transactions: open transactions at most.
        max_eol_rate: bytes of line ends a second that the broker may send between frames before the link is ended.
        headers: further headers of CONNECT.
        content_length: write `content-length` on SEND by default; without it ActiveMQ makes a text message.
        reconnect: replace a link that is lost: `True`, or a policy; `None` for what the address says, which is not to.
            The first connect is repeated with `startup_timeout` alone. Subscriptions come back by themselves; `send`
            waits for the next link, up to the send timeout.
        resend_unconfirmed: send again, in order, what was sent with `receipt` or `confirm` and not confirmed when its
            link died; before anybody's new send on the next one. Every copy carries the same header `stompy-dedupe-id`
            (and `_AMQ_DUPL_ID` for Artemis, which drops the second by itself). `True`, or bounds. Needs `reconnect`.
        leniency: deviations from the specification to bear with; `None` takes what the broker is known to need.
        listeners: heard from the first event on.
        name: part of thread names.
        tls: for `stomp+ssl://` addresses: whom to trust, our certificate and the like; by default the system's
            authorities are trusted, and the broker's host name is looked for in its certificate.
        tcp: where to dial from, and how the kernel watches over the connection.
        proxy: `http://[login:passcode@]host:port` or `socks5://[login:passcode@]host[:port]`: dial through it; it
            resolves the broker's name.

    Raises:
        ConfigurationError: an address or a setting is wrong; nothing was sent.
        ConnectError: no session came about; see the errors below it. With `startup_timeout`, why the last attempt
            failed.
    """
    # From here on no local variable shows a credential.
    told, url, passcode = Secret((url, headers)), "", as_secret(passcode)
    way, proxy = as_secret(proxy), None
    who, login, headers = Secret(login), None, None
    login = check_credentials(who, passcode)
    addresses, failover, fields = _read(told)
    policy = failover.policy if failover is not None and reconnect is None else reconnect_of(reconnect)
    config = Config(
        addresses=addresses,
        order=order if order is not None else "given" if failover is None else failover.order,
        login=login,
        passcode=passcode,
        vhost=vhost,
        client_id=client_id,
        dialect=dialect,
        versions=versions_of(versions),
        heartbeat=heartbeat,
        heartbeat_tolerance=heartbeat_tolerance,
        connect_timeout=connect_timeout,
        startup_timeout=startup_timeout,
        send_timeout=send_timeout,
        receipt_timeout=receipt_timeout,
        close_timeout=close_timeout,
        limits=limits or Limits(),
        inbox=inbox or InboxLimits(),
        max_receipts=max_receipts,
        max_subscriptions=max_subscriptions,
        max_transactions=max_transactions,
        max_eol_rate=max_eol_rate,
        headers=fields.reveal(),
        content_length=content_length,
        reconnect=policy,
        resend=resend_of(resend_unconfirmed),
        leniency=leniency,
        name=name,
        tls=tls,
        tcp=tcp or TcpOptions(),
        proxy=None if way is None else parse_proxy(way),
    )
    connection = Connection(config, tuple(listeners))
    connection._open()
    _open.add(connection._closing)
    return connection


def _read(
    told: Secret[tuple[str | Sequence[str], Mapping[str, object] | None]],
) -> tuple[tuple[Address, ...], Failover | None, Secret[dict[str, str]]]:
    """Return what the address and the headers say."""
    try:
        return _parsed(*told.reveal())
    except StompError as error:
        failure = error
    raise strip_tracebacks(failure)


def _parsed(
    url: str | Sequence[str], headers: Mapping[str, object] | None
) -> tuple[tuple[Address, ...], Failover | None, Secret[dict[str, str]]]:
    failover = parse_failover(url) if isinstance(url, str) and is_failover(url) else None
    return addresses_of(url if failover is None else failover.urls), failover, Secret(user_headers(headers))


def _orphan_all() -> None:
    """Make the connections of a forked child unusable; those of the parent are not touched."""
    for closing in list(_open):
        closing.orphan()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_orphan_all)


@atexit.register
def _close_all() -> None:
    """Say goodbye for connections that the program left open; their messages are with the kernel already."""
    for closing in list(_open):
        if not closing.closed:
            try:
                closing.disconnect(timeout=_EXIT_TIMEOUT, drain=False)
            except StompError:
                closing.abandon()
