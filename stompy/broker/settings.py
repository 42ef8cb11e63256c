"""What an embedded broker can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from stompy.errors import ConfigurationError
from stompy.frames.grammar import Leniency
from stompy.frames.limits import DEFAULT_LIMITS, Limits
from stompy.frames.version import NEGOTIABLE, Version
from stompy.protocol.heartbeat import HeartbeatOffer

TOPIC_PREFIX = "/topic/"
TEMPORARY_PREFIX = "/temp-queue/"
"""What makes a destination a topic; every other string is the name of a queue."""

SERVER = "stompy-broker"
"""The `server` header of CONNECTED."""


def is_topic(destination: str) -> bool:
    """Whether `destination` keeps nothing for nobody, as topics and temporary queues do; else it names a queue."""
    return destination.startswith((TOPIC_PREFIX, TEMPORARY_PREFIX))


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one broker; `stompy.broker.Broker` explains those that it offers.

    Attributes:
        users: passcode by login; `None` lets everybody in.
        max_outbox_frames: like `max_outbox_bytes`, in frames.
        max_session_subscriptions: live subscriptions of one session.
        max_session_transactions: open transactions of one session.
    """

    versions: tuple[Version, ...] = NEGOTIABLE
    users: Mapping[str, str] | None = field(default=None, repr=False)
    heartbeat: HeartbeatOffer = field(default_factory=HeartbeatOffer)
    limits: Limits = DEFAULT_LIMITS
    leniency: Leniency = Leniency.NONE
    require_host: bool = False
    prefetch: int = 1_000
    max_redeliveries: int = 6
    dead_letter: str = "/queue/DLQ"
    max_queue_messages: int = 1_000_000
    max_queue_bytes: int = 512 * 1024 * 1024
    max_backlog_messages: int = 100_000
    max_backlog_bytes: int = 64 * 1024 * 1024
    max_outbox_frames: int = 1_000
    max_outbox_bytes: int = 1024 * 1024
    max_transaction_frames: int = 100_000
    max_transaction_bytes: int = 64 * 1024 * 1024
    max_session_subscriptions: int = 10_000
    max_session_transactions: int = 1_000
    connect_timeout: float = 10.0
    linger: float = 2.0

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "max_redeliveries":
                _check_number(setting.name, value, least=0)
            elif setting.name.startswith("max_") or setting.name == "prefetch":
                _check_number(setting.name, value, least=1)
        for name in ("connect_timeout", "linger"):
            seconds = getattr(self, name)
            if not 0 <= seconds < float("inf"):
                raise ConfigurationError(f"{name} must be 0 or more seconds, not {seconds!r}")
        if not self.versions or (Version.DRAFT in self.versions and len(self.versions) > 1):
            raise ConfigurationError("a broker needs at least one version; the 1.0-draft only by itself")
        if not self.dead_letter or is_topic(self.dead_letter):
            raise ConfigurationError(f"the dead-letter destination must be a queue, not {self.dead_letter!r}")


def _check_number(name: str, value: object, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} must be a whole number of {least} or more, not {value!r}")
