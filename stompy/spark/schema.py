"""The columns of a message, as DDL for Spark and as an Arrow schema.

The Arrow schema is not derived by Spark, whose function for that is internal and changes between releases; Spark only
accepts batches whose schema is exactly equal to its own.

| column | type | value |
|---|---|---|
| sequence | BIGINT | the sequence number, which no other spool of the source has; identifies the row permanently |
| message_id | STRING | header `message-id` |
| destination | STRING | header `destination` |
| headers | MAP | every header; of a repeated one the first value (`headersAs=array`: all, as Kafka's source has them) |
| body | BINARY | the bytes as received |
| content_type | STRING | header `content-type`, or null |
| redelivered | BOOLEAN | header `redelivered` is `true` |
| possible_duplicate | BOOLEAN | whether a copy may be in this spool or another one; see the page on delivery |
| broker_timestamp | TIMESTAMP | header `timestamp` (milliseconds), or null |
| received_at | TIMESTAMP | when it was received; stored, so that it is the same when read again |
| subscription | STRING | header `subscription` |
| broker | STRING | the address of the broker, without credentials |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: tuple[tuple[str, str], ...] = (
    ("sequence", "BIGINT"),
    ("message_id", "STRING"),
    ("destination", "STRING"),
    ("headers", "MAP<STRING, STRING>"),
    ("body", "BINARY"),
    ("content_type", "STRING"),
    ("redelivered", "BOOLEAN"),
    ("possible_duplicate", "BOOLEAN"),
    ("broker_timestamp", "TIMESTAMP"),
    ("received_at", "TIMESTAMP"),
    ("subscription", "STRING"),
    ("broker", "STRING"),
)
"""Name and type of every column of a message."""

_MAP, _ARRAY = "MAP<STRING, STRING>", "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def columns(*, array: bool = False) -> tuple[tuple[str, str], ...]:
    """Return name and type of each column of a query.

    Args:
        array: whether `headers` has the type that Kafka's source uses.
    """
    return tuple((name, _ARRAY if array and kind == _MAP else kind) for name, kind in COLUMNS)


def ddl(*, array: bool = False, comment: str = "") -> str:
    """Return the columns as a DDL schema of Spark, with a comment on the first one."""
    first, *others = (f"{name} {kind}" for name, kind in columns(array=array))
    if comment:
        quoted = comment.replace("\\", "\\\\").replace("'", "\\'")
        first += f" COMMENT '{quoted}'"
    return ", ".join([first, *others])


def arrow_schema(*, array: bool = False) -> pa.Schema:
    """Return the columns as an Arrow schema."""
    return _arrow(columns(array=array))


def stored_schema() -> pa.Schema:
    """Return the schema of a spool: all columns, and the further values of repeated headers, which is usually null."""
    return _arrow((*COLUMNS, ("repeated_headers", _MAP)))


def _arrow(found: tuple[tuple[str, str], ...]) -> pa.Schema:
    import pyarrow as pa

    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {
        "BIGINT": pa.int64(),
        "STRING": pa.string(),
        _MAP: pa.map_(pa.string(), pa.string()),
        _ARRAY: pa.list_(pa.field("element", pair)),
        "BINARY": pa.binary(),
        "BOOLEAN": pa.bool_(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in found])
