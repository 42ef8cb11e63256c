"""`connect`, and the end of open connections at exit."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict

from stompy.arguments import check_arguments, check_heartbeat
from stompy.connection.config import (
    Config,
    Login,
    Passcode,
    addresses_of,
    check_credentials,
    is_failover,
    parse_failover,
    versions_of,
)
from stompy.connection.connection import Closing, Connection
from stompy.connection.encoding import user_headers
from stompy.connection.listeners import Listener
from stompy.connection.reconnect import Reconnect, reconnect_of
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, check_names, given
from stompy.dialects.brokers import DialectName
from stompy.errors import StompError
from stompy.frames.grammar import NEGOTIABLE, Version
from stompy.link.settings import DEFAULT_HEARTBEAT, Limits, Timeouts
from stompy.secret import Secret, as_secret, without_traceback
from stompy.transport.tcp import TcpOptions

if TYPE_CHECKING:
    import ssl
    from dataclasses import dataclass

    from stompy.transport.tls.options import Tls
    from stompy.transport.websocket.handshake import WebSocketOptions


class Telemetry(Protocol):
    """Records what connections do; `stompy.OpenTelemetry` is one."""

    def connection(self, config: Config, listeners: Sequence[Listener]) -> Connection:
        """Return a connection that is recorded."""

    def for_worker(self) -> Telemetry:
        """Return the telemetry of a worker, which records its connection and is middleware for its tasks."""

    def inject(self, headers: Mapping[str, object] | None) -> Mapping[str, object] | None:
        """Return headers with the current context, unless they have one."""


class ConnectOptions(TypedDict, total=False):
    """The keyword arguments of `connect` without those that an outbox sets itself."""

    login: Login | None
    """Overrides the address's login. A function is called for each connect, including reconnects; it returns the login,
    or a pair of login and passcode."""
    passcode: Passcode | None
    """Overrides the address's passcode. A function is called for each connect, such as for a token that expires."""
    vhost: str | None
    """The `host` header of CONNECT; by default the path of the address, else its host name (RabbitMQ: `/`)."""
    client_id: str | None
    """Identifies this client across restarts; durable subscriptions belong to it."""
    dialect: DialectName | None
    """The kind of broker: `"activemq"`, `"artemis"`, `"rabbitmq"`, `"stompy"` (the embedded broker) or `"generic"`
    (standard STOMP only). `None` detects it from CONNECTED; set it if the login has characters that STOMP escapes, as
    brokers differ there."""
    versions: str | Version | Iterable[str | Version]
    """STOMP versions to offer, such as `"1.2"` or `("1.1", "1.2")`."""
    heartbeat: tuple[float, float]
    """Seconds between heartbeats: those we can send, those we want to receive; 0 for none."""
    timeouts: Timeouts | Default
    """How long operations may take; by default `Timeouts()`."""
    limits: Limits | Default
    """Sizes and counts that are accepted and kept, and tolerated deviations; by default `Limits()`."""
    headers: Mapping[str, object] | None
    """Added to CONNECT."""
    content_length: bool
    """Whether SEND has `content-length` by default; without it ActiveMQ makes a text message."""
    tls: Tls | ssl.SSLContext | None
    """For `stomp+ssl://` and `wss://`: certificate authorities, client certificate and the like; by default the
    system's authorities are trusted, and the certificate must have the broker's host name."""
    tcp: TcpOptions | None
    """Source address, keepalive and the like."""
    proxy: str | None
    """`http://[login:passcode@]host:port` or `socks5://[login:passcode@]host[:port]`; the proxy resolves the broker's
    host name."""
    telemetry: Telemetry | None
    """A `stompy.OpenTelemetry`, which records traces and metrics."""
    websocket: WebSocketOptions | None
    """HTTP headers and the like, for `ws://` and `wss://`."""


if TYPE_CHECKING:
    show_connect_options = dataclass(ConnectOptions)  # as `stompy.dialects.options.show_send_options`

DEFAULT_URL = "stomp://localhost:61613"

_EXIT_TIMEOUT = 2.0
"""Seconds at exit for disconnecting all connections that were left open."""

