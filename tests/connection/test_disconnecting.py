"""The end of a connection: flushed, drained, disconnected, or forgotten."""

from __future__ import annotations

import gc
import logging
import math
import threading
import weakref
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.message import AckMode
from tests.connection.conftest import Recorder, Serving, Talking
from tests.support.peer import WITHIN, until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

# The end


@pytest.mark.requirement("DIS-02", "DIS-04")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_disconnect_leaves_no_thread(talking: Talking, version: str) -> None:
    talk = talking(version)
    name = talk.conn._links._name
    leaving = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    assert list(frame.headers) == ["receipt"]
    leaving.until_blocked()
    talk.peer.receipt(frame)
    leaving.result()
    assert talk.peer.rest() == []
    assert [thread.name for thread in threading.enumerate() if name in thread.name] == []
    assert not talk.conn.connected


@pytest.mark.requirement("DIS-03", "CON-23")
def test_after_disconnect_everything_says_so(talking: Talking, calling: Calling) -> None:
    talk = talking()
    subscription = talk.subscribe("/queue/a")
    leaving = talk.leave()
    talk.peer.expect_disconnect()
    leaving.result()
    for attempt in (
        lambda: talk.conn.send("/queue/a", "x"),
        lambda: talk.conn.subscribe("/queue/a"),
        lambda: talk.conn.subscribe("/queue/a", print, own_thread=True),
        lambda: talk.conn.transaction(),
        lambda: talk.conn.batch().__enter__(),
        lambda: talk.conn.request("/queue/a"),
        lambda: talk.conn.flush(),
        lambda: subscription.receive(),
    ):
        with pytest.raises(stompy.NotConnectedError):
            attempt()
        with pytest.raises(stompy.NotConnectedError):
            calling(attempt).result()
    subscription.close()
    talk.conn.close()


def test_disconnect_is_idempotent_from_many_threads(serving: Serving, calling: Calling) -> None:
    conn, served = serving()
    for call in [calling(conn.close) for _ in range(8)]:
        call.result()
    served.join(WITHIN)
    assert served.commands() == ["DISCONNECT"]


def test_a_second_disconnect_waits_for_the_first_instead_of_cutting_it_short(
    talking: Talking, calling: Calling
) -> None:
    talk = talking()
    first = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    second = calling(talk.conn.close)
    second.until_blocked()
    assert first.is_alive()
    talk.peer.receipt(frame)
    first.result()
    second.result()
    assert talk.peer.rest() == []


@pytest.mark.requirement("DIS-06")
@pytest.mark.parametrize("answer", ["nothing", "end", "error"])
def test_disconnect_returns_without_a_receipt(talking: Talking, answer: str) -> None:
    talk = talking(timeouts=stompy.Timeouts(close=0.2 if answer == "nothing" else WITHIN))
    leaving = talk.leave()
    talk.peer.expect("DISCONNECT")
    if answer == "end":
        talk.peer.close()
    elif answer == "error":
        talk.peer.error("no")
    leaving.result()
    assert not talk.conn.connected


def test_an_error_that_comes_while_disconnecting_is_reported(talking: Talking) -> None:
    listener = Recorder()
    talk = talking(listeners=[listener])
    talk.conn.send("/queue/forbidden", "x")
    leaving = talk.leave()
    talk.peer.expect("SEND")
    talk.peer.expect("DISCONNECT")
    talk.peer.error("not allowed to write to /queue/forbidden")
    leaving.result()
    assert listener.names == ["connected", "error", "disconnected", "closed"]
    assert isinstance(listener.await_event("disconnected"), stompy.BrokerError)
    assert listener.await_event("closed") is listener.await_event("disconnected")


def test_disconnect_waits_for_the_receipts_in_flight(talking: Talking) -> None:
    talk = talking()
    receipt = talk.conn.send_async("/queue/a", "x")
    leaving = talk.leave()
    frame = talk.peer.expect("SEND")
    leaving.until_blocked()
    assert talk.peer.quiet()
    talk.peer.receipt(frame)
    talk.peer.expect_disconnect()
    leaving.result()
    assert receipt is not None
    assert outcome_of(receipt) == "confirmed"


def test_from_the_moment_of_disconnect_on_nothing_new_is_sent(talking: Talking) -> None:
    talk = talking()
    talk.conn.send_async("/queue/a", "x")
    leaving = talk.leave()
    frame = talk.peer.expect("SEND")
    leaving.until_blocked()  # on the receipt; DISCONNECT has not gone out yet
    with pytest.raises(stompy.NotConnectedError):
        talk.conn.send("/queue/a", "y")
    talk.peer.receipt(frame)
    assert talk.peer.expect_disconnect() == []
    leaving.result()


