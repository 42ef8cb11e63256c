from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompy.frames.encoder import encode_lines
from stompy.frames.frame import Frame, Headers, headers_from_head, table_of
from stompy.frames.grammar import Version, grammar_of
from stompy.spark.spool.record import Identifier, Record, records_of, storable


def recorded(*given: Headers, table: tuple[list[str], list[tuple[str, ...]]] | None = None) -> list[Record]:
    frames = [Frame("MESSAGE", headers, b"") for headers in given]
    return records_of(frames, table, Identifier(), broker="b", received_at=5)


def test_of_a_repeated_header_the_first_one_counts_and_the_others_are_kept() -> None:
    (record,) = recorded(Headers([("a", "1"), ("a", "2"), ("b", "3"), ("a", "1")]))
    assert (record.names, record.values) == (["a", "b"], ("1", "3"))
    assert record.repeated_headers == [("a", "2"), ("a", "1")]


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1700000000123", 1_700_000_000_123_000),
        ("0", None),
        ("soon", None),
        ("-1", None),
        ("9" * 15, None),
        ("1e3", None),
    ],
)
def test_the_brokers_timestamp_is_milliseconds_or_none(value: str, moment: int | None) -> None:
    (record,) = recorded(Headers([("timestamp", value)]))
    assert record.broker_timestamp == moment


def test_bytes_that_are_no_utf8_stay_visible() -> None:
    assert storable("caf\udce9 \\") == "caf\\xe9 \\"
    assert storable("café") == "café"


@given(st.text(st.characters(codec=None)))
def test_every_text_can_be_stored(text: str) -> None:
    storable(text.encode("utf-8", "replace").decode("utf-8")).encode()


@pytest.mark.parametrize(("headers", "is_so"), [([("redelivered", "TRUE")], True), ([], False)])
def test_redelivered_is_what_the_header_says(headers: list[tuple[str, str]], is_so: bool) -> None:
    assert recorded(Headers(headers))[0].redelivered is is_so


FIELDS = st.lists(
    st.tuples(st.sampled_from(["message-id", "timestamp", "redelivered", "ä", "c:d"]), st.text("1é\n:\\", max_size=3)),
    max_size=4,
)


@given(FIELDS, st.lists(FIELDS, max_size=2), st.integers(0, 3))
@example([], [[("message-id", ""), ("message-id", "")]], 0)
def test_messages_are_recorded_together_as_each_alone(
    usual: list[tuple[str, str]], others: list[list[tuple[str, str]]], times: int
) -> None:
    grammar = grammar_of(Version.V1_2)
    given = [usual] * times + others + [[(name, value + "2") for name, value in usual]]
    lines = [b"\n" + encode_lines("MESSAGE", pairs, grammar=grammar) for pairs in given]
    received = [headers_from_head(line, grammar, "MESSAGE") for line in lines]
    # Of a frame that was not learned, the headers are known already.
    table = table_of([*received[:1], *lines[1:]], grammar)
    assert recorded(*received, table=table) == [record for pairs in given for record in recorded(Headers(pairs))]


def test_messages_with_one_id_differ_in_destination_moment_and_body() -> None:
    given = [("ab", b"c", 1), ("a", b"bc", 1), ("ab", b"d", 1), ("ab", b"c", 2), (None, b"c", 1), ("ab", b"c", None)]
    assert len({Identifier().identify(None, "1", *each) for each in given}) == len(given)
