from __future__ import annotations

import pytest

from stompy.spark.schema import COLUMNS, arrow_schema, columns, ddl, stored_schema


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("text", [False, True])
def test_both_schemas_have_the_same_columns_in_the_same_order(text: bool, array: bool) -> None:
    found = columns(text=text, array=array)
    names = [name for name, _ in found]
    assert ddl(text=text, array=array) == ", ".join(f"{name} {kind}" for name, kind in found)
    assert names == arrow_schema(text=text, array=array).names
    assert (names[-1] == "text") is text
    assert (dict(found)["headers"] == "ARRAY<STRUCT<key: STRING, value: BINARY>>") is array


def test_a_spool_has_the_columns_of_a_message_and_the_headers_that_were_repeated() -> None:
    assert stored_schema().names == [*arrow_schema().names, "repeated_headers"]


def test_the_sequence_comes_first() -> None:
    assert COLUMNS[0][0] == "sequence"


def test_times_are_microseconds_in_utc_as_spark_wants_them() -> None:
    assert str(arrow_schema().field("received_at").type) == "timestamp[us, tz=UTC]"
