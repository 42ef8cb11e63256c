from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.frames.frame import Frame, Headers
from stompy.spark.spool.record import fingerprint, record_of, storable


def recorded(*pairs: tuple[str, str], body: bytes = b"") -> object:
    return record_of(Frame("MESSAGE", Headers(pairs), body), broker="b", received_at=5)


def test_of_a_repeated_header_the_first_one_counts_and_the_others_are_kept() -> None:
    record = record_of(
        Frame("MESSAGE", Headers([("a", "1"), ("a", "2"), ("b", "3"), ("a", "1")])), broker="b", received_at=5
    )
    assert record.headers == (("a", "1"), ("b", "3"))
    assert record.repeated_headers == (("a", "2"), ("a", "1"))


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
    record = record_of(Frame("MESSAGE", Headers([("timestamp", value)])), broker="b", received_at=5)
    assert record.broker_timestamp == moment


def test_bytes_that_are_no_utf8_stay_visible() -> None:
    assert storable("caf\udce9 \\") == "caf\\xe9 \\"
    assert storable("café") == "café"


@given(st.text(st.characters(codec=None)))
def test_every_text_can_be_stored(text: str) -> None:
    storable(text.encode("utf-8", "replace").decode("utf-8")).encode()


@pytest.mark.parametrize(("headers", "is_so"), [([("redelivered", "TRUE")], True), ([], False)])
def test_redelivered_is_what_the_header_says_and_makes_a_possible_duplicate(
    headers: list[tuple[str, str]], is_so: bool
) -> None:
    record = record_of(Frame("MESSAGE", Headers(headers)), broker="b", received_at=5)
    assert (record.redelivered, record.possible_duplicate) == (is_so, is_so)


def test_the_fingerprint_tells_destination_from_body() -> None:
    assert fingerprint("ab", b"c") != fingerprint("a", b"bc")
    assert fingerprint(None, None) == fingerprint("", b"")
