"""The settings of a connection as one frozen, picklable value, and ActiveMQ's `failover:` addresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from stompy.backoff import Backoff
from stompy.connection.reconnect import Order, Reconnect, ResendLimits
from stompy.default import DEFAULT, given
from stompy.dialects.brokers import dialect_named, dialect_of, with_limits
from stompy.dialects.dialect import Dialect
from stompy.errors import ConfigurationError, ConnectError
from stompy.frames.grammar import Version, parse_version
from stompy.link.settings import Credentials, LinkSettings
from stompy.secret import Secret, as_secret, check_text, without_traceback
from stompy.threads import must_propagate
from stompy.transport.address import Address, parse_addresses
from stompy.transport.tcp import DEFAULT_OPTIONS, TcpOptions
from stompy.values import fields_of, replace

if TYPE_CHECKING:
    import ssl

    from stompy.transport.proxy import Proxy
    from stompy.transport.tls.options import Tls
    from stompy.transport.websocket.handshake import WebSocketOptions

Login = str | Callable[[], str | tuple[str | None, str | Secret[str] | None]]
"""The login, or a function called for each connect, which may also return a pair of login and passcode."""
Passcode = str | Secret[str] | Callable[[], str | Secret[str]]
"""The passcode, or a function called for each connect."""

_OWN_HEADERS = {
    "login": "login",
    "passcode": "passcode",
    "host": "vhost",
    "accept-version": "versions",
    "heart-beat": "heartbeat",
}
"""Headers of CONNECT that are set by arguments, and which."""


class Config(LinkSettings):
    """The arguments of `connect`, parsed; `vhost` overrides that of all addresses.

    Attributes:
        addresses: of the brokers.
        order: in which the addresses are tried.
        login: overrides the address's login; a function is called for each connect.
        passcode: overrides the address's passcode; a function is called for each connect.
        client_id: the `client-id` header of CONNECT, for durable subscriptions.
        content_length: default of `send`.
        reconnect: policy for replacing a lost link, or `None`.
        dialect: name of the broker's dialect; `None` chooses it by CONNECTED.
        name: part of thread names and receipt ids.
        tls: for addresses with TLS; `None` trusts the system's certificate authorities. A config with an
            `ssl.SSLContext` cannot be pickled.
        tcp: options of TCP connections.
        proxy: for all addresses but Unix sockets.
        websocket: for `ws://` and `wss://` addresses, or `None` for the defaults.
    """

    addresses: tuple[Address, ...]
    order: Order = "given"
    login: Login | None = None
    passcode: Passcode | None = None
    client_id: str | None = None
    content_length: bool = True
    reconnect: Reconnect | None = None
    dialect: str | None = None
    name: str = "connection"
    tls: Tls | ssl.SSLContext | None = None
    tcp: TcpOptions = DEFAULT_OPTIONS
    proxy: Proxy | None = None
    websocket: WebSocketOptions | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tls is not None and not any(address.secure for address in self.addresses):
            # Else a caller that gives certificates would believe that the connection is encrypted.
            raise ConfigurationError("tls was given, but no address uses TLS: write stomp+ssl:// or wss://")
        object.__setattr__(self, "passcode", as_secret(self.passcode))
        if self.dialect is not None:
            dialect_named(self.dialect)
        for name in self.headers:
            if option := _OWN_HEADERS.get(name.lower()):
                raise ConfigurationError(f"header {name!r} is set by {option}=, not by headers=")
        if self.client_id is not None and "client-id" in self.headers:
            raise ConfigurationError("the client id was given twice: as client_id and as a header")

    @property
    def start_timeout(self) -> float | None:
        """Seconds for the first session; 0 makes one attempt, `None` has no limit."""
        return given(self.timeouts.start, 0.0)

    @property
    def close_timeout(self) -> float:
        """Default of `close`, in seconds."""
        return given(self.timeouts.close, 10.0)

    @property
    def resend(self) -> ResendLimits | None:
        """Limits of the resend buffer, or `None`."""
        wanted = self.reconnect is not None and self.reconnect.resend_unconfirmed
        return wanted if isinstance(wanted, ResendLimits) else ResendLimits() if wanted else None

    @property
    def client(self) -> str | None:
        """The client id, from `client_id` or from `headers`."""
        return self.client_id if self.client_id is not None else self.headers.get("client-id")

    def dialect_for(self, server: str | None) -> Dialect:
        """Return the configured dialect, or else that of the broker whose CONNECTED has the header `server`."""
        return dialect_of(server) if self.dialect is None else with_limits(dialect_named(self.dialect), server)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the passcode, as another process needs it to connect."""
        values = fields_of(self)
        if isinstance(self.passcode, Secret):
            values["passcode"] = self.passcode.reveal()
        return partial(Config, **values), ()

    def credentials(self, address: Address) -> Credentials:
        """Return login and passcode for one connect to `address`; raises as `credentials_now` does."""
        if self.login is None and self.passcode is None:
            return Credentials(address.login, as_secret(address.passcode))
        # A passcode never goes out with another login than the one it was given for.
        login = self.login if self.login is not None else address.login
        return credentials_now(login, self.passcode, address=str(address))

    def for_address(self, address: Address) -> LinkSettings:
        """Return the settings of a link to `address`."""
        dialect = None if self.dialect is None else dialect_named(self.dialect)
        vhost = self.vhost if self.vhost is not None else address.vhost
        if vhost is None and dialect is not None:
            vhost = dialect.host
        limits = self.limits
        if limits.leniency is DEFAULT and dialect is not None:
            limits = replace(limits, leniency=dialect.leniency)
        headers = self.headers if self.client_id is None else {**self.headers, "client-id": self.client_id}
        return replace(self, vhost=vhost, limits=limits, headers=headers, client_id=None)


