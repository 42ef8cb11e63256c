from __future__ import annotations

import json

import pytest

from stompy.errors import SpoolMismatch
from stompy.spark.source.offsets import Offset


def test_it_comes_back_from_a_checkpoint() -> None:
    offset = Offset("s", {1: 20, 0: 10})
    stored = json.loads(json.dumps(offset.json()))
    assert stored == {"v": 1, "spool": "s", "seq": {"0": 10, "1": 20}}
    assert Offset.from_json(stored, path="/spool") == offset


def test_a_lane_that_it_does_not_name_is_at_its_beginning() -> None:
    assert Offset("s", {0: 10}).of(3) == 0


@pytest.mark.parametrize("stored", [{}, {"v": 2, "spool": "s", "seq": {}}, {"index": 5}, {"v": 1, "seq": {}}])
def test_another_sources_offset_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(SpoolMismatch, match="its own checkpointLocation"):
        Offset.from_json(stored, path="/spool")
