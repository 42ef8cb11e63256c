from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from stompy.errors import ConfigurationError
from stompy.spark.sink.rows import Columns, Outgoing


@dataclasses.dataclass
class Values:
    values: list[object]

    def to_pylist(self) -> list[object]:
        return self.values


@dataclasses.dataclass
class Rows:
    columns: list[list[object]]

    def column(self, i: int, /) -> Values:
        return Values(self.columns[i])


def made(kinds: Mapping[str, str], *rows: Sequence[object], destination: str | None = "/queue/rows") -> list[Outgoing]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return list(Columns(list(kinds.items()), destination=destination).messages([Rows(columns)]))


def one(kinds: Mapping[str, str], *row: object, **options: Any) -> Outgoing:
    (message,) = made(kinds, row, **options)
    return message


def test_a_body_alone_is_a_message_to_the_destination_of_the_option() -> None:
    assert one({"body": "binary"}, b"\0\xff") == Outgoing("/queue/rows", b"\0\xff")


def test_text_stays_text() -> None:
    assert one({"value": "string"}, "Grüße").body == "Grüße"


def test_a_null_body_is_refused_as_it_would_arrive_as_an_empty_one() -> None:
    assert one({"body": "string"}, "").body == ""
    for column in ("body", "value"):
        with pytest.raises(ConfigurationError, match=r"a row has a null body.*coalesce\(body, ''\)"):
            one({column: "string"}, None)


def test_every_column_finds_its_place() -> None:
    message = one(
        {
            "body": "string", "destination": "string", "headers": "map<string,string>", "content_type": "string",
            "persistent": "boolean", "priority": "int", "expires": "bigint", "correlation_id": "string",
            "reply_to": "string", "dedup_id": "string",
        },
        "b", "/topic/own", [("a", "1")], "text/csv", True, 7, 1_700_000_000_000, "c-1", "/queue/replies", "d-1",
    )  # fmt: skip
    assert message == Outgoing(
        "/topic/own",
        "b",
        {"a": "1", "correlation-id": "c-1", "reply-to": "/queue/replies"},
        content_type="text/csv",
        persistent=True,
        priority=7,
        expires=1_700_000_000_000,
        dedup_id="d-1",
    )


def test_rows_keep_their_order_over_tables() -> None:
    columns = Columns([("body", "string")], destination="/queue/a")
    tables = [Rows([["1", "2"]]), Rows([["3"]])]
    assert [message.body for message in columns.messages(tables)] == ["1", "2", "3"]


def test_a_row_without_destination_takes_the_option() -> None:
    kinds = {"body": "string", "destination": "string"}
    assert [message.destination for message in made(kinds, ("x", None), ("y", "/queue/y"))] == [
        "/queue/rows",
        "/queue/y",
    ]


def test_a_row_with_no_destination_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no destination"):
        made({"body": "string", "destination": "string"}, ("x", None), destination=None)


def test_headers_of_a_received_frame_are_left_out() -> None:
    headers = [
        ("message-id", "7"), ("subscription", "0"), ("ack", "7"), ("destination", "/queue/old"), ("timestamp", "1"),
        ("redelivered", "true"), ("content-length", "3"), ("_AMQ_DUPL_ID", "d-1"), ("kind", "order"),
    ]  # fmt: skip
    message = one({"body": "string", "headers": "map<string,string>"}, "x", headers)
    assert message.headers == {"kind": "order"}
    assert message.destination == "/queue/rows"


def test_headers_may_be_the_array_of_kafkas_source_of_which_the_first_of_a_name_is_sent() -> None:
    kinds = {"body": "string", "headers": "array<struct<key:string,value:binary>>"}
    pairs = [("message-id", b"7"), ("n", "ä".encode()), ("n", b"8"), ("m", None), ("content-type", b"a/b")]
    message = one(kinds, "x", [{"key": name, "value": value} for name, value in pairs])
    assert message.headers == {"n": "ä"}
    assert message.content_type == "a/b"
    with pytest.raises(ConfigurationError, match="the header 'n' of a row is not UTF-8"):
        one(kinds, "x", [{"key": "n", "value": b"\xff"}])


def test_a_content_type_among_the_headers_is_taken_unless_it_has_a_column() -> None:
    headers = [("content-type", "text/plain")]
    kinds = {"body": "string", "headers": "map<string,string>"}
    assert one(kinds, "x", headers).content_type == "text/plain"
    assert one({**kinds, "content_type": "string"}, "x", headers, "text/csv").content_type == "text/csv"


def test_a_header_without_a_value_is_left_out() -> None:
    assert one({"body": "string", "headers": "map<string,string>"}, "x", [("a", None), ("b", "")]).headers == {"b": ""}


@pytest.mark.parametrize("zone", [timezone.utc, timezone(timedelta(hours=2))])
def test_a_moment_of_expiry_is_in_milliseconds_since_the_epoch(zone: timezone) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc).astimezone(zone)
    assert one({"body": "string", "expires": "timestamp"}, "x", moment).expires == 1_767_225_600_000


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("body", "string"), ("destinaton", "string")], "unknown column 'destinaton'.*destination, headers"),
        ([("body", "int")], "BINARY or STRING, not INT"),
        ([("body", "string"), ("headers", "map<string,int>")], "MAP<STRING,STRING>"),
        ([("body", "string"), ("value", "string")], "more than one column for body"),
        ([("body", "string"), ("Body", "string")], "more than one column for body"),
        ([("destination", "string")], "need a column body"),
    ],
)
def test_columns_that_cannot_be_sent_are_refused_by_name(columns: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Columns(columns, destination="/queue/a")


def test_somewhere_the_destination_must_be_said() -> None:
    with pytest.raises(ConfigurationError, match="no destination"):
        Columns([("body", "string")], destination=None)