def addresses_of(url: str | Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses in `url`, which may be a failover address.

    Raises:
        ConfigurationError: an address is malformed or has an option, as none are known.
    """
    addresses = parse_addresses(parse_failover(url).urls if is_failover(url) else url)
    for address in addresses:
        for name, _ in address.options:
            raise ConfigurationError(f"unknown option {name!r} in the broker address {address}")
    return addresses


def versions_of(versions: str | Version | Iterable[str | Version]) -> tuple[Version, ...]:
    """Return one or more versions, such as `"1.2"`, as `Version`s in ascending order.

    Raises:
        ConfigurationError: an unknown version, no version, or the draft together with others.
    """
    named = (versions,) if isinstance(versions, (str, Version)) else versions
    parsed = tuple(sorted({parse_version(version) for version in named}))
    if not parsed or (Version.DRAFT in parsed and len(parsed) > 1):
        raise ConfigurationError("offer at least one version; the 1.0-draft cannot be combined with others")
    return parsed


def check_credentials(login: Secret[Login | None], passcode: object) -> Login | None:
    """Return the login, after checking that both are text or a function.

    Args:
        login: a `Secret`, as it may be a pair that includes the passcode by mistake.
        passcode: a `Secret`.

    Raises:
        ConfigurationError: one is neither; the error does not show it.
    """
    check_text("passcode", passcode)
    if login.reveal() is not None and not callable(login.reveal()):
        check_text("login", login)
    return login.reveal()


def credentials_now(login: Login | None, passcode: Passcode | None, *, address: str) -> Credentials:
    """Return the credentials for one connect, calling functions in the thread that connects.

    Raises:
        ConnectError: a function raised; safe to retry. Only the type of its error is shown.
        ConfigurationError: a function returned something other than text.
    """
    passcode = as_secret(passcode)
    return without_traceback(lambda: _current_credentials(login, passcode, address))


def _current_credentials(login: Login | None, passcode: Passcode | None, address: str) -> Credentials:
    name = _resolve(login, "login", address)
    if isinstance(name, tuple) and len(name) == 2:
        if passcode is not None:
            raise ConfigurationError("the login function gave a passcode, and passcode= is set too")
        name, code = name
    else:
        code = _resolve(passcode, "passcode", address)
    code = as_secret(code)
    if not isinstance(name, (str, NoneType)) or not isinstance(code, (Secret, NoneType)):
        kinds = f"{type(name).__name__} and {type(code).__name__}"
        raise ConfigurationError(f"login and passcode must be text (str), not {kinds}")
    check_text("passcode", code)
    return Credentials(name, code)


def _resolve(given: Any, what: str, address: str) -> Any:
    if not callable(given):
        return given
    try:
        return given()
    except BaseException as error:
        if must_propagate(error):
            raise
        kind = type(error).__name__
    # Without the error itself as cause or context: its message and traceback may show a token.
    raise ConnectError(f"the {what} function raised {kind}", address=address)


_FORM = r"failover:(?://)?\((?P<inner>[^()]*)\)(?:\?(?P<options>.*))?"
_NUMBER = "-?[0-9]{1,9}"

_FAILOVER_OPTIONS = {
    "randomize": "true",
    "priorityBackup": "false",
    "initialReconnectDelay": "10",
    "maxReconnectDelay": "30000",
    "maxReconnectAttempts": "-1",
}
"""The options of a failover address, and their defaults, which are those of ActiveMQ."""


class Failover(NamedTuple):
    """A parsed failover address.

    Attributes:
        urls: the brokers, comma-separated. Not in `repr`, as it may contain passcodes.
        order: of the brokers in one pass.
        policy: for replacing a lost link, or `None`.
    """

    urls: str
    order: Order
    policy: Reconnect | None

    def __repr__(self) -> str:
        return f"<Failover order={self.order} policy={self.policy}>"


def is_failover(url: object) -> TypeGuard[str]:
    """Whether `url` is a failover address."""
    return isinstance(url, str) and url.startswith("failover:")


def parse_failover(url: str) -> Failover:
    """Parse a failover address.

    Known options: `randomize`, `priorityBackup` (the first broker is tried first in each pass; unlike ActiveMQ's
    client, stompy never abandons a working connection to fail back), `initialReconnectDelay` and `maxReconnectDelay`
    (milliseconds), `maxReconnectAttempts` (-1 for no limit, 0 for none).

    Raises:
        ConfigurationError: the address is malformed or has an unknown option; the error does not show the address, as
            it may contain a passcode.
    """
    from urllib.parse import parse_qsl  # late, as `urllib` is slow to import

    match = re.fullmatch(_FORM, url)
    if match is None:
        raise ConfigurationError(
            "a failover address has the form failover:(stomp://a:61613,stomp://b:61613)?option=value"
        )
    options = dict(parse_qsl(match["options"] or "", keep_blank_values=True))
    for name in options.keys() - _FAILOVER_OPTIONS:
        known = ", ".join(sorted(_FAILOVER_OPTIONS))
        raise ConfigurationError(f"unknown failover option {name!r}: stompy supports {known}")
    options = {**_FAILOVER_OPTIONS, **options}
    randomize, priority = _flag(options, "randomize"), _flag(options, "priorityBackup")
    backoff = Backoff(
        first=_number(options, "initialReconnectDelay", least=1) / 1000,
        longest=_number(options, "maxReconnectDelay", least=1) / 1000,
    )
    attempts = _number(options, "maxReconnectAttempts", least=-1)
    policy = Reconnect(attempts=None if attempts < 0 else attempts, backoff=backoff) if attempts else None
    return Failover(match["inner"], "given" if not randomize else "priority" if priority else "random", policy)


def _flag(options: Mapping[str, str], name: str) -> bool:
    if options[name] not in ("true", "false"):
        raise ConfigurationError(f"failover option {name} must be true or false, not {options[name]!r}")
    return options[name] == "true"


def _number(options: Mapping[str, str], name: str, *, least: int) -> int:
    value = options[name]
    if not re.fullmatch(_NUMBER, value) or int(value) < least:
        raise ConfigurationError(f"failover option {name} must be a whole number of {least} or more, not {value!r}")
    return int(value)
