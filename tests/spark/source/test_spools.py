"""Several spools as one source: a query reads all of them, and says what becomes of each."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from stompy.errors import ConfigurationError, SpoolBusyError, SpoolError, SpoolMismatchError
from stompy.spark.option_tables import batch_options, spool_options, stream_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.source.admission import shares
from stompy.spark.source.engine import StreamEngine
from stompy.spark.spool.claims import Claim
from stompy.spark.spool.files import Files
from stompy.spark.spool.index import Segment
from stompy.spark.spool.spool import Spool, make_spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.source.test_engine import at
from tests.spark.spool.builders import IMPATIENT, record, seal

Offset = dict[str, Any]


def added(path: Path, name: str, numbers: range, *, shared: bool = True, origin: str = "/queue/a") -> None:
    """Store messages with these numbers as bodies, in a spool that is made if it is not there."""
    spool = make_spool(Files(str(path / name)), origin, shared=shared)
    writer = SpoolWriter(spool, patience=IMPATIENT)
    writer.begin(0)
    for number in numbers:
        writer.confirm(seal(writer, [record(number, body=str(number).encode())]))
    writer.close()


@contextmanager
def query(path: Path, pattern: str = "*", **given: str) -> Iterator[StreamEngine]:
    options = {
        "url": "stomp://localhost:1", "destination": "/queue/a", "spooldir": f"{path}/{pattern}", "receivers": "0",
        "locktimeout": "0", "brokertimeout": "1h", **given,
    }  # fmt: skip
    engine = StreamEngine(stream_options(options))
    try:
        yield engine
    finally:
        engine.stop()


def step(engine: StreamEngine, start: Offset) -> tuple[Offset, list[int]]:
    """Run a micro-batch; return its end, and the numbers of its messages."""
    from stompy.spark.source.reading import read_pieces

    end = engine.latest(start)
    if end == start:
        return end, []
    engine.commit(start)
    parts = engine.plan(start, end)
    assert engine.plan(start, end) == parts, "a batch that is planned again is the same"
    batches = (one for part in parts for one in read_pieces(engine.urls, part, array=False))
    rows = [int(body) for batch in batches for body in batch.column("body").to_pylist()]
    return end, sorted(rows)


def test_a_query_reads_all_spools_of_a_pattern_and_of_a_list(tmp_path: Path) -> None:
    added(tmp_path, "a", range(5))
    added(tmp_path, "b", range(5, 9))
    (tmp_path / "no spool").mkdir()
    for pattern in ("*", f"b,{tmp_path}/a", f"a,{tmp_path}/*"):
        with query(tmp_path, pattern) as engine:
            end, rows = step(engine, engine.initial())
            assert rows == list(range(9))
            assert step(engine, end) == (end, [])


def test_their_sequence_numbers_differ(tmp_path: Path) -> None:
    for name in "abc":
        added(tmp_path, name, range(3))
    with query(tmp_path) as engine:
        start = engine.initial()
        pieces = [piece for part in engine.plan(start, engine.latest(start)) for piece in part]
    assert len({number for piece in pieces for number in range(piece.start, piece.end)}) == 9


@pytest.mark.parametrize(
    ("total", "wanted", "given"),
    [(10, [3, 100, 100], [3, 3, 4]), (10, [1, 1], [1, 1]), (1, [5, 5], [0, 1]), (7, [100], [7]), (5, [], [])],
)
def test_a_limit_is_shared(total: int, wanted: list[int], given: list[int]) -> None:
    assert shares(total, wanted) == given


def test_the_spools_share_the_limits_of_a_micro_batch(tmp_path: Path) -> None:
    added(tmp_path, "a", range(20))
    added(tmp_path, "b", range(100, 120))
    added(tmp_path, "c", range(200, 202))
    with query(tmp_path, minoffsetspertrigger="41", maxbytespertrigger="30k") as engine:
        start = engine.initial()
        rows = step(engine, start)[1]
        assert 2 <= len(rows) < 20
        assert len({one // 100 for one in rows}) == 3
    with query(tmp_path, minoffsetspertrigger="100") as engine:
        start = engine.initial()
        assert engine.latest(start) == start
    with query(tmp_path, maxoffsetspertrigger="12") as engine:
        end, rows = step(engine, engine.initial())
        assert [sum(one // 100 == spool for one in rows) for spool in range(3)] == [5, 5, 2]
        seen = rows
        while rows:
            end, rows = step(engine, end)
            seen += rows
    assert sorted(seen) == [*range(20), *range(100, 120), 200, 201]


def test_a_spool_that_is_added_is_read_from_its_oldest_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    added(tmp_path, "a", range(5))
    with query(tmp_path) as engine:
        end, _ = step(engine, engine.initial())
        added(tmp_path, "b", range(5, 8))
        end, rows = step(engine, end)
        assert rows == [5, 6, 7]
        assert any(text.startswith(f"spool {tmp_path}/b was opened") for text in caplog.messages)
        added(tmp_path, "a", range(8, 9))
        assert step(engine, end)[1] == [8]


def test_a_spool_is_moved_while_the_query_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for name in "ab":
        added(tmp_path, name, range(3))
    with query(tmp_path) as engine:
        end, _ = step(engine, engine.initial())
        (tmp_path / "b").rename(tmp_path / "z")
        added(tmp_path, "z", range(5, 8))
        end, rows = step(engine, end)
        assert rows == [5, 6, 7]
        assert any(f"spool {tmp_path}/z was moved here" in text for text in caplog.messages)
        (tmp_path / "a").rename(tmp_path / ".hidden")
        with pytest.raises(SpoolError, match="the spool is gone"):
            engine.latest(end)
    with query(tmp_path, f".hidden,{tmp_path}/z") as engine:
        assert step(engine, end) == (end, [])


def test_of_a_spool_that_is_moved_while_its_segments_are_read_nothing_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added(tmp_path, "a", range(3))
    added(tmp_path, "b", range(3, 6))
    read = Spool.read

    def moved(spool: Spool, segment: Segment) -> pa.RecordBatch:
        if spool.files.url == f"{tmp_path}/b" and (tmp_path / "b").exists():
            (tmp_path / "b").rename(tmp_path / "z")
        return read(spool, segment)

    with query(tmp_path, failondataloss="false") as engine:
        end = engine.latest(start := engine.initial())
    monkeypatch.setattr(Spool, "read", moved)
    with query(tmp_path, failondataloss="false") as engine, pytest.raises(SpoolError, match="If it was moved"):
        engine.plan(start, end)
    with query(tmp_path, failondataloss="false") as engine:
        assert sum(piece.rows for part in engine.plan(start, end) for piece in part) == 6


def test_a_retired_spool_leaves_the_source_when_it_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    added(tmp_path, "a", range(3))
    added(tmp_path, "b", range(3, 6))
    (tmp_path / "b" / "retired").touch()
    with pytest.raises(SpoolError, match="it is retired"):
        added(tmp_path, "b", range(1))
    with query(tmp_path) as engine:
        end, rows = step(engine, engine.initial())
        assert rows == list(range(6))
        assert len(end["spools"]) == 2
        for number in (6, 7, 8):
            added(tmp_path, "a", range(number, number + 1))
            end, rows = step(engine, end)
            assert rows == [number]
        assert len(end["spools"]) == 1
        assert f"spool {tmp_path}/b was read and may be removed" in caplog.messages
        shutil.rmtree(tmp_path / "b")
        assert step(engine, end) == (end, [])


def test_a_spool_that_is_missing_is_an_error_or_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    added(tmp_path, "a", range(3))
    added(tmp_path, "b", range(3, 6))
    with query(tmp_path) as engine:
        end, _ = step(engine, engine.initial())
    added(tmp_path, "a", range(6, 7))
    with query(tmp_path, "a") as engine, pytest.raises(SpoolMismatchError, match="To retire a spool"):
        engine.latest(end)
    with query(tmp_path, "a", failondataloss="false") as engine:
        assert step(engine, end)[1] == [6]
    assert "is not among those of spoolDir" in caplog.text


def test_a_restarted_query_takes_no_spool_whose_owner_is_about_to_begin_for_an_older_copy(tmp_path: Path) -> None:
    added(tmp_path, "a", range(5))
    added(tmp_path, "b", range(5, 9))
    with query(tmp_path) as engine:
        start, _ = step(engine, engine.initial())
    added(tmp_path, "b", range(9, 12))
    files = Files(str(tmp_path / "a"))
    ends_at = SpoolView(make_spool(files, "/queue/a", shared=True)).next
    owner = Claim(files, patience=IMPATIENT)
    with query(tmp_path) as engine:
        end = engine.latest(start)
        assert end != start
        with pytest.raises(SpoolBusyError, match="does not start to fill it"):
            engine.commit(start)
        owner.begin(ends_at)
        engine.commit(start)
        assert sum(piece.rows for part in engine.plan(start, end) for piece in part) == 3
    owner.release()


@pytest.mark.parametrize("number", range(4))
def test_an_older_copy_of_any_spool_is_refused(tmp_path: Path, number: int) -> None:
    for name in "abcd":
        added(tmp_path, name, range(3))
    old = tmp_path / "abcd"[number]
    shutil.copytree(old, tmp_path / ".copy")
    for name in "abcd":
        added(tmp_path, name, range(3, 6))
    with query(tmp_path) as engine:
        end, _ = step(engine, engine.initial())
    shutil.rmtree(old)
    (tmp_path / ".copy").rename(old)
    for again in range(2):
        with query(tmp_path) as engine, pytest.raises(SpoolMismatchError, match="it is an older copy") as refused:
            engine.latest(end)
        assert str(old) in str(refused.value)
        if not again:
            added(tmp_path, old.name, range(10, 20))  # as its receivers go on


def test_a_copy_beside_the_spool_is_refused(tmp_path: Path) -> None:
    added(tmp_path, "a", range(3))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    with query(tmp_path) as engine, pytest.raises(SpoolMismatchError, match="it is a copy of"):
        engine.initial()


def test_spools_with_the_same_numbers_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        added(tmp_path, name, range(3), shared=False)
    with query(tmp_path) as engine, pytest.raises(SpoolMismatchError, match="it was made alone"):
        engine.initial()


def test_a_second_query_on_any_spool_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        added(tmp_path, name, range(3))
    with query(tmp_path) as engine:
        engine.initial()
        with query(tmp_path, "b") as second, pytest.raises(SpoolBusyError):
            second.initial()


def test_a_pattern_without_a_spool_is_an_error(tmp_path: Path) -> None:
    with query(tmp_path) as engine, pytest.raises(SpoolError, match="no folder with a spool matches"):
        engine.initial()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"spooldir": "/s/*", "receivers": "1"}, "name that spool first"),
        ({"spooldir": "/s/a,/s/b", "destination": "/topic/a"}, "spoolDir one folder"),
    ],
)
def test_what_receivers_cannot_fill_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        spool_options({"url": "stomp://localhost:1", "destination": "/queue/a", **given})


def test_a_table_has_one_folder() -> None:
    with pytest.raises(ConfigurationError, match="one folder for a table"):
        batch_options({"url": "stomp://localhost:1", "destination": "/queue/a", "spooldir": "/s/a,/s/b"})


def test_receivers_fill_the_first_spool(tmp_path: Path) -> None:
    options = spool_options({
        "url": "stomp://localhost:1", "destination": "/queue/a", "spooldir": f"{tmp_path}/b,{tmp_path}/a"
    })  # fmt: skip
    added(tmp_path, "a", range(3))
    assert options.folders() == [f"{tmp_path}/b", f"{tmp_path}/a"]
    pool = ReceiverPool(options, make_spool(Files(options.folders()[0]), options.origin, shared=True))
    pool.stop()
    assert (tmp_path / "b" / "redelivered").is_dir()


def test_the_offset_for_people_is_the_sum(tmp_path: Path) -> None:
    added(tmp_path, "a", range(3), shared=False)
    with query(tmp_path) as engine:
        assert at(engine.initial()) == 0
        assert at(engine.report()) == 3
