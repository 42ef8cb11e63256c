from __future__ import annotations

import threading
from typing import cast

import pytest

import stompy
from stompy.broker import Broker
from stompy.errors import ConfigurationError, StompTimeoutError
from stompy.testing.listener import RecordingListener

WITHIN = 20.0

CONN = cast("stompy.Connection", object())


def test_it_records_every_event_in_order() -> None:
    listener = RecordingListener()
    with Broker() as broker:
        conn = stompy.connect(broker.url, listeners=[listener])
        conn.subscribe("/queue/a")
        conn.send("/queue/a", "x", confirm=True)
        assert listener.wait_for("message", timeout=WITHIN).message in listener.messages
        listener.wait_for("receipt", timeout=WITHIN)
        conn.close()
        assert listener.wait_for("closed", timeout=WITHIN).reason is None
    assert listener.names[0] == "connected"
    assert listener.names[-2:] == ["disconnected", "closed"]
    assert [message.text for message in listener.messages] == ["x"]
    frame = listener.events[0].frame
    assert frame is not None
    assert frame.command == "CONNECTED"


def test_it_records_a_lost_link_and_the_next_one() -> None:
    listener = RecordingListener()
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=0.001, longest=0.01))
    with Broker() as broker, stompy.connect(broker.url, reconnect=policy, listeners=[listener]):
        broker.restart()
        assert listener.wait_for("disconnected", timeout=WITHIN).reason is not None
        assert listener.wait_for("reconnecting", timeout=WITHIN).attempt == 1
        listener.wait_for("connected", count=2, timeout=WITHIN)


def test_it_records_what_a_handler_raised() -> None:
    listener = RecordingListener()
    with Broker() as broker, stompy.connect(broker.url, listeners=[listener]) as conn:
        conn.subscribe("/queue/a", lambda message: message.json())
        conn.send("/queue/a", "no json", confirm=True)
        event = listener.wait_for("handler_error", timeout=WITHIN)
    assert isinstance(event.error, stompy.BodyDecodeError)
    assert event.message is not None
    assert event.message.text == "no json"


def reconnect_three_times(listener: RecordingListener) -> None:
    for attempt in (1, 2, 3):
        reconnect(listener, attempt)


def reconnect(listener: RecordingListener, attempt: int, delay: float = 0.0) -> None:
    event = stompy.ReconnectingEvent(connection=CONN, attempt=attempt, delay=delay, reason=None)
    listener.on_reconnecting(event)


def test_every_method_is_recorded() -> None:
    listener = RecordingListener()
    frame = stompy.Frame("ERROR")
    listener.on_error(frame)
    listener.on_heartbeat_timeout(stompy.HeartbeatTimeoutEvent(connection=CONN))
    reconnect(listener, 3, 0.5)
    listener.on_closed(stompy.ClosedEvent(connection=CONN, reason=None))
    error, timeout, reconnecting, closed = listener.events
    assert (error.name, error.frame) == ("error", frame)
    assert timeout.name == "heartbeat_timeout"
    assert (reconnecting.name, reconnecting.attempt, reconnecting.delay) == ("reconnecting", 3, 0.5)
    methods = {name for name in vars(stompy.Listener) if name.startswith("on_")}
    assert methods <= set(vars(RecordingListener))
    assert (closed.name, closed.reason) == ("closed", None)
    assert repr(listener) == "<RecordingListener events=4>"


def test_waiting_counts_what_was_heard_before() -> None:
    listener = RecordingListener()
    reconnect(listener, 1)
    reconnect(listener, 2)
    assert listener.wait_for("reconnecting", count=2, timeout=0).attempt == 2
    assert listener.wait_for("reconnecting", matching=lambda event: event.attempt == 2, timeout=0).attempt == 2


def test_a_wait_that_times_out_says_what_was_recorded() -> None:
    listener = RecordingListener()
    with pytest.raises(StompTimeoutError, match="heard: nothing"):
        listener.wait_for("connected", timeout=0)
    listener.on_heartbeat_timeout(stompy.HeartbeatTimeoutEvent(connection=CONN))
    with pytest.raises(StompTimeoutError, match=r"no 'connected' number 1 .* heard: heartbeat_timeout"):
        listener.wait_for("connected", timeout=0.01)
    listener.clear()
    assert listener.events == ()


@pytest.mark.parametrize(("name", "count"), [("on_connected", 1), ("connected", 0)])
def test_waiting_for_what_cannot_come_is_refused(name: str, count: int) -> None:
    with pytest.raises(ConfigurationError):
        RecordingListener().wait_for(name, count=count)  # type: ignore[arg-type]


@pytest.mark.usefixtures("quick_switches")
def test_no_event_is_missed_by_who_waits() -> None:
    for _ in range(200):
        listener = RecordingListener()
        thread = threading.Thread(target=reconnect_three_times, args=(listener,))
        thread.start()
        assert listener.wait_for("reconnecting", count=3, timeout=WITHIN).attempt == 3
        thread.join()


def test_a_condition_may_use_the_listener() -> None:
    listener = RecordingListener()
    listener.on_heartbeat_timeout(stompy.HeartbeatTimeoutEvent(connection=CONN))
    event = listener.wait_for("heartbeat_timeout", matching=lambda event: event in listener.events, timeout=0)
    assert event.name == "heartbeat_timeout"
