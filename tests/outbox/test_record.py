from __future__ import annotations

from dataclasses import replace

import pytest

from stompy.outbox.record import DEAD_LETTERS, WAITING, StoredLedger, as_json, ledger_of, row_of
from tests.outbox.conftest import a_row

KEY = b"k" * 16


def test_a_message_is_read_as_it_was_written() -> None:
    row = a_row(b"\x00\xff", seq=7)
    assert row_of(row.columns(WAITING, KEY), WAITING, KEY) == row


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 2},
        {"id": "id-2"},
        {"destination": "/queue/b"},
        {"headers": '{"a":"b"}'},
        {"body": b"bodY"},
        {"put_ms": 1},
        {"tries": 1},
        {"error_message": "no"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_message_that_was_changed_is_refused(change: dict[str, object]) -> None:
    row = a_row(seq=1)
    changed = replace(row, **change).columns(WAITING, KEY)[:-1]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="checksum"):
        row_of((*changed, row.checksum(WAITING, KEY)), WAITING, KEY)


def test_a_message_of_another_table_or_outbox_is_refused() -> None:
    columns = a_row().columns(WAITING, KEY)
    for table, key in ((DEAD_LETTERS, KEY), (WAITING, b"l" * 16)):
        with pytest.raises(ValueError, match="checksum"):
            row_of(columns, table, key)


def test_a_column_of_another_type_is_refused() -> None:
    columns = a_row().columns(WAITING, KEY)
    with pytest.raises(ValueError, match="type"):
        row_of((*columns[:4], "text", *columns[5:]), WAITING, KEY)
    with pytest.raises(ValueError, match="type"):
        row_of(columns[:-1], WAITING, KEY)


def test_headers_are_read_as_they_were_written() -> None:
    headers = {"content-type": "text/plain", "größe": 'a"\\\n:'}
    assert a_row(headers=as_json(headers)).header_map() == headers


def test_the_ledger_is_read_as_it_was_written() -> None:
    ledger = StoredLedger(KEY, commits=3, opens=1, next_seq=9, waiting=2, dead_letters=1, size=100, digest=-5)
    assert ledger_of(ledger.columns()) == ledger


@pytest.mark.parametrize("place", range(1, 10))
def test_a_ledger_that_was_changed_is_refused(place: int) -> None:
    columns = list(StoredLedger(KEY, commits=3).columns())
    columns[place] = b"l" * 16 if place == 1 else 77
    with pytest.raises(ValueError, match="checksum"):
        ledger_of(tuple(columns))


@pytest.mark.parametrize("columns", [(), (1, b"short", 0, 0, 0, 0, 0, 0, 0, 0), (1, "text", 0, 0, 0, 0, 0, 0, 0, 0)])
def test_what_is_no_ledger_is_refused(columns: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="type"):
        ledger_of(columns)


def test_what_came_and_went_leaves_no_trace_in_the_ledger() -> None:
    ledger = StoredLedger(KEY)
    rows = [a_row(seq=place, id=f"{place}") for place in range(50)]  # enough for the sum to wrap
    for row in rows:
        ledger.count(row, WAITING, times=1)
    assert (ledger.waiting, ledger.size) == (50, sum(row.size for row in rows))
    assert -(2**63) <= ledger.digest < 2**63
    assert ledger.digest != 0
    for row in rows:
        ledger.count(row, WAITING, times=-1)
        ledger.count(row, DEAD_LETTERS, times=1)
        ledger.count(row, DEAD_LETTERS, times=-1)
    assert ledger == StoredLedger(KEY)
