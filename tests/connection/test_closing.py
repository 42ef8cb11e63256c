"""The end of a connection, as listeners hear it; see also test_connection.py."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import warnings
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.message import AckMode
from tests.connection.conftest import Acting, Recorder, Serving, Sessions
from tests.support.peer import WITHIN
from tests.transport.conftest import Calling


@pytest.mark.parametrize("reconnect", [False, stompy.Reconnect(attempts=1)])
def test_a_connection_that_its_owner_closes_is_reported_closed_last(
    serving: Serving, reconnect: bool | stompy.Reconnect
) -> None:
    for _ in range(10):
        listener = Recorder()
        conn, _served = serving(listeners=[listener], reconnect=reconnect)
        conn.close()
        conn.close()
        assert listener.names == ["connected", "receipt", "disconnected", "closed"]
        assert listener.await_event("closed") is None


@pytest.mark.parametrize("listening", [True, False])
def test_a_lost_connection_that_nobody_replaces_is_reported_closed(sessions: Sessions, listening: bool) -> None:
    """Without a policy at once, with one when it gives up."""
    listener = Recorder()
    conn, peer = sessions.connect(listeners=[listener], reconnect=False if listening else stompy.Reconnect(attempts=2))
    sessions.shut()
    peer.close()
    reason = listener.await_event("closed")
    assert type(reason) is (stompy.ConnectionLostError if listening else stompy.ConnectError)
    assert listener.names == ["connected", "disconnected", "closed"]
    conn.close()
    conn.close()
    assert listener.names.count("closed") == 1


def test_closing_while_a_link_is_being_replaced_is_reported_once(sessions: Sessions) -> None:
    listener = Recorder()
    conn, peer = sessions.connect(
        listeners=[listener], reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=30, longest=60))
    )
    sessions.shut()
    peer.close()
    listener.await_event("disconnected")
    conn.close()
    assert listener.names == ["connected", "disconnected", "closed"]
    assert listener.await_event("closed") is None


@pytest.mark.parametrize("event", ["on_connected", "on_message", "on_receipt", "on_disconnected", "on_closed"])
def test_closing_inside_a_callback_is_reported_once_and_last(serving: Serving, event: str) -> None:
    held: list[stompy.Connection] = []
    ready = threading.Event()

    def leave(*what: Any) -> None:
        assert ready.wait(WITHIN)
        held[0].close()

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
    conn.close()
    assert listener.names.count("closed") == 1
    assert listener.names[-1] == "closed"
    assert listener.names.count("disconnected") == 1


def test_a_forgotten_connection_is_reported_closed() -> None:
    listener = Recorder()
    with Broker() as broker:
        conn = stompy.connect(broker.url, listeners=[listener])
        listener.await_event("connected")
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


# Waiting for the end


@pytest.mark.parametrize("drain", [False, True])
def test_waiting_for_the_end_returns_after_the_last_callback(serving: Serving, calling: Calling, drain: bool) -> None:
    listener = Recorder()
    conn, _ = serving(listeners=[listener])
    waiting = [calling(conn.wait_closed) for _ in range(2)]
    states = [conn.closed]
    assert conn.wait_closed(timeout=0) is False
    conn.close(drain=drain)
    assert [each.result() for each in waiting] == [True, True]
    assert [*states, conn.closed] == [False, True]
    assert listener.names[-1] == "closed"
    assert conn.wait_closed() is True


@pytest.mark.parametrize("policy", [False, stompy.Reconnect(attempts=1)])
def test_waiting_for_the_end_raises_what_ended_the_connection_for_good(
    sessions: Sessions, calling: Calling, policy: bool | stompy.Reconnect
) -> None:
    conn, peer = sessions.connect(reconnect=policy)
    waiting = calling(conn.wait_closed)
    sessions.shut()
    peer.close()
    for wait in (waiting.result, conn.wait_closed):
        with pytest.raises(stompy.ConnectionLostError if policy is False else stompy.ConnectError):
            wait()
    assert conn.closed
    conn.close()


def test_waiting_for_the_end_goes_on_over_a_reconnect(sessions: Sessions, calling: Calling) -> None:
    conn, peer = sessions.connect(reconnect=stompy.Reconnect(backoff=stompy.Backoff(first=0.01)))
    waiting = calling(conn.wait_closed)
    peer.close()
    sessions.next()
    assert not conn.closed
    conn.close(timeout=0)
    assert waiting.result() is True


def test_what_arrived_is_handled_before_its_loss_is_raised(serving: Serving, calling: Calling) -> None:
    seen: list[str] = []
    go = threading.Event()

    def handle(message: stompy.Message) -> None:
        assert go.wait(WITHIN)
        seen.append(message.text)

    conn, served = serving()
    conn.subscribe("/queue/a", handle, id="1", ack="auto")
    for text in "abc":
        served.peer.deliver(text)
    served.peer.hang_up()
    waiting = calling(conn.wait_closed)
    waiting.until_blocked()
    go.set()
    with pytest.raises(stompy.ConnectionLostError):
        waiting.result()
    assert seen == ["a", "b", "c"]


@pytest.mark.parametrize("own_thread", [False, True])
def test_a_callback_cannot_wait_for_the_end_that_waits_for_it(serving: Serving, own_thread: bool) -> None:
    conn, served = serving()
    acting = Acting("on_message", lambda message: conn.wait_closed())
    conn.subscribe("/queue/a", acting, id="1", own_thread=own_thread)
    served.peer.deliver("x")
    with pytest.raises(stompy.ConcurrencyError, match="a callback"):
        acting.finished()


def test_waiting_for_the_end_is_interrupted_by_ctrl_c() -> None:
    program = """
        import signal, sys, threading, time, traceback
        import stompy

        waiting = threading.Event()

        def strike():
            waiting.wait()
            while True:  # the first may come before the wait
                time.sleep(0.05)
                signal.raise_signal(signal.SIGINT)

        def once(*_):
            if any(frame.name == "wait_closed" for frame in traceback.extract_stack()):
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                raise KeyboardInterrupt

        signal.signal(signal.SIGINT, once)
        try:
            with stompy.connect(sys.argv[1]) as conn:
                conn.subscribe("/queue/a", print)
                threading.Thread(target=strike, daemon=True).start()
                waiting.set()
                conn.wait_closed()
        except KeyboardInterrupt:
            print(conn.closed, [thread.name for thread in threading.enumerate() if "stompy" in thread.name])
    """
    with Broker() as broker:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), broker.url],
            capture_output=True, text=True, timeout=WITHIN, check=True,
        )  # fmt: skip
    assert ended.stdout == "True []\n", ended.stderr


# The end of a subscription


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("own_thread", [False, True])
def test_the_end_of_the_block_of_a_subscription_waits_for_its_handler(ack: AckMode, own_thread: bool) -> None:
    """Also while another subscription of the connection never has nothing to do."""
    seen: list[str] = []
    begun, go = threading.Event(), threading.Event()

    def handle(message: stompy.Message) -> None:
        begun.set()
        assert go.wait(WITHIN)
        seen.append(message.text)
        if ack != "auto":
            message.ack()

    with Broker() as broker, stompy.connect(broker.url) as conn:

        def again(message: stompy.Message) -> None:
            conn.send("/queue/busy", "x")

        conn.subscribe("/queue/busy", again)
        conn.send("/queue/busy", "x")
        with conn.subscribe("/queue/a", handle, ack=ack, own_thread=own_thread) as subscription:
            for text in "abc":
                conn.send("/queue/a", text, confirm=True)
            assert begun.wait(WITHIN)
            threading.Timer(0.05, go.set).start()
        assert subscription.closed
        assert seen == ["a", "b", "c"][: len(seen)]
        assert len(seen) + broker.depth("/queue/a") == 3


def test_a_block_that_raises_after_its_session_was_lost_raises_what_it_raised(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", id="1")

    def use() -> None:
        with subscription:
            served.peer.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert subscription.closed
