"""What a link needs to know of the connection's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stompy.frames.grammar import Leniency
from stompy.frames.limits import Limits
from stompy.frames.version import NEGOTIABLE, Version
from stompy.link.flow import Marks
from stompy.protocol.heartbeat import DEFAULT_TOLERANCE, HeartbeatOffer


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How to open and keep one session; durations in seconds.

    Attributes:
        versions: offered to the broker.
        heartbeat: offered to the broker.
        heartbeat_tolerance: agreed intervals of silence after which the peer is dead.
        login: sent in CONNECT where given.
        passcode: sent in CONNECT where given; never shown.
        vhost: the `host` header; `None` takes the host name of the address.
        headers: further headers of CONNECT.
        limits: maxima for a frame of the broker.
        marks: when the inbox is full.
        leniency: deviations of the broker to bear with.
        leniency_for: adds more of them, by the `server` header of CONNECTED.
        send_timeout: how long one frame may take to leave.
        receipt_timeout: the default wait for a receipt.
    """

    versions: Sequence[Version] = NEGOTIABLE
    heartbeat: HeartbeatOffer = field(default_factory=HeartbeatOffer)
    heartbeat_tolerance: float = DEFAULT_TOLERANCE
    login: str | None = field(default=None, repr=False)
    passcode: str | None = field(default=None, repr=False)
    vhost: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits)
    marks: Marks = field(default_factory=Marks)
    leniency: Leniency = Leniency.NONE
    leniency_for: Callable[[str | None], Leniency] | None = None
    send_timeout: float = 30.0
    receipt_timeout: float = 30.0
