"""The state of an outbox, and its dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stompy.errors import StompError


@dataclass(frozen=True, slots=True)
class OutboxStats:
    """Numbers of one moment.

    Attributes:
        waiting: messages on disk that the broker has not confirmed, those in flight among them.
        oldest_age: seconds that the first of them has waited, by the wall clock; 0 where there is none.
        in_flight: messages sent and not confirmed.
        dead_letters: messages that the broker refused too often.
        bytes: bodies, headers and destinations of all messages on disk.
        sent: messages confirmed since the outbox was opened.
        connected: whether there is a session with the broker.
        last_error: what went wrong last; `None` when something was confirmed since.
    """

    waiting: int
    oldest_age: float
    in_flight: int
    dead_letters: int
    bytes: int
    sent: int
    connected: bool
    last_error: StompError | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that the broker refused too often, or that cannot be sent to it at all.

    Attributes:
        id: what `put` returned.
        destination: as given to `put`.
        headers: as given to `put`; the content type is among them.
        body: bytes.
        age: seconds since it was put, by the wall clock.
        tries: how often it was refused.
        error_message: the broker's error message.
    """

    id: str
    destination: str
    headers: Mapping[str, str]
    body: bytes
    age: float
    tries: int
    error_message: str
