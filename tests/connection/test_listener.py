"""What a program hears, in which order, on which thread, and how often."""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest

import stompy
from tests.connection.conftest import Acting, Recorder, Serving, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling


def test_every_event_is_heard_once_in_order_and_on_the_dispatcher(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("hello")
    listener.await_event("message")
    leaving = talk.leave()
    talk.peer.goodbye()
    leaving.result()
    assert listener.over.is_set()
    assert listener.names == ["connected", "receipt", "message", "receipt", "disconnected", "closed"]
    assert listener.await_event("connected").headers["server"] == "peer/1"
    assert listener.await_event("message").text == "hello"
    assert listener.await_event("disconnected") is None
    (thread,) = listener.threads
    assert thread.endswith("-dispatcher")


def test_the_last_event_comes_on_the_dispatcher_however_the_end_races(serving: Serving) -> None:
    for _ in range(30):
        listener = Recorder()
        conn, _served = serving(listeners=[listener])
        conn.disconnect()
        assert listener.names.count("disconnected") == 1
        assert all(thread.endswith("-dispatcher") for thread in listener.threads)


@pytest.mark.parametrize("how", ["end of the stream", "silence", "error", "offence"])
def test_the_end_is_heard_once_with_its_reason(talking: Talking, how: str) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener], heartbeat=(0, 0.05) if how == "silence" else (0, 0), peer_heartbeat=(0.05, 0))
    expected: dict[str, tuple[list[str], type[Exception]]] = {
        "end of the stream": (["disconnected"], stompy.ConnectionLost),
        "silence": (["heartbeat_timeout", "disconnected"], stompy.HeartBeatTimeout),
        "error": (["error", "disconnected"], stompy.BrokerError),
        "offence": (["disconnected"], stompy.ConnectionLost),
    }
    if how == "end of the stream":
        talk.peer.hang_up()
    elif how == "error":
        talk.peer.error("no", b"details")
    elif how == "offence":
        talk.peer.raw(b"NONSENSE\n\n\0")
    events, kind = expected[how]
    reason = listener.await_event("disconnected")
    assert type(reason) is kind
    if how == "error":
        assert listener.await_event("error").body == b"details"
    talk.close()
    assert listener.names == ["connected", *events, "closed"]
    assert listener.await_event("closed") is reason


def test_listeners_hear_in_the_order_they_were_added(talking: Talking) -> None:
    shared: list[tuple[str, str]] = []
    first, second, third = (Recorder(name, shared) for name in ("z", "a", "m"))
    talk = talking(listeners=[first, second])
    talk.conn.add_listener(third)
    talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("x")
    third.await_event("message")
    messages = [name for name, event in shared if event == "message"]
    assert messages == ["z", "a", "m"]
    talk.conn.remove_listener(second)
    talk.conn.remove_listener(second)
    talk.peer.deliver("y")
    third.await_event("message", 2)
    assert [name for name, event in shared if event == "message"] == ["z", "a", "m", "z", "m"]


def test_a_listener_hears_a_message_before_its_handler(serving: Serving) -> None:
    listener = Recorder()
    conn, served = serving(listeners=[listener])
    heard_before: list[int] = []
    conn.subscribe("/queue/a", lambda message: heard_before.append(listener.names.count("message")), id="1")
    served.peer.deliver("x")
    until(lambda: heard_before)
    assert heard_before == [1]


