"""The settings of an embedded broker."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from stompy.broker.destinations import targets_of
from stompy.broker.profile import OWN, Profile
from stompy.broker.users import Users
from stompy.deadline import check_seconds
from stompy.errors import ConfigurationError
from stompy.frames.grammar import DEFAULT_LIMITS, NEGOTIABLE, Leniency, Limits, Version
from stompy.protocol.heartbeat import DEFAULT_EOL_RATE, DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.state import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS

if TYPE_CHECKING:
    from stompy.broker.management import FrameHook


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one broker; `stompy.broker.Broker` explains those that it offers.

    Attributes:
        users: who may come in and what each may do; `None` lets everybody in.
        max_outbox_frames: like `max_outbox_bytes`, in frames.
    """

    versions: tuple[Version, ...] = NEGOTIABLE
    users: Users | None = None
    heartbeat: HeartbeatOffer = field(default_factory=HeartbeatOffer)
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    limits: Limits = DEFAULT_LIMITS
    leniency: Leniency = Leniency.NUL_BETWEEN_FRAMES
    require_host: bool = False
    prefetch: int = 1_000
    attempts: int = 7
    dead_letter: str = "/queue/DLQ"
    expired: str | None = None
    max_queue_messages: int = 1_000_000
    max_queue_bytes: int = 512 * 1024 * 1024
    max_backlog_messages: int = 100_000
    max_backlog_bytes: int = 64 * 1024 * 1024
    max_outbox_frames: int = 1_000
    max_outbox_bytes: int = 1024 * 1024
    max_transaction_frames: int = 100_000
    max_transaction_bytes: int = 64 * 1024 * 1024
    max_session_subscriptions: int = MAX_SUBSCRIPTIONS
    max_session_transactions: int = MAX_TRANSACTIONS
    max_sessions: int = 1_000
    max_handshakes: int = 100
    max_handshakes_per_address: int | None = None
    max_queues: int = 10_000
    max_store_bytes: int = 1024 * 1024 * 1024
    max_state_bytes: int | None = None
    max_session_state_bytes: int | None = None
    max_eol_rate: int = DEFAULT_EOL_RATE
    connect_timeout: float = 10.0
    login_delay: float = 1.0
    send_timeout: float = 600.0
    linger: float = 2.0
    on_frame: FrameHook | None = None
    profile: Profile = OWN

    @property
    def dead_letters(self) -> str:
        """The queue of dead letters."""
        return self.profile.dead_letter or self.dead_letter

    @property
    def expired_letters(self) -> str | None:
        """The queue of expired messages, if they are kept."""
        return self.profile.expired or self.expired

    @property
    def state_bytes(self) -> int:
        """The limit `max_state_bytes`: where it is not given, two bodies of the largest size may be incomplete."""
        return self.max_state_bytes or max(256 * 1024 * 1024, 2 * self.limits.max_body)

    @property
    def session_state_bytes(self) -> int:
        """The limit `max_session_state_bytes`: where it is not given, the largest body and 32 MiB."""
        return self.max_session_state_bytes or self.limits.max_body + 32 * 1024 * 1024

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value is None:
                continue
            if setting.name.startswith("max_") or setting.name in ("attempts", "prefetch"):
                _check_number(setting.name, value)
        for name in ("connect_timeout", "login_delay", "send_timeout", "linger"):
            check_seconds(getattr(self, name), name, finite=True, optional=False)
        if not 1 <= self.heartbeat_tolerance < math.inf:
            raise ConfigurationError(f"heartbeat_tolerance must be at least 1, not {self.heartbeat_tolerance!r}")
        if not self.versions or (Version.DRAFT in self.versions and len(self.versions) > 1):
            raise ConfigurationError("a broker needs at least one version; the 1.0-draft only by itself")
        for name in ("dead_letter", "expired"):
            destination = getattr(self, name)
            if destination is not None and not _is_queue(destination):
                raise ConfigurationError(f"{name} must be a queue, not {destination!r}")


def _is_queue(destination: str) -> bool:
    target, *others = targets_of(destination, "")
    return bool(destination) and not others and target.kind == "queue" and not target.pattern and target.owner is None


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {value!r}")
