"""A broker under test, wherever it runs: its settings, its addresses, its faults."""

from __future__ import annotations

import types
import xml.etree.ElementTree as ElementTree
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from stompy.arguments import check_options
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, NotConnectedError
from stompy.testing.brokers import handshake
from stompy.world import time

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates

_POLL = 0.05
_LOG_LINES = 60
_REFUSED = 30.0
"""Seconds in which a broker that refuses the login may still change its mind, as one that has yet to read its users."""

_Broker = TypeVar("_Broker", bound="RunningBroker")


class BrokerUnavailableError(RuntimeError):
    """No such broker can be started here.

    Attributes:
        kind: of the broker.
        reasons: why each way of starting one was not taken, in the order of trying.
    """

    def __init__(self, kind: str, reasons: tuple[str, ...]) -> None:
        self.kind = kind
        self.reasons = reasons
        super().__init__(f"no {kind} broker: " + "; ".join(reasons))


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """The settings of a test's broker.

    Attributes:
        users: passcode by login; `None` accepts every client, also without a login. A passcode is in no `repr`.
        persistent: keep messages on disk, so that they outlive `kill` and `restart`. RabbitMQ always does.
        tls: listen with TLS too, with a certificate of an authority made for the purpose; see `url(tls=True)`.
        client_certificates: the TLS connectors want a certificate of the client, of the same authority.
        ws: listen for WebSocket too, as `url("ws")`; RabbitMQ and Artemis always do, Artemis on the port of STOMP. The
            embedded broker then has no other address.
        memory_limit: bytes of messages in memory, beyond which a broker holds its senders back.
        advisories: whether ActiveMQ sends its advisory messages.
        dead_letter_nonpersistent: whether ActiveMQ keeps also refused messages that are not persistent.
        configuration: more of the broker's own: elements within `<broker>` of activemq.xml or `<core>` of broker.xml,
            lines of rabbitmq.conf. An entry of the same name is replaced.
        environment: variables for the broker's process.
    """

    users: Mapping[str, str] | None = field(default=None, repr=False)
    persistent: bool = False
    tls: bool = False
    client_certificates: bool = False
    ws: bool = False
    memory_limit: int | None = None
    advisories: bool = True
    dead_letter_nonpersistent: bool = False
    configuration: str = field(default="", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in self.names()}
        check_options(BrokerSettings, values, hidden=("users",))
        if self.client_certificates and not self.tls:
            raise ConfigurationError("client_certificates needs tls=True")
        if self.memory_limit is not None and self.memory_limit <= 0:
            raise ConfigurationError(f"memory_limit is a number of bytes above 0, not {self.memory_limit}")
        for login, passcode in (self.users or {}).items():
            if not login or "\0" in login + passcode:
                raise ConfigurationError("a login is not empty, and neither it nor its passcode holds a NUL")
        if self.users is not None:
            object.__setattr__(self, "users", types.MappingProxyType(dict(self.users)))

    @property
    def login(self) -> str | None:
        """The first of the users."""
        return next(iter(self.users or {}), None)

    @property
    def passcode(self) -> str | None:
        """The passcode of the first of the users."""
        return None if self.users is None or self.login is None else self.users[self.login]

    @property
    def closed(self) -> bool:
        """Whether no client may log in."""
        return self.users is not None and not self.users

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> BrokerSettings:
        """Make the settings from keyword arguments.

        Raises:
            ConfigurationError: an option is not known, or is invalid.
        """
        if unknown := sorted(options.keys() - cls.names()):
            known = ", ".join(sorted(cls.names()))
            raise ConfigurationError(f"no such option of a broker: {', '.join(unknown)} (there are {known})")
        return cls(**options)

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the settings."""
        return frozenset(one.name for one in fields(cls))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a broker runs.

    Attributes:
        host: the address it listens on.
        ports: port by connector.
        data: the folder of its messages.
        stores: the folder of its certificates.
    """

    host: str
    ports: Mapping[str, int]
    data: str
    stores: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one container is started.

    Attributes:
        ports: port by connector, inside the container.
        files: contents by absolute path.
        environment: variables.
        hostname: of the container.
    """

    ports: Mapping[str, int]
    files: Mapping[str, bytes] = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    hostname: str | None = None


class Product(ABC):
    """One kind of broker.

    Attributes:
        kind: by which it is asked for.
        title: for people.
        official_images: of the project itself, the first that is there or can be pulled is taken.
        local_image: as `tools/broker_images.py` builds it.
        unescapes_connect: whether it unescapes the values of CONNECT, other than STOMP says.
        vhost: the `host` header that it wants.
        path: of its URLs.
        start_timeout: seconds until it must have answered a CONNECT.
    """

    kind: str
    title: str
    official_images: tuple[str, ...]
    local_image: str
    unescapes_connect = True
    vhost = "localhost"
    path = ""
    start_timeout = 90.0

    @abstractmethod
    def in_container(self, settings: BrokerSettings, certificates: Certificates | None) -> Recipe:
        """Return how to start it from an image.

        Raises:
            ConfigurationError: it has no such setting.
        """

    def connectors(self, settings: BrokerSettings) -> tuple[str, ...]:
        """Return the names of the connectors that it has then."""
        return tuple(self.in_container(settings, None).ports)

    def url_path(self, connector: str) -> str:
        """Return the path of a connector's URL."""
        return self.path

    def _refuse_others(self, settings: BrokerSettings, **accepted: object) -> None:
        """Refuse the settings that differ from `accepted`, as this product lacks them."""
        for name, value in accepted.items():
            if getattr(settings, name) != value:
                raise ConfigurationError(f"{self.title} has no setting {name!r}")


