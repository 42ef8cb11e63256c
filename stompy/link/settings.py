"""Settings and credentials of a link."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from stompy.deadline import check_seconds
from stompy.errors import ConfigurationError
from stompy.frames.grammar import NEGOTIABLE, Leniency, Limits, Version
from stompy.link.flow import InboxLimits
from stompy.link.receipts import MAX_RECEIPTS
from stompy.protocol.heartbeat import DEFAULT_EOL_RATE, DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.state import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.secret import Secret

DEFAULT_HEARTBEAT = (10.0, 10.0)
"""Seconds between heartbeats: those we can send, those we want to receive."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Login and passcode for one connect.

    Attributes:
        login: `None` sends none.
        passcode: `None` sends none.
    """

    login: str | None = None
    passcode: Secret[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Settings of one session; durations in seconds.

    Attributes:
        vhost: the `host` header; `None` uses the host name of the address.
        versions: offered to the broker.
        heartbeat: intervals we can send and want to receive, 0 for none.
        heartbeat_tolerance: negotiated intervals of silence after which the broker counts as dead.
        send_timeout: for writing one frame.
        receipt_timeout: default for receipts.
        limits: for received frames.
        inbox: limits on messages that wait for user code.
        max_receipts: limit of pending receipts.
        max_subscriptions: limit of active subscriptions.
        max_transactions: limit of open transactions.
        max_eol_rate: bytes of line ends per second that the broker may send between frames.
        headers: added to CONNECT.
        leniency: deviations to tolerate; `None` uses those that the broker is known to need.

    Raises:
        ConfigurationError: a value is out of range.
    """

    vhost: str | None = None
    versions: tuple[Version, ...] = NEGOTIABLE
    heartbeat: tuple[float, float] = DEFAULT_HEARTBEAT
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    send_timeout: float = 30.0
    receipt_timeout: float = 30.0
    limits: Limits = field(default_factory=Limits)
    inbox: InboxLimits = field(default_factory=InboxLimits)
    max_receipts: int = MAX_RECEIPTS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
    max_transactions: int = MAX_TRANSACTIONS
    max_eol_rate: int = DEFAULT_EOL_RATE
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    leniency: Leniency | None = None

    def __post_init__(self) -> None:
        for name in ("max_receipts", "max_subscriptions", "max_transactions", "max_eol_rate"):
            count = getattr(self, name)
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ConfigurationError(f"{name} must be a whole number of 1 or more, not {count!r}")
        for name in ("send_timeout", "receipt_timeout"):
            check_seconds(getattr(self, name), name, positive=True, finite=True, optional=False)
        if not _is_number(self.heartbeat_tolerance) or not 1 <= self.heartbeat_tolerance < math.inf:
            raise ConfigurationError(f"heartbeat_tolerance must be at least 1, not {self.heartbeat_tolerance!r}")
        pair: object = self.heartbeat
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_number, pair))):
            raise ConfigurationError(f"heartbeat must be two numbers of seconds (send, receive), not {pair!r}")
        HeartbeatOffer.from_seconds(*self.heartbeat)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
