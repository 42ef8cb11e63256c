"""What a test may ask of a broker, whichever it is, and where that broker stands."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from stompy.errors import ConfigurationError


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
