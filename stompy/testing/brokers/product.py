"""What is to be known of a broker before one can be started, whichever it is."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError

if TYPE_CHECKING:
    from stompy.testing.brokers.certificates import Certificates
    from stompy.testing.brokers.settings import BrokerSettings


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
