from __future__ import annotations

from pathlib import Path

import pytest

from stompy.errors import SpoolDamagedError
from stompy.spark.spool.files import COUNTS, Counts, Files, dump, load, read_counts, read_mark, write_counts, write_mark


def test_a_document_comes_back() -> None:
    document = {"a": 1, "b": ["x", None]}
    assert load(dump(document), "here") == document


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_a_cut_document_is_an_error_that_names_it(cut: int) -> None:
    data = dump({"low": 12})
    if cut == -1:
        return  # the last line end is no loss
    with pytest.raises(SpoolDamagedError, match=r"/spool/low: the file is .*Restore it"):
        load(data[:cut], "/spool/low")


def test_every_changed_byte_is_noticed() -> None:
    data = dump({"low": 12})
    for place in range(len(data) - 1):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(SpoolDamagedError):
            load(changed, "here")


def test_marks(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    assert read_mark(files, "low") is None
    write_mark(files, "low", 7)
    assert read_mark(files, "low") == 7
    files.write("settled", files.read("low") or b"")
    with pytest.raises(SpoolDamagedError, match="another spool"):
        read_mark(files, "settled")


def test_counts_come_back_and_where_they_are_damaged_there_are_none(tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    assert read_counts(files) == []
    write_counts(files, [Counts(messages=3, dropped=1), Counts(flagged=2, last=5.0)])
    assert read_counts(files) == [Counts(messages=3, dropped=1), Counts(flagged=2, last=5.0)]
    (tmp_path / COUNTS).write_bytes(b"{")
    assert read_counts(files) == []
