"""The statistics of a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionStats:
    """Counters and gauges of a connection.

    Counters are totals over all sessions; gauges are those of the latest session, even if it has ended.

    Attributes:
        frames_sent: frames written, without heartbeats.
        bytes_sent: bytes written.
        frames_received: frames received.
        bytes_received: bytes received.
        receipts_pending: receipts that have no outcome yet.
        unconfirmed: messages in the resend buffer of `Reconnect(resend_unconfirmed=...)`.
        unconfirmed_bytes: bytes of their bodies and headers.
        queued_messages: messages that wait for user code, and receipts that wait for listeners.
        queued_bytes: bytes of their bodies and, approximately, headers.
        subscriptions: active subscriptions.
        unrouted: messages for no known subscription.
        late_replies: replies to requests that had timed out.
        links: sessions, including the latest; failed attempts are not counted.
        reconnects: lost sessions that were replaced.
        reading_paused: whether reading from the broker is paused because user code is slow.
        times_paused: how often reading was paused.
        silent_for: seconds since the last received byte.
        outage: why there is no session and when the next attempt is made, such as
            `localhost:61613: connection refused; attempt 7 in 3.2 s`; `None` if there is a session, or it was closed.
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
    outage: str | None
