from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from stompy.errors import SpoolDamagedError, SpoolError, SpoolMismatchError
from stompy.spark.spool.files import Files, dump
from stompy.spark.spool.spool import find_spool, get_spool, make_spool
from tests.spark.spool.builders import spool_writer


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(str(tmp_path / "spool"))


def test_it_is_made_once(files: Files) -> None:
    assert find_spool(files) is None
    made = make_spool(files, "/queue/a")
    assert make_spool(files, "/queue/a") == made
    assert get_spool(files) == made


def test_one_that_was_begun_and_not_made_is_made(files: Files) -> None:
    make_spool(files, "/queue/a")
    os.unlink(files.path("spool.json"))
    make_spool(files, "/queue/a")


def test_one_that_is_made_while_it_is_looked_for_is_found(tmp_path: Path) -> None:
    class MadeMeanwhile(Files):
        def list(self, folder: str) -> list[str]:
            other = Files(self.url)
            make_spool(other, "/queue/a")
            spool_writer(other).close()
            return super().list(folder)

    assert find_spool(MadeMeanwhile(str(tmp_path / "spool"))) is not None


def test_a_spool_of_another_destination_is_refused(files: Files) -> None:
    make_spool(files, "/queue/a")
    with pytest.raises(
        SpoolMismatchError, match=r"filled from '/queue/a', not from '/queue/b'.*choose another spoolDir"
    ):
        make_spool(files, "/queue/b")


def test_a_folder_with_other_things_in_it_is_refused(files: Files) -> None:
    files.make_folder("")
    files.write("thesis.tex", b"")
    with pytest.raises(SpoolError, match=r"neither empty nor a spool: it holds thesis\.tex"):
        make_spool(files, "/queue/a")


def test_a_spool_that_has_lost_its_identity_is_damaged(files: Files) -> None:
    make_spool(files, "/queue/a")
    spool_writer(files).close()
    os.unlink(files.path("spool.json"))
    with pytest.raises(SpoolDamagedError, match=r"spool\.json: the file with the spool's identity is missing"):
        make_spool(files, "/queue/a")


@pytest.mark.parametrize("content", [b"", b"{}", dump({"format": "other"})])
def test_a_damaged_identity_is_named(files: Files, content: bytes) -> None:
    files.make_folder("")
    files.write("spool.json", content)
    with pytest.raises(SpoolDamagedError, match=r"spool\.json: the file (is|does not belong) "):
        find_spool(files)


def test_a_later_version_is_refused(files: Files) -> None:
    files.make_folder("")
    files.write("spool.json", dump({"format": "stompy spool", "version": 3, "id": "x", "destination": "/queue/a"}))
    with pytest.raises(SpoolMismatchError, match="of version 3, this program knows 2"):
        find_spool(files)


def test_a_spool_that_is_not_there_is_reported(files: Files) -> None:
    with pytest.raises(SpoolError, match=r"there is no spool, as .*Each executor must reach it under this name"):
        get_spool(files)


def test_a_copy_is_the_same_spool(files: Files, tmp_path: Path) -> None:
    spool = make_spool(files, "/queue/a")
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    assert get_spool(Files(str(tmp_path / "copy"))).identity == spool.identity


def test_paths_and_file_urls_are_directories(tmp_path: Path) -> None:
    for url in (str(tmp_path), f"file://{tmp_path}"):
        assert Files(url).url == str(tmp_path)


def test_another_url_is_refused() -> None:
    with pytest.raises(SpoolError, match="it is not a directory"):
        Files("s3://bucket/spool")
