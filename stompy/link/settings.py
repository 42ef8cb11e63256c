"""What a link needs to know of the connection's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stompy.frames.grammar import Leniency
from stompy.frames.limits import Limits
from stompy.frames.version import NEGOTIABLE, Version
from stompy.link.flow import Marks
from stompy.link.receipts import MAX_RECEIPTS
from stompy.protocol.flood import DEFAULT_EOL_RATE
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE, HeartbeatOffer
from stompy.protocol.ids import MAX_SUBSCRIPTIONS, MAX_TRANSACTIONS
from stompy.secret import Secret, hidden


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How to open and keep one session; durations in seconds.

    Attributes:
        versions: offered to the broker.
        heartbeat: offered to the broker.
        heartbeat_tolerance: agreed intervals of silence after which the peer is dead.
        login: sent in CONNECT where given.
        passcode: sent in CONNECT where given; kept as a `Secret`, never shown.
        vhost: the `host` header; `None` takes the host name of the address.
        headers: further headers of CONNECT.
        limits: maxima for a frame of the broker.
        marks: when the inbox is full.
        max_receipts: receipts under way at most.
        max_subscriptions: live subscriptions at most.
        max_transactions: open transactions at most.
        max_eol_rate: octets of line ends a second that the broker may send between frames.
        leniency: deviations of the broker to bear with.
        leniency_for: adds more of them, by the `server` header of CONNECTED.
        send_timeout: how long one frame may take to leave.
        receipt_timeout: the default wait for a receipt.
    """

    versions: Sequence[Version] = NEGOTIABLE
    heartbeat: HeartbeatOffer = field(default_factory=HeartbeatOffer)
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    login: str | None = field(default=None, repr=False)
    passcode: Secret[str] | str | None = field(default=None, repr=False)
    vhost: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits)
    marks: Marks = field(default_factory=Marks)
    max_receipts: int = MAX_RECEIPTS
    max_subscriptions: int = MAX_SUBSCRIPTIONS
    max_transactions: int = MAX_TRANSACTIONS
    max_eol_rate: int = DEFAULT_EOL_RATE
    leniency: Leniency = Leniency.NONE
    leniency_for: Callable[[str | None], Leniency] | None = None
    send_timeout: float = 30.0
    receipt_timeout: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "passcode", hidden(self.passcode))


@dataclass(slots=True)
class Counters:
    """What came in by a link; written by its reader."""

    frames_in: int = 0
    octets_in: int = 0
