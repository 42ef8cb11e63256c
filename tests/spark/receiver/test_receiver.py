from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from stompy.broker import Broker
from stompy.connection.connecting import connect
from stompy.connection.message import Message, delivery_of
from stompy.deadline import Deadline
from stompy.errors import (
    AckError,
    BrokerError,
    ConfigurationError,
    ConnectionLostError,
    ConnectRefusedError,
    ConnectTimeoutError,
    RemoteProtocolError,
    SpoolFencedError,
    SpoolFullError,
)
from stompy.spark import receivers
from stompy.spark.receivers import ReceiverPool
from stompy.spark.spool import claims
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.files import write_mark
from stompy.spark.spool.record import Record
from stompy.spark.spool.redelivery import StoredRange
from stompy.spark.spool.writer import SpoolWriter
from tests.spark.receiver.helpers import QUEUE, SOON, bodies, column, eventually, fill, receiving, spool_in
from tests.spark.spool.builders import known_ids, spool_writer
from tests.support.seed import chance

T = TypeVar("T")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_what_is_in_the_spool_is_acknowledged_and_nothing_else(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(1000))
    with receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.next == 1000)
        eventually(lambda: broker.depth(QUEUE) == 0)
        eventually(lambda: pool.writer.settled == 1000)
    assert bodies(tmp_path) == list(range(1000))
    assert column(tmp_path, "sequence") == list(range(1000))
    assert not any(column(tmp_path, "possible_duplicate"))


def test_a_group_is_acknowledged_in_parts_as_some_brokers_send_only_so_many_more_for_each_ack(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker.url, range(1000))
    with caplog.at_level(logging.DEBUG, "stompy.link"), receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.settled == 1000)
    acknowledged = [message for message in caplog.messages if message.startswith("> <Frame ACK")]
    assert len(acknowledged) >= 20


@pytest.mark.parametrize("dialect", ["stompy", "rabbitmq"])  # RabbitMQ's ACKs in mode `client` reach further
def test_of_several_destinations_each_message_is_there_once_and_says_its_own(
    broker: Broker, tmp_path: Path, dialect: str
) -> None:
    queues = [f"/queue/{name}" for name in "abc"]
    for number, queue in enumerate(queues):
        fill(broker.url, range(number, 300, 3), queue=queue)
    with receiving(broker, tmp_path, destination=", ".join(queues), receivers="2", dialect=dialect) as pool:
        eventually(lambda: pool.writer.settled == 300)
        assert [broker.depth(queue) for queue in queues] == [0, 0, 0]
    assert sorted(bodies(tmp_path)) == list(range(300))
    where = dict(zip(bodies(tmp_path), column(tmp_path, "destination"), strict=True))
    assert all(where[number] == queues[number % 3] for number in range(300))


def test_a_busy_destination_does_not_hold_back_another(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(600))
    fill(broker.url, [600], queue="/queue/b")
    given = {"destination": f"{QUEUE},/queue/b", "prefetch": "5"}
    with receiving(broker, tmp_path, **given) as pool:
        eventually(lambda: pool.writer.next == 601)
    assert bodies(tmp_path).index(600) < 300


def test_the_link_is_lost_before_the_acks_of_several_destinations(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_first_acks(monkeypatch, broker, 3)
    for name in "ab":
        fill(broker.url, range(300), queue=f"/queue/{name}")
    with receiving(broker, tmp_path, destination="/queue/a,/queue/b", dedupheader="n", prefetch="100") as pool:
        eventually(lambda: pool.writer.settled == 600 and known_ids(pool.writer) == 0)
    # The same value of the header in two destinations is two messages.
    assert sorted(bodies(tmp_path)) == sorted([*range(300), *range(300)])


def test_messages_that_come_later_are_received_without_a_timer(broker: Broker, tmp_path: Path) -> None:
    with receiving(broker, tmp_path) as pool:
        for number in range(3):
            fill(broker.url, [number])
            eventually(lambda number=number: pool.writer.next == number + 1)  # type: ignore[misc]
    assert bodies(tmp_path) == [0, 1, 2]


def test_a_segment_is_no_larger_than_it_may_be(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(50))
    with receiving(broker, tmp_path, prefetch="20") as pool:
        eventually(lambda: pool.writer.next == 50)
        assert max(segment.count for segment in spool_in(tmp_path).segments()) <= 20


@pytest.mark.hard_case("T24")
def test_bytes_headers_and_empty_bodies_come_through(broker: Broker, tmp_path: Path) -> None:
    sent = [b"", b"\0\n\0", chance("body").randbytes(3 << 20)]
    with connect(broker.url) as connection:
        for body in sent:
            connection.send(QUEUE, body, headers={"a:b": "c\nd\\", "timestamp": 1_700_000_000_000}, confirm=True)
    with receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.next == 3)
    assert column(tmp_path, "body") == sent
    assert dict(column(tmp_path, "headers")[0])["a:b"] == "c\nd\\"
    assert column(tmp_path, "broker_timestamp")[0].year == 2023


