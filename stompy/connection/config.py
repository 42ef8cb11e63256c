"""The settings of a connection as one frozen, picklable value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from stompy.connection.credentials import Credentials, Login, Passcode, credentials_now
from stompy.connection.reconnect import Reconnect, Resend
from stompy.deadline import check_seconds
from stompy.dialects.brokers import dialect_named, dialect_of, leniency_of
from stompy.dialects.dialect import Dialect
from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency
from stompy.frames.limits import Limits
from stompy.frames.version import NEGOTIABLE, Version, parse_version
from stompy.link.flow import Marks
from stompy.link.receipts import MAX_RECEIPTS
from stompy.link.settings import LinkSettings
from stompy.protocol.flood import DEFAULT_EOL_RATE
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.ids import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.secret import Secret, hidden
from stompy.transport.address import TLS, Address, parse_addresses
from stompy.transport.proxy import Proxy
from stompy.transport.tcp import TcpOptions
from stompy.transport.tls_options import Tls

if TYPE_CHECKING:
    import ssl

Order = Literal["given", "random", "priority"]
"""The order of addresses in one pass: as given, by chance, or the first one first and the others by chance."""

DEFAULT_HEARTBEAT = (10.0, 10.0)
"""Seconds: what we can send and what we want to hear by default."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything `connect` was told; durations in seconds.

    Attributes:
        addresses: of the brokers.
        order: in which the addresses are tried.
        login: overrides the address's; a function is asked at each connect.
        passcode: overrides the address's; a function is asked at each connect. Kept as a `Secret`, never shown.
        vhost: the `host` header; `None` takes the address's path, else what the dialect says, else the host name.
        client_id: names this client to the broker, and its durable subscriptions.
        versions: offered to the broker.
        heartbeat: what we can send and what we want to hear, 0 for not at all.
        heartbeat_tolerance: agreed intervals of silence after which the broker counts as dead.
        connect_timeout: for one address: dial, handshake, CONNECTED.
        startup_timeout: for the first session, with as many attempts as fit in; `None` makes one.
        send_timeout: for one frame to leave.
        receipt_timeout: the default wait for a receipt.
        close_timeout: the default of `disconnect`.
        limits: maxima for a frame of the broker.
        inbox: how much may wait for user code before the broker is held back.
        max_receipts: receipts under way at most.
        max_subscriptions: live subscriptions at most.
        max_transactions: open transactions at most.
        max_eol_rate: octets of line ends a second that the broker may send between frames.
        headers: further headers of CONNECT.
        content_length: write `content-length` on SEND; without it ActiveMQ makes a text message.
        reconnect: how to replace a lost link; `None` does not.
        resend: bounds of what is sent again where a link died first; `None` sends nothing again.
        leniency: deviations of the broker to bear with; `None` takes what the broker is known to need.
        dialect: the name of the broker's dialect; `None` chooses by what CONNECTED says.
        name: part of thread names and receipt ids.
        tls: for `stomp+ssl://` addresses; `None` is the system's authorities and no certificate of ours. An
            `ssl.SSLContext` makes the value one that cannot be pickled.
        tcp: how TCP connections are dialed and watched over.
        proxy: the way to all addresses but Unix sockets.
    """

    addresses: tuple[Address, ...]
    order: Order = "given"
    login: Login | None = field(default=None, repr=False)
    passcode: Passcode | None = field(default=None, repr=False)
    vhost: str | None = None
    client_id: str | None = None
    versions: tuple[Version, ...] = NEGOTIABLE
    heartbeat: tuple[float, float] = DEFAULT_HEARTBEAT
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    connect_timeout: float = 10.0
    startup_timeout: float | None = None
    send_timeout: float = 30.0
    receipt_timeout: float = 30.0
    close_timeout: float = 10.0
    limits: Limits = field(default_factory=Limits)
    inbox: Marks = field(default_factory=Marks)
    max_receipts: int = MAX_RECEIPTS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
    max_transactions: int = MAX_TRANSACTIONS
    max_eol_rate: int = DEFAULT_EOL_RATE
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    content_length: bool = True
    reconnect: Reconnect | None = None
    resend: Resend | None = None
    leniency: Leniency | None = None
    dialect: str | None = None
    name: str = "connection"
    tls: Tls | ssl.SSLContext | None = None
    tcp: TcpOptions = field(default_factory=TcpOptions)
    proxy: Proxy | None = None

    def __post_init__(self) -> None:
        if self.tls is not None and not any(address.scheme == TLS for address in self.addresses):
            # Whoever gives certificates must not be left to believe that the line is protected.
            raise ConfigurationError("tls was given, but no address has it: write stomp+ssl:// instead of stomp://")
        object.__setattr__(self, "passcode", hidden(self.passcode))
        for name in ("max_receipts", "max_subscriptions", "max_transactions", "max_eol_rate"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {count!r}")
        for name in ("connect_timeout", "send_timeout", "receipt_timeout", "close_timeout"):
            check_seconds(getattr(self, name), name, positive=True, finite=True, optional=False)
        check_seconds(self.startup_timeout, "startup_timeout", positive=True, finite=True)
        if not _is_number(self.heartbeat_tolerance) or not 1 <= self.heartbeat_tolerance < math.inf:
            raise ConfigurationError(f"heartbeat_tolerance must be at least 1, not {self.heartbeat_tolerance!r}")
        if not _is_pair_of_numbers(self.heartbeat):
            raise ConfigurationError(
                f"heartbeat must be two numbers of seconds (send, receive), not {self.heartbeat!r}"
            )
        HeartbeatOffer.from_seconds(*self.heartbeat)
        if self.order not in get_args(Order):
            raise ConfigurationError(f"order must be one of {', '.join(get_args(Order))}, not {self.order!r}")
        if self.dialect is not None:
            dialect_named(self.dialect)
        if self.client_id is not None and "client-id" in self.headers:
            raise ConfigurationError("the client id was given twice: as client_id and as a header")
        if self.resend is not None and self.reconnect is None:
            raise ConfigurationError("resend_unconfirmed needs a reconnect policy: without one there is no next link")

    @property
    def client(self) -> str | None:
        """The client id, however it was given."""
        return self.client_id if self.client_id is not None else self.headers.get("client-id")

    def dialect_for(self, server: str | None) -> Dialect:
        """Return the dialect to speak with the broker that calls itself `server`."""
        return dialect_of(server) if self.dialect is None else dialect_named(self.dialect)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the passcode: whoever pickles what `connect` was told wants to connect elsewhere."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if isinstance(self.passcode, Secret):
            values["passcode"] = self.passcode.reveal()
        return _restored, (values,)

    def credentials(self, address: Address) -> Credentials:
        """Return login and passcode for one connect to `address`; functions are asked now.

        Raises:
            ConnectError: a function raised.
            ConfigurationError: a function returned something else than text.
        """
        if self.login is None and self.passcode is None:
            return Credentials(address.login, hidden(address.passcode))
        # A passcode never goes out with another login than the one it was given for.
        login = self.login if self.login is not None else address.login
        return credentials_now(login, self.passcode, address=str(address))

    def link_settings(self, address: Address, credentials: Credentials | None = None) -> LinkSettings:
        """Return what a link to `address` needs to know; the credentials are needed to open it alone."""
        who = credentials or Credentials()
        chosen = None if self.dialect is None else dialect_named(self.dialect)
        vhost = self.vhost if self.vhost is not None else address.vhost
        if vhost is None and chosen is not None:
            vhost = chosen.host
        leniency = self.leniency
        if leniency is None and chosen is not None:
            leniency = chosen.leniency
        return LinkSettings(
            versions=self.versions,
            heartbeat=HeartbeatOffer.from_seconds(*self.heartbeat),
            heartbeat_tolerance=self.heartbeat_tolerance,
            login=who.login,
            passcode=who.passcode,
            vhost=vhost,
            headers=self.headers if self.client_id is None else {**self.headers, "client-id": self.client_id},
            limits=self.limits,
            marks=self.inbox,
            max_receipts=self.max_receipts,
            max_subscriptions=self.max_subscriptions,
            max_transactions=self.max_transactions,
            max_eol_rate=self.max_eol_rate,
            leniency=leniency or Leniency.NONE,
            leniency_for=leniency_of if leniency is None else None,
            send_timeout=self.send_timeout,
            receipt_timeout=self.receipt_timeout,
        )


def _restored(values: dict[str, Any]) -> Config:
    return Config(**values)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pair_of_numbers(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(map(_is_number, value))


def addresses_of(url: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses in `url`, refusing options that nobody reads.

    Raises:
        ConfigurationError: malformed, or an unknown option.
    """
    addresses = parse_addresses(url)
    for address in addresses:
        for name, _ in address.options:
            raise ConfigurationError(f"unknown option {name!r} in the broker address {address}")
    return addresses


def versions_of(versions: str | Version | Iterable[str | Version]) -> tuple[Version, ...]:
    """Return versions named by `"1.2"`, a `Version`, or several of them, in increasing order.

    Raises:
        ConfigurationError: unknown, none at all, or the draft beside others.
    """
    named = (versions,) if isinstance(versions, (str, Version)) else versions
    parsed = tuple(sorted({parse_version(version) for version in named}))
    if not parsed or (Version.DRAFT in parsed and len(parsed) > 1):
        raise ConfigurationError("offer at least one version; the 1.0-draft only by itself")
    return parsed
