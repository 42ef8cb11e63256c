"""The settings of a real broker, and what a product has to say to be started with them."""

from __future__ import annotations

import types
import xml.etree.ElementTree as ElementTree
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from stompy.errors import ConfigurationError

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates


class BrokerUnavailable(RuntimeError):
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
    """What a test asks of a broker.

    Attributes:
        users: passcode by login; `None` lets everybody in, also without a login. A passcode is in no `repr`.
        persistent: keep messages on disk, so that they outlive `kill` and `restart`. RabbitMQ always does.
        tls: listen with TLS too, with a certificate of an authority made for the purpose; see `url(tls=True)`.
        client_certificates: the TLS connectors want a certificate of the client, of the same authority.
        ws: listen for WebSocket too, as `url("ws")`; RabbitMQ and Artemis always do, Artemis on the port of STOMP. The
            embedded broker then has no other address.
        memory_limit: bytes of messages in memory, beyond which a broker holds its senders back.
        advisories: whether ActiveMQ sends its advisory messages.
        dead_letter_nonpersistent: whether ActiveMQ keeps also refused messages that are not persistent.
        configuration: more of the broker's own: elements within `<broker>` of activemq.xml or `<core>` of broker.xml,
            lines of rabbitmq.conf. What is there already under that name is replaced.
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
        """Whether nobody may come in."""
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
        """Return what `of` takes."""
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
        """Return what follows the port in the URL of a connector."""
        return self.path

    def _refuse_others(self, settings: BrokerSettings, **accepted: object) -> None:
        """Refuse what differs from `accepted`, as this product has no such setting."""
        for name, value in accepted.items():
            if getattr(settings, name) != value:
                raise ConfigurationError(f"{self.title} has no setting {name!r}")


def with_elements(defaults: str, more: str) -> str:
    """Return the XML elements of `defaults`, those of `more` in the place of its namesakes, by name.

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
