"""What a connection counts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.link.link import Link

if TYPE_CHECKING:
    from stompy.connection.link_manager import LinkManager
    from stompy.connection.requests import RequestReply
    from stompy.connection.resend_buffer import ResendBuffer
    from stompy.connection.routing import Router
    from stompy.connection.subscriptions import SubscriptionTable


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Counters and gauges of a connection at one moment.

    The counters are those of all its links together, from the first on; what is measured of the moment is the newest
    link's, whether it lives or not.

    Attributes:
        frames_sent: frames that left, heart-beats aside.
        bytes_sent: bytes that left.
        frames_received: frames that came.
        bytes_received: bytes that came.
        receipts_pending: receipts under way, or waiting for the next link.
        unconfirmed: sends that go to the next link where this one dies, see `connect(resend_unconfirmed=...)`.
        unconfirmed_bytes: bytes of their bodies and headers.
        queued_messages: messages that wait for user code, and receipts that wait for listeners.
        queued_bytes: bytes of their bodies and, about, their headers.
        subscriptions: live subscriptions.
        unrouted: messages that came for no known subscription.
        late_replies: replies to requests that had timed out.
        links: how many links there were, the newest among them; attempts that came to nothing are not counted.
        reconnects: how often a lost link was replaced.
        reading_paused: whether the broker is held back because user code is slow.
        times_paused: how often that happened.
        silent_for: seconds since the last byte of the broker.
    """

    frames_sent: int
    bytes_sent: int
    frames_received: int
    bytes_received: int
    receipts_pending: int
    unconfirmed: int
    unconfirmed_bytes: int
    queued_messages: int
    queued_bytes: int
    subscriptions: int
    unrouted: int
    late_replies: int
    links: int
    reconnects: int
    reading_paused: bool
    times_paused: int
    silent_for: float


@dataclass(frozen=True, slots=True)
class EndedLinks:
    """What the links counted that have been replaced.

    Attributes:
        frames_sent: together.
        bytes_sent: together.
        frames_received: together.
        bytes_received: together.
        times_paused: together.
        lingering: those whose messages wait for user code still.
    """

    frames_sent: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    times_paused: int = 0
    lingering: tuple[Link, ...] = ()

    def with_link(self, link: Link) -> EndedLinks:
        """Return it with another link, which is over."""
        return EndedLinks(
            frames_sent=self.frames_sent + link.writer.frames,
            bytes_sent=self.bytes_sent + link.writer.bytes,
            frames_received=self.frames_received + link.frames_in,
            bytes_received=self.bytes_received + link.bytes_in,
            times_paused=self.times_paused + link.flow.times_paused,
            lingering=tuple(one for one in (*self.lingering, link) if one.flow.waiting_messages),
        )


def measure(
    links: LinkManager,
    subscriptions: SubscriptionTable,
    router: Router,
    replies: RequestReply,
    unconfirmed: ResendBuffer | None,
) -> ConnectionStats:
    """Return counters of all links, and gauges of the moment."""
    links.check_process()
    link, past = links.counted()
    kept = {} if unconfirmed is None else dict.fromkeys(unconfirmed.receipts())
    gates = [link.flow, *(one.flow for one in past.lingering)]
    return ConnectionStats(
        frames_sent=past.frames_sent + link.writer.frames,
        bytes_sent=past.bytes_sent + link.writer.bytes,
        frames_received=past.frames_received + link.frames_in,
        bytes_received=past.bytes_received + link.bytes_in,
        receipts_pending=len({**kept, **dict.fromkeys(link.receipts.outstanding())}),
        unconfirmed=len(kept),
        unconfirmed_bytes=0 if unconfirmed is None else unconfirmed.size,
        queued_messages=sum(gate.waiting_messages for gate in gates),
        queued_bytes=sum(gate.waiting_bytes for gate in gates),
        subscriptions=len(subscriptions.all()),
        unrouted=router.unrouted,
        late_replies=replies.late,
        links=links.reconnects + 1,
        reconnects=links.reconnects,
        reading_paused=link.flow.shut,
        times_paused=past.times_paused + link.flow.times_paused,
        silent_for=max(0.0, time.monotonic() - link.pulse.last_heard),
    )
