from __future__ import annotations

import os
from pathlib import Path

import pytest

from stompy.errors import SpoolDataLoss
from stompy.spark.spool.claims import Patience
from stompy.spark.spool.files import LocalFiles
from stompy.spark.spool.state import read_mark
from stompy.spark.spool.view import LaneView
from tests.spark.spool.making import lane_writer, origin_of, records, spool_files


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return spool_files(tmp_path / "spool")


def test_it_sees_what_another_writes(files: LocalFiles) -> None:
    view = LaneView(files, origin_of(files))
    assert view.next == 0
    writer = lane_writer(files)
    writer.seal(records(range(10)))
    assert view.next == 0
    view.refresh()
    assert view.next == 10
    writer.close()


def test_nothing_new_is_shown_while_an_owner_is_about_to_begin(files: LocalFiles) -> None:
    writer = lane_writer(files)
    writer.seal(records(range(10)))
    view = LaneView(files, origin_of(files))
    writer.seal(records(range(10, 20)))
    files.write("lane-0/epoch/00000009-aaaaaaaaaaaa", files.read(_claim(files)) or b"")
    # As if the newest had claimed and not yet begun.
    from stompy.spark.spool.state import dump

    files.write("lane-0/epoch/00000009-aaaaaaaaaaaa", dump({"host": "h", "pid": 1}))
    view.refresh()
    assert view.next == 10
    writer.close()


def test_what_a_fenced_receiver_wrote_is_never_shown(files: LocalFiles) -> None:
    zombie = lane_writer(files)
    zombie.seal(records(range(10)))
    view = LaneView(files, origin_of(files))
    successor = lane_writer(files, patience=Patience(wait=60.0, frozen=0.1))
    with pytest.raises(Exception, match="taken it over"):
        zombie.seal(records(range(10, 60)))
    view.refresh()
    assert view.next == 10
    successor.seal(records(range(10, 12)))
    view.refresh()
    assert view.next == 12
    zombie.close()
    successor.close()


def test_it_purges_what_is_settled_and_the_writer_does_not_mind(files: LocalFiles) -> None:
    writer = lane_writer(files)
    writer.seal(records(range(10)))
    writer.seal(records(range(10, 20)))
    writer.settle(20)
    writer.close()
    view = LaneView(files, origin_of(files))
    assert view.purge(10) == 10
    assert read_mark(files, "lane-0/low") == 10
    again = lane_writer(files)
    assert again.snapshot(lambda index: (index.low, index.next)) == (10, 20)
    again.close()


def test_a_segment_that_vanishes_is_an_error(files: LocalFiles) -> None:
    writer = lane_writer(files)
    writer.seal(records(range(10)))
    view = LaneView(files, origin_of(files))
    (name,) = [one.name for one in files.list("lane-0") if one.name.startswith("seg-")]
    os.unlink(files.path(f"lane-0/{name}"))
    with pytest.raises(SpoolDataLoss, match="the messages 0 to 9 "):
        view.refresh()
    with pytest.raises(SpoolDataLoss):
        view.purge(500)
    writer.close()


def test_the_receiver_learns_how_far_spark_was_told(files: LocalFiles) -> None:
    writer = lane_writer(files)
    writer.seal(records(range(10)))
    view = LaneView(files, origin_of(files))
    view.note_planned(10)
    view.close()
    assert read_mark(files, "lane-0/planned") == 10
    writer.close()


def _claim(files: LocalFiles) -> str:
    (entry,) = files.list("lane-0/epoch")
    return f"lane-0/epoch/{entry.name}"