def test_disconnect_drops_what_is_queued_and_drain_works_it_off(serving: Serving) -> None:
    for drain in (False, True):
        conn, served = serving()
        gate, running = threading.Event(), threading.Event()
        seen: list[str] = []

        def handler(message: stompy.Message) -> None:
            running.set()  # noqa: B023
            assert gate.wait(WITHIN)  # noqa: B023
            seen.append(message.text)  # noqa: B023

        conn.subscribe("/queue/a", handler, id="1", ack="auto")
        served.peer.deliver("a", "b", "c")
        assert running.wait(WITHIN)
        leaving = threading.Thread(target=conn.close, kwargs={"drain": drain})
        leaving.start()
        until(lambda: "UNSUBSCRIBE" in served.commands() if drain else not conn.connected)  # noqa: B023
        gate.set()
        leaving.join(WITHIN)
        assert not leaving.is_alive()
        assert seen == (["a", "b", "c"] if drain else ["a"])


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("iterated", [True, False])
def test_drain_lets_what_was_received_be_acknowledged_before_unsubscribing(
    serving: Serving, mode: AckMode, iterated: bool
) -> None:
    conn, served = serving(server="RabbitMQ/4.3.6")
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        message.ack()

    subscription = conn.subscribe("/queue/a", None if iterated else handler, id="1", ack=mode)

    def work_off() -> None:
        for message in subscription:
            handler(message)

    loop = threading.Thread(target=work_off)
    if iterated:
        loop.start()
    for body in "abc":
        served.peer.deliver(body, ack=body)
    assert running.wait(WITHIN)
    until(lambda: conn.stats().frames_received >= 4)
    leaving = threading.Thread(target=conn.close, kwargs={"drain": True})
    leaving.start()
    until(lambda: subscription.closed)
    served.peer.deliver("late", ack="late")
    until(lambda: conn.stats().frames_received >= 5)
    gate.set()
    leaving.join(WITHIN)
    assert not leaving.is_alive()
    assert served.commands()[1:] == ["ACK", "ACK", "ACK", "DISCONNECT"]
    if iterated:
        loop.join(WITHIN)