@pytest.mark.hard_case("T25")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_every_version_is_acknowledged(tmp_path: Path, version: str) -> None:
    with Broker(versions=[version]) as broker:
        fill(broker.url, range(300))
        with receiving(broker, tmp_path) as pool:
            eventually(lambda: pool.writer.next == 300)
            eventually(lambda: broker.depth(QUEUE) == 0)


@pytest.mark.hard_case("T14")
def test_a_broker_that_restarts_is_come_back_to(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(100))
    with receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.next == 100)
        eventually(lambda: broker.depth(QUEUE) == 0)
        broker.restart()
        fill(broker.url, range(100, 200))
        eventually(lambda: pool.writer.next >= 200)
        pool.check()
    assert bodies(tmp_path) == list(range(200))


@pytest.mark.hard_case("T14")
def test_a_broker_that_stays_down_is_reported_after_the_timeout(broker: Broker, tmp_path: Path) -> None:
    with receiving(broker, tmp_path, brokertimeout="0.3", receipttimeout="1") as pool:
        eventually(lambda: pool.subscribed_for() > 0)
        pool.check()
        broker.close()
        with pytest.raises(ConnectTimeoutError, match=r"had no connection to a broker for more than 0\.3 s"):
            until_it_fails(pool)
        broker.start()
        fill(broker.url, [0])
        eventually(lambda: pool.writer.next == 1)
        pool.check()


def test_a_login_that_is_refused_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMP_SECRET", "barley")
    with (
        Broker(users={"me": "sesame"}) as broker,
        receiving(broker.url.replace("://", "://me@"), tmp_path, passcodeenv="STOMP_SECRET") as pool,
    ):
        with pytest.raises(ConnectRefusedError) as caught:
            until_it_fails(pool)
        assert "barley" not in str(caught.value)


def test_a_passcode_that_is_not_there_is_reported(broker: Broker, tmp_path: Path) -> None:
    with (
        receiving(broker, tmp_path, passcodeenv="STOMP_NOWHERE") as pool,
        pytest.raises(Exception, match="no environment variable 'STOMP_NOWHERE'"),
    ):
        until_it_fails(pool)


@pytest.mark.hard_case("T16")
def test_nothing_is_acknowledged_when_the_disk_is_full(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.url, range(100))
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if b"ARROW1" in bytes(data[:8]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data)

    monkeypatch.setattr(os, "write", full)
    with receiving(broker, tmp_path) as pool, pytest.raises(SpoolFullError):
        until_it_fails(pool)
    assert broker.depth(QUEUE) == 100
    monkeypatch.undo()
    with receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.next == 100)
    assert bodies(tmp_path) == list(range(100))


def test_a_fenced_receiver_acknowledges_nothing_more(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "HEARTBEAT_INTERVAL", 1e9)
    fill(broker.url, range(10))
    with receiving(broker, tmp_path) as zombie:
        eventually(lambda: zombie.writer.settled == 10)
        successor = spool_writer(spool_in(tmp_path).files, patience=ClaimTimeouts(wait=30.0, frozen=0.1))
        fill(broker.url, range(10, 20))
        with pytest.raises(SpoolFencedError):
            until_it_fails(zombie)
        successor.close()
    assert broker.depth(QUEUE) == 10
    assert bodies(tmp_path) == list(range(10))


