"""Rows as messages: the columns of a row to send, the message that they make, and its dedupe id.

| column | type | value |
|---|---|---|
| body (or value) | BINARY or STRING | the body, never null; STRING is sent as UTF-8 text |
| destination | STRING | the destination; overrides the option `destination`, required if that is not set |
| headers | MAP<STRING, STRING> | further headers; a null value leaves the header out |
| | ARRAY<STRUCT<key: STRING, value: BINARY>> | the same in Kafka's type; the first of each name is sent |
| content_type | STRING | header `content-type` |
| persistent | BOOLEAN | whether the message survives a restart of the broker |
| priority | TINYINT to BIGINT | 0 to 9 |
| expires | TIMESTAMP or BIGINT | when it expires; BIGINT in milliseconds since the epoch |
| correlation_id | STRING | header `correlation-id` |
| reply_to | STRING | header `reply-to` |
| dedup_id | STRING | the dedupe id, instead of a generated one |

Only the body is required. The columns of the source that say how a message was received are left out (`sequence`,
`message_id` and the like), and any other column raises. Headers that a broker adds to a MESSAGE (`message-id`,
`subscription`, ...) are removed from `headers`, so that rows of the source can be sent unchanged; so is `_AMQ_DUPL_ID`,
as Artemis would otherwise drop them as duplicates of the original messages.

A dedupe id is the same each time a row is sent, so that consumers can detect duplicates: Spark repeats failed tasks and
unfinished batches, and what the first run had committed is then sent twice. Both copies have the same id in the header
`stompy-dedupe-id`.

| mode | id | stable |
|---|---|---|
| column `dedup_id` | the value in the row | always |
| content | job, batch, partition, digest of the message, number of equal messages before it | in any order of rows |
| position | job, batch, partition, index in the partition | only if the order of rows is the same |
| none | - | - |

The modes `content` and `position` also need the same partitions in each run: if `spark.sql.shuffle.partitions` changes
between a crash and the restart, the rows get other ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from stompy.errors import ConfigurationError
from stompy.spark.schema import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

DedupMode = Literal["content", "position", "none"]

_TEXT = ("string",)
_WHOLE = ("tinyint", "smallint", "int", "bigint")

KINDS: Mapping[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "destination": _TEXT,
    "headers": ("map<string,string>", "array<struct<key:string,value:binary>>"),
    "content_type": _TEXT,
    "persistent": ("boolean",),
    "priority": _WHOLE,
    "expires": ("timestamp", "bigint"),
    "correlation_id": _TEXT,
    "reply_to": _TEXT,
    "dedup_id": _TEXT,
}
"""The allowed types of each column, as Spark writes them."""

_RECEIVED = {name for name, _ in COLUMNS} - KINDS.keys()
"""The columns of the source that are not sent."""

OF_THE_FRAME = frozenset({
    "destination", "content-type", "content-length", "message-id", "subscription", "ack", "redelivered", "receipt",
    "receipt-id", "transaction", "timestamp", "_AMQ_DUPL_ID",
})  # fmt: skip
"""Headers that belong to one frame of one session, or have their own column; removed from `headers`."""

_IN_HEADERS = {"correlation_id": "correlation-id", "reply_to": "reply-to"}
_SEPARATOR = b"\0"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message to send.

    Attributes:
        destination: the destination.
        body: bytes, or text that is sent as UTF-8.
        headers: further headers.
        content_type: `None` uses the default for the body's type.
        persistent: `None` uses the default of the sink.
        priority: `None` uses the broker's default.
        expires: milliseconds since the epoch; `None` for never.
        dedup_id: the dedupe id; `None` if the row has none.
    """

    destination: str
    body: bytes | str
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    persistent: bool | None = None
    priority: int | None = None
    expires: int | None = None
    dedup_id: str | None = None

    @property
    def size(self) -> int:
        """The approximate size in bytes on the wire."""
        return (
            len(self.body) + len(self.destination) + sum(len(name) + len(self.headers[name]) for name in self.headers)
        )


