from __future__ import annotations

from pathlib import Path

import pytest

from stompy.spark.spool.claims import claims
from stompy.spark.spool.index import Segment, segment_of
from tests.spark.spool.builders import spool_files


def test_the_name_of_a_segment_says_what_is_in_it() -> None:
    segment = Segment(1200, 17, 3, "01234567")
    assert segment.name == "seg-00000000000000001200-0000017-e00000003-01234567.arrow"
    assert segment_of(segment.name) == segment
    assert segment.end == 1217


@pytest.mark.parametrize(
    "name",
    [
        "seg-1-1-e1-01234567.arrow",
        "seg-00000000000000001200-0000017-e00000003-01234567.arrow.bak",
        ".tmp-seg-00000000000000001200-0000017-e00000003-01234567.arrow-00",
        "low",
        "",
    ],
)
def test_other_names_are_no_segments(name: str) -> None:
    assert segment_of(name) is None


def test_claims_are_listed_by_their_number_and_other_files_are_none(tmp_path: Path) -> None:
    files = spool_files(tmp_path / "spool")
    files.make_folder("epoch")
    for name in ("00000010-aaaaaaaaaaaa", "00000009-bbbbbbbbbbbb", "00000011"):
        files.write(f"epoch/{name}", b"")
    assert claims(files) == ["00000009-bbbbbbbbbbbb", "00000010-aaaaaaaaaaaa"]
