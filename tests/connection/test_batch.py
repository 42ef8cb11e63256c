from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import stompy
from stompy.broker import Broker

SOON = 10.0
"""Seconds that something may take before the test fails."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def connection(broker: Broker) -> Iterator[stompy.Connection]:
    with stompy.connect(broker.url) as connection:
        yield connection


def test_nothing_of_a_small_batch_leaves_before_its_end(broker: Broker, connection: stompy.Connection) -> None:
    with connection.batch():
        for number in range(10):
            connection.send("/queue/a", str(number))
        before = connection.stats().frames_sent
    assert connection.stats().frames_sent == before + 10
    connection.send("/queue/b", "x", confirm=True)
    assert broker.depth("/queue/a") == 10


def test_a_large_batch_leaves_in_parts_and_in_order(connection: stompy.Connection) -> None:
    subscription = connection.subscribe("/queue/a")
    with connection.batch():
        for number in range(500):
            connection.send("/queue/a", b"%03d" % number + b"x" * 1000)
        assert connection.stats().frames_sent > 100
    assert [int(subscription.receive(timeout=SOON).body[:3]) for _ in range(500)] == list(range(500))


def test_what_was_accepted_leaves_also_when_the_block_raises(broker: Broker, connection: stompy.Connection) -> None:
    with pytest.raises(ZeroDivisionError), connection.batch():  # noqa: PT012 - the block is what is tested
        connection.send("/queue/a", "accepted")
        raise ZeroDivisionError
    connection.send("/queue/b", "x", confirm=True)
    assert broker.depth("/queue/a") == 1


def test_other_threads_are_not_held_back(broker: Broker, connection: stompy.Connection) -> None:
    with connection.batch():
        connection.send("/queue/batched", "x")
        other = threading.Thread(target=lambda: connection.send("/queue/direct", "x", confirm=True))
        other.start()
        other.join()
        assert broker.depth("/queue/direct") == 1
        assert broker.depth("/queue/batched") == 0


def test_a_confirmed_send_flushes_the_batch_first(broker: Broker, connection: stompy.Connection) -> None:
    with connection.batch():
        connection.send("/queue/a", "first")
        connection.send("/queue/a", "second", confirm=True)
        assert broker.depth("/queue/a") == 2


def test_flush_writes_out_and_waits_for_every_receipt(connection: stompy.Connection) -> None:
    with connection.batch():
        receipts = [connection.send("/queue/a", "x", receipt=True) for _ in range(20)]
        connection.flush(timeout=SOON)
        assert all(receipt is not None and receipt.outcome == "confirmed" for receipt in receipts)


def test_a_second_batch_in_one_thread_is_refused(connection: stompy.Connection) -> None:
    with connection.batch(), pytest.raises(stompy.ConcurrencyError), connection.batch():
        pass


def test_a_frame_that_cannot_be_written_leaves_the_others(broker: Broker, connection: stompy.Connection) -> None:
    with connection.batch():
        connection.send("/queue/a", "good")
        with pytest.raises(stompy.LocalProtocolError):
            connection.send("/queue/a", "bad", headers={"": "nameless"}, receipt=True)
        connection.send("/queue/a", "good")
    connection.send("/queue/b", "x", confirm=True)
    assert broker.depth("/queue/a") == 2
    assert connection.stats().receipts_pending == 0


def test_a_batch_dies_with_its_link(broker: Broker, connection: stompy.Connection) -> None:
    batch = connection.batch()
    batch.__enter__()
    receipt = connection.send("/queue/a", "x", receipt=True)
    assert receipt is not None
    broker.stop()
    with pytest.raises(stompy.ConnectionLost):
        receipt.wait(SOON)
    with pytest.raises(stompy.ConnectionLost):
        batch.__exit__(None, None, None)
