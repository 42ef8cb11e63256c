"""Real brokers for tests: `start_broker` starts any kind, and each product has a class.

The project's own image is used, if it is there or can be pulled; `STOMPY_ACTIVEMQ_IMAGE` and its like name another.
`STOMPY_BROKERS_FROM=none` starts none.

Every broker is given its whole configuration, for any image: newer official images of ActiveMQ come with
STOMP switched off.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

from stompy.connection.connecting import connect
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, NotConnectedError, StompError
from stompy.forks import Owner
from stompy.link.settings import Timeouts
from stompy.testing.brokers import BrokerSettings, BrokerUnavailableError, Certificates, EmbeddedBroker, RunningBroker
from stompy.testing.products import PRODUCTS, Product
from stompy.transport.tls.options import Tls
from stompy.world import os, random, socket, time

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from typing_extensions import Unpack

_LOG = logging.getLogger("stompy.testing")

_START_TIMEOUT = 90.0
_ASK_TIMEOUT = 5.0
_STOP_TIMEOUT = 20
_POLL = 0.05
_LOG_LINES = 60
_ATTEMPTS = 5
_FREEZE_AGAIN = 0.5
_PORTS = range(20_000, 32_000)
"""Below the kernel's ephemeral ports, so that no client takes the port while the broker is down."""

FROM_VARIABLE = "STOMPY_BROKERS_FROM"
REQUIRE_VARIABLE = "STOMPY_REQUIRE_BROKERS"
"""The kinds whose absence is a failure, with commas between them, or `all`."""
PULL_LIMIT_VARIABLE = "STOMPY_PULL_TIMEOUT"
"""Seconds that a pull may take; 0 never pulls."""


class NetworkBroker(RunningBroker):
    """A broker of another process, with ports of this machine.

    Attributes:
        product: the kind of broker.
        host: by which its ports are reached.
        ports: port by connector; empty before the start.
    """

    def __init__(self, product: Product, settings: BrokerSettings) -> None:
        self.product = product
        self.kind = product.kind
        self.settings = settings
        self.host = "127.0.0.1"
        self.ports: dict[str, int] = {}
        self._connectors = tuple(product.recipe(settings, None).ports)  # a setting that it lacks is refused here

    @property
    def connectors(self) -> tuple[str, ...]:
        """See `RunningBroker`."""
        return self._connectors

    def _address(self, connector: str) -> str:
        if connector not in self.ports:
            raise NotConnectedError(f"the {self.kind} broker was not started yet")
        scheme = connector.replace("+nio", "")
        path = self.product.web_path if scheme.startswith("ws") else self.product.path
        return f"{scheme}://{self.host}:{self.ports[connector]}{path}"

    def _await_ready(self) -> None:
        """Wait until each user may log in by each connector: connectors come up one after the other, as do users.

        Raises:
            BrokerUnavailableError: not in time, or the broker died.
        """
        deadline = Deadline(_START_TIMEOUT)
        while True:
            self._check_alive()
            try:
                for connector in self.connectors:
                    for login in self.settings.users or ("",):
                        self.server = self._ask(connector, login)
            except StompError as error:
                if deadline.expired:
                    raise self._unavailable(f"it was not ready in time: {error}") from error
                time.sleep(_POLL)
            else:
                return

    def _ask(self, connector: str, login: str) -> str:
        """Connect once, and return the broker's name for itself."""
        shown = self.certificates
        tls = None if shown is None else Tls(ca=shown.ca_file, cert=shown.client_cert, key=shown.client_key)
        with connect(
            self.url(connector, login=login),
            dialect=self.product.dialect,
            tls=tls if connector.endswith(("ssl", "wss")) else None,
            heartbeat=(0.0, 0.0),
            timeouts=Timeouts(connect=_ASK_TIMEOUT, close=_ASK_TIMEOUT),
            reconnect=False,
            name="readiness",
        ) as connection:
            return connection.server or ""

    def _check_alive(self) -> None:
        """Raise `BrokerUnavailableError` if it has ended by itself."""
        raise NotImplementedError

    def _unavailable(self, reason: str) -> BrokerUnavailableError:
        lines = [line for line in self.log().splitlines() if not line.startswith("\tat ")][-_LOG_LINES:]
        end = "; its log ends:\n    " + "\n    ".join(lines) if lines else ""
        return BrokerUnavailableError(self.kind, (f"{self.flavour}: {reason}{end}",))