_connections: weakref.WeakSet[Closing] = weakref.WeakSet()


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
    timeouts: Timeouts | Default = DEFAULT,
    limits: Limits | Default = DEFAULT,
    headers: Mapping[str, object] | None = None,
    content_length: bool = True,
    reconnect: bool | Reconnect | Default = DEFAULT,
    listeners: Iterable[Listener] = (),
    name: str = "connection",
    tls: Tls | ssl.SSLContext | None = None,
    tcp: TcpOptions | None = None,
    proxy: str | None = None,
    telemetry: Telemetry | None = None,
    websocket: WebSocketOptions | None = None,
    **misspelt: NoReturn,
) -> Connection:
    """Connect to a broker; return when the session is open.

    Args:
        url: `stomp://[login:passcode@]host[:port][/vhost]`, `stomp+ssl://...` for TLS, `stomp+unix:///path`,
            `ws://[login:passcode@]host[:port][/path][?query]` or `wss://...` for WebSocket; several of these; or
            ActiveMQ's `failover:(a,b)?randomize=...`, which also sets how to reconnect.
        login: overrides the address's login. A function is called for each connect, including reconnects; it returns
            the login, or a pair of login and passcode.
        passcode: overrides the address's passcode. A function is called for each connect, such as for a token that
            expires.
        vhost: the `host` header of CONNECT; by default the path of the address, else its host name (RabbitMQ: `/`).
        client_id: identifies this client across restarts; durable subscriptions belong to it.
        dialect: the kind of broker: `"activemq"`, `"artemis"`, `"rabbitmq"`, `"stompy"` (the embedded broker) or
            `"generic"` (standard STOMP only). `None` detects it from CONNECTED; set it if the login has characters
            that STOMP escapes, as brokers differ there.
        versions: STOMP versions to offer, such as `"1.2"` or `("1.1", "1.2")`.
        heartbeat: seconds between heartbeats: those we can send, those we want to receive; 0 for none.
        timeouts: how long operations may take; by default `Timeouts()`.
        limits: sizes and counts that are accepted and kept, and tolerated deviations; by default `Limits()`.
        headers: added to CONNECT.
        content_length: whether SEND has `content-length` by default; without it ActiveMQ makes a text message.
        reconnect: replace a lost session: `True`, `False`, or a policy. By default that of a `failover:` address, else
            `False`. Subscriptions are restored, and `send` waits for the next session, up to the send timeout. The
            first session is only retried with `Timeouts.start`.
        listeners: called from the first event on.
        name: part of thread names.
        tls: for `stomp+ssl://` and `wss://`: certificate authorities, client certificate and the like; by default the
            system's authorities are trusted, and the certificate must have the broker's host name.
        tcp: source address, keepalive and the like.
        proxy: `http://[login:passcode@]host:port` or `socks5://[login:passcode@]host[:port]`; the proxy resolves the
            broker's host name.
        telemetry: a `stompy.OpenTelemetry`, which records traces and metrics.
        websocket: HTTP headers and the like, for `ws://` and `wss://`.
        misspelt: raises an error that names the right option.

    Raises:
        ConfigurationError: an address or a setting is invalid; nothing was sent.
        ConnectError: no session was opened; its subclasses say why. With `Timeouts.start`, that of the last attempt.
    """
    if misspelt:
        import inspect  # slow, and seldom needed

        names = tuple(misspelt)
        misspelt.clear()  # a traceback would show a password
        check_names("connect", names, {*inspect.signature(connect).parameters} - {"misspelt"})
    # From here on, no local variable shows a credential in a traceback.
    arguments = Secret(locals())
    url, login, passcode, headers, proxy = "", None, None, None, None
    config = config_of(arguments)
    made = Connection if telemetry is None else telemetry.connection
    connection = made(config, tuple(listeners))
    connection._open()
    _connections.add(connection._closing)
    return connection


def config_of(arguments: Secret[dict[str, Any]]) -> Config:
    """Return the checked arguments of `connect`, in which others are left alone; raises as `connect` does."""
    return without_traceback(lambda: _config(**{**(connect.__kwdefaults__ or {}), **arguments.reveal()}))


def _config(*, url: str | Sequence[str], login: Any, passcode: Any, proxy: Any, **rest: Any) -> Config:
    login = check_credentials(Secret(login), as_secret(passcode))
    given_login = {"login": login, "passcode": passcode, "proxy": proxy}
    hidden = ("headers", *given_login)
    check_arguments(connect, {**rest, **given_login}, hidden=hidden, skip=("misspelt",))
    check_heartbeat(rest["heartbeat"])
    failover = parse_failover(url) if is_failover(url) else None
    policy = reconnect_of(rest["reconnect"], None if failover is None else failover.policy)
    if proxy is not None:
        from stompy.transport.proxy import parse_proxy  # late, as few connections need one

        proxy = parse_proxy(proxy)
    same = ("vhost", "client_id", "dialect", "heartbeat", "content_length", "name", "tls", "websocket")
    return Config(
        addresses=addresses_of(url),
        order=given(DEFAULT if policy is None else policy.order, "given" if failover is None else failover.order),
        login=login,
        passcode=passcode,
        versions=versions_of(rest["versions"]),
        timeouts=given(rest["timeouts"], Timeouts()),
        limits=given(rest["limits"], Limits()),
        headers=user_headers(rest["headers"]),
        reconnect=policy,
        tcp=rest["tcp"] or TcpOptions(),
        proxy=proxy,
        **{name: rest[name] for name in same},
    )


@atexit.register
def _close_all() -> None:
    """Disconnect the connections that the program left open; every frame was already written."""
    left = [closing for closing in list(_connections) if not closing.closed]
    deadline = Deadline(_EXIT_TIMEOUT)
    while left:
        # An equal share of the time, so that a silent broker delays neither the exit nor the DISCONNECTs of the others.
        share = (deadline.remaining() or 0.0) / len(left)
        closing = left.pop()
        try:
            closing.close(timeout=share, drain=False)
        except StompError:
            closing.abandon()