def test_a_listener_hears_messages_that_somebody_receives_too(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver("x")
    assert subscription.receive().text == "x"
    assert listener.await_event("message").text == "x"
    until(lambda: talk.conn.stats().queued_messages == 0)


def test_a_message_for_no_known_subscription_is_heard_counted_and_logged(
    talking: Talking, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        talk.peer.deliver("lost", subscription="nobody")
        assert listener.await_event("message").text == "lost"
    assert "no known subscription" in caplog.text
    assert talk.conn.stats().unrouted == 1


def test_a_listener_that_raises_is_reported_and_the_connection_lives_on(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(stompy.ConnectionListener):
        def on_connected(self, frame: stompy.Frame) -> None:
            raise ZeroDivisionError

        on_receipt = on_message = on_connected  # type: ignore[assignment]

    behind = Recorder()
    with caplog.at_level(logging.ERROR, "stompy.connection"):
        conn, served = serving(listeners=[Broken(), behind])
        conn.subscribe("/queue/a", id="1")
        served.peer.deliver("x")
        behind.await_event("message")
    assert behind.names == ["connected", "receipt", "message"]
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError] * 3
    assert conn.connected


def test_a_handler_that_raises_is_reported_and_the_next_message_comes(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "stompy.connection"):
        conn.subscribe("/queue/a", handler, id="1")
        served.peer.deliver("bad", "good")
        until(lambda: len(seen) == 2)
    (record,) = caplog.records
    assert "'/queue/a'" in record.getMessage()
    assert "'m1'" in record.getMessage()
    assert record.exc_info is not None
    assert conn.connected
    until(lambda: conn.stats().queued_messages == 0)


def test_any_object_with_the_methods_will_do(talking: Talking) -> None:
    """Also one whose methods were put on the object itself, as a mock's are."""

    class Plain:
        pass

    heard: list[Any] = []
    plain = Plain()
    plain.on_message = heard.append  # type: ignore[attr-defined]
    plain.on_disconnected = heard.append  # type: ignore[attr-defined]
    talk = talking(listeners=[plain])
    talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("x")
    until(lambda: heard)
    assert heard[0].text == "x"
    talk.close()
    assert len(heard) == 2


# Calls from inside


def test_send_subscribe_ack_and_receipts_work_inside_a_handler(serving: Serving) -> None:
    conn, served = serving()
    done: list[str] = []

    def handler(message: stompy.Message) -> None:
        conn.send("/queue/b", "x", confirm=True)
        receipt = conn.send("/queue/b", "y", receipt=True)
        assert receipt is not None
        receipt.wait(WITHIN)
        other = conn.subscribe("/queue/c")
        with conn.transaction() as tx:
            tx.send("/queue/b", "z")
            tx.ack(message)
        other.unsubscribe()
        done.append("done")

    conn.subscribe("/queue/a", handler, ack="client-individual", id="1")
    served.peer.deliver("x", ack="1")
    until(lambda: done)
    assert served.commands()[1:] == ["SEND", "SEND", "SUBSCRIBE", "BEGIN", "SEND", "ACK", "COMMIT", "UNSUBSCRIBE"]


def test_a_handler_may_unsubscribe_itself(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        subscription.unsubscribe()

    subscription = conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("x")
    until(lambda: subscription.closed)
    assert seen == ["x"]
    assert conn.connected


def test_a_receipt_behind_the_messages_that_fill_the_inbox_comes_inside_a_handler(serving: Serving) -> None:
    """The handler waits, so nobody empties the inbox; the wait itself keeps the reader reading."""
    held: list[stompy.Frame] = []

    def hold_back(frame: stompy.Frame) -> bool:
        held.extend([frame] if frame.command == "SEND" else [])
        return frame.command == "SEND"

    conn, served = serving(on=hold_back, inbox=stompy.InboxLimits(max_messages=2))
    outcome: list[str] = []

    def handler(message: stompy.Message) -> None:
        if not outcome:
            receipt = conn.send("/queue/b", "x", receipt=True)
            assert receipt is not None
            receipt.wait(WITHIN)
            outcome.append(receipt.outcome)

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("first")
    until(lambda: held)
    for _ in range(50):
        served.peer.deliver("more")
    served.peer.receipt(held[0])
    until(lambda: outcome)
    assert outcome == ["confirmed"]


@pytest.mark.parametrize("event", ["on_connected", "on_message", "on_receipt"])
def test_disconnect_works_inside_a_listener(serving: Serving, event: str) -> None:
    held: list[stompy.Connection] = []
    ready = threading.Event()

    def leave(*what: Any) -> None:
        assert ready.wait(WITHIN)
        held[0].disconnect()

    acting = Acting(event, leave)
    behind = Recorder()
    conn, served = serving(listeners=[acting, behind])
    held.append(conn)
    if event == "on_message":
        conn.subscribe("/queue/a", id="1")
        served.peer.deliver("x")
    elif event == "on_receipt":
        conn.send("/queue/a", "x", receipt=True)
    ready.set()
    acting.finished()
    assert not conn.connected
    assert behind.over.wait(WITHIN)
    assert behind.names.count("disconnected") == 1
    assert served.commands().count("DISCONNECT") == 1


def test_disconnect_works_inside_a_handler_and_the_rest_is_not_delivered(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        conn.disconnect()

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("first", "second", "third")
    until(lambda: not conn.connected)
    served.join(WITHIN)
    conn.disconnect()
    assert seen == ["first"]


def test_disconnect_works_inside_on_disconnected(talking: Talking) -> None:
    held: list[stompy.Connection] = []
    acting = Acting("on_disconnected", lambda reason: held[0].disconnect())
    talk = talking(listeners=[acting])
    held.append(talk.conn)
    talk.peer.hang_up()
    acting.finished()


def test_what_a_listener_sends_after_the_end_says_why_not(talking: Talking, calling: Calling) -> None:
    held: list[stompy.Connection] = []
    acting = Acting("on_disconnected", lambda reason: held[0].send("/queue/a", "x"))
    talk = talking(listeners=[acting])
    held.append(talk.conn)
    talk.peer.error("no more")
    with pytest.raises(stompy.BrokerError, match="no more") as caught:
        acting.finished()
    assert caught.value.outcome == "not-sent"


def test_beats_go_on_while_a_listener_is_busy(talking: Talking) -> None:
    gate = threading.Event()
    listener = Acting("on_message", lambda message: gate.wait(WITHIN))
    talk = talking(listeners=[listener], heartbeat=(0.05, 1), peer_heartbeat=(0.05, 0.05))
    talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("x")
    for _ in range(20):
        talk.peer.await_beats(1)
        talk.peer.raw(b"\n")
    gate.set()
    listener.finished()
    assert talk.conn.connected


class Leaving(stompy.ConnectionListener):
    def __init__(self, heard: list[stompy.ConnectionListener]) -> None:
        self.heard = heard

    def on_disconnected(self, reason: stompy.StompError | None) -> None:
        self.heard.append(self)


def test_listeners_that_threads_add_and_remove_at_once_are_all_kept(talking: Talking) -> None:
    talk, heard = talking(), list[stompy.ConnectionListener]()
    kept = [Leaving(heard) for _ in range(8)]

    def work(listener: stompy.ConnectionListener) -> None:
        others = [Leaving(heard) for _ in range(200)]
        for other in [listener, *others]:
            talk.conn.add_listener(other)
        for other in others:
            talk.conn.remove_listener(other)

    threads = [threading.Thread(target=work, args=(listener,)) for listener in kept]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    talk.peer.close()
    until(lambda: len(heard) >= len(kept))
    assert set(heard) == set(kept)
