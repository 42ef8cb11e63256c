from __future__ import annotations

import json

import pytest

from stompy.errors import SpoolMismatch
from stompy.spark.source.offsets import Offset


@pytest.mark.parametrize(
    ("offset", "more"),
    [(Offset("s", 20), {}), (Offset("s", 20, again=(3, 9), lost=7), {"again": [3, 9], "lost": 7})],
)
def test_it_comes_back_from_a_checkpoint(offset: Offset, more: dict[str, object]) -> None:
    stored = json.loads(json.dumps(offset.json()))
    assert stored == {"v": 2, "spool": "s", "next": 20, **more}
    assert Offset.from_json(stored, path="/spool") == offset


@pytest.mark.parametrize(
    "stored",
    [{}, {"v": 1, "spool": "s", "seq": {"0": 5}}, {"index": 5}, {"v": 2, "next": 5}, {"v": 3, "spool": "s", "next": 5}],
)
def test_another_sources_offset_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(SpoolMismatch, match="its own checkpointLocation"):
        Offset.from_json(stored, path="/spool")