def test_drain_inside_the_loop_does_not_wait_for_it(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", id="1", ack="client-individual")
    served.peer.deliver("a", ack="a")
    for message in subscription:
        message.ack()
        conn.close(drain=True, timeout=math.inf)
    assert served.commands()[1:] == ["ACK", "DISCONNECT"]


def test_a_loop_that_was_left_is_not_waited_for(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", id="1", ack="client-individual")
    served.peer.deliver("a", ack="a")
    leave = threading.Thread(target=lambda: next(iter(subscription)).ack())
    leave.start()
    leave.join(WITHIN)
    conn.close(drain=True, timeout=math.inf)
    assert served.commands()[1:] == ["ACK", "DISCONNECT"]


@pytest.mark.parametrize("consumer", ["handler", "own_thread", "listener", "listeners", "loop"])
@pytest.mark.parametrize("mode", ["auto", "client-individual"])
def test_the_end_of_the_block_drains_for_each_consumer(consumer: str, mode: AckMode) -> None:
    """200 messages are received and one is handled when the block ends."""
    handled: list[str] = []
    left = threading.Event()

    class Handling(stompy.Listener):
        def on_message(self, message: stompy.Message) -> None:
            assert left.wait(WITHIN)
            with message:
                handled.append(message.text)

    handling = Handling()
    with Broker() as broker, stompy.connect(broker.url) as helper:
        with helper.batch():
            for number in range(200):
                helper.send("/queue/a", str(number))
        helper.close()
        with stompy.connect(broker.url, listeners=[handling] if consumer == "listeners" else []) as conn:
            chosen: dict[str, Any] = {
                "handler": handling.on_message,
                "own_thread": handling.on_message,
                "listener": handling,
            }
            subscription = conn.subscribe(
                "/queue/a", chosen.get(consumer), ack=mode, own_thread=consumer == "own_thread"
            )
            loop = threading.Thread(target=lambda: list(map(handling.on_message, subscription)))
            if consumer == "loop":
                loop.start()
            until(lambda: conn.stats().queued_messages >= 199)  # a loop has one of them
            threading.Timer(0.01, left.set).start()  # the block has ended by then
        if consumer == "loop":
            loop.join(WITHIN)
        assert handled == [str(number) for number in range(200)]
        assert broker.depth("/queue/a") == 0


def test_a_block_that_raises_does_not_drain(serving: Serving) -> None:
    conn, served = serving()
    gate, running = threading.Event(), threading.Event()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        seen.append(message.text)

    def block() -> None:
        with conn:
            conn.subscribe("/queue/a", handler, id="1")
            served.peer.deliver("a", "b")
            assert running.wait(WITHIN)
            threading.Timer(0.01, gate.set).start()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert seen == ["a"]


def test_the_end_of_the_block_does_not_wait_for_what_nobody_else_reads(serving: Serving) -> None:
    conn, served = serving(timeouts=stompy.Timeouts(close=1e6))
    with conn:
        subscription = conn.subscribe("/queue/a", id="1")
        unread = conn.subscribe("/queue/b", id="2")
        served.peer.deliver("a", "b")
        served.peer.deliver("c", subscription="2")
        assert subscription.receive().text == "a"
        until(lambda: unread.queued)
    assert subscription.receive().text == "b"  # it can still be received


def test_the_end_of_the_block_drains_although_the_session_was_lost(serving: Serving) -> None:
    conn, served = serving()
    gate, running = threading.Event(), threading.Event()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        seen.append(message.text)

    with conn:
        conn.subscribe("/queue/a", handler, id="1", ack="auto")
        served.peer.deliver("a", "b", "c")
        assert running.wait(WITHIN)
        served.close()
        until(lambda: not conn.connected)
        threading.Timer(0.01, gate.set).start()
    assert seen == ["a", "b", "c"]


def test_what_was_not_handled_in_time_is_counted_in_a_warning(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    conn, served = serving(timeouts=stompy.Timeouts(close=0.1))
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        gate.wait(WITHIN)

    with caplog.at_level(logging.WARNING, "stompy.connection"), conn:
        conn.subscribe("/queue/a", handler, id="1")
        served.peer.deliver("a", "b", "c")
        assert running.wait(WITHIN)
        until(lambda: conn.stats().queued_messages == 3)
    assert "closed before all received messages were handled: 3 wait" in caplog.text
    gate.set()


def test_drain_works_inside_a_handler_too(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        conn.close(drain=True)

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("a")
    served.join(WITHIN)
    assert seen == ["a"]
    assert not conn.connected


@pytest.mark.parametrize("own_thread", [True, False])
@pytest.mark.parametrize("mode", ["auto", "handled", "client-individual"])
def test_a_drained_subscription_has_handled_what_it_received(
    serving: Serving, calling: Calling, mode: AckMode, own_thread: bool
) -> None:
    conn, served = serving()
    gate, running = threading.Event(), threading.Event()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        running.set()
        assert gate.wait(WITHIN)
        seen.append(message.text)

    subscription = conn.subscribe("/queue/a", handler, id="1", ack=mode, own_thread=own_thread)
    served.peer.deliver("a", "b", "c")
    assert running.wait(WITHIN)
    until(lambda: conn.stats().queued_messages == 3)
    leaving = calling(lambda: subscription.close(drain=True))
    leaving.until_blocked()
    gate.set()
    leaving.result()
    assert seen == ["a", "b", "c"]
    assert "UNSUBSCRIBE" in served.commands()


def test_a_listener_that_does_not_return_costs_no_more_than_the_deadline(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    conn, served = serving()
    gate, running = threading.Event(), threading.Event()

    def handler(message: stompy.Message) -> None:
        running.set()
        gate.wait(WITHIN)

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("x")
    assert running.wait(WITHIN)
    with caplog.at_level(logging.WARNING, "stompy.connection"):
        conn.close(timeout=0.2)
    assert "still runs" in caplog.text
    gate.set()


def test_the_block_disconnects_at_its_end_and_when_it_raises(serving: Serving) -> None:
    conn, served = serving()
    with pytest.raises(ZeroDivisionError), conn as inner:  # noqa: PT012
        assert inner is conn
        _ = 1 / 0
    served.join(WITHIN)
    assert served.commands() == ["DISCONNECT"]


# Forgotten


def connection_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stompy-forgotten")]


def test_a_forgotten_connection_warns_and_is_collected() -> None:
    with Broker() as broker:
        conn = stompy.connect(broker.url, heartbeat=(1, 1), name="forgotten")
        conn.subscribe("/queue/a", print)
        closing = weakref.ref(conn._closing)
        assert len(connection_threads()) == 3
        with pytest.warns(ResourceWarning, match=r"a connection was not closed: <Connection 127\.0\.0\.1:\d+"):  # noqa: PT031
            del conn
            gc.collect()
        until(lambda: not connection_threads())
        until(lambda: gc.collect() is not None and closing() is None)


def test_a_closed_connection_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    with Broker() as broker:
        conn = stompy.connect(broker.url)
        conn.close()
        del conn
        gc.collect()
    assert not recwarn.list


@pytest.mark.parametrize("lock", ["gate", "end", "dispatcher"])
def test_the_collector_may_strike_while_one_of_its_own_locks_is_held(lock: str, calling: Calling) -> None:
    """Garbage is collected in whatever thread allocates next: that may be the reader inside a critical section."""
    with Broker() as broker:
        conn = stompy.connect(broker.url, name="forgotten")
        link = conn._links.link
        held: Any = {
            "gate": link.flow._condition,
            "end": link._end_lock,
            "dispatcher": conn._callbacks.dispatcher._condition,
        }[lock]

        def strike() -> None:
            with held, pytest.warns(ResourceWarning):
                conn.__del__()

        call = calling(strike)
        call.result()  # a lock taken out of rank would raise here
        until(lambda: not connection_threads())
