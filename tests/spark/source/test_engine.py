from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stompy.broker import Broker
from stompy.errors import ConnectTimeout, SpoolBusy, SpoolDataLoss, SpoolMismatch
from stompy.spark.source.admission import Limits
from stompy.spark.source.engine import StreamEngine
from stompy.spark.source.reading import read_pieces
from stompy.spark.source_options import stream_options
from stompy.spark.spool.index import Piece
from tests.spark.receiver.filling import QUEUE, eventually, fill, receiving

ALL = Limits()


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


def at(offset: dict[str, Any] | None) -> dict[str, int]:
    assert offset is not None
    found: dict[str, int] = offset["seq"]
    return found


def spooled(engine: StreamEngine, count: int) -> None:
    """Wait until the receivers have so many messages."""
    eventually(lambda: sum(at(engine.report() or {"seq": {}}).values()) >= count)


def bodies(engine: StreamEngine, parts: list[list[Piece]]) -> list[int]:
    found: list[int] = []
    for part in parts:
        for batch in read_pieces(engine.url, engine.identity, part, text=None):
            found += [int(body) for body in batch.column("body").to_pylist()]
    return found


def test_a_query_goes_through_its_batches_and_what_was_processed_is_removed(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(1000))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        assert at(start) == {"0": 0}
        spooled(engine, 1000)
        end = engine.latest(start, ALL)
        assert bodies(engine, engine.plan(start, end)) == list(range(1000))
        assert engine.latest(end, ALL) == end
        eventually(lambda: broker.depth(QUEUE) == 0)
        engine.stop()
        engine.commit(end)
    names = [name for name in os.listdir(tmp_path / "spool" / "lane-0") if name.startswith("seg-")]
    assert names == []


@pytest.mark.hard_case("T18")
@pytest.mark.parametrize("limit", [1, 7, 150, 200, 1000])
def test_a_batch_has_exactly_as_many_messages_as_it_may_across_segments(
    broker: Broker, tmp_path: Path, limit: int
) -> None:
    fill(broker.url, range(450))
    with engine_on(broker, tmp_path, segmentmaxmessages="100") as engine:
        start = engine.initial()
        spooled(engine, 450)
        seen: list[int] = []
        while True:
            end = engine.latest(start, Limits(most=limit))
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


def test_a_batch_may_be_bounded_in_octets(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(400))
    with engine_on(broker, tmp_path, segmentmaxmessages="100") as engine:
        start = engine.initial()
        spooled(engine, 400)
        one = at(engine.latest(start, Limits(octets=1)))["0"]
        some = at(engine.latest(start, Limits(octets=20_000)))["0"]
        every = at(engine.latest(start, Limits(octets=1 << 30)))["0"]
        assert 1 == one < some < every == 400


def test_a_minimum_is_waited_for_but_not_for_ever(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with engine_on(broker, tmp_path, maxtriggerdelay="1h") as engine:
        start = engine.initial()
        spooled(engine, 10)
        assert engine.latest(start, Limits(least=11)) == start
        assert at(engine.latest(start, Limits(least=10))) == {"0": 10}
    with engine_on(broker, tmp_path, maxtriggerdelay="0") as engine:
        assert at(engine.latest(start, Limits(least=11))) == {"0": 10}


def test_after_a_restart_an_unfinished_batch_has_the_same_rows(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 100)
        end = engine.latest(start, Limits(most=60))
        first = bodies(engine, engine.plan(start, end))
    fill(broker.url, range(100, 120))
    with engine_on(broker, tmp_path) as engine:
        assert bodies(engine, engine.plan(start, end)) == first
        assert at(engine.latest(end, Limits(most=1000)))["0"] >= 100


def test_a_spark_that_does_not_say_where_it_is_gets_its_limit_all_the_same(broker: Broker, tmp_path: Path) -> None:
    """Before 4.2 `latestOffset` has no arguments."""
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 100)
        first = engine.latest(None, Limits(most=60))
        engine.plan(start, first)
        assert at(first) == {"0": 60}
        assert at(engine.latest(None, Limits(most=30))) == {"0": 90}
    with engine_on(broker, tmp_path) as engine:
        assert at(engine.latest(None, Limits(most=5))) == {"0": 95}


@pytest.mark.hard_case("T12")
def test_without_a_checkpoint_a_query_begins_with_the_oldest_message(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path, segmentmaxmessages="10") as engine:
        start = engine.initial()
        spooled(engine, 100)
        eventually(lambda: broker.depth(QUEUE) == 0)
        engine.commit(engine.latest(start, Limits(most=40)))
    with engine_on(broker, tmp_path) as engine:
        assert at(engine.initial()) == {"0": 40}


@pytest.mark.hard_case("T12")
def test_a_deleted_spool_under_a_checkpoint_is_an_error_with_the_remedy(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(10))
    with engine_on(broker, tmp_path) as engine:
        start = engine.initial()
        spooled(engine, 10)
        end = engine.latest(start, ALL)
    shutil.rmtree(tmp_path / "spool")
    with engine_on(broker, tmp_path) as engine:
        with pytest.raises(SpoolMismatch, match=r"the checkpoint was made with spool .*a new checkpoint"):
            engine.plan(start, end)
        with pytest.raises(SpoolMismatch):
            engine.latest(end, ALL)


