from __future__ import annotations

import os
from pathlib import Path

import pytest

from stompy.errors import SpoolBusy, SpoolDamaged, SpoolDataLoss, SpoolFenced, SpoolMismatch
from stompy.spark.spool.claims import Patience
from stompy.spark.spool.files import LocalFiles
from stompy.spark.spool.lane import LaneWriter
from stompy.spark.spool.state import read_mark, write_mark
from tests.spark.spool.making import ids_in, lane_writer, record, records, spool_files


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return spool_files(tmp_path / "spool")


def filled(files: LocalFiles, *counts: int) -> LaneWriter:
    writer = lane_writer(files)
    for count in counts:
        writer.seal(records(range(writer.next, writer.next + count)))
    return writer


def suspected(writer: LaneWriter, number: int) -> bool:
    identity = writer.identity(record(number))
    return identity is not None and identity in writer.suspects


def segment_names(files: LocalFiles) -> list[str]:
    return sorted(one.name for one in files.list("lane-0") if one.name.startswith("seg-"))


def test_the_next_writer_goes_on_where_the_last_one_ended(files: LocalFiles) -> None:
    filled(files, 10, 5).close()
    writer = filled(files, 3)
    assert (writer.next, writer.epoch) == (18, 2)
    writer.close()
    assert ids_in(files) == [f"id-{number}" for number in range(18)]


def test_a_second_writer_is_refused_and_the_first_goes_on(files: LocalFiles) -> None:
    writer = filled(files, 10)
    with pytest.raises(SpoolBusy):
        lane_writer(files)
    writer.seal(records([10]))
    writer.close()


def test_a_fenced_writer_may_not_acknowledge_and_its_segment_does_not_count(files: LocalFiles) -> None:
    zombie = filled(files, 10)
    successor = lane_writer(files, patience=Patience(wait=60.0, frozen=0.1))
    with pytest.raises(SpoolFenced):
        zombie.seal(records(range(10, 15)))
    with pytest.raises(SpoolFenced):
        zombie.purge(5)
    successor.seal(records(range(10, 12)))
    successor.close()
    zombie.close()
    assert ids_in(files) == [f"id-{number}" for number in range(12)]


def test_what_was_durable_and_not_settled_becomes_suspect(files: LocalFiles) -> None:
    writer = filled(files, 10, 5)
    writer.settle(10)
    writer.close()
    again = lane_writer(files)
    suspicious = [number for number in range(20) if suspected(again, number)]
    assert suspicious == list(range(10, 15))
    again.close()
    # They stay suspects over further starts, and after they were processed and purged.
    third = lane_writer(files)
    third.purge(15)
    third.close()
    fourth = lane_writer(files)
    assert len(fourth.suspects) == 5
    assert segment_names(files) == []
    fourth.close()


def test_a_lost_link_makes_suspects_of_what_was_not_confirmed(files: LocalFiles) -> None:
    writer = filled(files, 10, 5)
    writer.settle(10)
    assert writer.unsettled_to_suspects() == 5
    assert (len(writer.suspects), writer.settled) == (5, 15)
    writer.settle(15, again=[f"id-{number}" for number in range(10, 15)])
    assert len(writer.suspects) == 0
    writer.close()


def test_purge_leaves_what_was_not_settled(files: LocalFiles) -> None:
    writer = filled(files, 10, 10, 10)
    writer.settle(10)
    assert writer.purge(20) == 10
    assert read_mark(files, "lane-0/low") == 10
    writer.settle(30)
    assert writer.purge(20) == 10
    assert writer.purge(20) == 0
    assert len(segment_names(files)) == 1
    writer.close()


def test_purge_in_the_middle_of_a_segment_keeps_it(files: LocalFiles) -> None:
    writer = filled(files, 10, 10)
    writer.settle(20)
    assert writer.purge(15) == 10
    writer.close()
    again = lane_writer(files)
    assert again.snapshot(lambda index: (index.low, index.next)) == (15, 20)
    again.close()