def test_a_full_spool_holds_the_broker_back_until_something_was_processed(broker: Broker, tmp_path: Path) -> None:
    fill(broker.url, range(1000))
    with receiving(broker, tmp_path, maxspoolbytes="1", prefetch="100") as pool:
        writer, files = pool.writer, spool_in(tmp_path).files
        eventually(lambda: writer.next > 0)
        held = writer.next
        eventually(lambda: broker.stats().queues[QUEUE].unacked == 100)
        assert writer.next == held
        pool.check()
        # All of it was reported to Spark: then the receiver must go on, or no batch would ever follow.
        write_mark(files, "planned", held)
        eventually(lambda: writer.next > held)
        at = writer.next
        write_mark(files, "planned", at)
        write_mark(files, "low", held)
        eventually(lambda: writer.next > at)
        eventually(lambda: min(segment.first for segment in spool_in(tmp_path).segments()) >= held)


def until_it_fails(pool: ReceiverPool) -> None:
    give_up = Deadline(SOON)
    while not give_up.expired:
        pool.check()
        time.sleep(0.01)


def lose_the_first_acks(monkeypatch: pytest.MonkeyPatch, broker: Broker, times: int) -> None:
    """Let the link die between the moment that messages are durable and their first ACK."""
    left = iter(range(times))

    def losing(ack: Callable[[Message], T]) -> Callable[[Message], T]:
        def lost(message: Message) -> T:
            if next(left, None) is not None:
                delivery_of(message).link.close()
                raise AckError("the link is gone")
            return ack(message)

        return lost

    monkeypatch.setattr(Message, "ack", losing(Message.ack))
    monkeypatch.setattr(Message, "ack_async", losing(Message.ack_async))


