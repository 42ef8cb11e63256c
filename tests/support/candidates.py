"""The brokers that the scenarios run against, each kind with the same interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from stompy.broker import BrokerLimits
from stompy.connection.config import Config, addresses_of
from stompy.connection.link_manager import dialer_of
from stompy.deadline import Deadline
from stompy.testing.brokers import BrokerUnavailableError, RunningBroker
from stompy.testing.containers import ContainerBroker, start_broker
from stompy.transport.address import parse_addresses
from stompy.transport.base import Transport
from stompy.transport.tls.options import Tls, TlsVersion
from tests.support.options import chosen

LOGIN, PASSCODE = "scenario", "sesame"
ODD_LOGIN, ODD_PASSCODE = "odd", "a\\nb"
"""A user whose passcode changes when it is unescaped."""

USERS = {LOGIN: PASSCODE, ODD_LOGIN: ODD_PASSCODE}

DEAD_LETTERS = dict.fromkeys(("activemq", "activemq5", "like-activemq", "like-activemq5"), "/queue/ActiveMQ.DLQ")
"""Where messages end that were given up; `/queue/DLQ` for the other kinds, if they have such a queue at all."""

DIALECTS = {
    "embedded": "stompy",
    "activemq": "activemq",
    "activemq5": "activemq",
    "artemis": "artemis",
    "rabbitmq3": "rabbitmq",
    "rabbitmq4": "rabbitmq",
    "like-activemq": "activemq",
    "like-activemq5": "activemq",
    "like-artemis": "artemis",
    "like-rabbitmq": "rabbitmq",
    "like-rabbitmq3": "rabbitmq",
}
"""What `stompy.connect(dialect=...)` calls each kind."""

_FULL_ACTIVEMQ = """\
<destinationPolicy><policyMap><policyEntries><policyEntry queue="full.>" memoryLimit="2mb">
<pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy></policyEntry></policyEntries></policyMap></destinationPolicy>
"""

_FULL_ARTEMIS = """\
<address-settings>
<address-setting match="#"><dead-letter-address>DLQ</dead-letter-address>
<expiry-address>ExpiryQueue</expiry-address><auto-delete-queues>false</auto-delete-queues>
<auto-delete-addresses>false</auto-delete-addresses></address-setting>
<address-setting match="full.#"><max-size-bytes>2000000</max-size-bytes>
<address-full-policy>FAIL</address-full-policy></address-setting>
</address-settings>
"""

_LIMITS = BrokerLimits(max_queue_bytes=32 * 1024 * 1024, login_delay=0.0)

OPTIONS: dict[str, dict[str, Any]] = {
    "embedded": {"attempts": 3, "limits": _LIMITS},
    **{kind: {"limits": _LIMITS} for kind in DIALECTS if kind.startswith("like-")},
    "activemq": {"configuration": _FULL_ACTIVEMQ},
    "activemq5": {"configuration": _FULL_ACTIVEMQ},
    "artemis": {"configuration": _FULL_ARTEMIS},
}
"""Further settings of a kind of broker: mostly, small limits for the queues `full.*`."""

WEB = ("ws", "wss")

_DIAL_TIMEOUT = 20.0
_SHORT = re.compile(r"(?:ActiveMQ-)?(\w+)/([\w.]+)")


@dataclass(frozen=True)
class Opening:
    """A way to a broker.

    Attributes:
        settings: of the broker, for it to listen so; called with its kind and a folder of its own.
        options: of `stompy.connect`, beside the address.
        url: tells the address.
        kinds: of broker that have it; `None` for all.
    """

    settings: Callable[[str, str], dict[str, Any]]
    url: Callable[[RunningBroker], str]
    options: Callable[[RunningBroker], dict[str, Any]] = field(default=lambda _: {})
    kinds: frozenset[str] | None = None


def _secure(version: TlsVersion | None = None, *, mutual: bool = False, web: bool = False) -> Opening:
    def options(broker: RunningBroker) -> dict[str, Any]:
        assert broker.certificates is not None
        cert, key = broker.certificates.client_cert, broker.certificates.client_key
        tls = Tls(
            ca=broker.ca_file,
            cert=cert if mutual else None,
            key=key if mutual else None,
            minimum_version=version or "1.2",
            maximum_version=version,
        )
        return {"tls": tls}

    settings = {"tls": True, "client_certificates": mutual}
    if web:
        return Opening(
            lambda *_: {**settings, "ws": True},
            lambda broker: _web_url(broker, "wss"),
            options,
        )
    return Opening(lambda *_: settings, lambda broker: broker.url(tls=True, login=""), options)


def _web_url(broker: RunningBroker, scheme: str) -> str:
    if broker.kind != "artemis":  # which has it on the port of STOMP
        return broker.url(scheme, login="")
    return broker.url(tls=scheme == "wss", login="").replace("stomp+ssl" if scheme == "wss" else "stomp", scheme, 1)


OPENINGS = {
    "tcp": Opening(lambda *_: {}, lambda broker: broker.url(login="")),
    "tls12": _secure("1.2"),
    "tls13": _secure("1.3"),
    "mtls": _secure(mutual=True),
    "ws": Opening(lambda *_: {"ws": True}, lambda broker: _web_url(broker, "ws")),
    "wss": _secure(web=True),
    "unix": Opening(
        lambda _, folder: {"unix": f"{folder}/broker"},
        lambda broker: broker.url("stomp+unix", login=""),
        kinds=frozenset({"embedded"}),
    ),
}
"""By the value of `--transport`."""


@dataclass(frozen=True)
class Candidate:
    """A running broker.

    Attributes:
        kind: one of `expected.model.KINDS`.
        broker: what can be killed, paused and restarted.
        url: its address, without credentials.
        options: of `stompy.connect`, beside it.
    """

    kind: str
    broker: RunningBroker
    url: str
    options: dict[str, Any] = field(repr=False)

    @property
    def product(self) -> str:
        """What it calls itself, for the table."""
        found = _SHORT.match(self.broker.server)
        return f"{found[1]} {found[2]}" if found else self.broker.server

    def options_in(self, version: object) -> dict[str, Any]:
        """Return the arguments of `stompy.connect`, besides the address, for a version of STOMP."""
        # In 1.0 Artemis does not say what it is.
        nameless = self.kind in ("artemis", "like-artemis") and version == "1.0"
        return {**self.options, "dialect": DIALECTS[self.kind]} if nameless else self.options

    @property
    def dead_letters(self) -> str:
        """The queue of messages that were given up, if the broker has one."""
        return DEAD_LETTERS.get(self.kind, "/queue/DLQ")

    @property
    def connect_headers(self) -> dict[str, str]:
        """What a CONNECT by hand must say."""
        host = "/" if "rabbitmq" in self.kind else parse_addresses(self.url)[0].vhost or "localhost"
        return {"login": LOGIN, "passcode": PASSCODE, "host": host}

    @contextmanager
    def squeezed(self) -> Iterator[None]:
        """Leave RabbitMQ no memory, for a while; the others have queues that hold little, which is for good."""
        if not self.kind.startswith("rabbitmq"):
            yield
            return
        self._rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            yield
        finally:
            self._rabbitmqctl("set_vm_memory_high_watermark", "0.6")

    def _rabbitmqctl(self, *words: str) -> None:
        assert isinstance(self.broker, ContainerBroker), "its command is run within the container"
        assert self.broker.container is not None
        code, said = self.broker.container.exec(["rabbitmqctl", *words])
        assert code == 0, said.decode(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        """The same for the command, as variables."""
        tls = self.options.get("tls")
        files = {} if tls is None else {"CA": tls.ca, "CERT": tls.cert, "KEY": tls.key}
        variables = {f"STOMPY_TLS_{name}": str(path) for name, path in files.items() if path is not None}
        return {"STOMPY_URL": self.url, "STOMPY_PASSCODE": PASSCODE, **variables}

    def dial(self) -> Transport:
        """Return a new transport to it."""
        transport = {name: self.options[name] for name in ("tls", "websocket") if name in self.options}
        config = Config(addresses=addresses_of(self.url), **transport)
        return dialer_of(config.addresses[0], config).dial(Deadline(_DIAL_TIMEOUT))


@contextmanager
def start(kind: str, **settings: Any) -> Iterator[Candidate]:
    """Run a broker of some kind.

    Raises:
        BrokerUnavailableError: there is none here.
    """
    if chosen.transport not in OPENINGS:
        raise pytest.UsageError(f"--transport is one of {', '.join(OPENINGS)}, not {chosen.transport!r}")
    opening = OPENINGS[chosen.transport]
    if opening.kinds is not None and kind not in opening.kinds:
        raise BrokerUnavailableError(kind, (f"it does not listen on {chosen.transport}",))
    with ExitStack() as stack:
        own = opening.settings(kind, stack.enter_context(TemporaryDirectory(prefix="stompy-")))
        wanted = {"users": USERS, "persistent": True, **OPTIONS.get(kind, {}), **own, **settings}
        broker = stack.enter_context(start_broker(kind, **wanted))
        options = {"login": LOGIN, "passcode": PASSCODE, **opening.options(broker)}
        yield Candidate(kind, broker, opening.url(broker), options)
