"""The state of an outbox, and its dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stompy.errors import StompError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStats:
    """Counters and gauges of an outbox.

    Attributes:
        waiting: messages on disk that the broker has not confirmed, including those in flight.
        oldest_age: seconds since the `put` of the oldest of them, by the wall clock; 0 if there is none.
        in_flight: messages sent and not confirmed.
        dead_letters: messages that were rejected too often or cannot be sent.
        bytes: bytes of bodies, headers and destinations of all messages on disk.
        sent: messages confirmed since the outbox was opened.
        connected: whether a session with the broker is open.
        last_error: the last error; `None` if a message was confirmed since.
    """

    waiting: int
    oldest_age: float
    in_flight: int
    dead_letters: int
    bytes: int
    sent: int
    connected: bool
    last_error: StompError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that the broker rejected too often, or that cannot be sent to it at all.

    Attributes:
        id: the id that `put` returned.
        destination: as given to `put`.
        headers: as given to `put`, and the content type.
        body: the encoded body.
        age: seconds since `put` or `retry`, by the wall clock.
        attempts: how often it was rejected.
        error_message: the last error message, usually the broker's.
    """

    id: str
    destination: str
    headers: Mapping[str, str]
    body: bytes
    age: float
    attempts: int
    error_message: str