@pytest.mark.hard_case("T13")
def test_a_deleted_segment_is_data_loss_unless_it_is_given_up(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(300))
    with engine_on(broker, tmp_path, segmentmaxmessages="100", prefetch="100") as engine:
        start = engine.initial()
        spooled(engine, 300)
        end = engine.latest(start, ALL)
        eventually(lambda: broker.depth(QUEUE) == 0)
    lane = tmp_path / "spool" / "lane-0"
    middle = sorted(name for name in os.listdir(lane) if name.startswith("seg-"))[1]
    count = int(middle.split("-")[2])
    os.unlink(lane / middle)
    with (
        engine_on(broker, tmp_path) as engine,
        pytest.raises(SpoolDataLoss, match=r"the segments with the messages \d+ to \d+ .*failOnDataLoss=false"),
    ):
        engine.plan(start, end)
    with engine_on(broker, tmp_path, failondataloss="false") as engine:
        assert len(bodies(engine, engine.plan(start, end))) == 300 - count


def test_a_checkpoint_ahead_of_the_spool_is_data_loss(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path) as engine:
        ahead = {**engine.initial(), "seq": {"0": 50}}
        with pytest.raises(SpoolDataLoss, match=r"up to 50 of lane 0 were processed, the spool ends at 0"):
            engine.latest(ahead, ALL)
    with engine_on(broker, tmp_path, failondataloss="false") as engine:
        assert engine.latest(ahead, ALL) == ahead


@pytest.mark.hard_case("T10")
def test_a_second_query_on_one_spool_is_refused_and_the_first_goes_on(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path) as first:
        start = first.initial()
        with engine_on(broker, tmp_path, locktimeout="0") as second, pytest.raises(SpoolBusy):
            second.initial()
        fill(broker.url, range(10))
        spooled(first, 10)
        assert at(first.latest(start, ALL)) == {"0": 10}


@pytest.mark.hard_case("T9")
def test_stop_and_start_at_once_waits_for_the_predecessor(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path) as first:
        first.initial()
        threading.Timer(0.3, first.stop).start()
        with engine_on(broker, tmp_path, locktimeout="20") as second:
            assert at(second.initial()) == {"0": 0}


def test_what_ails_a_receiver_reaches_the_query(tmp_path: Path) -> None:
    with Broker() as broker:
        pass
    with engine_on(broker, tmp_path, brokertimeout="0.2", connecttimeout="0.1") as engine:
        start = engine.initial()
        with pytest.raises(ConnectTimeout, match="has had no broker for more than"):
            eventually(lambda: engine.latest(start, ALL) != start)


def test_available_now_takes_what_there_is_and_no_more(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path, idletimeout="0.5") as engine:
        engine.prepare_available_now()
        start = engine.initial()
        fill(broker.url, range(100, 150))
        spooled(engine, 150)
        end = engine.latest(start, Limits(most=70))
        assert at(end) == {"0": 70}
        end = engine.latest(end, Limits(most=70))
        assert at(end) == {"0": 100}
        assert engine.latest(end, Limits(most=70)) == end


@pytest.mark.hard_case("T17")
def test_available_now_of_an_empty_queue_is_empty(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path, idletimeout="0.2") as engine:
        engine.prepare_available_now()
        start = engine.initial()
        assert engine.latest(start, ALL) == start


@pytest.mark.hard_case("T17")
def test_available_now_waits_for_a_broker_that_comes_late(tmp_path: Path) -> None:
    broker = Broker()
    broker.start()
    fill(broker.url, range(10))
    broker.stop()
    try:
        with engine_on(broker, tmp_path, idletimeout="0.2") as engine:
            threading.Timer(0.6, broker.start).start()
            engine.prepare_available_now()
            assert at(engine.latest(engine.initial(), ALL)) == {"0": 10}
    finally:
        broker.stop()


@pytest.mark.hard_case("T17")
def test_available_now_ends_though_a_producer_never_rests(broker: Broker, tmp_path: Path) -> None:
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            fill(broker.url, [number])
            number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        with engine_on(broker, tmp_path, idletimeout="30", availablenowtimeout="0.7") as engine:
            engine.prepare_available_now()
            start = engine.initial()
            assert at(engine.latest(start, ALL))["0"] > 0
    finally:
        stop.set()
        producer.join()


def test_lanes_are_counted_each_by_itself(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path, receivers="2", prefetch="10") as engine:
        start = engine.initial()
        assert at(start) == {"0": 0, "1": 0}
        fill(broker.url, range(500))
        spooled(engine, 500)
        end = engine.latest(start, Limits(most=100))
        assert sum(at(end).values()) == 100
        last = engine.latest(end, ALL)
        seen = bodies(engine, engine.plan(start, end)) + bodies(engine, engine.plan(end, last))
        assert sorted(seen) == list(range(500))
    # A query that goes on with more lanes begins the new one at its start.
    with engine_on(broker, tmp_path, receivers="3", prefetch="10") as engine:
        assert engine.plan(last, last) == []
        fill(broker.url, range(500, 800))
        spooled(engine, 800)
        assert sorted(bodies(engine, engine.plan(last, engine.latest(last, ALL)))) == list(range(500, 800))


def test_with_no_receivers_it_reads_what_another_process_fills(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with receiving(broker, tmp_path) as crew, engine_on(broker, tmp_path, receivers="0") as engine:
        eventually(lambda: crew.lanes[0].next == 100)
        start = engine.initial()
        end = engine.latest(start, ALL)
        assert bodies(engine, engine.plan(start, end)) == list(range(100))
        eventually(lambda: crew.writers[0].settled == 100)
        engine.commit(end)


def test_rows_that_the_driver_sends_are_in_small_parts(broker: Broker, tmp_path: Path) -> None:
    from stompy.connection.connecting import connect

    with connect(broker.url) as connection:
        for _ in range(12):
            connection.send(QUEUE, bytes(1 << 20), confirm=True)
    with engine_on(broker, tmp_path, spoolaccess="driver", numpartitions="1") as engine:
        start = engine.initial()
        spooled(engine, 12)
        parts = engine.plan(start, engine.latest(start, ALL))
        assert len(parts) >= 3
        assert max(sum(piece.size for piece in part) for part in parts) < 8 << 20
