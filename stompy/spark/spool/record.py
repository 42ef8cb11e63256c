"""One message as a row of the spool, and its identity, by which duplicates are recognised.

The identity is the message id, if the broker's ids are stable, or a header of the sender.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from stompy.connection.message import Message
from stompy.frames.frame import Frame
from stompy.world import time

_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest timestamp of Spark."""


Identity = tuple[str, str]
"""An id, and a digest of the rest of the message or its destination."""


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


def record_of(message: Message | Frame, *, broker: str, received_at: int) -> Record:
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
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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


_STABLE = ("activemq", "artemis", "stompy-broker")
"""Parts of the `server` header of brokers that redeliver a message with the same message id."""
_OF_A_CONSUMER = re.compile(r"\d+,(\d+)")
"""An id of Artemis: the number of the consumer, which differs in each session, and that of the message."""


class Identifier:
    """Identifies messages, to recognise duplicates.

    Args:
        dedup_header: the header whose value identifies a message within its destination; `None` uses the message id
            and the content.
        stable: whether a message that is delivered again has the same id; see `are_stable`.
    """

    def __init__(self, dedup_header: str | None = None, *, stable: bool = True) -> None:
        self._header = dedup_header
        self._stable = stable

    def of(self, record: Record) -> Identity | None:
        """Return the identity of a message; `None` if it has none."""
        return self._of(record.message_id, record.destination, record.headers, record.body, record.broker_timestamp)

    def of_batch(self, batch: pa.RecordBatch) -> set[Identity]:
        """Return the identities of the messages of a segment."""
        columns = [batch.column(name).to_pylist() for name in ("message_id", "destination", "headers", "body")]
        moments = batch.column("broker_timestamp").cast(pa.int64()).to_pylist()
        found = (self._of(*row) for row in zip(*columns, moments, strict=True))
        return {identity for identity in found if identity is not None}

    def _of(
        self,
        message_id: str | None,
        destination: str | None,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        moment: int | None,
    ) -> Identity | None:
        if self._header is not None:
            value = dict(headers).get(self._header)
            return None if value is None else (value, destination or "")
        if message_id is None or not self._stable:
            return None
        found = _OF_A_CONSUMER.fullmatch(message_id)
        return message_id if found is None else found[1], fingerprint(destination, body, moment)


def are_stable(server: str | None) -> bool:
    """Return whether this broker redelivers a message with the same id.

    RabbitMQ's ids are those of deliveries, not of messages; a broker that numbers the deliveries of a session could
    even reuse an id for another message.

    Args:
        server: the `server` header of CONNECTED.
    """
    name = (server or "").lower()
    return any(one in name for one in _STABLE)