class Columns:
    """The columns of the rows to send.

    Args:
        columns: name and type of each, the type as Spark writes it (`string`, `map<string,string>`).
        destination: of rows without one; `None` if all must have one.

    Raises:
        ConfigurationError: a column is unknown, missing, duplicate or of a wrong type; the error names it.
    """

    def __init__(self, columns: Sequence[tuple[str, str]], *, destination: str | None) -> None:
        self._places = {
            place: _checked(name, kind) for place, (name, kind) in enumerate(columns) if name.lower() not in _RECEIVED
        }
        self._names = list(self._places.values())
        self._destination = destination
        found = Counter("body" if name == "value" else name for name in self._names)
        doubled = [name for name in found if found[name] > 1]
        if doubled:
            raise ConfigurationError(f"the rows to send have more than one column for {' and '.join(doubled)}")
        if "body" not in found:
            raise ConfigurationError("the rows to send need a column body (BINARY or STRING)")
        if destination is None and "destination" not in self._names:
            raise ConfigurationError("no destination: set the option destination, or add a column destination (STRING)")

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
        """Yield the message of each row.

        Raises:
            ConfigurationError: a row has no destination, or a null body.
        """
        for batch in batches:
            values = [batch.column(place).to_pylist() for place in self._places]
            for row in zip(*values, strict=True):
                yield self._message(dict(zip(self._names, row, strict=True)))

    def _message(self, row: dict[str, object]) -> Outgoing:
        destination = row.get("destination") or self._destination
        if not destination:
            raise ConfigurationError("a row has no destination, and the option destination is not set")
        headers: dict[str, str] = {}
        content_type = row.get("content_type")
        for name, value in _pairs(row.get("headers") or ()):
            if name == "content-type" and content_type is None:
                content_type = value
            elif value is not None and name not in OF_THE_FRAME:
                headers.setdefault(name, value)
        for column, name in _IN_HEADERS.items():
            if row.get(column) is not None:
                headers[name] = str(row[column])
        body = row.get("body", row.get("value"))
        if body is None:
            raise ConfigurationError(
                "a row has a null body, which would arrive as an empty one: filter such rows out, or send "
                "coalesce(body, '')"
            )
        return Outgoing(
            destination=str(destination),
            body=body,  # type: ignore[arg-type]  # checked to be binary or string
            headers=headers,
            content_type=None if content_type is None else str(content_type),
            persistent=row.get("persistent"),  # type: ignore[arg-type]  # checked to be boolean
            priority=row.get("priority"),  # type: ignore[arg-type]  # checked to be whole
            expires=_milliseconds(row.get("expires")),
            dedup_id=row.get("dedup_id"),  # type: ignore[arg-type]  # checked to be string
        )


def _pairs(given: Any) -> Iterator[tuple[str, str | None]]:
    """Yield the headers of a row, which Arrow returns as pairs for a map, and as mappings for structs."""
    for pair in given.items() if isinstance(given, Mapping) else given:
        name, value = pair.values() if isinstance(pair, Mapping) else pair
        try:
            yield name, value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            raise ConfigurationError(f"the header {name!r} of a row is not UTF-8") from None


def _checked(name: str, kind: str) -> str:
    known = name.lower()
    if known not in KINDS:
        raise ConfigurationError(
            f"unknown column {name!r} in the rows to send: select only those to send, of {', '.join(KINDS)}"
        )
    if kind.lower().replace(" ", "") not in KINDS[known]:
        kinds = " or ".join(kind.upper() for kind in KINDS[known])
        raise ConfigurationError(f"column {name!r} must be {kinds}, not {kind.upper()}; cast it")
    return known


def _milliseconds(moment: object) -> int | None:
    if moment is None or isinstance(moment, int):
        return moment
    assert isinstance(moment, datetime)
    utc = moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)
    return round((utc - _EPOCH).total_seconds() * 1000)


def identified(messages: Iterable[Outgoing], part: str, mode: DedupMode) -> Iterator[Outgoing]:
    """Yield the messages of a partition with an id, unless their row has one.

    The mode `content` stores 16 bytes and a count for each different message of the partition.

    Args:
        messages: in order.
        part: the beginning of all ids: job, batch and partition.
        mode: how the id is made.
    """
    seen: Counter[bytes] = Counter()
    for place, message in enumerate(messages):
        if message.dedup_id is not None or mode == "none":
            yield message
        elif mode == "position":
            yield replace(message, dedup_id=f"{part}/{place}")
        else:
            digest = digest_of(message)
            yield replace(message, dedup_id=f"{part}/{digest.hex()}/{seen[digest]}")
            seen[digest] += 1


def digest_of(message: Outgoing) -> bytes:
    """Return 16 bytes that differ for messages that differ in destination, headers or body."""
    digest = blake2b(digest_size=16)
    fields = [message.destination, message.content_type or "", str(message.persistent), str(message.priority)]
    fields += [str(message.expires), *(f"{name}={message.headers[name]}" for name in sorted(message.headers))]
    for text in fields:
        digest.update(text.encode("utf-8", "surrogatepass"))
        digest.update(_SEPARATOR)
    digest.update(message.body.encode() if isinstance(message.body, str) else message.body)
    return digest.digest()
