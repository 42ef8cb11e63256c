"""Queries that take what there is, and several receivers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from stompy.broker import Broker
from stompy.spark.spool.record import Identity, Record
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.writer import SpoolWriter
from stompy.testing.proxy import FaultProxy
from tests.spark.receiver.helpers import QUEUE, SOON, eventually, fill, receiving
from tests.spark.source.test_engine import at, bodies, engine_on, latest, spooled
from tests.spark.source.test_engine import broker as broker  # the fixture serves here too


def test_available_now_takes_what_there_is_and_no_more(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with engine_on(broker, tmp_path, idletimeout="1.5") as engine:
        engine.prepare_available_now()
        end = latest(engine, engine.initial(), most=70)
        assert at(end) == 70
        fill(broker.url, range(100, 150))
        spooled(engine, 150)
        end = latest(engine, end, most=70)
        assert at(end) == 100
        assert latest(engine, end, most=70) == end


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

    def stop_the_broker(
        self: SpoolWriter, receiver: int, messages: Sequence[tuple[Record, Identity | None]]
    ) -> StoredRange:
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