class ContainerBroker(NetworkBroker):
    """A broker in a container, on ports that stay the same.

    The container is removed by `close`, and, where that was not called, by testcontainers' Ryuk.

    Args:
        product: the broker in the container.
        settings: the broker's settings.
        image: from which; `None` for the image that a variable names, else the product's own.

    Attributes:
        container: testcontainers' own, once started; for anything beyond this class.
    """

    flavour = "official"
    _labels: Mapping[str, str] = {}

    def __init__(self, product: Product, settings: BrokerSettings, image: str | None = None) -> None:
        super().__init__(product, settings)
        self.image = image or os.environ.get(f"STOMPY_{self.kind.upper()}_IMAGE")
        self.container: DockerContainer | None = None
        self._owner = Owner("broker")

    def start(self) -> None:
        """See `RunningBroker`."""
        try:
            if self.container is None:
                self._make()
            elif self._status() == "exited":
                self._docker().start()
            else:
                return
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """See `RunningBroker`."""
        if self._owner.forked:
            return
        container, self.container = self.container, None
        if container is not None:
            _remove(container)
        if self.certificates is not None:
            self.certificates.close()
            self.certificates = None

    def shut_down(self) -> None:
        """See `RunningBroker`."""
        self.unpause()
        if self._status() == "running":
            self._docker().stop(timeout=_STOP_TIMEOUT)

    def kill(self) -> None:
        """See `RunningBroker`."""
        # The signal reaches a frozen one too, which is resumed at the same time, too late to answer a client.
        if self._status() in ("running", "paused"):
            self._docker().kill()
            self._docker().wait()

    def pause(self) -> None:
        """See `RunningBroker`."""
        if self._status() == "running":
            _freeze(self._docker())

    def unpause(self) -> None:
        """See `RunningBroker`."""
        if self._status() == "paused":
            self._docker().unpause()

    def log(self) -> str:
        """See `RunningBroker`."""
        if self.container is None:
            return ""
        return b"".join(self.container.get_logs()).decode(errors="replace")

    def _docker(self) -> Any:
        self._owner.check()
        assert self.container is not None, "the broker was not started"
        return self.container.get_wrapped_container()

    def _status(self) -> str:
        """Return docker's word for the state of the container; empty without one."""
        if self.container is None:
            return ""
        container = self._docker()
        container.reload()
        return str(container.status)

    def _make(self) -> None:
        """Start a container; on ports of its own, which another program may take first.

        Raises:
            BrokerUnavailableError: docker cannot be used, there is no image, or the container does not start.
        """
        self._prepare()
        for attempt in range(_ATTEMPTS):
            container = self._compose()
            try:
                container.start()
            except Exception as error:  # testcontainers lets those of docker through
                _remove(container)
                if attempt + 1 < _ATTEMPTS and "already" in str(error):
                    continue
                raise self._unavailable(f"{self.image} cannot be started: {error}") from error
            self.container = container
            for name, port in self.product.recipe(self.settings, None).ports.items():
                self.ports[name] = int(container.get_exposed_port(port))
            self.host = _host_of(container, self.ports["stomp"])
            return

    def _prepare(self) -> None:
        """Find the image, and make the certificates."""
        if reason := docker_missing():
            raise BrokerUnavailableError(self.kind, (f"{self.flavour}: {reason}",))
        try:
            self.image = find_image(self.product.images if self.image is None else (self.image,))
        except LookupError as error:
            raise BrokerUnavailableError(self.kind, (f"{self.flavour}: {error}",)) from error
        if self.settings.tls:
            from testcontainers.core.docker_client import DockerClient

            self.certificates = Certificates((DockerClient().host(),))

    def _compose(self) -> DockerContainer:
        from testcontainers.core.container import DockerContainer

        recipe = self.product.recipe(self.settings, self.certificates)
        container = DockerContainer(str(self.image))
        container.with_kwargs(hostname=recipe.hostname, labels=dict(self._labels))
        for port in recipe.ports.values():
            container.with_bind_ports(port, random.choice(_PORTS))  # noqa: S311 - a port
        for name, value in recipe.environment.items():
            container.with_env(name, value)
        for path, content in recipe.files.items():
            container.with_copy_into_container(content, path)
        return container

    def _check_alive(self) -> None:
        if self._status() in ("exited", "dead"):
            code = self._docker().attrs["State"]["ExitCode"]
            raise self._unavailable(f"it ended with status {code} while starting")