def test_what_comes_again_is_known_by_the_dedup_header_and_acknowledged(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_the_first_acks(monkeypatch, broker, 3)
    fill(broker.url, range(1000))
    with receiving(broker, tmp_path, dedupheader="n", prefetch="100") as pool:
        eventually(lambda: broker.depth(QUEUE) == 0 and pool.writer.next >= 1000)
        fill(broker.url, range(1000, 1100))
        eventually(lambda: pool.writer.next >= 1100)
        eventually(lambda: pool.writer.settled == 1100)
        assert known_ids(pool.writer) == 0
    assert bodies(tmp_path) == list(range(1100))


def test_where_ids_name_deliveries_what_comes_again_is_flagged_and_bounded(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "are_stable", lambda _: False)
    lose_the_first_acks(monkeypatch, broker, 1)
    fill(broker.url, range(1000))
    with receiving(broker, tmp_path, prefetch="100") as pool:
        eventually(lambda: broker.depth(QUEUE) == 0)
        eventually(lambda: pool.writer.settled >= 1000)
    found = bodies(tmp_path)
    flags = column(tmp_path, "possible_duplicate")
    assert set(found) == set(range(1000))
    assert 0 < len(found) - 1000 <= 100
    first: set[int] = set()
    for number, flagged in zip(found, flags, strict=True):
        assert flagged or number not in first, "the second copy of a message is flagged"
        first.add(number)


def test_what_comes_again_and_is_not_known_here_is_flagged(broker: Broker, tmp_path: Path) -> None:
    """Another spool may have it: its ids are stable, but only that spool knows them."""
    fill(broker.url, range(100))
    with receiving(broker, tmp_path / "other", prefetch="10", maxspoolbytes="1") as pool:
        eventually(lambda: pool.writer.settled > 0)
    elsewhere = set(bodies(tmp_path / "other"))
    with connect(broker.url) as connection:
        subscription = connection.subscribe(QUEUE, ack="client", prefetch=20)
        again = {int(subscription.receive(timeout=SOON).body) for _ in range(20)}
    with receiving(broker, tmp_path) as pool:
        eventually(lambda: pool.writer.settled == 100 - len(elsewhere))
    rows = dict(zip(bodies(tmp_path), column(tmp_path, "possible_duplicate"), strict=True))
    assert rows.keys() == set(range(100)) - elsewhere
    assert again <= {body for body, flagged in rows.items() if flagged}


@pytest.mark.hard_case("T15")
def test_nothing_but_messages_that_come_again_does_not_stop_it(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times the prefetch of suspects: dropped alone, they would keep the broker from sending anything else."""
    fill(broker.url, range(60))
    with monkeypatch.context() as patched, receiving(broker, tmp_path, dedupheader="n", prefetch="60") as pool:
        lose_the_first_acks(patched, broker, 1_000_000)
        eventually(lambda: pool.writer.next == 60)
    assert broker.depth(QUEUE) == 60
    fill(broker.url, range(60, 120))
    with receiving(broker, tmp_path, dedupheader="n", prefetch="20") as pool:
        assert known_ids(pool.writer) == 60
        eventually(lambda: broker.depth(QUEUE) == 0 and pool.writer.settled == 120)
        assert known_ids(pool.writer) == 0
    assert bodies(tmp_path) == list(range(120))


def test_a_message_that_cannot_be_read_ends_it_with_an_error_instead_of_a_loop(broker: Broker, tmp_path: Path) -> None:
    with connect(broker.url) as connection:
        for number in range(3):
            connection.send(QUEUE, b"good", headers={"n": number}, confirm=True)
        connection.send(QUEUE, bytes(5000), confirm=True)
    with receiving(broker, tmp_path, maxbodybytes="1000", dedupheader="n") as pool:
        with pytest.raises(RemoteProtocolError, match=r"cannot be read.*maxBodyBytes"):
            until_it_fails(pool)
        assert pool.writer.next == 3
    assert broker.depth(QUEUE) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"selector": "n = 1", "dialect": "rabbitmq"}, "it would ignore the selector"),
        ({"subscribeheaders": '{"prefetch-count": "many"}'}, "prefetch-count"),
    ],
)
def test_a_subscription_that_is_refused_is_reported_at_once(
    broker: Broker, tmp_path: Path, given: dict[str, str], words: str
) -> None:
    with receiving(broker, tmp_path, **given) as pool, pytest.raises((ConfigurationError, BrokerError), match=words):
        until_it_fails(pool)


def test_further_headers_go_into_the_subscription(broker: Broker, tmp_path: Path) -> None:
    with receiving(broker, tmp_path, subscribeheaders='{"prefetch-count": "7"}', maxspoolbytes="1") as pool:
        eventually(lambda: pool.subscribed_for() > 0)
        fill(broker.url, range(20))
        eventually(lambda: broker.stats().queues[QUEUE].unacked == 7)


@pytest.mark.hard_case("T29")
@pytest.mark.parametrize("kind", [RuntimeError, MemoryError, SystemExit])
def test_a_bug_in_the_receiver_reaches_who_waits_for_messages(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise kind("there was no such thing")

    monkeypatch.setattr("stompy.spark.receivers.records_of", broken)
    fill(broker.url, range(10))
    with (
        receiving(broker, tmp_path) as pool,
        pytest.raises(ConnectionLostError, match=r"a bug.*there was no such thing"),
    ):
        until_it_fails(pool)
    assert broker.depth(QUEUE) == 10


def test_what_is_durable_when_it_is_closed_is_acknowledged(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving(broker, tmp_path) as pool:
        keep = SpoolWriter.store

        def closed_meanwhile(self: SpoolWriter, receiver: int, messages: Sequence[Record]) -> StoredRange:
            pool.close_receivers()
            return keep(self, receiver, messages)

        monkeypatch.setattr(SpoolWriter, "store", closed_meanwhile)
        eventually(lambda: pool.subscribed_for() > 0)
        fill(broker.url, range(3))
        eventually(lambda: not broker.connections())
    held = bodies(tmp_path)
    assert held
    assert broker.depth(QUEUE) == 3 - len(held)
    monkeypatch.undo()
    with receiving(broker, tmp_path) as pool:
        assert known_ids(pool.writer) == 0
        eventually(lambda: pool.writer.next == 3)
    assert bodies(tmp_path) == [0, 1, 2]


@pytest.mark.hard_case("T17")
def test_a_queue_does_not_count_as_empty_while_a_slow_disk_takes_what_came(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_it, go_on = threading.Event(), threading.Event()
    keep = SpoolWriter.store

    def slowly(self: SpoolWriter, receiver: int, messages: Sequence[Record]) -> StoredRange:
        at_it.set()
        assert go_on.wait(SOON)
        return keep(self, receiver, messages)

    monkeypatch.setattr(SpoolWriter, "store", slowly)
    fill(broker.url, range(3))
    with receiving(broker, tmp_path) as pool:
        assert at_it.wait(SOON)
        assert pool.quiet_for() == 0.0
        go_on.set()
        eventually(lambda: pool.quiet_for() > 0.0 and pool.writer.next == 3)
