"""What listeners hear, in which order and on which thread."""

from __future__ import annotations

import threading

import pytest

import stompy
from tests.connection.conftest import Recorder, Serving, Sessions, Talking
from tests.support.peer import WITHIN
from tests.transport.conftest import Calling


def test_threads_are_named_after_their_connection(talking: Talking) -> None:
    talk = talking(name="orders", heartbeat=(1, 1), peer_heartbeat=(1, 1))
    name = talk.conn._links._name
    assert name.startswith("orders-")
    names = {thread.name for thread in threading.enumerate() if name in thread.name}
    assert names == {f"stompy-{name}-reader", f"stompy-{name}-heartbeat", f"stompy-{name}-dispatcher"}


def test_connections_have_names_ids_and_receipts_of_their_own(talking: Talking) -> None:
    one, two = talking(), talking()
    receipts = [talk.conn.send("/queue/a", "x", receipt=True) for talk in (one, two)]
    transactions = [talk.conn.transaction().id for talk in (one, two, one)]
    assert len({receipt.id for receipt in receipts}) == 2
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


# The order of events


def test_of_what_comes_in_one_packet_the_session_is_heard_first(sessions: Sessions, calling: Calling) -> None:
    for _ in range(20):
        listener = Recorder()
        call = calling(lambda heard=listener: stompy.connect(sessions.url, heartbeat=(0, 0), listeners=[heard]))  # type: ignore[misc]
        peer = sessions.accept()
        peer.take_connect()
        receipt = peer.encoded("RECEIPT", {"receipt-id": "nobody's"})
        peer.raw(peer.connected_frame() + peer.message("early", subscription="nobody") + receipt)
        listener.await_event("receipt")
        conn = call.result()
        conn.disconnect(timeout=0)
        assert listener.names[:3] == ["connected", "message", "receipt"]


def test_a_new_session_is_heard_before_its_frames_and_after_those_of_the_old_one(
    sessions: Sessions, calling: Calling
) -> None:
    """With a backlog in the queue of callbacks, and messages that come while subscriptions are made again."""
    gate, running = threading.Event(), threading.Event()
    connected: list[bool] = []

    class Slow(Recorder):
        def on_connected(self, frame: stompy.Frame) -> None:
            super().on_connected(frame)
            connected.append(not held or (held[0].connected and held[0].session == frame.headers.get("session")))

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)

    held: list[stompy.Connection] = []
    listener = Slow()
    conn, peer = sessions.connect(listeners=[listener])
    held.append(conn)
    call = calling(lambda: conn.subscribe("/queue/a", handler, id="1"))
    peer.expect_and_confirm("SUBSCRIBE")
    call.result()
    peer.deliver("old", "backlog")
    assert running.wait(WITHIN)
    peer.close()
    peer = sessions.accept()
    peer.take_connect()
    peer.raw(peer.connected_frame({"session": "second"}) + peer.message("new, at once"))
    frame = peer.expect("SUBSCRIBE")
    peer.deliver("new, while replaying")
    gate.set()
    peer.receipt(frame)
    peer.deliver("new, later")
    listener.await_event("message", 5)
    told = [what.text if event == "message" else event for event, what in listener.events]
    again = told.index("connected", 1)
    assert told[:again] == ["connected", "receipt", "old", "backlog", "disconnected"]
    assert told[again + 1 :] == ["new, at once", "new, while replaying", "receipt", "new, later"]
    assert connected == [True, True]


@pytest.mark.parametrize("how", ["end of the stream", "error", "no receipt"])
def test_a_session_that_dies_while_subscriptions_are_made_is_heard_as_a_pair(
    sessions: Sessions, calling: Calling, how: str
) -> None:
    listener = Recorder()
    conn, peer = sessions.connect(listeners=[listener], receipt_timeout=1 if how == "no receipt" else WITHIN)
    call = calling(lambda: conn.subscribe("/queue/a", print, id="1"))
    peer.expect_and_confirm("SUBSCRIBE")
    call.result()
    peer.close()
    peer = sessions.next()
    peer.expect("SUBSCRIBE")
    peer.deliver("taken by a session that died")
    if how == "error":
        peer.error("no")
    elif how == "end of the stream":
        peer.close()
    if how != "error":  # a subscription that is refused is the end of it
        peer.close() if how == "end of the stream" else None
        peer = sessions.next()
        peer.expect_and_confirm("SUBSCRIBE")
        peer.deliver("taken by the next")
        listener.await_event("message", 2)
    else:
        listener.await_event("closed")
    names = [name for name in listener.names if name not in ("receipt", "error")]
    assert names == [
        "connected",
        "disconnected",
        "connected",
        "message",
        "disconnected",
        *([] if how == "error" else ["connected", "message"]),
        *(["closed"] if how == "error" else []),
    ]
    assert isinstance(listener.await_event("disconnected", 2), stompy.ConnectionLost)


def test_closing_while_subscriptions_are_made_ends_with_a_pair(sessions: Sessions, calling: Calling) -> None:
    for _ in range(20):
        listener = Recorder()
        conn, peer = sessions.connect(listeners=[listener])
        call = calling(lambda conn=conn: conn.subscribe("/queue/a", print, id="1"))  # type: ignore[misc]
        peer.expect_and_confirm("SUBSCRIBE")
        call.result()
        peer.close()
        peer = sessions.next()
        peer.expect("SUBSCRIBE")
        conn.disconnect()
        names = [name for name in listener.names if name != "receipt"]
        assert names == ["connected", "disconnected", "connected", "disconnected", "closed"]
        assert [reason for name, reason in listener.events if name == "closed"] == [None]


def test_a_first_session_that_dies_at_once_is_heard_as_a_pair_or_not_at_all(
    sessions: Sessions, calling: Calling
) -> None:
    for _ in range(20):
        listener = Recorder()
        call = calling(lambda heard=listener: stompy.connect(sessions.url, heartbeat=(0, 0), listeners=[heard]))  # type: ignore[misc]
        peer = sessions.accept()
        peer.take_connect()
        peer.raw(peer.connected_frame() + peer.encoded("ERROR", {"message": "go away"}))
        try:
            conn = call.result()
        except stompy.ConnectRefused:
            assert listener.names in ([], ["connected", "error", "disconnected"])
        else:  # it was there for a moment
            listener.await_event("closed")
            assert listener.names == ["connected", "error", "disconnected", "closed"]
            conn.disconnect()


# The end of the connection


def test_what_a_handler_raises_after_the_end_is_not_heard_any_more(serving: Serving) -> None:
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        raise ZeroDivisionError

    listener = Recorder()
    conn, served = serving(listeners=[listener])
    conn.subscribe("/queue/a", handler, id="1", own_thread=True)
    served.peer.deliver("x")
    assert running.wait(WITHIN)
    conn.disconnect(timeout=0.1)
    listener.await_event("closed")
    gate.set()
    conn.disconnect()
    assert listener.names[-1] == "closed"