def _host_of(container: DockerContainer, port: int) -> str:
    """Return 127.0.0.1 if docker listens on the port there, else the address that testcontainers finds."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return "127.0.0.1"
    return container.get_container_host_ip()


def _remove(container: DockerContainer) -> None:
    with contextlib.suppress(Exception):  # it is gone, or docker is
        container.stop(force=True, delete_volume=True)


def _freeze(container: Any) -> None:
    """Pause a container; on a busy machine the kernel does not always manage to freeze it at once."""
    import docker.errors
    import tenacity

    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_fixed(_FREEZE_AGAIN),
        retry=tenacity.retry_if_exception_type(docker.errors.APIError),
        reraise=True,
    )(container.pause)


@functools.cache
def docker_missing() -> str | None:
    """Return why containers cannot be used here, or `None`; checked once in a process."""
    try:
        import docker
        import testcontainers.core.container  # noqa: F401
    except ImportError as error:
        return f"stompy-client[testing] is not installed: {error}"
    try:
        with contextlib.closing(docker.from_env(timeout=10)) as client:
            client.ping()
    except Exception as error:  # docker, requests and the socket have each their own
        return f"docker cannot be reached: {error}"
    return None


@functools.cache
def find_image(names: tuple[str, ...]) -> str:
    """Return the first of these images that is here, else the first that can be pulled.

    Raises:
        LookupError: there is none here, and none can be pulled; the text says why.
    """
    import docker

    reasons = []
    with contextlib.closing(docker.from_env()) as client:
        for name in names:
            with contextlib.suppress(docker.errors.DockerException):
                client.images.get(name)
                return name
        for name in names:
            if reason := _pull(client, name):
                reasons.append(f"no image {name}: {reason}")
            else:
                return name
    raise LookupError("; ".join(reasons))


def _pull(client: Any, name: str) -> str | None:
    """Pull an image, for at most the time that a pull may take; return the reason if it failed."""
    limit = float(os.environ.get(PULL_LIMIT_VARIABLE, 300))
    if limit <= 0:
        return f"{PULL_LIMIT_VARIABLE} forbids to pull"
    deadline = Deadline(limit)
    try:
        for progress in client.api.pull(name, stream=True, decode=True):
            if "error" in progress:
                return str(progress["error"])
            if deadline.expired:
                return f"not pulled within {limit:g} s"
    except Exception as error:  # docker, requests and the socket have each their own
        return str(error)
    return None


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


class ActiveMQContainer(ContainerBroker):
    """ActiveMQ Classic in a container: `with ActiveMQContainer(users={"ann": "secret"}) as broker: broker.url()`.

    Args:
        image: which one; by default the official one.
        options: fields of `BrokerSettings`.
    """

    def __init__(self, image: str | None = None, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(PRODUCTS["activemq"], BrokerSettings.of(options), image)


class ArtemisContainer(ContainerBroker):
    """Artemis in a container; see `ActiveMQContainer`. The prefixes `/queue/` and `/topic/` select the type."""

    def __init__(self, image: str | None = None, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(PRODUCTS["artemis"], BrokerSettings.of(options), image)


class RabbitMQStompContainer(ContainerBroker):
    """RabbitMQ with its STOMP plugins in a container; see `ActiveMQContainer`."""

    def __init__(self, image: str | None = None, **options: Unpack[BrokerOptions]) -> None:
        super().__init__(PRODUCTS["rabbitmq4"], BrokerSettings.of(options), image)


SOURCES: dict[str, Callable[[Product, BrokerSettings], RunningBroker]] = {"official": ContainerBroker}
"""By its name in `STOMPY_BROKERS_FROM`, what makes a broker or raises `BrokerUnavailableError`; in order of trying."""

LIKE = "like-"

KINDS = ("embedded", "like-activemq", "like-activemq5", "like-artemis", "like-rabbitmq", "like-rabbitmq3", *PRODUCTS)
"""What `start_broker` takes: `like-activemq` is the embedded broker that behaves as ActiveMQ does."""


def start_broker(kind: str, **options: Any) -> RunningBroker:
    """Start a broker and return it; the caller ends it with `close`, or uses it as a `with` block.

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
    product, settings = PRODUCTS[kind], BrokerSettings.of(options)
    product.recipe(settings, None)  # a wrong setting is reported before anything is tried
    reasons: list[str] = []
    for source in chosen_sources():
        try:
            broker = SOURCES[source](product, settings)
            broker.start()
        except BrokerUnavailableError as error:
            _LOG.warning("%s", error)
            reasons.extend(error.reasons)
        else:
            return broker
    raise BrokerUnavailableError(kind, tuple(reasons) or (f"{FROM_VARIABLE} is none",))


def chosen_sources() -> tuple[str, ...]:
    """Return the sources of brokers, best first: all, or the sources in `STOMPY_BROKERS_FROM`."""
    wanted = os.environ.get(FROM_VARIABLE) or ",".join(SOURCES)
    if wanted == "none":
        return ()
    chosen = tuple(source.strip() for source in wanted.split(","))
    if unknown := set(chosen) - set(SOURCES):
        raise ConfigurationError(
            f"{FROM_VARIABLE} holds {', '.join(sorted(unknown))}; it takes {', '.join(SOURCES)}, or none"
        )
    return chosen


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
