from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompy.spark.source.admission import Limits, shares


def test_by_default_there_is_no_limit() -> None:
    assert Limits() == Limits(None, None, None)


def test_lanes_share_alike_and_what_one_lacks_the_others_get() -> None:
    assert shares({0: 100, 1: 100}, 50) == {0: 25, 1: 25}
    assert shares({0: 10, 1: 100}, 50) == {0: 10, 1: 40}
    assert shares({0: 10, 1: 5}, 50) == {0: 10, 1: 5}
    assert shares({}, 50) == {}


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1000)), st.integers(1, 2000))
def test_the_limit_is_used_up_and_never_passed(available: dict[int, int], most: int) -> None:
    found = shares(available, most)
    assert sum(found.values()) == min(most, sum(available.values()))
    assert all(0 <= found[lane] <= available[lane] for lane in available)