def with_elements(defaults: str, more: str) -> str:
    """Return the XML elements of `defaults` by name; an element of `more` replaces its namesakes.

    ActiveMQ's schema wants them in the order of the alphabet.

    Raises:
        ConfigurationError: `more` is not XML.
    """
    try:
        added = list(ElementTree.fromstring(f"<more>{more}</more>"))
    except ElementTree.ParseError as error:
        raise ConfigurationError(f"the configuration is not a row of XML elements: {error}") from error
    names = {element.tag for element in added}
    kept = [element for element in ElementTree.fromstring(f"<all>{defaults}</all>") if element.tag not in names]
    elements = sorted((*kept, *added), key=lambda element: element.tag)
    return "\n".join(ElementTree.tostring(element, encoding="unicode").strip() for element in elements)


class RunningBroker(ABC):
    """A broker for a test; it runs inside its `with` block, or from `start` to `stop`.

    Not for two threads at once.

    Attributes:
        kind: such as `activemq`; see `start_broker`.
        settings: the settings that it runs with.
        flavour: where it comes from: `official`, `local` (an image), `process` or `embedded`.
        server: the `server` header of its CONNECTED, such as `ActiveMQ/6.3.1`.
    """

    kind: str
    settings: BrokerSettings
    flavour: str
    server: str = ""

    @property
    def version(self) -> str:
        """Its version, from `server`, such as `6.3.1`."""
        return self.server.partition("/")[2].split(" ")[0]

    @property
    def login(self) -> str | None:
        """The login of its first user; `None` where none is needed."""
        return self.settings.login

    @property
    def passcode(self) -> str | None:
        """The passcode of its first user; `None` where none is needed."""
        return self.settings.passcode

    @property
    @abstractmethod
    def connectors(self) -> tuple[str, ...]:
        """The connectors that `url` takes: `stomp`, and depending on the broker `stomp+nio`, `stomp+ssl`, `ws`, ..."""

    @abstractmethod
    def url(self, connector: str = "stomp", *, tls: bool = False, login: str | None = None) -> str:
        """Return an address for clients; the same after `restart`.

        Args:
            connector: one of `connectors`.
            tls: take the TLS sibling of `connector`; trust `ca_file` then.
            login: one of the users, whose login and passcode stand in the address; `None` takes the first one, if
                there are any, and `""` leaves them out. A passcode with a backslash needs `dialect="rabbitmq"` there.

        Raises:
            ConfigurationError: it has no such connector or user.
            NotConnectedError: it was not started yet.
        """

    @property
    @abstractmethod
    def certificates(self) -> Certificates | None:
        """The authority and the certificates, where there is TLS; with `ca_file`, `client_cert` and `client_key`."""

    @property
    def ca_file(self) -> str:
        """The path of the authority's certificate (PEM), for `connect(..., ca=...)` and the like.

        Raises:
            ConfigurationError: it was not asked for TLS.
        """
        if self.certificates is None:
            raise ConfigurationError(f"this {self.kind} has no TLS; ask for it with tls=True")
        return self.certificates.ca_file

    @abstractmethod
    def start(self) -> None:
        """Start it, again too, on the same ports; return once it has answered a CONNECT.

        Nothing happens if it runs.

        Raises:
            BrokerUnavailableError: it did not start; nothing of it is left.
        """

    @abstractmethod
    def stop(self) -> None:
        """End it for good and remove its files; may be called again."""

    @abstractmethod
    def shut_down(self) -> None:
        """Let it end in good order; `start` brings it back with its data on disk."""

    @abstractmethod
    def kill(self) -> None:
        """End it as a crash would; `start` or `restart` brings it back with its data on disk."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered, until `unpause`."""

    @abstractmethod
    def unpause(self) -> None:
        """Let it go on after `pause`."""

    @abstractmethod
    def log(self) -> str:
        """Return its output so far; empty where it has none."""

    def restart(self) -> None:
        """Shut it down in good order, unless it is down already, and start it again on the same ports.

        Raises:
            BrokerUnavailableError: it did not come back.
        """
        self.shut_down()
        self.start()

    def __enter__(self: _Broker) -> _Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind} {self.flavour} {self.server or 'not started'}>"


