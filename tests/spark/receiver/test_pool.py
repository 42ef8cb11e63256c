from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from stompy.broker import Broker, BrokerLimits
from stompy.errors import ConnectTimeoutError, SpoolBusyError, SpoolFencedError, SpoolFullError
from stompy.spark import receivers
from stompy.spark.option_tables import spool_options
from stompy.spark.receivers import ReceiverPool
from stompy.spark.spool.claims import ClaimTimeouts, last_heartbeat
from stompy.spark.spool.files import COUNTS, SETTLED, Files
from stompy.spark.spool.view import SpoolView
from tests.simulation.pieces import EACH_STEP, Piece, explore, together
from tests.spark.receiver.helpers import QUEUE, bodies, column, eventually, fill, receiving, spool_in
from tests.spark.spool.builders import known_ids, spool_writer

HOUR = 3600.0


def test_several_receivers_share_what_comes_and_have_one_sequence(tmp_path: Path) -> None:
    with (
        Broker(limits=BrokerLimits(prefetch=10)) as broker,
        receiving(broker, tmp_path, receivers="3", prefetch="10") as pool,
    ):
        eventually(lambda: pool.subscribed_for() > 0)
        fill(broker.url, range(500))
        eventually(lambda: pool.writer.next == 500)
        eventually(lambda: broker.depth(QUEUE) == 0)
    assert sorted(bodies(tmp_path)) == list(range(500))
    assert column(tmp_path, "sequence") == list(range(500))
    assert len(set(column(tmp_path, "message_id"))) == 500


def test_ids_are_forgotten_although_some_receivers_have_nothing_to_do(tmp_path: Path) -> None:
    with Broker() as broker, receiving(broker, tmp_path, receivers="3", dedupheader="n") as pool:
        eventually(lambda: pool.subscribed_for() > 0)
        fill(broker.url, range(5))
        eventually(lambda: pool.writer.next == 5 and broker.depth(QUEUE) == 0)
        eventually(lambda: known_ids(pool.writer) == 0)
        pool.check()


def test_what_one_receiver_could_not_acknowledge_another_recognises(tmp_path: Path) -> None:
    """The broker gives a session up whose inbox still holds its messages, and sends them to another one."""
    from stompy.testing.proxy import FaultProxy

    with Broker(limits=BrokerLimits(prefetch=50)) as broker, FaultProxy(broker.url) as proxy:
        given = {"receivers": "2", "prefetch": "50", "dedupheader": "n", "receipttimeout": "1"}
        with receiving(proxy.url, tmp_path, **given) as pool:
            eventually(lambda: pool.subscribed_for() > 0)
            # No ACK gets through from now on: what was delivered is durable, and the broker sends all of it again.
            proxy.stall("up")
            fill(broker.url, range(200))
            eventually(lambda: pool.writer.next == 100)
            proxy.cut()
            proxy.heal()
            eventually(lambda: pool.writer.next >= 200 and broker.depth(QUEUE) == 0)
            eventually(lambda: known_ids(pool.writer) == 0)
        assert sum(one.dropped for one in pool.writer.counts()) == 100
    assert sorted(bodies(tmp_path)) == list(range(200))


def test_a_second_pool_is_refused_and_leaves_nothing_taken(tmp_path: Path) -> None:
    with Broker() as broker:
        with receiving(broker, tmp_path, receivers="2") as first:
            with pytest.raises(SpoolBusyError), receiving(broker, tmp_path, receivers="2"):
                pass
            fill(broker.url, range(10))
            eventually(lambda: first.writer.next == 10)
            first.check()
        with receiving(broker, tmp_path, receivers="2"):
            pass


def test_stopping_twice_is_once(tmp_path: Path) -> None:
    with Broker() as broker, receiving(broker, tmp_path) as pool:
        pool.stop()
        pool.stop()


