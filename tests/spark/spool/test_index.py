from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompy.errors import SpoolDataLossError
from stompy.spark.spool.index import Segment, SegmentIndex, sound


def segment(first: int, count: int, *, epoch: int = 1, size: int = 0) -> Segment:
    return Segment(first, count, epoch, f"{first:016x}", size or count * 100)


def index_of(*segments: Segment, low: int = 0) -> SegmentIndex:
    index = SegmentIndex(low=low, path="/spool/a")
    for one in segments:
        index.add(one)
    return index


def test_an_empty_spool_goes_on_at_its_low_watermark() -> None:
    assert index_of(low=70).next == 70
    assert index_of(segment(0, 10), segment(10, 5)).next == 15


def test_a_piece_knows_its_rows_and_about_how_large_it_is() -> None:
    index = SegmentIndex(low=10, path="/spool/a")
    index.add(Segment(10, 10, 1, "0" * 16, 1000))
    (made,) = index.pieces(12, 17)
    assert (made.start, made.end, made.rows, made.size) == (12, 17, 5, 500)


def test_pieces_cover_exactly_what_is_asked() -> None:
    index = index_of(segment(0, 10), segment(10, 5), segment(15, 10))
    assert [(one.start, one.end, len(one.segments)) for one in index.pieces(3, 17)] == [(3, 17, 3)]
    assert [(one.start, one.end, len(one.segments)) for one in index.pieces(10, 15)] == [(10, 15, 1)]
    assert list(index.pieces(7, 7)) == []


@pytest.mark.parametrize(("start", "end", "gap"), [(0, 12, "5 to 9"), (6, 12, "6 to 9"), (10, 30, "20 to 29")])
def test_a_gap_is_an_error_that_names_the_messages(start: int, end: int, gap: str) -> None:
    index = index_of(segment(0, 5), segment(10, 10))
    with pytest.raises(SpoolDataLossError, match=rf"/spool/a: the segments with the messages {gap} "):
        list(index.pieces(start, end))
    assert sum(one.rows for one in index.pieces(start, end, fail=False)) < end - start


def test_what_lies_below_the_low_watermark_is_taken_out() -> None:
    index = index_of(segment(0, 10), segment(10, 10), segment(20, 10))
    assert [one.first for one in index.remove_below(25)] == [0, 10]
    assert (index.low, index.size, index.next) == (25, 1000, 30)
    assert index.remove_below(5) == []
    assert index.low == 25


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20), st.data())
def test_a_piece_has_the_segments_of_its_rows_also_where_it_is_cut_and_pickled(
    counts: list[int], data: st.DataObject
) -> None:
    firsts = [0, *itertools.accumulate(counts)]
    index = index_of(*(segment(first, count) for first, count in zip(firsts, counts, strict=False)))
    start = data.draw(st.integers(0, index.next))
    end = data.draw(st.integers(start, index.next))
    pieces = list(index.pieces(start, end))
    assert [(piece.start, piece.end) for piece in pieces] == [(start, end)] * (start < end)
    for piece in pieces:
        first = data.draw(st.integers(start, end - 1))
        for part in (piece, piece.between(first, data.draw(st.integers(first + 1, end)))):
            expected = [one for one in index.segments if max(one.first, part.start) < min(one.end, part.end)]
            assert list(part.segments) == expected
            named = [one.name for one in pickle.loads(pickle.dumps(part)).segments]
            assert named == [one.name for one in expected]
        assert sum(piece.between(at, at + 1).size for at in range(start, end)) == piece.size == 100 * piece.rows


def test_a_limit_of_bytes_gives_one_message_at_least() -> None:
    index = index_of(segment(0, 10, size=1000), segment(10, 10, size=1000))
    assert index.end_within(0, 1) == 1
    assert index.end_within(0, 500) == 5
    assert index.end_within(0, 1500) == 15
    assert index.end_within(5, 10_000) == 20
    assert index.end_within(20, 10) == 20


def kept(*segments: Segment, epoch: int, start: int) -> list[tuple[int, int]]:
    good, orphans = sound(segments, epoch=epoch, start=start)
    assert sorted([*good, *orphans]) == sorted(segments)
    return [(one.first, one.epoch) for one in good]


def test_what_a_fenced_receiver_wrote_beyond_its_successors_start_does_not_count() -> None:
    zombie = segment(100, 50, epoch=1)
    assert kept(segment(0, 100, epoch=1), zombie, epoch=2, start=100) == [(0, 1)]
    assert kept(segment(0, 100, epoch=1), zombie, segment(100, 20, epoch=2), epoch=2, start=100) == [(0, 1), (100, 2)]
    assert kept(segment(0, 100, epoch=1), zombie, epoch=1, start=0) == [(0, 1), (100, 1)]


def test_of_two_that_overlap_the_later_receivers_counts() -> None:
    late = segment(50, 30, epoch=1)
    assert kept(segment(50, 20, epoch=2), segment(70, 40, epoch=2), late, epoch=3, start=110) == [(50, 2), (70, 2)]
    assert kept(segment(40, 20, epoch=1), segment(45, 60, epoch=2), epoch=3, start=110) == [(45, 2)]


def test_a_receiver_that_is_not_known_to_have_begun_does_not_count() -> None:
    assert kept(segment(0, 10, epoch=1), segment(10, 5, epoch=3), epoch=2, start=10) == [(0, 1)]
