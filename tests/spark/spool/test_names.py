from __future__ import annotations

import pytest

from stompy.spark.spool.claims import ClaimName, claim_of
from stompy.spark.spool.index import Segment, segment_of


def test_the_name_of_a_segment_says_what_is_in_it() -> None:
    segment = Segment(1200, 17, 3, "0123456789abcdef", 4096, 5.0)
    assert segment.name == "seg-00000000000000001200-0000017-e00000003-0123456789abcdef.arrow"
    assert segment_of(segment.name, size=4096, modified=5.0) == segment
    assert segment.end == 1217


@pytest.mark.parametrize(
    "name",
    [
        "seg-1-1-e1-0123456789abcdef.arrow",
        "seg-00000000000000001200-0000017-e00000003-0123456789abcdef.arrow.bak",
        ".tmp-seg-00000000000000001200-0000017-e00000003-0123456789abcdef.arrow-00",
        "low",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert segment_of(name, size=1, modified=0.0) is None


def test_claims_sort_by_their_number() -> None:
    names = [ClaimName(10, "aaaaaaaaaaaa"), ClaimName(9, "bbbbbbbbbbbb")]
    assert sorted(one.name for one in names) == [sorted(names)[0].name, sorted(names)[1].name]
    assert [claim_of(one.name) for one in names] == names
    assert claim_of("00000010") is None