def test_retention_keeps_what_is_young(files: LocalFiles) -> None:
    writer = filled(files, 10, 10)
    writer.settle(20)
    assert writer.purge(20, retention=3600.0) == 0
    assert writer.purge(20, retention=0.0) == 20
    writer.close()


def test_a_crash_between_watermark_and_removal_leaves_nothing_behind(files: LocalFiles) -> None:
    writer = filled(files, 10, 10)
    writer.settle(20)
    write_mark(files, "lane-0/low", 10)
    writer.close()
    assert len(segment_names(files)) == 2
    lane_writer(files).close()
    assert len(segment_names(files)) == 1


def test_a_checkpoint_that_is_ahead_of_the_spool_is_an_error(files: LocalFiles) -> None:
    writer = filled(files, 10)
    with pytest.raises(SpoolDataLoss, match="up to 99, the spool ends at 10"):
        writer.purge(99)
    writer.close()


@pytest.mark.parametrize("which", [1, 2])
def test_a_segment_that_was_removed_is_an_error_that_names_the_messages(files: LocalFiles, which: int) -> None:
    writer = filled(files, 10, 10, 10)
    writer.settle(30)
    writer.close()
    os.unlink(files.path(f"lane-0/{segment_names(files)[which]}"))
    with pytest.raises(SpoolDataLoss, match=f"the messages {which}0 to {which}9 "):
        lane_writer(files)
    # Its predecessor's lock is free again, and who gives the messages up goes on behind them.
    writer = lane_writer(files, fail_on_loss=False)
    assert writer.next == 30
    writer.seal(records([30]))
    writer.close()


def test_a_low_watermark_that_is_gone_is_an_error(files: LocalFiles) -> None:
    filled(files, 10).close()
    os.unlink(files.path("lane-0/low"))
    with pytest.raises(SpoolDamaged, match="lane-0/low: the file that says where the lane begins is gone"):
        lane_writer(files)


@pytest.mark.parametrize("name", ["low", "settled"])
def test_a_damaged_watermark_is_an_error(files: LocalFiles, name: str) -> None:
    filled(files, 10).close()
    Path(files.path(f"lane-0/{name}")).write_bytes(b"")
    with pytest.raises(SpoolDamaged, match=f"lane-0/{name}: the file is empty"):
        lane_writer(files)


@pytest.mark.hard_case("T13")
def test_a_truncated_segment_whose_ids_are_needed_is_named(files: LocalFiles) -> None:
    filled(files, 10).close()
    (name,) = segment_names(files)
    os.truncate(files.path(f"lane-0/{name}"), 100)
    with pytest.raises(SpoolDamaged, match=name):
        lane_writer(files)


def test_a_segment_of_another_spool_is_refused(files: LocalFiles, tmp_path: Path) -> None:
    filled(files, 10).close()
    other = spool_files(tmp_path / "other")
    filled(other, 10).close()
    (mine,), (theirs,) = segment_names(files), segment_names(other)
    os.unlink(files.path(f"lane-0/{mine}"))
    os.rename(other.path(f"lane-0/{theirs}"), files.path(f"lane-0/{theirs}"))
    with pytest.raises(SpoolMismatch, match="belongs to lane 0 of spool"):
        lane_writer(files)


def test_a_torn_file_is_swept(files: LocalFiles) -> None:
    filled(files, 10).close()
    Path(files.path("lane-0/.tmp-seg-00000000000000000010-x")).write_bytes(b"torn")
    lane_writer(files).close()
    assert [one for one in os.listdir(files.path("lane-0")) if one.startswith(".tmp")] == []


def test_lanes_are_filled_side_by_side(files: LocalFiles) -> None:
    zero, one = lane_writer(files, lane=0), lane_writer(files, lane=1)
    zero.seal(records(range(5)))
    one.seal(records(range(7)))
    assert (zero.next, one.next) == (5, 7)
    zero.close()
    one.close()
