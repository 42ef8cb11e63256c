from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyarrow import fs

from stompy.errors import SpoolError, SpoolFencedError
from stompy.spark.spool.remote import RemoteFiles
from stompy.spark.spool.spool import make_spool, open_files
from stompy.spark.spool.state import write_mark
from tests.spark.s3 import AWS
from tests.spark.spool.builders import ids_in, records, seal, settle, spool_writer

TOP = Path(__file__).parents[3]
Opened = Callable[[], RemoteFiles]


@pytest.fixture
def s3(s3_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in a bucket, to be put behind a scheme, such as `s3` or `s3a`."""
    for name, value in {**AWS, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    return f"://bucket/{tmp_path.name}"


@pytest.fixture(params=["rename", "put", "s3", "s3a"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """What opens one folder, each time anew: on a store on which files get their name by a rename, on one where an
    object appears whole, and on a server of S3, by pyarrow and by fsspec.
    """
    if request.param == "rename":
        return lambda: RemoteFiles(str(tmp_path / "store"), filesystem=fs.LocalFileSystem())
    if request.param == "put":
        return lambda: RemoteFiles("store", filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    url = request.param + request.getfixturevalue("s3")

    def opened() -> RemoteFiles:
        files = open_files(url)
        assert isinstance(files, RemoteFiles)
        return files

    return opened


@pytest.fixture
def files(opened: Opened) -> RemoteFiles:
    return opened()


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


def test_of_many_that_create_at_once_one_does(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompy.spark.spool.remote._CREATE_TIMEOUT", 150.0)  # others may be slow
    opened().make_folder("")
    several = [opened() for _ in range(3)]

    def create(number: int) -> list[bool]:
        return [several[number].create(f"name-{name}", str(number).encode()) for name in range(2)]

    with ThreadPoolExecutor(len(several)) as at_once:
        did = list(at_once.map(create, range(len(several))))
    for name, those in enumerate(zip(*did, strict=True)):
        assert sum(those) == 1
        assert opened().read(f"name-{name}") == str(those.index(True)).encode()
    assert len(opened().list("")) == 2


def test_who_died_while_it_created_is_named(files: RemoteFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.make_folder("")
    monkeypatch.setattr("stompy.spark.spool.remote._CREATE_TIMEOUT", 0.1)
    files.write(".tmp-create-a-0123", b"1")
    with pytest.raises(SpoolError, match=r"another process was making it.*remove .*\.tmp-create-a-0123"):
        files.create("a", b"1")
    files.remove(".tmp-create-a-0123")
    assert files.create("a", b"1")


@pytest.mark.parametrize(("scheme", "others"), [("s3", "s3a"), ("s3a", "s3")])
def test_what_another_client_writes_is_listed_at_once(scheme: str, others: str, s3: str) -> None:
    one, other = open_files(others + s3), open_files(scheme + s3)
    one.make_folder("epoch")
    for number in range(3):
        assert len(other.list("epoch")) == number
        assert not other.exists(f"epoch/{number}")
        one.write(f"epoch/{number}", b"1")
        assert other.exists(f"epoch/{number}")
        assert other.read(f"epoch/{number}") == b"1"
    one.write("epoch/1", b"12")
    assert other.read("epoch/1") == b"12"
    one.remove("epoch/0")
    assert sorted(entry.name for entry in other.list("epoch")) == ["1", "2"]


PUTTING = """
import sys
from stompy.spark.spool.spool import open_files
files, number = open_files(sys.argv[1]), 0
while True:
    files.write(f"seg-{number}", bytes(12_000_000))
    print(number, flush=True)
    number += 1
"""


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_of_who_is_killed_while_it_writes_whole_objects_are_there(scheme: str, s3: str) -> None:
    command = [sys.executable, "-c", PUTTING, scheme + s3]
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        try:
            done = [int(writing.stdout.readline())]
        finally:
            writing.send_signal(signal.SIGKILL)
    found = open_files(scheme + s3).list("")
    assert len(found) >= len(done)
    assert {one.size for one in found} == {12_000_000}


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
    with pytest.raises(SpoolFencedError):
        seal(first, records(range(10, 20)))
    seal(second, records(range(5, 12)))
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

    with monkeypatch.context() as cutting:
        cutting.setattr(files, "_fs", Cut())
        with pytest.raises(SpoolError, match="the line went dead"):
            files.write("a", b"123456")
    assert files.list("") == []


def test_torn_files_are_swept_where_there_can_be_some(tmp_path: Path) -> None:
    files = RemoteFiles(str(tmp_path), filesystem=fs.LocalFileSystem())
    (tmp_path / ".tmp-seg-1").write_bytes(b"torn")
    assert files.list("") == []
    files.sweep("")
    assert list(tmp_path.iterdir()) == []


def test_a_url_that_nobody_knows_is_reported_without_its_login() -> None:
    with pytest.raises(SpoolError, match=r"gopher://host/a: the file system 'gopher' cannot be used") as caught:
        open_files("gopher://me:sesame@host/a")
    assert "sesame" not in str(caught.value)


def test_fsspec_is_asked_where_pyarrow_does_not_know_the_scheme() -> None:
    files = open_files("memory://stompy-test")
    try:
        make_spool(files, "/queue/a")
        writer = spool_writer(files)
        seal(writer, records(range(10)))
        writer.close()
        assert ids_in(files) == [f"id-{number}" for number in range(10)]
    finally:
        fsspec.filesystem("memory").rm("/stompy-test", recursive=True)
