"""The inside of a connection, where its face does not show it."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.connection.conftest import Serving, Talking


def test_threads_are_named_after_their_connection(talking: Talking) -> None:
    talk = talking(name="orders", heartbeat=(1, 1), peer_heartbeat=(1, 1))
    name = talk.conn._core.name
    assert name.startswith("orders-")
    names = {thread.name for thread in threading.enumerate() if name in thread.name}
    assert names == {f"stompy-{name}-reader", f"stompy-{name}-heartbeat", f"stompy-{name}-dispatcher"}


def test_connections_have_names_ids_and_receipts_of_their_own(talking: Talking) -> None:
    one, two = talking(), talking()
    receipts = [talk.conn.send("/queue/a", "x", receipt=True) for talk in (one, two)]
    transactions = [talk.conn.transaction().id for talk in (one, two, one)]
    assert len({receipt.id for receipt in receipts if receipt is not None}) == 2
    assert len(set(transactions)) == 3


def test_a_made_up_subscription_id_avoids_those_that_the_program_chose(serving: Serving) -> None:
    conn, _ = serving()
    chosen = [conn.subscribe("/queue/a", id=str(number)).id for number in (1, 2, 4)]
    made = [conn.subscribe("/queue/a").id for _ in range(3)]
    assert len({*chosen, *made}) == 6


def test_a_connect_that_fails_leaves_no_thread(talking: Talking) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        with pytest.raises(stompy.ConnectError):
            stompy.connect("stomp://127.0.0.1:1")
        assert {thread for thread in threading.enumerate() if thread.name.startswith("stompy-")} <= before
