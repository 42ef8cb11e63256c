from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.errors import ConnectTimeoutError, SpoolBusyError, SpoolDataLossError, SpoolFencedError, SpoolMismatchError
from stompy.spark.option_tables import stream_options
from stompy.spark.source.engine import StreamEngine
from stompy.spark.source.offsets import Offset, dump_vector, load_vector
from stompy.spark.source.reading import read_pieces
from stompy.spark.spool.files import Files, dump
from stompy.spark.spool.index import Piece
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from tests.spark.receiver.helpers import QUEUE, eventually, fill, receiving, spool_in
from tests.spark.source.forking_queries import QUERIES


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@contextmanager
def engine_on(broker: Broker, path: Path, **given: str) -> Iterator[StreamEngine]:
    made = StreamEngine(
        stream_options({
            "url": broker.url, "destination": QUEUE, "spooldir": str(path / "spool"), "locktimeout": "5", **given
        })
    )  # fmt: skip
    try:
        yield made
    finally:
        made.stop()


def at(offset: dict[str, Any] | None) -> int:
    assert offset is not None
    found: int = offset["next"]
    return found


def latest(
    engine: StreamEngine,
    start: dict[str, Any] | None,
    *,
    most: int | None = None,
    least: int | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """Return the end of the next micro-batch, with other limits than the query has."""
    given = engine.options
    engine.options = replace(
        given, max_offsets_per_trigger=most, min_offsets_per_trigger=least, max_bytes_per_trigger=size
    )
    try:
        return engine.latest(start)
    finally:
        engine.options = given


def spooled(engine: StreamEngine, count: int) -> None:
    """Wait until the receivers have so many messages."""
    view = SpoolView(get_spool(Files(engine.options.spool_dir[0])))
    eventually(lambda: view.refresh() and view.next >= count)


def segments(path: Path) -> list[Path]:
    return sorted((path / "spool").glob("seg-*"))


def bodies(engine: StreamEngine, parts: list[list[Piece]]) -> list[int]:
    found: list[int] = []
    for part in parts:
        for batch in read_pieces(engine.urls, part, array=False):
            found += [int(body) for body in batch.column("body").to_pylist()]
    return found


def test_a_query_goes_through_its_batches_and_what_was_processed_is_removed(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(1000))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        assert at(start) == 0
        spooled(engine, 1000)
        end = engine.latest(start)
        assert bodies(engine, engine.plan(start, end)) == list(range(1000))
        assert engine.latest(end) == end
        eventually(lambda: broker.depth(QUEUE) == 0)
        engine.commit(end)
        eventually(lambda: segments(tmp_path) == [])


@pytest.mark.hard_case("T18")
@pytest.mark.parametrize("limit", [1, 7, 150, 200, 1000])
def test_a_batch_has_exactly_as_many_messages_as_it_may_across_segments(
    broker: Broker, tmp_path: Path, limit: int
) -> None:
    fill(broker.url, range(450))
    with engine_on(broker, tmp_path, prefetch="100") as engine:
        start = engine.initial()
        spooled(engine, 450)
        seen: list[int] = []
        while True:
            end = latest(engine, start, most=limit)
            if end == start:
                break
            found = bodies(engine, engine.plan(start, end))
            assert len(found) == min(limit, 450 - len(seen))
            seen += found
            engine.commit(end)
            start = end
            if limit < 10 and len(seen) > 40:
                return
        assert seen == list(range(450))


def test_a_batch_may_be_bounded_in_bytes(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(400))
    with engine_on(broker, tmp_path, prefetch="100") as engine:
        start = engine.initial()
        spooled(engine, 400)
        one = at(latest(engine, start, size=1))
        some = at(latest(engine, start, size=20_000))
        every = at(latest(engine, start, size=1 << 30))
        assert 1 == one < some < every == 400


def test_a_minimum_is_waited_for_but_not_forever(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with engine_on(broker, tmp_path, maxtriggerdelay="1h") as engine:
        start = engine.initial()
        spooled(engine, 10)
        assert latest(engine, start, least=11) == start
        assert at(latest(engine, start, least=10)) == 10
    with engine_on(broker, tmp_path, maxtriggerdelay="0") as engine:
        assert at(latest(engine, start, least=11)) == 10


def test_after_a_restart_an_unfinished_batch_has_the_same_rows(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 100)
        end = latest(engine, start, most=60)
        first = bodies(engine, engine.plan(start, end))
    fill(broker.url, range(100, 120))
    with engine_on(broker, tmp_path) as engine:
        assert bodies(engine, engine.plan(start, end)) == first
        assert at(latest(engine, end, most=1000)) >= 100


def test_a_spark_that_does_not_say_where_it_is_gets_its_limit_all_the_same(broker: Broker, tmp_path: Path) -> None:
    """Before 4.2 `latestOffset` has no arguments."""
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 100)
        first = latest(engine, None, most=60)
        engine.plan(start, first)
        assert at(first) == 60
        assert at(latest(engine, None, most=30)) == 90
    with engine_on(broker, tmp_path) as engine:
        assert at(latest(engine, None, most=5)) == 95


@pytest.mark.hard_case("T12")
def test_without_a_checkpoint_a_query_begins_with_the_oldest_message(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path, prefetch="10") as engine:
        start = engine.initial()
        spooled(engine, 100)
        eventually(lambda: broker.depth(QUEUE) == 0)
        engine.commit(latest(engine, start, most=40))
    with engine_on(broker, tmp_path) as engine:
        assert at(engine.initial()) == 40


@pytest.mark.hard_case("T12")
def test_a_deleted_spool_under_a_checkpoint_is_an_error_with_the_remedy(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 10)
        end = engine.latest(start)
    shutil.rmtree(tmp_path / "spool")
    with engine_on(broker, tmp_path) as engine:
        with pytest.raises(SpoolMismatchError, match=r"the checkpoint was made with spool .*a new checkpoint"):
            engine.plan(start, end)
        with pytest.raises(SpoolMismatchError):
            engine.latest(end)


@pytest.mark.hard_case("T13")
def test_a_deleted_segment_is_data_loss_unless_it_is_given_up(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(300))
    with engine_on(broker, tmp_path, prefetch="100") as engine:
        start = engine.initial()
        spooled(engine, 300)
        end = engine.latest(start)
        eventually(lambda: broker.depth(QUEUE) == 0)
    middle = segments(tmp_path)[1]
    count = int(middle.name.split("-")[2])
    middle.unlink()
    with (
        engine_on(broker, tmp_path) as engine,
        pytest.raises(SpoolDataLossError, match=r"the segments with the messages \d+ to \d+ .*failOnDataLoss=false"),
    ):
        engine.plan(start, end)
    with engine_on(broker, tmp_path, failondataloss="false") as engine:
        assert len(bodies(engine, engine.plan(start, end))) == 300 - count
        assert engine.latest(start)["lost"] == count, "the progress of the query tells it"


def test_a_checkpoint_ahead_of_the_spool_is_refused(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        ahead = {**start, "spools": {key: {"next": 50} for key in start["spools"]}}
        with pytest.raises(SpoolMismatchError, match=r"the messages before 50 were given to Spark, and .* ends at 0"):
            engine.latest(ahead)


def test_a_damaged_segment_is_given_up_and_counted_and_the_query_goes_on(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.url, range(300))
    with engine_on(broker, tmp_path, prefetch="100") as engine:
        start = engine.initial()
        spooled(engine, 300)
        eventually(lambda: broker.depth(QUEUE) == 0)
    middle = segments(tmp_path)[1]
    first, count = (int(part) for part in middle.name.split("-")[1:3])
    middle.write_bytes(middle.read_bytes()[:-1])
    with engine_on(broker, tmp_path, failondataloss="false") as engine:
        end = engine.latest(start)
        assert (end["next"], end["lost"]) == (300, count)
        seen = bodies(engine, engine.plan(start, end))
        assert seen == [number for number in range(300) if not first <= number < first + count]
        assert f"the messages {first} to {first + count - 1} are skipped" in caplog.text
        assert engine.latest(end) == end
        engine.commit(end)
        fill(broker.url, [300])
        spooled(engine, 301)
        later = engine.latest(end)
        assert later["lost"] == count, "it is kept, so that it is seen later as well"
        assert bodies(engine, engine.plan(end, later)) == [300]


@pytest.mark.hard_case("T10")
@pytest.mark.parametrize("receivers", ["00", "01", "10", "11"])
def test_a_second_query_on_one_spool_is_refused_and_the_first_goes_on(
    broker: Broker, tmp_path: Path, receivers: str
) -> None:
    with contextlib.ExitStack() as running:
        if receivers[0] == "0":
            running.enter_context(receiving(broker, tmp_path))
        first = running.enter_context(engine_on(broker, tmp_path, receivers=receivers[0]))
        start = first.initial()
        with (
            engine_on(broker, tmp_path, locktimeout="0", receivers=receivers[1]) as second,
            pytest.raises(SpoolBusyError, match=rf"another query reads it \(process {os.getpid()} on "),
        ):
            second.initial()
        fill(broker.url, range(10))
        spooled(first, 10)
        assert at(first.latest(start)) == 10


@pytest.mark.hard_case("T10")
def test_a_second_query_is_refused_in_another_process_too_until_the_first_is_killed(
    broker: Broker, tmp_path: Path
) -> None:
    given = {"url": broker.url, "destination": QUEUE, "spoolDir": str(tmp_path / "spool"), "receivers": "0"}
    command = [sys.executable, "-m", "tests.spark.crashes.filler", json.dumps(given)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[3]) as first:
        try:
            eventually(lambda: list(tmp_path.glob("spool/reader/0*")))
            with (
                engine_on(broker, tmp_path, locktimeout="0", receivers="0") as second,
                pytest.raises(SpoolBusyError, match=f"another query reads it .process {first.pid} on "),
            ):
                second.initial()
        finally:
            first.kill()
            first.wait()
    with engine_on(broker, tmp_path, locktimeout="0", receivers="0") as second:
        assert at(second.initial()) == 0


def test_a_query_that_hangs_is_taken_over_from_and_removes_nothing_more(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with (
        receiving(broker, tmp_path) as pool,
        engine_on(broker, tmp_path, receivers="0") as first,
        engine_on(broker, tmp_path, receivers="0", takeoverafter="0") as second,
    ):
        eventually(lambda: pool.writer.settled == 10)
        end = first.latest(first.initial())
        assert at(second.initial()) == 0
        for call in (lambda: first.latest(end), lambda: first.plan(end, end), lambda: first.commit(end)):
            with pytest.raises(SpoolFencedError, match="another query has taken it over"):
                call()
        assert spool_in(tmp_path).low() == 0


def test_a_query_in_a_long_batch_is_not_taken_over_from(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.spark.source.engine.HEARTBEAT_INTERVAL", 0.1)
    monkeypatch.setattr("stompy.spark.spool.claims.HEARTBEAT_INTERVAL", 0.05)
    given = {"receivers": "0", "locktimeout": "3", "takeoverafter": "2"}
    with engine_on(broker, tmp_path, **given) as first, engine_on(broker, tmp_path, **given) as second:
        start = first.initial()
        with pytest.raises(SpoolBusyError):
            second.initial()
        assert first.latest(start) == start


@pytest.mark.hard_case("T9")
def test_stop_and_start_at_once_waits_for_the_predecessor(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path) as first:
        first.initial()
        threading.Timer(0.3, first.stop).start()
        with engine_on(broker, tmp_path, locktimeout="20") as second:
            assert at(second.initial()) == 0


def test_the_failure_of_a_receiver_reaches_the_query(tmp_path: Path) -> None:
    with Broker() as broker:
        pass
    with engine_on(broker, tmp_path, brokertimeout="0.2") as engine:
        start = engine.initial()
        with pytest.raises(ConnectTimeoutError, match="had no connection to a broker for more than"):
            eventually(lambda: engine.latest(start) != start)


def test_with_no_receivers_it_reads_what_another_process_fills(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with receiving(broker, tmp_path) as pool, engine_on(broker, tmp_path, receivers="0") as engine:
        eventually(lambda: pool.writer.next == 100)
        start = engine.initial()
        end = engine.latest(start)
        assert bodies(engine, engine.plan(start, end)) == list(range(100))
        eventually(lambda: pool.writer.settled == 100)
        engine.commit(end)


def test_with_no_receivers_it_fails_when_no_process_fills_the_spool(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path, receivers="0", brokertimeout="0") as engine:
        start = engine.initial()
        with pytest.raises(ConnectTimeoutError, match=r"no process has filled the spool.*stompy spool"):
            eventually(lambda: engine.latest(start) != start)


def test_a_query_whose_claim_could_not_be_written_leaves_the_spool_to_the_next(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Files.write

    def full(files: Files, name: str, data: bytes) -> None:
        if name.startswith("reader/") and b'"start"' in data:  # the second of two writes: it begins
            raise OSError(errno.ENOSPC, "No space left on device")
        written(files, name, data)

    monkeypatch.setattr(Files, "write", full)
    with engine_on(broker, tmp_path, receivers="0") as refused:
        with pytest.raises(OSError, match="No space left"):
            refused.initial()
        monkeypatch.undo()
        with engine_on(broker, tmp_path, receivers="0", locktimeout="1") as query:
            assert at(query.initial()) == 0


def test_a_process_that_has_claimed_the_spool_and_not_begun_is_waited_for(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 10)
        end = engine.latest(start)
    spool_in(tmp_path).files.write("epoch/00000009-aaaaaaaaaaaa", dump({"host": "h", "pid": 1}))
    given = {"receivers": "0", "locktimeout": "0"}
    with engine_on(broker, tmp_path, failondataloss="false", **given) as engine:
        with pytest.raises(SpoolBusyError, match="does not start"):
            engine.plan(start, end)
        assert engine.latest(start) == start, "nothing is taken for lost"
    with engine_on(broker, tmp_path) as engine:
        assert bodies(engine, engine.plan(start, end)) == list(range(10))


@pytest.mark.parametrize(
    ("offset", "more"),
    [(Offset(20), {}), (Offset(20, 3, digest="5f", lost=7), {"epoch": 3, "digest": "5f", "lost": 7})],
)
def test_it_comes_back_from_a_checkpoint(offset: Offset, more: dict[str, object]) -> None:
    vector = {"s": offset, "t": Offset(5)}
    stored = json.loads(json.dumps(dump_vector(vector)))
    spools = {"s": {"next": 20, **more}, "t": {"next": 5}}
    assert stored == {"v": 4, "next": 25, "spools": spools, **({"lost": 7} if more else {})}
    assert load_vector(stored) == vector


@pytest.mark.parametrize(
    "stored",
    [{}, {"v": 1, "spool": "s", "seq": {"0": 5}}, {"index": 5}, {"v": 4, "next": 5}, {"v": 3, "spool": "s", "next": 5}],
)
def test_another_sources_offset_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(SpoolMismatchError, match="its own checkpointLocation"):
        load_vector(stored)


@pytest.mark.parametrize("query", QUERIES)
def test_a_forked_child_leaves_the_query_of_its_parent_alone(query: str) -> None:
    program = [sys.executable, "-m", "tests.spark.source.forking_queries", query]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["ok"], done.stderr[-4000:]
    assert "Exception ignored" not in done.stderr, done.stderr[-4000:]
