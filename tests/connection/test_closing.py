"""The end of a connection, as listeners hear it; see also test_connection.py."""

from __future__ import annotations

import gc
import threading
import warnings
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import Acting, Recorder, Serving, Sessions
from tests.support.peer import WITHIN


@pytest.mark.parametrize("reconnect", [None, stompy.Reconnect(attempts=1)])
def test_a_connection_that_its_owner_closes_is_reported_closed_last(
    serving: Serving, reconnect: stompy.Reconnect | None
) -> None:
    for _ in range(10):
        listener = Recorder()
        conn, _served = serving(listeners=[listener], reconnect=reconnect)
        conn.disconnect()
        conn.disconnect()
        assert listener.names == ["connected", "receipt", "disconnected", "closed"]
        assert listener.await_event("closed") is None


@pytest.mark.parametrize("listening", [True, False])
def test_a_lost_connection_that_nobody_replaces_is_reported_closed(sessions: Sessions, listening: bool) -> None:
    """Without a policy at once, with one when it gives up."""
    listener = Recorder()
    conn, peer = sessions.connect(listeners=[listener], reconnect=None if listening else stompy.Reconnect(attempts=2))
    sessions.shut()
    peer.close()
    reason = listener.await_event("closed")
    assert type(reason) is (stompy.ConnectionLostError if listening else stompy.ConnectError)
    assert listener.names == ["connected", "disconnected", "closed"]
    conn.disconnect()
    conn.disconnect()
    assert listener.names.count("closed") == 1


def test_closing_while_a_link_is_being_replaced_is_reported_once(sessions: Sessions) -> None:
    listener = Recorder()
    conn, peer = sessions.connect(
        listeners=[listener], reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=30, longest=60))
    )
    sessions.shut()
    peer.close()
    listener.await_event("disconnected")
    conn.disconnect()
    assert listener.names == ["connected", "disconnected", "closed"]
    assert listener.await_event("closed") is None


@pytest.mark.parametrize("event", ["on_connected", "on_message", "on_receipt", "on_disconnected", "on_closed"])
def test_closing_inside_a_callback_is_reported_once_and_last(serving: Serving, event: str) -> None:
    held: list[stompy.Connection] = []
    ready = threading.Event()

    def leave(*what: Any) -> None:
        assert ready.wait(WITHIN)
        held[0].disconnect()

    acting, listener = Acting(event, leave), Recorder()
    conn, served = serving(listeners=[acting, listener])
    held.append(conn)
    conn.subscribe("/queue/a", print, id="1", own_thread=True)
    served.peer.deliver("x")
    ready.set()
    if event in ("on_disconnected", "on_closed"):
        served.peer.hang_up()
    acting.finished()
    listener.await_event("closed")
    conn.disconnect()
    assert listener.names.count("closed") == 1
    assert listener.names[-1] == "closed"
    assert listener.names.count("disconnected") == 1


def test_a_forgotten_connection_is_reported_closed() -> None:
    listener = Recorder()
    with Broker() as broker:
        conn = stompy.connect(broker.url, listeners=[listener])
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            del conn
            gc.collect()
        assert listener.await_event("closed") is None
    assert listener.names == ["connected", "disconnected", "closed"]


def test_a_connection_that_never_came_about_is_not_heard_to_be_closed(sessions: Sessions) -> None:
    listener = Recorder()
    sessions.shut()
    with pytest.raises(stompy.ConnectError):
        stompy.connect(sessions.url, listeners=[listener])
    assert listener.names == []
