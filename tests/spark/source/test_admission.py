from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from stompy.spark.source.admission import split
from stompy.spark.spool.index import Piece, Segment


def piece(first: int, count: int, *, size: int = 100) -> Piece:
    return Piece((Segment(first, count, 1, "0" * 16, size),), first, first + count)


def numbers(part: list[Piece]) -> list[int]:
    return [at for one in part for at in range(one.start, one.end)]


def test_nothing_is_no_part() -> None:
    assert split([], max_parts=None) == []


def test_few_rows_are_one_part_and_many_are_several() -> None:
    assert len(split([piece(0, 30_000)], max_parts=None)) == 1
    assert len(split([piece(0, 75_000)], max_parts=None)) == 3
    assert len(split([piece(0, 10, size=100 << 20)], max_parts=None)) == 4
    assert len(split([piece(0, 25_000)], max_parts=2)) == 2
    assert len(split([piece(0, 3)], max_parts=8)) == 3


@given(st.lists(st.integers(1, 50), min_size=1, max_size=15), st.integers(1, 12))
def test_parts_hold_every_row_once_in_order_and_are_about_the_same(shape: list[int], most: int) -> None:
    whole = []
    at = 0
    for count in shape:
        whole.append(piece(at, count))
        at += count
    parts = split(whole, max_parts=most)
    assert [number for part in parts for number in numbers(part)] == numbers(whole)
    sizes = [sum(one.rows for one in part) for part in parts]
    assert len(parts) == min(most, at)
    assert max(sizes) - min(sizes) <= 1


class CountedPieces(list[Piece]):
    """Pieces that count how often one of them is looked at."""

    looks = 0

    def __iter__(self) -> Iterator[Piece]:
        for one in super().__iter__():
            self.looks += 1
            yield one


def test_more_parts_look_at_no_piece_more_often() -> None:
    """Of a spool with a thousand gaps."""
    few, many = (CountedPieces(piece(100 * gap, 50) for gap in range(1000)) for _ in range(2))
    assert (len(split(few, max_parts=2)), len(split(many, max_parts=500))) == (2, 500)
    assert few.looks == many.looks
