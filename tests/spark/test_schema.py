from __future__ import annotations

import pytest

from stompy.spark.schema import COLUMNS, arrow_schema, ddl


@pytest.mark.parametrize("text", [False, True])
def test_both_schemas_have_the_same_columns_in_the_same_order(text: bool) -> None:
    names = [part.strip().split(" ")[0] for part in ddl(text=text).replace("STRING, STRING", "").split(",")]
    assert names == arrow_schema(text=text).names
    assert (names[-1] == "text") is text


def test_the_sequence_comes_first() -> None:
    assert COLUMNS[0][0] == "sequence"


def test_times_are_microseconds_in_utc_as_spark_wants_them() -> None:
    assert str(arrow_schema().field("received_at").type) == "timestamp[us, tz=UTC]"
