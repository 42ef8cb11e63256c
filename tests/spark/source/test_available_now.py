"""Queries that take what there is, and several receivers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.spark.source.offsets import load_vector
from stompy.spark.spool.files import Files
from stompy.spark.spool.record import Record
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.spool import get_spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter
from stompy.testing.proxy import FaultProxy
from tests.spark.receiver.helpers import QUEUE, SOON, eventually, fill, receiving
from tests.spark.source.test_engine import at, bodies, engine_on, latest, spooled
from tests.spark.source.test_engine import broker as broker  # the fixture serves here too
from tests.spark.source.test_spools import added


def test_available_now_takes_what_there_is_and_no_more(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path, idletimeout="0.5", maxoffsetspertrigger="70") as engine:
        engine.prepare_available_now()
        end = engine.latest(engine.initial())
        assert at(end) == 70
        end = engine.latest(end)
        assert at(end) == 100, "the queue was found empty"
        fill(broker.url, range(100, 150))
        assert engine.latest(end) == end
        eventually(lambda: not broker.connections())
        assert broker.depth(QUEUE) == 50, "what comes after the end stays where it is"


BACKLOG = 4_000


@pytest.mark.parametrize("limit", ["maxoffsetspertrigger", "maxbytespertrigger", "maxspoolbytes"])
def test_available_now_takes_from_the_queue_only_what_its_next_batch_may_have(
    broker: Broker, tmp_path: Path, limit: str
) -> None:
    """Four receivers, a second spool that another process has filled, and a queue of many times the limit."""
    added(tmp_path, "other", range(BACKLOG, BACKLOG + 500), origin=QUEUE)
    fill(broker.url, range(BACKLOG))
    own, most = tmp_path / "spool", 250 if limit == "maxoffsetspertrigger" else 200_000
    given = {"spooldir": f"{own},{tmp_path}/other", "receivers": "4", "prefetch": "100", "idletimeout": "1"}
    seen: list[int] = []
    with engine_on(broker, tmp_path, **given, **{limit: str(most)}) as engine:
        engine.prepare_available_now()
        start, batches = engine.initial(), 0
        while (end := engine.latest(start)) != start:
            engine.commit(start)
            key = next(key for key, url in engine.urls.items() if url == str(own))
            begin = load_vector(start)[key].next
            view = SpoolView(get_spool(Files(str(own))))
            if limit == "maxoffsetspertrigger":
                assert view.next - begin <= most
            else:
                size = sum(piece.size for piece in view.index.pieces(begin, view.next))
                assert size <= most * 1.2, "about as many bytes as were asked for"
            seen += bodies(engine, engine.plan(start, end))
            start, batches = end, batches + 1
    assert sorted(seen) == list(range(BACKLOG + 500))
    assert batches > 5


def test_available_now_takes_nothing_while_a_batch_of_the_run_before_is_repeated(
    broker: Broker, tmp_path: Path
) -> None:
    fill(broker.url, range(1000))
    given = {"idletimeout": "0.5", "maxoffsetspertrigger": "100", "receivers": "2", "prefetch": "50"}
    with engine_on(broker, tmp_path, **given) as engine:
        engine.prepare_available_now()
        start = engine.initial()
        end = engine.latest(start)
    with engine_on(broker, tmp_path, **given) as engine:
        engine.prepare_available_now()
        assert len(bodies(engine, engine.plan(start, end))) == 100
        eventually(lambda: [one.subscriptions for one in broker.connections()] == [(QUEUE,)] * 2)
        assert SpoolView(get_spool(Files(engine.options.spool_dir[0]))).next == 100
        assert at(engine.latest(end)) == 200


def test_available_now_without_a_limit_does_not_move_the_queue_into_the_spool(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.spark.source.engine.AVAILABLE_BYTES", 1 << 20)
    with connect(broker.url) as connection, connection.batch():
        for _ in range(200):
            connection.send(QUEUE, bytes(1 << 14))
    with engine_on(broker, tmp_path, idletimeout="1", receivers="4") as engine:
        engine.prepare_available_now()
        end = engine.latest(engine.initial())
        assert 60 <= at(end) <= 66
        while (start := end) != (end := engine.latest(start)):
            assert at(end) - at(start) <= 66
        assert at(end) == 200


@pytest.mark.hard_case("T17")
def test_available_now_of_an_empty_queue_is_empty(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path, idletimeout="0.2") as engine:
        engine.prepare_available_now()
        start = engine.initial()
        assert engine.latest(start) == start


@pytest.mark.hard_case("T17")
def test_available_now_waits_for_a_broker_that_comes_late(tmp_path: Path) -> None:
    broker = Broker()
    broker.start()
    fill(broker.url, range(10))
    broker.close()
    try:
        with engine_on(broker, tmp_path, idletimeout="1.5") as engine:
            threading.Timer(0.6, broker.start).start()
            engine.prepare_available_now()
            assert at(engine.latest(engine.initial())) == 10
    finally:
        broker.close()


@pytest.mark.hard_case("T17")
def test_available_now_ends_though_a_producer_never_pauses(broker: Broker, tmp_path: Path) -> None:
    stop = threading.Event()

    def produce() -> None:
        number = 0
        while not stop.is_set():
            fill(broker.url, [number])
            number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        # So short that it is over before anything can be in the spool.
        with engine_on(broker, tmp_path, idletimeout="30", availablenowtimeout="0.001") as engine:
            engine.prepare_available_now()
            start = engine.initial()
            assert at(engine.latest(start)) > 0
    finally:
        stop.set()
        producer.join()


def test_several_receivers_have_one_sequence_and_their_number_may_change(broker: Broker, tmp_path: Path) -> None:
    with engine_on(broker, tmp_path, receivers="2", prefetch="10") as engine:
        start = engine.initial()
        fill(broker.url, range(500))
        spooled(engine, 500)
        end = latest(engine, start, most=100)
        assert at(end) == 100
        last = engine.latest(end)
        seen = bodies(engine, engine.plan(start, end)) + bodies(engine, engine.plan(end, last))
        assert sorted(seen) == list(range(500))
        eventually(lambda: broker.depth(QUEUE) == 0)
    with engine_on(broker, tmp_path, receivers="3", prefetch="10") as engine:
        assert engine.plan(last, last) == []
        fill(broker.url, range(500, 800))
        spooled(engine, 800)
        assert sorted(bodies(engine, engine.plan(last, engine.latest(last)))) == list(range(500, 800))


def test_a_queue_does_not_count_as_empty_while_the_broker_owes_a_receipt(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stands still between the first messages and the answer to their ACK, for longer than idleTimeout."""
    still = threading.Event()
    keep = SpoolWriter.store

    def stop_the_broker(self: SpoolWriter, receiver: int, messages: Sequence[Record]) -> StoredRange:
        if not still.is_set():
            proxy.stall()
            still.set()
        return keep(self, receiver, messages)

    monkeypatch.setattr(SpoolWriter, "store", stop_the_broker)
    fill(broker.url, range(2000))
    with (
        FaultProxy(broker.url) as proxy,
        engine_on(broker, tmp_path, url=proxy.url, idletimeout="1", prefetch="100") as engine,
    ):
        found: list[int] = []

        def run() -> None:
            engine.prepare_available_now()
            found.append(at(engine.latest(engine.initial())))

        query = threading.Thread(target=run)
        query.start()
        assert still.wait(SOON)
        query.join(2.5)
        assert query.is_alive(), "it took the queue for empty"
        proxy.heal()
        query.join(SOON)
        assert found == [2000]


def test_a_broker_that_never_confirms_an_ack_is_left(broker: Broker, tmp_path: Path) -> None:
    """An ACK that stays open keeps the queue from counting as empty, so it must not stay open forever."""
    with FaultProxy(broker.url) as proxy, receiving(proxy.url, tmp_path, receipttimeout="0.5") as pool:
        eventually(lambda: pool.subscribed_for() > 0)
        for link in proxy.running:
            link.stall("up")
        fill(broker.url, range(3))
        eventually(lambda: len(proxy.links) > 1)
        proxy.heal()
        eventually(lambda: pool.writer.settled == 3)
