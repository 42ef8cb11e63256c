from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from stompy.errors import SpoolError, SpoolFenced
from stompy.spark.spool.remote import RemoteFiles
from stompy.spark.spool.spool import make_spool, open_files
from stompy.spark.spool.state import write_mark
from tests.spark.spool.making import ids_in, records, seal, settle, spool_writer


@pytest.fixture(params=["rename", "put"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> RemoteFiles:
    """A store on which files get their name by a rename, and one where an object appears whole."""
    if request.param == "rename":
        return RemoteFiles(str(tmp_path / "store"), filesystem=fs.LocalFileSystem())
    return RemoteFiles("store", filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))


def test_what_was_written_is_read(files: RemoteFiles) -> None:
    files.make_folder("epoch")
    files.write("epoch/low", b"1")
    files.write("epoch/low", b"2")
    assert files.read("epoch/low") == b"2"
    assert files.read("epoch/none") is None
    assert [one.name for one in files.list("epoch")] == ["low"]
    assert files.list("nowhere") == []
    assert files.exists("epoch/low")
    files.remove("epoch/low")
    files.remove("epoch/low")
    assert not files.exists("epoch/low")


def test_create_leaves_what_is_there(files: RemoteFiles) -> None:
    files.make_folder("")
    assert files.create("a", b"1")
    assert not files.create("a", b"2")
    assert files.read("a") == b"1"


def test_a_spool_lives_there(files: RemoteFiles) -> None:
    make_spool(files, "/queue/a")
    writer = spool_writer(files)
    settle(writer, records(range(10)))
    settle(writer, records(range(10, 20)))
    write_mark(files, "low", 10)
    writer.close()
    assert len([one for one in files.list("") if one.name.startswith("seg-")]) == 1
    assert ids_in(files) == [f"id-{number}" for number in range(10, 20)]


def test_a_second_receiver_fences_the_first_as_there_is_no_lock(files: RemoteFiles) -> None:
    make_spool(files, "/queue/a")
    first = spool_writer(files)
    seal(first, records(range(10)))
    second = spool_writer(files)
    with pytest.raises(SpoolFenced):
        seal(first, records(range(10, 20)))
    seal(second, records(range(10, 12)))
    first.close()
    second.close()
    assert ids_in(files) == [f"id-{number}" for number in range(12)]


def test_what_was_cut_off_in_the_middle_leaves_nothing(files: RemoteFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.make_folder("")
    real = files._fs

    class Cut:
        type_name = real.type_name

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def open_output_stream(self, path: str, compression: None) -> Any:
            stream = real.open_output_stream(path, compression=compression)

            class Half:
                def __enter__(self) -> Half:
                    return self

                def __exit__(self, *_: object) -> None:
                    stream.close()

                def write(self, data: bytes) -> None:
                    stream.write(data[:3])
                    raise OSError("the line went dead")

            return Half()

    monkeypatch.setattr(files, "_fs", Cut())
    with pytest.raises(SpoolError, match="the line went dead"):
        files.write("a", b"123456")
    monkeypatch.undo()
    assert files.list("") == []


def test_torn_files_are_swept_where_there_can_be_some(tmp_path: Path) -> None:
    files = RemoteFiles(str(tmp_path), filesystem=fs.LocalFileSystem())
    (tmp_path / ".tmp-seg-1").write_bytes(b"torn")
    assert files.list("") == []
    files.sweep("")
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_nobody_knows_is_told_of_without_its_login() -> None:
    with pytest.raises(SpoolError, match=r"gopher://host/a: the file system 'gopher' cannot be used") as caught:
        open_files("gopher://me:sesame@host/a")
    assert "sesame" not in str(caught.value)


def test_fsspec_is_asked_where_pyarrow_does_not_know_the_scheme() -> None:
    fsspec = pytest.importorskip("fsspec")
    files = open_files("memory://stompy-test")
    try:
        make_spool(files, "/queue/a")
        writer = spool_writer(files)
        seal(writer, records(range(10)))
        writer.close()
        assert ids_in(files) == [f"id-{number}" for number in range(10)]
    finally:
        fsspec.filesystem("memory").rm("/stompy-test", recursive=True)
