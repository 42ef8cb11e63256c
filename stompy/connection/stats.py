"""What a connection counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionStats:
    """Counters and gauges of a connection at one moment.

    Attributes:
        frames_sent: frames that left, heart-beats aside.
        octets_sent: octets that left.
        frames_received: frames that came.
        octets_received: octets that came.
        receipts_pending: receipts under way.
        queued_messages: messages that wait for user code, and receipts that wait for listeners.
        queued_octets: octets of their bodies and, about, their headers.
        subscriptions: live subscriptions.
        unrouted: messages that came for no known subscription.
        late_replies: replies to requests that had timed out.
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
    queued_messages: int
    queued_octets: int
    subscriptions: int
    unrouted: int
    late_replies: int
    reconnects: int
    gate_shut: bool
    times_shut: int
    silent_for: float
