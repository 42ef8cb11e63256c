"""The settings of a connection as one frozen, picklable value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

from stompy.connection.reconnect import Reconnect, ResendLimits
from stompy.deadline import check_seconds
from stompy.dialects.brokers import dialect_named, dialect_of
from stompy.dialects.dialect import Dialect
from stompy.errors import ConfigurationError, ConnectError
from stompy.frames.grammar import Version, parse_version
from stompy.link.settings import Credentials, LinkSettings
from stompy.secret import Secret, as_secret, check_text, strip_tracebacks
from stompy.threads import is_for_caller
from stompy.transport.address import TLS, Address, parse_addresses
from stompy.transport.proxy import Proxy
from stompy.transport.tcp import TcpOptions
from stompy.transport.tls.options import Tls

if TYPE_CHECKING:
    import ssl

Order = Literal["given", "random", "priority"]
"""The order of addresses in one pass: as given, by chance, or the first one first and the others by chance."""

Login = str | Callable[[], str | tuple[str | None, str | Secret[str] | None]]
"""The login, or a function that is asked at each connect; it may return a pair of login and passcode."""
Passcode = str | Secret[str] | Callable[[], str | Secret[str]]
"""The passcode, or a function that is asked at each connect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(LinkSettings):
    """All arguments of `connect`; durations in seconds. `vhost` is that of all addresses.

    Attributes:
        addresses: of the brokers.
        order: in which the addresses are tried.
        login: overrides the address's; a function is asked at each connect.
        passcode: overrides the address's; a function is asked at each connect. Kept as a `Secret`, never shown.
        client_id: names this client to the broker, and its durable subscriptions.
        connect_timeout: for one address: dial, handshake, CONNECTED.
        startup_timeout: for the first session, with as many attempts as fit in; `None` makes one.
        close_timeout: the default of `disconnect`.
        content_length: write `content-length` on SEND; without it ActiveMQ makes a text message.
        reconnect: how to replace a lost link; `None` does not.
        resend: bounds of what is sent again where a link died first; `None` sends nothing again.
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
    client_id: str | None = None
    connect_timeout: float = 10.0
    startup_timeout: float | None = None
    close_timeout: float = 10.0
    content_length: bool = True
    reconnect: Reconnect | None = None
    resend: ResendLimits | None = None
    dialect: str | None = None
    name: str = "connection"
    tls: Tls | ssl.SSLContext | None = None
    tcp: TcpOptions = field(default_factory=TcpOptions)
    proxy: Proxy | None = None

    def __post_init__(self) -> None:
        LinkSettings.__post_init__(self)  # `super()` does not know a class that `slots=True` has made anew
        if self.tls is not None and not any(address.scheme == TLS for address in self.addresses):
            # Whoever gives certificates must not be left to believe that the line is protected.
            raise ConfigurationError("tls was given, but no address has it: write stomp+ssl:// instead of stomp://")
        object.__setattr__(self, "passcode", as_secret(self.passcode))
        for name in ("connect_timeout", "close_timeout"):
            check_seconds(getattr(self, name), name, positive=True, finite=True, optional=False)
        check_seconds(self.startup_timeout, "startup_timeout", positive=True, finite=True)
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
            return Credentials(address.login, as_secret(address.passcode))
        # A passcode never goes out with another login than the one it was given for.
        login = self.login if self.login is not None else address.login
        return credentials_now(login, self.passcode, address=str(address))

    def for_address(self, address: Address) -> LinkSettings:
        """Return the settings of a link to `address`."""
        chosen = None if self.dialect is None else dialect_named(self.dialect)
        vhost = self.vhost if self.vhost is not None else address.vhost
        if vhost is None and chosen is not None:
            vhost = chosen.host
        leniency = self.leniency
        if leniency is None and chosen is not None:
            leniency = chosen.leniency
        headers = self.headers if self.client_id is None else {**self.headers, "client-id": self.client_id}
        return replace(self, vhost=vhost, leniency=leniency, headers=headers, client_id=None)


def _restored(values: dict[str, Any]) -> Config:
    return Config(**values)


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


def check_credentials(login: Secret[Login | None], passcode: object) -> Login | None:
    """Return the login; both must be text or a function.

    Args:
        login: hidden, as it may be a pair by mistake, which holds the passcode.
        passcode: hidden.

    Raises:
        ConfigurationError: one is something else; the error does not show it.
    """
    check_text("passcode", passcode)
    if login.reveal() is not None and not callable(login.reveal()):
        check_text("login", login)
    return login.reveal()


def credentials_now(login: Login | None, passcode: Passcode | None, *, address: str) -> Credentials:
    """Return what to say to the broker now; functions are called, in the thread that connects.

    Raises:
        ConnectError: a function raised; it may do better the next time. Only the type of its own error is shown.
        ConfigurationError: it returned something else than text.
    """
    passcode = as_secret(passcode)
    try:
        return _said(login, passcode, address)
    except ConfigurationError as error:
        wrong = error
    raise strip_tracebacks(wrong)


def _said(login: Login | None, passcode: Passcode | None, address: str) -> Credentials:
    name = _asked(login, "login", address)
    if isinstance(name, tuple) and len(name) == 2:
        if passcode is not None:
            raise ConfigurationError("the login function gave a passcode, and passcode= is set too")
        name, code = name
    else:
        code = _asked(passcode, "passcode", address)
    code = as_secret(code)
    if not isinstance(name, (str, NoneType)) or not isinstance(code, (Secret, NoneType)):
        kinds = f"{type(name).__name__} and {type(code).__name__}"
        raise ConfigurationError(f"login and passcode must be text (str), not {kinds}")
    check_text("passcode", code)
    return Credentials(name, code)


def _asked(given: Any, what: str, address: str) -> Any:
    if not callable(given):
        return given
    try:
        return given()
    except BaseException as error:
        if is_for_caller(error):
            raise
        kind = type(error).__name__
    # Neither its words nor its frames, which would be its cause or context: whoever fetches a token may have it there.
    raise ConnectError(f"the {what} function raised {kind}", address=address)
