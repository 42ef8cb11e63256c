"""One message as a row of the spool, and its identity, by which duplicates are recognised.

The identity is the message id, if the broker's ids are stable, or a header of the sender.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import pyarrow as pa

from stompy.connection.message import Message
from stompy.frames.frame import Frame
from stompy.world import time

_LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest timestamp of Spark."""


Identity = tuple[str | int, ...]
"""What distinguishes a message; see `Identifier`."""


class Record(NamedTuple):
    """The stored values of a message without its sequence number; times in microseconds since the epoch.

    A tuple, as it is cheap to make, and many of them are cheap to turn into columns.
    """

    message_id: str | None
    destination: str | None
    names: Sequence[str]
    """Of the headers, each once; messages that came together usually share them."""
    values: Sequence[str]
    body: bytes
    content_type: str | None
    redelivered: bool
    broker_timestamp: int | None
    received_at: int
    subscription: str | None
    broker: str
    repeated_headers: Sequence[tuple[str, str]] | None = None
    identity: Identity | None = None
    """By which duplicates are recognised; not stored."""


_RECORD: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)
"""Makes a record of its fields; in C, as it is called for each message."""


def records_of(
    messages: Sequence[Message | Frame],
    table: tuple[Sequence[str], Sequence[tuple[str, ...]]] | None,
    identifier: Identifier | None,
    *,
    broker: str,
    received_at: int,
) -> list[Record]:
    """Return the rows of messages; never raises for what a broker can send.

    Args:
        messages: as received, at least one.
        table: their headers, as `header_table` returns them.
        identifier: of the messages; `None` if none is delivered twice.
        broker: its address, without credentials.
        received_at: microseconds since the epoch.
    """
    if table is None:
        return [_record_of(message, identifier, broker, received_at) for message in messages]
    names, rows = table
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))

    def column(name: str) -> Sequence[str | None]:
        return columns.get(name, nothing)

    nothing = [None] * len(messages)
    ids, destinations, bodies = column("message-id"), column("destination"), [message.body for message in messages]
    flags = [text is not None and text.lower() == "true" for text in column("redelivered")]
    moments = [_timestamp(text) for text in column("timestamp")]
    identities: Iterable[Identity | None] = repeat(None)
    if identifier is not None:
        identities = map(identifier.identify, column(identifier.header), ids, destinations, bodies, moments)
    named = (ids, destinations, repeat(names), rows, bodies, column("content-type"), flags, moments)
    fields = zip(*named, repeat(received_at), column("subscription"), repeat(broker), repeat(None), identities)
    return list(map(_RECORD, fields))


def _record_of(message: Message | Frame, identifier: Identifier | None, broker: str, received_at: int) -> Record:
    first: dict[str, str] = {}
    repeated: list[tuple[str, str]] = []
    for name, value in message.headers.pairs:
        # STOMP 1.2, Repeated Header Entries: the first one is the value.
        if (stored := storable(name)) in first:
            repeated.append((stored, storable(value)))
        else:
            first[stored] = storable(value)
    table = list(first), [tuple(first.values())]
    (made,) = records_of([message], table, identifier, broker=broker, received_at=received_at)
    return made._replace(repeated_headers=repeated or None)


def storable(text: str) -> str:
    r"""Return text that can be encoded as UTF-8: bytes that were not UTF-8 on the wire become `\xff` and the like."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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

    Two are the same if their id, their destination, the broker's timestamp, and the size and CRC-32 of the body are: a
    broker that lost its disk reuses ids.

    Args:
        dedup_header: the header whose value identifies a message within its destination; `None` uses the message id
            and the content.
        stable: whether a message that is delivered again has the same id; see `are_stable`.
    """

    def __init__(self, dedup_header: str | None = None, *, stable: bool = True) -> None:
        self.header = dedup_header or ""
        """The name of the header, or nothing."""
        self._stable = stable

    def of_batch(self, batch: pa.RecordBatch) -> set[Identity]:
        """Return the identities of the messages of a segment."""
        headers, *columns = (
            batch.column(name).to_pylist() for name in ("headers", "message_id", "destination", "body")
        )
        values = [dict(pairs).get(self.header) for pairs in headers]
        moments = batch.column("broker_timestamp").cast(pa.int64()).to_pylist()
        found = map(self.identify, values, *columns, moments)
        return {identity for identity in found if identity is not None}

    def identify(
        self, value: str | None, message_id: str | None, destination: str | None, body: bytes, moment: int | None
    ) -> Identity | None:
        """Return the identity of a message.

        Args:
            value: of the header.
            message_id: the broker's.
            destination: of the message.
            body: of the message.
            moment: the broker's timestamp.
        """
        if self.header:
            return None if value is None else (value, destination or "")
        if message_id is None or not self._stable:
            return None
        found = _OF_A_CONSUMER.fullmatch(message_id) if "," in message_id else None
        return found[1] if found else message_id, destination or "", moment or 0, len(body), zlib.crc32(body)


def are_stable(server: str | None) -> bool:
    """Return whether this broker redelivers a message with the same id.

    RabbitMQ's ids are those of deliveries, not of messages; a broker that numbers the deliveries of a session could
    even reuse an id for another message.

    Args:
        server: the `server` header of CONNECTED.
    """
    name = (server or "").lower()
    return any(one in name for one in _STABLE)
