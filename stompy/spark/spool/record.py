"""One message as a row of the spool."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from stompy.frames.frame import Headers
from stompy.world import time

_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest timestamp of Spark."""


class Received(Protocol):
    """The parts of a received message that are stored; `stompy.connection.message.Message` has them."""

    @property
    def headers(self) -> Headers:
        """All headers."""
        ...

    @property
    def body(self) -> bytes:
        """The bytes as received."""
        ...


@dataclass(frozen=True, slots=True)
class Record:
    """The stored values of a message without its sequence number; times in microseconds since the epoch."""

    message_id: str | None
    destination: str | None
    headers: tuple[tuple[str, str], ...]
    body: bytes
    content_type: str | None
    redelivered: bool
    possible_duplicate: bool
    broker_timestamp: int | None
    received_at: int
    subscription: str | None
    broker: str
    repeated_headers: tuple[tuple[str, str], ...] | None = None

    @property
    def size(self) -> int:
        """The bytes that count towards limits."""
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


def record_of(message: Received, *, broker: str, received_at: int) -> Record:
    """Return the row of a message; never raises for what a broker can send.

    Args:
        message: as received.
        broker: its address, without credentials.
        received_at: microseconds since the epoch.
    """
    first: dict[str, str] = {}
    repeated: list[tuple[str, str]] = []
    for name, value in message.headers.pairs:
        # STOMP 1.2, Repeated Header Entries: the first one is the value.
        if (stored := storable(name)) in first:
            repeated.append((stored, storable(value)))
        else:
            first[stored] = storable(value)
    redelivered = first.get("redelivered", "").lower() == "true"
    return Record(
        message_id=first.get("message-id"),
        destination=first.get("destination"),
        headers=tuple(first.items()),
        body=message.body,
        content_type=first.get("content-type"),
        redelivered=redelivered,
        # Duplicates that this spool knows are dropped. Of the others, another spool may have stored any.
        possible_duplicate=redelivered,
        broker_timestamp=_timestamp(first.get("timestamp")),
        received_at=received_at,
        subscription=first.get("subscription"),
        broker=broker,
        repeated_headers=tuple(repeated) or None,
    )


def storable(text: str) -> str:
    r"""Return text that can be encoded as UTF-8: bytes that were not UTF-8 on the wire become `\xff` and the like."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text


def fingerprint(destination: str | None, body: bytes | None, moment: int | None = None) -> str:
    """Return a short digest of a message, so that two messages with the same id are not taken for duplicates.

    Args:
        destination: of the message.
        body: its bytes.
        moment: the broker's timestamp in microseconds, as a broker that lost its disk reuses message ids.
    """
    digest = blake2b((destination or "").encode(), digest_size=8)
    digest.update(b"\0" if moment is None else f"\0{moment}\0".encode())
    digest.update(body or b"")
    return digest.hexdigest()


def now_us() -> int:
    """Return the microseconds since the epoch; the wall clock, as other machines must understand the value."""
    return time.time_ns() // 1000


def _timestamp(text: str | None) -> int | None:
    """Return a `timestamp` header, which has milliseconds, in microseconds; `None` if it is missing or invalid."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    milliseconds = int(text)
    return milliseconds * 1000 if 0 < milliseconds <= _LATEST_MS else None
