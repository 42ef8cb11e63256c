from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompy.errors import SpoolDataLossError, SpoolFencedError
from stompy.spark.spool import claims
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import Files, dump, read_mark
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from tests.spark.spool.builders import records, seal, segment_names, settle, spool_files, spool_writer


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return spool_files(tmp_path / "spool")


def viewed(files: Files, *, fail_on_loss: bool = True) -> SpoolView:
    return SpoolView(get_spool(files), fail_on_loss=fail_on_loss)


def test_it_sees_what_another_writes(files: Files) -> None:
    view = viewed(files)
    assert view.next == 0
    writer = spool_writer(files)
    seal(writer, records(range(10)))
    assert view.next == 0
    view.refresh()
    assert view.next == 10
    writer.close()


def test_nothing_new_is_shown_while_an_owner_is_about_to_begin(files: Files) -> None:
    writer = spool_writer(files)
    seal(writer, records(range(10)))
    view = viewed(files)
    seal(writer, records(range(10, 20)))
    # As if the newest had claimed and not yet begun.
    files.write("epoch/00000009-aaaaaaaaaaaa", dump({"host": "h", "pid": 1}))
    view.refresh()
    assert view.next == 10
    writer.close()


def test_what_a_fenced_process_wrote_is_never_shown(files: Files) -> None:
    zombie = spool_writer(files)
    seal(zombie, records(range(10)))
    view = viewed(files)
    successor = spool_writer(files, patience=ClaimTimeouts(wait=60.0, frozen=0.1))
    with pytest.raises(Exception, match="taken it over"):
        seal(zombie, records(range(10, 60)))
    view.refresh()
    assert view.next == 10
    seal(successor, records(range(10, 12)))
    view.refresh()
    assert view.next == 12
    zombie.close()
    successor.close()


def test_what_was_processed_is_noted_and_the_writer_removes_it(files: Files) -> None:
    writer = spool_writer(files)
    settle(writer, records(range(10)))
    settle(writer, records(range(10, 20)))
    view = viewed(files)
    view.note_processed(10)
    view.note_processed(5)
    assert (read_mark(files, "low"), view.index.low) == (10, 10)
    writer.maintain()
    assert len(segment_names(files)) == 1
    writer.close()


def test_a_segment_that_vanishes_is_an_error_or_given_up(files: Files) -> None:
    writer = spool_writer(files)
    seal(writer, records(range(10)))
    strict, lenient = viewed(files), viewed(files, fail_on_loss=False)
    (name,) = segment_names(files)
    os.unlink(files.path(name))
    with pytest.raises(SpoolDataLossError, match="the messages 0 to 9 "):
        strict.refresh()
    lenient.refresh()
    assert lenient.next == 0
    writer.close()


def test_the_writer_learns_how_far_spark_was_told(files: Files) -> None:
    view = viewed(files)
    view.note_planned(10)
    view.note_planned(5)
    assert (read_mark(files, "planned"), view.planned) == (10, 10)


def test_a_process_that_lives_is_not_silent(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_INTERVAL", 0.0)
    writer = spool_writer(files)
    view = viewed(files)
    assert view.silent_for() < view.silent_for()
    os.utime(files.path(f"epoch/{files.list('epoch')[0]}"), (1, 1))
    view.silent_for()
    before = view.silent_for()
    writer.maintain()
    assert view.silent_for() < before
    writer.close()


def test_what_is_shown_is_durable_though_its_writer_may_not_have_come_so_far(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(Files):
        def sync(self, folder: str) -> None:
            synced.append(folder)
            super().sync(folder)

    writer = spool_writer(spool_files(tmp_path / "spool"))
    view = viewed(Watched(str(tmp_path / "spool")))
    seal(writer, records(range(3)))
    assert (view.epoch, synced) == (1, ["epoch"])
    for _ in range(2):
        view.refresh()
        assert (view.next, synced) == (3, ["epoch", ""])
    writer.close()


class Looked(Files):
    """Notes which files were looked at."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.looked: list[str] = []

    def state(self, name: str) -> tuple[int, float] | None:
        if name.startswith("seg-"):
            self.looked.append(name)
        return super().state(name)


def test_a_segment_is_looked_at_once(tmp_path: Path) -> None:
    writer = spool_writer(spool_files(tmp_path / "spool"))
    for number in range(30):
        settle(writer, records([number]))
    files = Looked(str(tmp_path / "spool"))
    view = viewed(files)
    settle(writer, records([30]))
    view.refresh()
    assert view.next == 31
    assert sorted(files.looked) == segment_names(files)
    writer.close()


STEPS = ["write", "write", "refresh", "process", "maintain", "maintain", "succeed", "zombie"]


@pytest.mark.parametrize("fail_on_loss", [True, False])
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=20))
def test_one_that_reads_what_is_new_sees_what_one_that_reads_all_does(steps: list[str], *, fail_on_loss: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = spool_files(Path(folder))
        writers = [spool_writer(files)]
        view = viewed(files, fail_on_loss=fail_on_loss)
        for step in steps:
            if step == "write":
                for first in range(0, 500, 25):
                    settle(writers[-1], records(range(first, first + 25)))
            elif step == "process":
                view.note_processed(max(view.index.low, view.next - 620))
            elif step == "maintain":
                writers[-1].maintain()
            elif step == "succeed":
                writers.append(spool_writer(files, patience=ClaimTimeouts(wait=60.0, frozen=0.0)))
            elif step == "zombie" and len(writers) > 1:
                with pytest.raises(SpoolFencedError):
                    seal(writers[-2], records(range(5)))
                writers.pop(-2)
            else:
                view.refresh()
        view.refresh()
        anew = viewed(files).index
        assert (view.index.low, view.index.segments) == (anew.low, anew.segments)
        assert view.index.size == anew.size
        for writer in reversed(writers):
            writer.close()
