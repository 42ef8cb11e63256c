"""The columns of a message: for Spark as DDL, for Arrow by hand.

The Arrow schema is written out, since Spark takes a batch only if it is the same to the letter, and Spark's own
function that would make it is internal and changes between releases.

| column | type | is |
|---|---|---|
| sequence | BIGINT | its place in the spool; names the row for good |
| message_id | STRING | header `message-id` |
| destination | STRING | header `destination` |
| headers | MAP | every header; of a repeated one the first value (`headersAs=array`: all, as Kafka's source has them) |
| body | BINARY | the bytes as received |
| content_type | STRING | header `content-type`, or null |
| redelivered | BOOLEAN | header `redelivered` is `true` |
| possible_duplicate | BOOLEAN | it may be in the spool twice; see the page on delivery |
| broker_timestamp | TIMESTAMP | header `timestamp` (milliseconds), or null |
| received_at | TIMESTAMP | when the receiver took it; stored, so that a replay has the same |
| subscription | STRING | header `subscription` |
| broker | STRING | the address it came from, without credentials |
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

ORDER = ("sequence",)
"""The columns by which the messages of a micro-batch are in the order of receipt."""

TEXT = ("text", "STRING")
"""The column that `bodyAs=text` adds: the body, decoded."""


_MAP, _ARRAY = "MAP<STRING, STRING>", "ARRAY<STRUCT<key: STRING, value: BINARY>>"


def columns(*, text: bool = False, array: bool = False) -> tuple[tuple[str, str], ...]:
    """Return name and type of the columns that a query gets.

    Args:
        text: with the column `text`.
        array: with `headers` in the form of Kafka's source.
    """
    found = ((name, _ARRAY if array and kind == _MAP else kind) for name, kind in COLUMNS)
    return (*found, *((TEXT,) if text else ()))


def ddl(*, text: bool = False, array: bool = False) -> str:
    """Return them as Spark writes a schema."""
    return ", ".join(f"{name} {kind}" for name, kind in columns(text=text, array=array))


def arrow_schema(*, text: bool = False, array: bool = False) -> pa.Schema:
    """Return them as an Arrow schema."""
    return _arrow(columns(text=text, array=array))


def stored_schema() -> pa.Schema:
    """Return what a spool holds: all columns, and the values of repeated headers after the first, mostly null."""
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
