"""What a connection counts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.link.link import Link

if TYPE_CHECKING:
    from stompy.connection.registry import Registry
    from stompy.connection.requests import Replies
    from stompy.connection.routing import Router
    from stompy.connection.supervisor import Supervisor
    from stompy.connection.unconfirmed import Unconfirmed


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Counters and gauges of a connection at one moment.

    The counters are those of all its links together, from the first on; what is measured of the moment is the newest
    link's, whether it lives or not.

    Attributes:
        frames_sent: frames that left, heart-beats aside.
        octets_sent: octets that left.
        frames_received: frames that came.
        octets_received: octets that came.
        receipts_pending: receipts under way, or waiting for the next link.
        unconfirmed: sends that go to the next link where this one dies, see `connect(resend_unconfirmed=...)`.
        unconfirmed_octets: octets of their bodies and headers.
        queued_messages: messages that wait for user code, and receipts that wait for listeners.
        queued_octets: octets of their bodies and, about, their headers.
        subscriptions: live subscriptions.
        unrouted: messages that came for no known subscription.
        late_replies: replies to requests that had timed out.
        links: how many links there were, the newest among them; attempts that came to nothing are not counted.
        reconnects: how often a lost link was replaced.
        gate_shut: whether the broker is held back because user code is slow.
        times_shut: how often that happened.
        silent_for: seconds since the last octet of the broker.
    """

    frames_sent: int
    octets_sent: int
    frames_received: int
    octets_received: int
    receipts_pending: int
    unconfirmed: int
    unconfirmed_octets: int
    queued_messages: int
    queued_octets: int
    subscriptions: int
    unrouted: int
    late_replies: int
    links: int
    reconnects: int
    gate_shut: bool
    times_shut: int
    silent_for: float


@dataclass(frozen=True, slots=True)
class Past:
    """What the links counted that have been replaced.

    Attributes:
        frames_sent: together.
        octets_sent: together.
        frames_received: together.
        octets_received: together.
        times_shut: together.
        lingering: those whose messages wait for user code still.
    """

    frames_sent: int = 0
    octets_sent: int = 0
    frames_received: int = 0
    octets_received: int = 0
    times_shut: int = 0
    lingering: tuple[Link, ...] = ()

    def with_link(self, link: Link) -> Past:
        """Return it with another link, which is over."""
        return Past(
            frames_sent=self.frames_sent + link.writer.frames,
            octets_sent=self.octets_sent + link.writer.octets,
            frames_received=self.frames_received + link.frames_in,
            octets_received=self.octets_received + link.bytes_in,
            times_shut=self.times_shut + link.gate.times_shut,
            lingering=tuple(one for one in (*self.lingering, link) if one.gate.waiting_messages),
        )


def measure(
    links: Supervisor, registry: Registry, router: Router, replies: Replies, unconfirmed: Unconfirmed | None
) -> ConnectionStats:
    """Return counters of all links, and gauges of the moment."""
    links.check_process()
    link, past = links.counted()
    kept = {} if unconfirmed is None else dict.fromkeys(unconfirmed.receipts())
    gates = [link.gate, *(one.gate for one in past.lingering)]
    return ConnectionStats(
        frames_sent=past.frames_sent + link.writer.frames,
        octets_sent=past.octets_sent + link.writer.octets,
        frames_received=past.frames_received + link.frames_in,
        octets_received=past.octets_received + link.bytes_in,
        receipts_pending=len({**kept, **dict.fromkeys(link.receipts.outstanding())}),
        unconfirmed=len(kept),
        unconfirmed_octets=0 if unconfirmed is None else unconfirmed.octets,
        queued_messages=sum(gate.waiting_messages for gate in gates),
        queued_octets=sum(gate.waiting_octets for gate in gates),
        subscriptions=len(registry.all()),
        unrouted=router.unrouted,
        late_replies=replies.late,
        links=links.reconnects + 1,
        reconnects=links.reconnects,
        gate_shut=link.gate.shut,
        times_shut=past.times_shut + link.gate.times_shut,
        silent_for=max(0.0, time.monotonic() - link.pulse.last_heard),
    )
