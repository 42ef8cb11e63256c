"""How duplicates are recognised: by message id, if the broker's ids are stable, or by a header of the sender."""

from __future__ import annotations

import re

import pyarrow as pa

from stompy.spark.spool.record import Record, fingerprint
from stompy.spark.spool.redelivery import Identity

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
        if self._header is not None:
            value = dict(record.headers).get(self._header)
            return None if value is None else (value, record.destination or "")
        if record.message_id is None or not self._stable:
            return None
        return _own(record.message_id), fingerprint(record.destination, record.body, record.broker_timestamp)

    def of_batch(self, batch: pa.RecordBatch) -> set[Identity]:
        """Return the identities of the messages of a segment."""
        if self._header is not None:
            values = (dict(headers).get(self._header) for headers in batch.column("headers").to_pylist())
            found = zip(values, batch.column("destination").to_pylist(), strict=True)
            return {(value, where or "") for value, where in found if value is not None}
        columns = [batch.column(name).to_pylist() for name in ("message_id", "destination", "body")]
        moments = batch.column("broker_timestamp").cast(pa.int64()).to_pylist()
        rows = zip(*columns, moments, strict=True)
        return {(_own(one), fingerprint(where, body, moment)) for one, where, body, moment in rows if one is not None}


def are_stable(server: str | None) -> bool:
    """Return whether this broker redelivers a message with the same id.

    RabbitMQ's ids are those of deliveries, not of messages; a broker that numbers the deliveries of a session could
    even reuse an id for another message.

    Args:
        server: the `server` header of CONNECTED.
    """
    name = (server or "").lower()
    return any(one in name for one in _STABLE)


def _own(message_id: str) -> str:
    """Return the part of an id that identifies the message."""
    found = _OF_A_CONSUMER.fullmatch(message_id)
    return message_id if found is None else found[1]
