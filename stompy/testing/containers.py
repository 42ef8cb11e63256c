"""Real brokers for tests: `start_broker` starts any kind from any available source, and each kind has a class.

A kind is tried in this order: the project's own image, if it is there or can be pulled; the image that
`tools/broker_images.py` builds. `STOMPY_BROKERS_FROM` (`official`, `local`, several with commas, or `none`) leaves out
the others, and `STOMPY_ACTIVEMQ_IMAGE` and its like name an image instead.

Every broker is given its whole configuration, for any image: newer official images of ActiveMQ come with
STOMP switched off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from stompy.errors import ConfigurationError
from stompy.testing.brokers import images
from stompy.testing.brokers.activemq import ActiveMQ
from stompy.testing.brokers.artemis import Artemis
from stompy.testing.brokers.container import ContainerBroker
from stompy.testing.brokers.embedded import EmbeddedBroker
from stompy.testing.brokers.rabbitmq import RabbitMQ
from stompy.testing.brokers.running import BrokerSettings, BrokerUnavailableError, NetworkBroker, Product, RunningBroker
from stompy.world import os

if TYPE_CHECKING:
    from typing_extensions import Unpack

_LOG = logging.getLogger("stompy.testing")

FROM_VARIABLE = "STOMPY_BROKERS_FROM"
IMAGES = ("official", "local")
OTHER_SOURCES: dict[str, Callable[[Product, BrokerSettings], NetworkBroker]] = {}
"""Tried after the images, by the name in `STOMPY_BROKERS_FROM`; each makes a broker or raises an error."""

PRODUCTS: dict[str, Product] = {
    product.kind: product
    for product in (
        ActiveMQ(
            "activemq",
            official_images=("apache/activemq:6.3.1", "apache/activemq-classic:6.1.7"),
            local_image="stompy-test/activemq:6",
        ),
        ActiveMQ(
            "activemq5",
            official_images=("apache/activemq-classic:5.18.3",),
            local_image="stompy-test/activemq:5",
        ),
        Artemis(
            "artemis",
            official_images=("apache/artemis:2.57.0", "apache/activemq-artemis:2.44.0"),
            local_image="stompy-test/artemis:2",
        ),
        RabbitMQ(
            "rabbitmq3",
            official_images=("rabbitmq:3.10", "rabbitmq:3"),
            local_image="stompy-test/rabbitmq:3",
        ),
        RabbitMQ(
            "rabbitmq4",
            official_images=("rabbitmq:4",),
            local_image="stompy-test/rabbitmq:4",
        ),
    )
}

LIKE = "like-"

KINDS = ("embedded", "like-activemq", "like-activemq5", "like-artemis", "like-rabbitmq", *PRODUCTS)
"""What `start_broker` takes: `like-activemq` is the embedded broker that behaves as ActiveMQ does."""


def start_broker(kind: str, **options: Any) -> RunningBroker:
    """Start a broker and return it; the caller ends it with `stop`, or uses it as a `with` block.

    Args:
        kind: one of `KINDS`: `embedded`, `activemq` (6.x), `activemq5`, `artemis`, `rabbitmq3` or `rabbitmq4`; with
            `like-` before the name of a broker, the embedded broker with that broker's profile.
        options: fields of `BrokerSettings`; for `embedded` also arguments of `stompy.broker.Broker`.

    Raises:
        BrokerUnavailableError: none can be had here; the error lists why each source was not taken.
        ConfigurationError: no such kind or option, or the broker lacks a feature that an option needs.
    """
    if kind.startswith(LIKE) and "like" not in options:
        return start_broker("embedded", like=kind.removeprefix(LIKE), **options)
    if kind == "embedded":
        known = {name: options.pop(name) for name in BrokerSettings.names() & options.keys()}
        embedded = EmbeddedBroker(BrokerSettings.of(known), **options)
        embedded.start()
        return embedded
    if kind not in PRODUCTS:
        raise ConfigurationError(f"no such kind of broker: {kind!r} (there are {', '.join(KINDS)})")
    return _start_first(PRODUCTS[kind], BrokerSettings.of(options))


def _start_first(product: Product, settings: BrokerSettings) -> NetworkBroker:
    product.in_container(settings, None)  # a wrong setting is reported before anything is tried
    reasons: list[str] = []
    for broker in candidates(product, settings, reasons):
        try:
            broker.start()
        except BrokerUnavailableError as error:
            _LOG.warning("%s", error)
            reasons.extend(error.reasons)
        else:
            return broker
    raise BrokerUnavailableError(product.kind, tuple(reasons))


def candidates(product: Product, settings: BrokerSettings, reasons: list[str]) -> Iterator[NetworkBroker]:
    """Yield the brokers that can be started, best first; add the reasons against the others to `reasons`."""
    sources = chosen_sources()
    if not sources:
        reasons.append(f"{FROM_VARIABLE} is none")
    elif named := os.environ.get(f"STOMPY_{product.kind.upper()}_IMAGE"):
        sources = (named,)
    for source in sources:
        if make := OTHER_SOURCES.get(source):
            try:
                other = make(product, settings)
            except BrokerUnavailableError as error:
                reasons.extend(error.reasons)
            else:
                yield other
            continue
        if reason := images.docker_missing():
            reasons.append(f"{source}: {reason}")
            continue
        try:
            image = _image(product, source)
        except images.NoImage as error:
            reasons.append(f"{source}: {error}")
        else:
            yield ContainerBroker(product, settings, image=image, flavour=source)


def _image(product: Product, source: str) -> str:
    if source == "official":
        return images.official_image(product)
    return images.local_image(product) if source == "local" else images.named_image(source)


def chosen_sources() -> tuple[str, ...]:
    """Return the sources of brokers, best first: all, or the sources in `STOMPY_BROKERS_FROM`."""
    known = (*IMAGES, *OTHER_SOURCES)
    wanted = os.environ.get(FROM_VARIABLE) or ",".join(known)
    if wanted == "none":
        return ()
    chosen = tuple(source.strip() for source in wanted.split(","))
    if unknown := set(chosen) - set(known):
        raise ConfigurationError(
            f"{FROM_VARIABLE} holds {', '.join(sorted(unknown))}; it takes {', '.join(known)}, or none"
        )
    return chosen


class BrokerOptions(TypedDict, total=False):
    """The fields of `BrokerSettings`."""

    users: Mapping[str, str] | None
    persistent: bool
    tls: bool
    client_certificates: bool
    ws: bool
    memory_limit: int | None
    advisories: bool
    dead_letter_nonpersistent: bool
    configuration: str
    environment: Mapping[str, str]


class _OfKind(ContainerBroker):
    """A container of one kind, from the given image or the best available one."""

    _kind = ""

    def __init__(self, image: str | None = None, **options: Unpack[BrokerOptions]) -> None:
        product = PRODUCTS[self._kind]
        settings = BrokerSettings.of(options)
        product.in_container(settings, None)  # a wrong setting is reported here
        super().__init__(product, settings, image=image or "", flavour=image or "")

    def start(self) -> None:
        """Start it, also after `stop`; see `RunningBroker`.

        Raises:
            BrokerUnavailableError: docker cannot be used, no image can be had, or the broker did not start.
        """
        if not self.image:
            self.image, self.flavour = self._choose()
        elif reason := images.docker_missing():
            raise BrokerUnavailableError(self.kind, (reason,))
        super().start()

    def _choose(self) -> tuple[str, str]:
        if reason := images.docker_missing():
            raise BrokerUnavailableError(self.kind, (reason,))
        reasons: list[str] = []
        for broker in candidates(self.product, self.settings, reasons):
            if isinstance(broker, ContainerBroker):
                return broker.image, broker.flavour
        raise BrokerUnavailableError(self.kind, tuple(reasons))


class ActiveMQContainer(_OfKind):
    """ActiveMQ Classic in a container: `with ActiveMQContainer(users={"ann": "secret"}) as broker: broker.url()`.

    Args:
        image: which one; by default the official one where it can be had, else the one built here.
        options: fields of `BrokerSettings`.
    """

    _kind = "activemq"


class ArtemisContainer(_OfKind):
    """Artemis in a container; see `ActiveMQContainer`. The prefixes `/queue/` and `/topic/` select the type."""

    _kind = "artemis"


class RabbitMQStompContainer(_OfKind):
    """RabbitMQ with its STOMP plugins in a container; see `ActiveMQContainer`."""

    _kind = "rabbitmq4"


REQUIRE_VARIABLE = "STOMPY_REQUIRE_BROKERS"
"""The kinds whose absence is a failure, with commas between them, or `all`."""


def broker_or_skip(kind: str, **options: Any) -> RunningBroker:
    """Start a broker and return it; see `start_broker`.

    If none can be started the test is skipped, with every reason; it fails instead if `STOMPY_REQUIRE_BROKERS` names
    the kind.

    Raises:
        ConfigurationError: no such kind or option, or the broker lacks a feature that an option needs.
    """
    try:
        return start_broker(kind, **options)
    except BrokerUnavailableError as error:
        missing(kind, "; ".join(error.reasons))


def required(kind: str) -> bool:
    """Return whether `STOMPY_REQUIRE_BROKERS` names a kind of broker."""
    return not {kind, "all"}.isdisjoint(name.strip() for name in os.environ.get(REQUIRE_VARIABLE, "").split(","))


def missing(kind: str, reason: str) -> NoReturn:
    """Skip the test, or fail it if `STOMPY_REQUIRE_BROKERS` names the kind."""
    import pytest  # a program that starts a broker needs none

    if required(kind):
        pytest.fail(f"the {kind} broker is required: {reason}", pytrace=False)
    pytest.skip(f"no {kind} broker: {reason}")
