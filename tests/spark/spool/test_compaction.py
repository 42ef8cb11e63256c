from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest

from stompy.errors import SpoolFencedError
from stompy.spark.source.reading import read_pieces
from stompy.spark.source_options import ColumnOptions
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import Files, FolderEntry, write_mark
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.spool.builders import ids_in, records, seal, segment_names, settle, spool_files, spool_writer


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return spool_files(tmp_path / "spool")


class Crash(BaseException):
    """The process is gone."""


class Crashing(Files):
    """Crashes before the file operation that has a number."""

    left = 10**9

    def read(self, name: str) -> bytes | None:
        self._step()
        return super().read(name)

    def write(self, name: str, data: bytes) -> None:
        self._step()
        super().write(name, data)

    def remove(self, name: str) -> None:
        self._step()
        super().remove(name)

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash


ALL = [f"id-{number}" for number in range(1000)]


def of_small_ones(files: Files) -> Files:
    writer = spool_writer(files)
    for first in range(0, 1000, 50):
        settle(writer, records(range(first, first + 50)))
    writer.close()
    return files


def test_small_segments_are_merged_and_their_rows_stay(files: Files) -> None:
    writer = spool_writer(of_small_ones(files))
    writer.compact()
    assert [name[:32] for name in segment_names(files)] == ["seg-00000000000000000000-0001000"]
    settle(writer, records([1000]))
    writer.compact()
    assert ids_in(files) == [*ALL, "id-1000"]
    write_mark(files, "low", 1000)
    writer.close()
    assert len(segment_names(files)) == 1


def test_what_has_just_come_is_not_merged_nor_what_may_come_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = spool_writer(files)
    for first in range(0, 950, 50):
        settle(writer, records(range(first, first + 50)))
    last = seal(writer, records(range(950, 1000)))
    for _ in range(3):
        writer.maintain()
        writer.compact()
    monkeypatch.setattr("stompy.spark.spool.writer._MERGE_DELAY", 0.0)
    for _ in range(3):
        writer.compact()
    assert len(segment_names(files)) == 20
    writer.confirm(last)
    writer.maintain()
    for _ in range(3):
        writer.compact()
    assert len(segment_names(files)) == 1
    writer.close()


@pytest.mark.parametrize("low", [0, 120])
def test_a_crash_at_any_step_of_a_merge_leaves_every_message_once(tmp_path: Path, low: int) -> None:
    template = of_small_ones(spool_files(tmp_path / "template"))
    left, crashed = 0, True
    while crashed:
        files = Files(str(shutil.copytree(template.url, tmp_path / str(left))))
        crashing = Crashing(files.url)
        writer = spool_writer(crashing)
        crashing.left, crashed = left, False
        try:
            writer.compact()
        except Crash:
            crashed = True
        crashing.left = 10**9
        assert ids_in(files) == ALL
        write_mark(files, "low", low)
        writer._claim.release()  # as the kernel does
        successor = spool_writer(files)
        successor.maintain()
        left_over = len(segment_names(files))
        assert left_over in ((20 if low == 0 else 18), 1), "what was merged is removed"
        successor.compact()
        assert ids_in(files) == (ALL if left_over == 1 else ALL[low // 50 * 50 :])
        assert successor.next == 1000
        successor.close()
        left += 1
    assert left > 40, "each file was read and removed"


def test_who_is_fenced_while_it_merges_does_no_harm(files: Files) -> None:
    class Slow(Files):
        frozen = True

        def write(self, name: str, data: bytes) -> None:
            if name.startswith("seg-") and self.frozen:
                self.frozen = False
                successor = spool_writer(files, patience=ClaimTimeouts(wait=60.0, frozen=0.0))
                successor.compact()
                settle(successor, records([1000]))
                successor.close()
            super().write(name, data)

    zombie = spool_writer(Slow(of_small_ones(files).url))
    with pytest.raises(SpoolFencedError):
        zombie.compact()
    zombie.close()
    assert ids_in(files) == [*ALL, "id-1000"]
    spool_writer(files).close()
    assert len(segment_names(files)) == 2
    assert ids_in(files) == [*ALL, "id-1000"]


@pytest.mark.parametrize("who", ["reader", "successor"])
def test_a_listing_that_is_overtaken_by_a_merge_misses_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    class Torn(Files):
        """Its first listing shows neither what was removed meanwhile nor what came instead."""

        merging: SpoolWriter
        done = True

        def list(self, folder: str, known: Mapping[str, FolderEntry] = MappingProxyType({})) -> list[FolderEntry]:
            before = super().list(folder, known)
            if folder or self.done:
                return before
            self.done = True
            self.merging.compact()
            after = {entry.name for entry in super().list(folder)}
            return [entry for entry in before if entry.name in after]

    torn = Torn(of_small_ones(files).url)
    torn.merging, torn.done = spool_writer(files), False
    if who == "reader":
        assert ids_in(torn) == ALL
    else:
        monkeypatch.setattr(torn.merging._claim, "check", lambda: None)  # it was fenced right after
        successor = spool_writer(torn, patience=ClaimTimeouts(wait=60.0, frozen=0.0))
        assert successor.next == 1000
        successor.close()
    assert torn.done
    assert ids_in(files) == ALL
    monkeypatch.undo()
    torn.merging.close()


def test_what_was_planned_before_a_merge_is_read_after_it(files: Files) -> None:
    writer = spool_writer(of_small_ones(files))
    spool = get_spool(files)
    pieces = SpoolView(spool).index.pieces(120, 260)
    writer.compact()
    rows = pa.Table.from_batches(read_pieces(files.url, spool.identity, pieces, columns=ColumnOptions()))
    assert rows.column("message_id").to_pylist() == ALL[120:260]
    writer.close()


def test_what_cannot_be_read_is_not_merged(files: Files) -> None:
    os.truncate(files.path(segment_names(of_small_ones(files))[7]), 100)
    writer = spool_writer(files)
    writer.compact()
    writer.compact()
    assert len(segment_names(files)) == 20
    writer.close()


def test_a_merge_ends_when_there_is_no_time_for_it(files: Files) -> None:
    writer = spool_writer(of_small_ones(files))
    writer.compact(lambda: True)
    assert len(segment_names(files)) == 20
    writer.close()