def test_a_pool_ends_on_a_full_disk_without_an_error_and_leaves_the_spool_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(files: Files, name: str, data: bytes, real: Callable[..., None] = Files.write, **look: object) -> None:
        if name in (SETTLED, COUNTS):
            raise SpoolFullError("no room", path=name)
        real(files, name, data, **look)

    monkeypatch.setattr(Files, "write", full)
    with Broker() as broker:
        with receiving(broker, tmp_path) as pool:
            fill(broker.url, range(10))
            eventually(lambda: broker.depth(QUEUE) == 0)
            pool.stop()
        monkeypatch.undo()
        with receiving(broker, tmp_path) as pool:
            assert pool.writer.next == 10


def test_who_watches_is_woken_when_a_receiver_cannot_go_on(tmp_path: Path) -> None:
    with Broker() as broker, receiving(broker, tmp_path) as pool:

        def left() -> float:
            pool.healths[0].fail(SpoolFullError("no room", path="/spool"))
            return HOUR

        with pytest.raises(SpoolFullError):
            pool.watch(left)


def test_who_watches_is_woken_when_the_spool_is_taken_over_though_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.spark.spool.claims.HEARTBEAT_INTERVAL", 1e9)
    with Broker() as broker, receiving(broker, tmp_path) as pool:
        successor = spool_writer(spool_in(tmp_path).files, patience=ClaimTimeouts(wait=30.0, frozen=0.1))
        with pytest.raises(SpoolFencedError):
            pool.watch(lambda: HOUR)
        successor.close()


def stored_side_by_side(module: ModuleType) -> None:
    """Nothing is left in the quota when all messages that were taken are stored."""
    quota = module.Quota(SimpleNamespace(next=0), 1, 10, receivers=2)
    for number in range(2):
        quota.note(number, 1, 1)
    assert not quota.is_stored
    together(*(partial(quota.note, number, 0, 0) for number in range(2)))
    assert quota.is_stored


def test_receivers_that_store_at_once_leave_nothing_behind_in_their_quota() -> None:
    assert explore(Piece(stored_side_by_side, receivers, {}), receivers, EACH_STEP) > 1


def test_a_quota_is_kept_by_all_receivers_together_and_may_be_raised(tmp_path: Path) -> None:
    given = {"destination": QUEUE, "spooldir": str(tmp_path / "spool"), "receivers": "4", "prefetch": "50"}
    with Broker() as broker:
        fill(broker.url, range(1000))
        pool = ReceiverPool(spool_options({"url": broker.url, **given}), spool_in(tmp_path), until=10)
        try:
            for until in (10, 11, 500):
                pool.quota.allow(until, None)
                eventually(partial(lambda until: pool.writer.next == until, until))
                assert pool.quota.is_used_up
            pool.close_receivers()
            eventually(lambda: broker.depth(QUEUE) == 500)
        finally:
            pool.stop()
    assert len(set(bodies(tmp_path))) == 500


def test_who_watches_learns_of_a_broker_that_was_down_for_too_long(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the call, and says nothing
        url = f"stomp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            receiving(url, tmp_path, brokertimeout="200ms", receipttimeout="2") as pool,
            pytest.raises(ConnectTimeoutError, match=r"brokerTimeout.*no connection yet"),
        ):
            pool.watch(lambda: HOUR)


def test_a_process_that_has_no_broker_still_shows_that_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.spark.spool.claims.HEARTBEAT_INTERVAL", 0.0)
    with receiving("stomp://127.0.0.1:1", tmp_path, brokertimeout="1h"):
        files = spool_in(tmp_path).files
        first = last_heartbeat(files)
        eventually(lambda: last_heartbeat(files) != first)


def test_without_receivers_of_its_own_a_query_sees_what_comes(tmp_path: Path) -> None:
    view = SpoolView(spool_in(tmp_path))
    with Broker() as broker, receiving(broker, tmp_path) as pool:
        fill(broker.url, range(10))
        eventually(lambda: pool.writer.next == 10)
        view.refresh()
        assert view.next == 10
        view.note_planned(10)
        view.note_processed(10)
        eventually(lambda: spool_in(tmp_path).segments() == [])
