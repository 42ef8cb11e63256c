from __future__ import annotations

from pathlib import Path

import pytest

from stompy.errors import SpoolDamagedError
from stompy.spark.spool import redelivery
from stompy.spark.spool.files import Files
from stompy.spark.spool.redelivery import Suspects

A, B = ("a", "1"), ("b", "2")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(str(tmp_path))


def test_they_outlive_the_process(files: Files) -> None:
    Suspects(files).save([A, B])
    Suspects(files).save([])
    assert Suspects(files).ids() == {A, B}


def test_those_that_cannot_come_again_are_forgotten_and_their_file_with_the_last(files: Files) -> None:
    known = Suspects(files)
    known.save([A, B])
    known.forget([A])
    assert known.ids() == {B}
    assert len(files.list("suspects")) == 1
    known.forget([B])
    assert files.list("suspects") == []


def test_they_end_after_a_day(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    Suspects(files).save([A])
    monkeypatch.setattr(redelivery, "KEPT_FOR", -1.0)
    assert Suspects(files).ids() == set()
    assert files.list("suspects") == []


def test_a_damaged_file_of_them_is_named(files: Files) -> None:
    Suspects(files).save([A])
    (name,) = files.list("suspects")
    files.write(f"suspects/{name}", b"{}")
    with pytest.raises(SpoolDamagedError, match=name):
        Suspects(files)
