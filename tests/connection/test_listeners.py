"""What listeners are called with, in which order, on which thread, and how often."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import time
import weakref
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import Acting, Recorder, Serving, Sessions, Talking
from tests.support.peer import WITHIN, until
from tests.support.seed import SEED_SETTING, chance
from tests.transport.conftest import Calling


def test_every_event_is_reported_once_in_order_and_on_the_dispatcher(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("hello")
    listener.await_event("message")
    leaving = talk.leave()
    talk.peer.expect_disconnect()
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
        conn.close()
        assert listener.names.count("disconnected") == 1
        assert all(thread.endswith("-dispatcher") for thread in listener.threads)


@pytest.mark.parametrize("how", ["end of the stream", "silence", "error", "offence"])
def test_the_end_is_reported_once_with_its_reason(talking: Talking, how: str) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener], heartbeat=(0, 0.05) if how == "silence" else (0, 0), peer_heartbeat=(0.05, 0))
    expected: dict[str, tuple[list[str], type[Exception]]] = {
        "end of the stream": (["disconnected"], stompy.ConnectionLostError),
        "silence": (["heartbeat_timeout", "disconnected"], stompy.HeartbeatTimeoutError),
        "error": (["error", "disconnected"], stompy.BrokerError),
        "offence": (["disconnected"], stompy.ConnectionLostError),
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


# One consumer of a subscription


def test_a_subscription_that_listeners_consume_has_no_inbox_and_no_reader(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver("x")
    assert listener.await_event("message").text == "x"
    until(lambda: talk.conn.stats().queued_messages == 0)
    assert subscription.queued == 0
    with pytest.raises(stompy.LocalProtocolError, match="a listener of the connection defines on_message"):
        subscription.receive(timeout=0)
    with pytest.raises(stompy.LocalProtocolError, match="on_message"):
        next(iter(subscription))


def test_a_listener_without_on_message_leaves_messages_to_whoever_receives(talking: Talking) -> None:
    class Watching(stompy.Listener):
        pass

    talk = talking(listeners=[Watching()])
    subscription = talk.subscribe("/queue/a")
    talk.peer.deliver("x")
    assert subscription.receive().text == "x"


def test_a_listener_added_later_gets_what_waits_first_and_then_the_rest(talking: Talking) -> None:
    for late in (0, 1, 30):
        talk = talking()
        subscription = talk.subscribe("/queue/a", id="1")
        bodies = [str(number) for number in range(60)]
        talk.peer.deliver(*bodies[:late])
        until(lambda: subscription.queued == late)  # noqa: B023
        listener = Recorder()
        sending = threading.Thread(target=talk.peer.deliver, args=bodies[late:])
        sending.start()
        talk.conn.add_listener(listener)
        listener.await_event("message", 60)
        sending.join(WITHIN)
        assert [what.text for event, what in listener.events if event == "message"] == bodies
        until(lambda: talk.conn.stats().queued_messages == 0)  # noqa: B023
        assert subscription.queued == 0


def test_a_listener_that_comes_and_goes_loses_and_doubles_nothing(serving: Serving) -> None:
    print(SEED_SETTING)
    draw = chance("listeners")
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", id="1", ack="auto")
    bodies = [str(number) for number in range(3_000)]

    def deliver() -> None:
        for at in range(0, len(bodies), 10):
            served.peer.deliver(*bodies[at : at + 10])

    sending = threading.Thread(target=deliver)
    sending.start()
    listener = Recorder()
    while sending.is_alive():
        conn.add_listener(listener)
        time.sleep(draw.uniform(0, 0.002))
        conn.remove_listener(listener)
        time.sleep(draw.uniform(0, 0.002))
    sending.join(WITHIN)
    conn.add_listener(listener)
    listener.await_event("message", len(bodies))
    assert [what.text for event, what in listener.events if event == "message"] == bodies
    assert subscription.queued == 0


def test_whoever_receives_already_goes_on_when_a_listener_is_added(talking: Talking) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a", id="1")
    talk.peer.deliver("x")
    assert subscription.receive().text == "x"
    listener = Recorder()
    talk.conn.add_listener(listener)
    talk.peer.deliver("y")
    assert subscription.receive().text == "y"
    assert listener.await_event("message").text == "y"  # heard, too


def test_an_object_with_on_message_is_given_to_subscribe(serving: Serving) -> None:
    conn, served = serving()
    one, other = Recorder(), Recorder()
    conn.subscribe("/queue/a", one, id="1")
    conn.subscribe("/queue/b", other, id="2", own_thread=True)
    served.peer.deliver("x")
    served.peer.deliver("y", subscription="2")
    assert one.await_event("message").text == "x"
    assert other.await_event("message").text == "y"
    assert one.names == other.names == ["message"]


def test_what_cannot_be_a_handler_is_refused(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    for wrong in (stompy.Listener(), 5, listener):
        with pytest.raises(stompy.ConfigurationError):
            talk.conn.subscribe("/queue/a", wrong)  # type: ignore[arg-type]
    assert talk.peer.quiet()


# Paused reading


def test_an_inbox_that_nobody_reads_is_named_with_what_to_do(
    talking: Talking, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompy.link.reader._STALLED_AFTER", 0.01)
    talk = talking(limits=stompy.Limits(max_inbox_messages=3))
    subscription = talk.subscribe("/queue/a", id="1", ack="auto")
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        talk.peer.deliver("a", "b", "c")
        until(lambda: caplog.records)
        assert [subscription.receive().text for _ in range(3)] == ["a", "b", "c"]
        talk.peer.deliver("d", "e", "f")
        assert subscription.receive().text == "d"
    (record,) = caplog.records  # once per session
    assert "3 received messages wait" in record.getMessage()
    assert "nobody has received from '/queue/a' (subscription 1)" in record.getMessage()
    assert "iterate over it, give it a handler, or unsubscribe" in record.getMessage()


@pytest.mark.parametrize(
    ("who", "named"),
    [
        ("handler", "the handler or listener for '/queue/a' (subscription 1) is busy"),
        ("callback", "a listener or callback is busy"),
    ],
)
def test_what_holds_reading_up_is_named(
    talking: Talking, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, who: str, named: str
) -> None:
    monkeypatch.setattr("stompy.link.reader._STALLED_AFTER", 0.01)
    talk = talking(limits=stompy.Limits(max_inbox_messages=3))
    running, gate = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        running.set()
        gate.wait(WITHIN)

    talk.subscribe("/queue/a", hold, id="1")
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        if who == "handler":
            talk.peer.deliver("a")
        else:
            talk.conn.send_async("/queue/b", "x").add_done_callback(hold)
            talk.peer.expect_and_confirm("SEND")
        assert running.wait(WITHIN)
        talk.peer.deliver("b", "c", "d", "e")
        until(lambda: caplog.records)
        gate.set()
    assert named in caplog.text


# Others


def test_a_message_for_no_known_subscription_is_reported_counted_and_logged(
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
    class Broken(stompy.Listener):
        def on_connected(self, event: stompy.ConnectedEvent) -> None:
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


def test_what_a_listener_sends_after_the_end_says_why_not(talking: Talking, calling: Calling) -> None:
    opened: list[stompy.Connection] = []
    acting = Acting("on_disconnected", lambda event: opened[0].send("/queue/a", "x"))
    talk = talking(listeners=[acting])
    opened.append(talk.conn)
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


# The order of events


def test_of_what_comes_in_one_packet_the_session_is_reported_first(sessions: Sessions, calling: Calling) -> None:
    for _ in range(20):
        listener = Recorder()
        call = calling(lambda heard=listener: stompy.connect(sessions.url, heartbeat=(0, 0), listeners=[heard]))  # type: ignore[misc]
        peer = sessions.accept()
        peer.take_connect()
        receipt = peer.encoded("RECEIPT", {"receipt-id": "nobody's"})
        peer.raw(peer.connected_frame() + peer.message("early", subscription="nobody") + receipt)
        listener.await_event("receipt")
        conn = call.result()
        conn.close(timeout=0)
        assert listener.names[:3] == ["connected", "message", "receipt"]


def test_a_new_session_is_reported_before_its_frames_and_after_those_of_the_old_one(
    sessions: Sessions, calling: Calling
) -> None:
    """With a backlog in the queue of callbacks, and messages that come while subscriptions are made again."""
    gate, running = threading.Event(), threading.Event()
    connected: list[bool] = []

    class Slow(Recorder):
        def on_connected(self, event: stompy.ConnectedEvent) -> None:
            super().on_connected(event)
            session = event.frame.headers.get("session")
            connected.append(not opened or (opened[0].connected and opened[0].session == session))

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)

    opened: list[stompy.Connection] = []
    listener = Slow()
    conn, peer = sessions.connect(listeners=[listener])
    opened.append(conn)
    call = calling(lambda: conn.subscribe("/queue/a", handler, id="1", ack="auto"))
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
    calls = [what.text if event == "message" else event for event, what in listener.events]
    again = calls.index("connected", 1)
    assert calls[:again] == ["connected", "receipt", "old", "backlog", "disconnected"]
    assert calls[again + 1 :] == ["new, at once", "new, while replaying", "receipt", "new, later"]
    assert connected == [True, True]


@pytest.mark.parametrize("how", ["end of the stream", "error", "no receipt"])
def test_a_session_that_dies_while_subscriptions_are_made_is_reported_as_a_pair(
    sessions: Sessions, calling: Calling, how: str
) -> None:
    listener = Recorder()
    conn, peer = sessions.connect(
        listeners=[listener], timeouts=stompy.Timeouts(receipt=1 if how == "no receipt" else WITHIN)
    )
    call = calling(lambda: conn.subscribe("/queue/a", print, id="1", ack="auto"))
    peer.expect_and_confirm("SUBSCRIBE")
    call.result()
    peer.close()
    peer = sessions.next()
    frame = peer.expect("SUBSCRIBE")
    peer.deliver("taken by a session that died")
    if how == "error":
        peer.error("no", headers={"receipt-id": frame.headers["receipt"]})
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
    reason = stompy.BrokerError if how == "error" else stompy.ConnectionLostError
    assert isinstance(listener.await_event("disconnected", 2), reason)


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
        conn.close()
        names = [name for name in listener.names if name != "receipt"]
        assert names == ["connected", "disconnected", "connected", "disconnected", "closed"]
        assert [reason for name, reason in listener.events if name == "closed"] == [None]


def test_a_first_session_that_dies_at_once_is_reported_as_a_pair_or_not_at_all(
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
        except stompy.ConnectRefusedError:
            assert listener.names in ([], ["connected", "error", "disconnected"])
        else:  # it was there for a moment
            listener.await_event("closed")
            assert listener.names == ["connected", "error", "disconnected", "closed"]
            conn.close()


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
    conn.close(timeout=0.1)
    listener.await_event("closed")
    gate.set()
    conn.close()
    assert listener.names[-1] == "closed"


class Leaving(stompy.Listener):
    def __init__(self, heard: list[stompy.Listener]) -> None:
        self.heard = heard

    def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
        self.heard.append(self)


def test_listeners_that_threads_add_and_remove_at_once_are_all_kept(talking: Talking) -> None:
    talk, heard = talking(), list[stompy.Listener]()
    kept = [Leaving(heard) for _ in range(8)]

    def work(listener: stompy.Listener) -> None:
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


class Kept(stompy.Listener):
    """Keeps the events that name their connection."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def _keep(self, event: Any) -> None:
        self.events.append(event)

    on_connected = on_disconnected = on_reconnecting = on_handler_error = on_closed = _keep