class NetworkBroker(RunningBroker):
    """A broker of another process, in a container or not."""

    def __init__(self, product: Product, settings: BrokerSettings) -> None:
        self.product = product
        self.kind = product.kind
        self.settings = settings
        self.host = "127.0.0.1"
        self.ports: dict[str, int] = {}
        self._certificates: Certificates | None = None

    @property
    def connectors(self) -> tuple[str, ...]:
        """See `RunningBroker`."""
        return self.product.connectors(self.settings)

    @property
    def certificates(self) -> Certificates | None:
        """See `RunningBroker`."""
        return self._certificates

    def url(self, connector: str = "stomp", *, tls: bool = False, login: str | None = None) -> str:
        """See `RunningBroker`."""
        name = tls_sibling(connector) if tls else connector
        if name not in self.connectors:
            raise ConfigurationError(
                f"this {self.kind} has no connector {name!r} (it has {', '.join(self.connectors)})"
            )
        if name not in self.ports:
            raise NotConnectedError(f"the {self.kind} broker was not started yet")
        scheme = {"stomp+nio": "stomp", "stomp+nio+ssl": "stomp+ssl"}.get(name, name)
        return (
            f"{scheme}://{user_info(self.settings, login)}{self.host}:{self.ports[name]}{self.product.url_path(name)}"
        )

    def _await_ready(self, hosts: tuple[str, ...]) -> None:
        """Wait until a CONNECT is answered at one of `hosts`, best first, and remember which and by whom.

        Raises:
            BrokerUnavailableError: not in time, or the broker died.
        """
        deadline = Deadline(self.product.start_timeout)
        refusal = ""
        while not deadline.expired:
            self._check_alive()
            self.ports = self._find_ports()
            # When it comes up between two of them, the better one would have answered as well, only later.
            for host in (*hosts, *hosts[:-1]) if self.ports.keys() >= set(self.connectors) else ():
                answer = self._ask(host)
                if answer is None:
                    continue
                # With no user at all, a refusal is the only answer there is, and shows as well that the broker is up.
                if answer.command == "CONNECTED" or self.settings.closed:
                    if all(self._listens(host, name) for name in self.connectors if name != "stomp"):
                        self.host, self.server = host, answer.server or self.server
                        if host == hosts[0] or self._ask(hosts[0]) is None:
                            return
                elif not refusal:
                    deadline = deadline.sooner(_REFUSED)
                    refusal = f"; it refused the CONNECT: {answer.headers.get('message', '')}"
            time.sleep(_POLL)
        raise self._unavailable(f"it was not ready in time{refusal}")

    def _ask(self, host: str) -> handshake.Answer | None:
        """Return the answer to every user: RabbitMQ listens before it has read its users."""
        answer = None
        users: list[tuple[str | None, str | None]] = [*(self.settings.users or {}).items()]
        for login, passcode in users or [(None, None)]:
            answer = handshake.ask(
                host,
                self.ports["stomp"],
                vhost=self.product.vhost,
                login=login,
                passcode=passcode,
                escape=self.product.unescapes_connect,
            )
            if answer is None or answer.command != "CONNECTED":
                break
        return answer

    def _listens(self, host: str, connector: str) -> bool:
        """Whether a connector answers: connectors come up one after the other."""
        tls = None
        if self._certificates is not None and (connector.endswith("ssl") or connector == "wss"):
            tls = self._certificates.client_context()
        if connector in ("ws", "wss"):
            return handshake.answers_http(host, self.ports[connector], tls=tls)
        return handshake.ask(host, self.ports[connector], vhost=self.product.vhost, tls=tls) is not None

    def _unavailable(self, reason: str) -> BrokerUnavailableError:
        lines = [line for line in self.log().splitlines() if not line.startswith("\tat ")][-_LOG_LINES:]
        end = "; its log ends:\n    " + "\n    ".join(lines) if lines else ""
        return BrokerUnavailableError(self.kind, (f"{self.flavour}: {reason}{end}",))

    @abstractmethod
    def _check_alive(self) -> None:
        """Raise BrokerUnavailableError if it has ended by itself."""

    @abstractmethod
    def _find_ports(self) -> dict[str, int]:
        """Return the ports by which it is reached now, without ports that are not known yet."""


def user_info(settings: BrokerSettings, login: str | None) -> str:
    """Return `login:passcode@` for an address, of the first user for `None`; nothing for `""` or without users.

    Raises:
        ConfigurationError: there is no such user.
    """
    login = settings.login if login is None else login
    if not login:
        return ""
    if settings.users is None or login not in settings.users:
        raise ConfigurationError(f"this broker has no user {login!r}")
    return f"{quote(login, safe='')}:{quote(settings.users[login], safe='')}@"


def tls_sibling(connector: str) -> str:
    """Return the connector that is the same with TLS."""
    if connector == "ws":
        return "wss"
    return connector if connector.endswith("ssl") or connector == "wss" else f"{connector}+ssl"
