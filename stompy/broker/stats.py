"""What a broker tells about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """How many messages a queue holds.

    Attributes:
        ready: wait for a consumer.
        unacked: were delivered and wait for their ACK, or for the COMMIT of it.
        consumers: live subscriptions.
    """

    ready: int
    unacked: int
    consumers: int

    @property
    def total(self) -> int:
        """All of the messages."""
        return self.ready + self.unacked


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStats:
    """A snapshot of one moment; the counters run since the broker was made.

    Attributes:
        sessions: clients that are connected, counted from their CONNECTED.
        sessions_total: sessions opened so far.
        queues: by name; an empty queue that nobody consumes is forgotten.
        topics: live subscriptions by name, or pattern.
        durables: what is kept for durable subscriptions, by client id and name with a slash between.
        scheduled: messages that are to be delivered later.
        subscriptions: live subscriptions in all.
        transactions: open transactions.
        messages_in: messages published.
        messages_out: MESSAGE frames handed to sessions, redeliveries included.
        redelivered: messages that went back to their queue, by NACK or because their session ended.
        dead_lettered: messages moved to the dead-letter queue.
        expired: messages whose time was over before they were delivered.
        duplicates: messages dropped as their `dedupe_id` was seen before.
        discarded: messages given up: refused as dead letters too, or the dead-letter queue was full.
        errors: ERROR frames written.
        longest_turn: the most messages, subscriptions and queues that were looked at for one client before others had
            their turn.
    """

    sessions: int
    sessions_total: int
    queues: Mapping[str, QueueDepth]
    topics: Mapping[str, int]
    durables: Mapping[str, QueueDepth]
    scheduled: int
    subscriptions: int
    transactions: int
    messages_in: int
    messages_out: int
    redelivered: int
    dead_lettered: int
    expired: int
    duplicates: int
    discarded: int
    errors: int
    longest_turn: int


@dataclass(slots=True)
class Counters:
    """The counters behind `BrokerStats`; guarded by the router's lock."""

    sessions: int = 0
    messages_in: int = 0
    messages_out: int = 0
    redelivered: int = 0
    dead_lettered: int = 0
    expired: int = 0
    duplicates: int = 0
    discarded: int = 0
    errors: int = 0