def test_one_listener_serves_several_connections_as_each_event_names_its_own() -> None:
    listener = Kept()
    with Broker() as broker:
        conns = [stompy.connect(broker.url, listeners=[listener]) for _ in range(3)]
        for conn in conns:
            conn.close()
    for conn in conns:
        own = [event for event in listener.events if event.connection is conn]
        assert [type(event) for event in own] == [stompy.ConnectedEvent, stompy.DisconnectedEvent, stompy.ClosedEvent]
    assert len(listener.events) == 9
    with pytest.raises(AttributeError):
        listener.events[0].frame = None


def test_an_attempt_is_announced_with_what_went_wrong_before_it() -> None:
    listener = Kept()
    policy = stompy.Reconnect(attempts=3, backoff=stompy.Backoff(first=0.001, longest=0.001))
    with Broker() as broker, stompy.connect(broker.url, listeners=[listener], reconnect=policy):
        broker.close()
        until(lambda: isinstance(listener.events[-1], stompy.ClosedEvent))
    reasons = [event.reason for event in listener.events[1:]]  # lost, three attempts, closed
    assert reasons[1] is reasons[0]
    assert all(type(reason) is stompy.ConnectError for reason in reasons[2:])
    assert len(reasons) == 5
    assert [event.attempt for event in listener.events[2:-1]] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_last_events_of_a_forgotten_connection_still_name_it() -> None:
    seen: list[tuple[type, str]] = []
    closed = threading.Event()

    class Naming(stompy.Listener):
        def on_disconnected(self, event: stompy.DisconnectedEvent) -> None:
            seen.append((type(event), event.connection.address))

        def on_closed(self, event: stompy.ClosedEvent) -> None:
            seen.append((type(event), event.connection.address))
            closed.set()

    with Broker() as broker:
        conn = stompy.connect(broker.url, listeners=[Naming()])
        address = conn.address
        gone = weakref.ref(conn)
        del conn
        assert closed.wait(WITHIN)
        until(lambda: gc.collect() is not None and gone() is None)
    assert seen == [(stompy.DisconnectedEvent, address), (stompy.ClosedEvent, address)]
