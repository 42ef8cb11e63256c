"""The connection that users hold: what it says of itself, what it sends, how it closes, how it is forgotten."""

from __future__ import annotations

import copy
import gc
import logging
import math
import pickle
import threading
import weakref
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.subscription import AckMode
from tests.connection.conftest import Recorder, Serving, Talking
from tests.support.peer import WITHIN, until
from tests.transport.conftest import Calling

# What it is


def test_it_says_what_was_agreed_on(talking: Talking) -> None:
    talk = talking(heartbeat=(0.5, 1), peer_heartbeat=(2, 0.25), connected={"session": "s-7"})
    conn = talk.conn
    assert conn.connected
    assert (conn.version, conn.server, conn.session) == ("1.2", "peer/1", "s-7")
    assert conn.heartbeat == (0.5, 2.0)
    assert conn.address == talk.conn.address
    assert repr(conn) == f"<Connection {conn.address} STOMP 1.2 connected>"


@pytest.mark.requirement("CON-20", "CON-22", "CON-24")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_broker_of_one_version_is_spoken_to_in_it(talking: Talking, version: str) -> None:
    talk = talking(version, server=None)
    assert (talk.conn.version, talk.conn.server, talk.conn.session) == (version, None, None)
    talk.conn.send("/queue/a", "x")
    assert talk.peer.expect("SEND").body == b"x"


def test_its_repr_shows_how_it_ended(talking: Talking) -> None:
    lost, closed = talking(), talking()
    lost.peer.close()
    until(lambda: not lost.conn.connected)
    assert repr(lost.conn).endswith(" STOMP 1.2 lost>")
    leaving = closed.leave()
    closed.peer.expect_disconnect()
    leaving.result()
    assert repr(closed.conn).endswith(" STOMP 1.2 closed>")


def test_the_passcode_is_in_no_log_repr_or_error(talking: Talking, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        talk = talking(login="fred", passcode="sesame", heartbeat=(0.05, 0), peer_heartbeat=(0, 0.05))
        talk.conn.send("/queue/a", "x", receipt=True)
        talk.peer.expect("SEND")
        talk.subscribe("/queue/a")
        talk.peer.await_beats(1)
        talk.peer.error("wrong")
        until(lambda: not talk.conn.connected)
        with pytest.raises(stompy.BrokerError) as caught:
            talk.conn.send("/queue/a", "x")
        talk.close()
    assert len(caplog.records) > 5
    for text in (caplog.text, repr(talk.conn), repr(caught.value), str(caught.value), repr(talk.conn.stats())):
        assert "sesame" not in text


def test_it_cannot_be_pickled_or_copied(talking: Talking) -> None:
    conn = talking().conn
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(conn)


# Sending


@pytest.mark.requirement("SND-01", "SND-05", "BDY-07", "BDY-11")
def test_send_writes_what_it_was_given(talking: Talking) -> None:
    talk = talking()
    talk.conn.send("/queue/a", "é", headers={"priority": 9, "persistent": True, "x-y": "a:b\nc"})
    frame = talk.peer.expect("SEND")
    assert frame.body == "é".encode()
    assert frame.headers.pairs == (
        ("destination", "/queue/a"),
        ("content-type", "text/plain;charset=utf-8"),
        ("priority", "9"),
        ("persistent", "true"),
        ("x-y", "a:b\nc"),
        ("content-length", "2"),
    )


def test_bytes_are_sent_as_they_are_and_the_rest_as_json(talking: Talking) -> None:
    talk = talking()
    talk.conn.send("/queue/a", b"\x00\x01")
    talk.conn.send("/queue/a", {"n": 1})
    talk.conn.send("/queue/a")
    frames = [talk.peer.expect("SEND") for _ in range(3)]
    assert [frame.body for frame in frames] == [b"\x00\x01", b'{"n": 1}', b""]
    assert [frame.headers.get("content-type") for frame in frames] == [None, "application/json", None]


def test_the_callers_headers_are_left_as_they_are(talking: Talking) -> None:
    talk = talking()
    headers = {"a": "b\nc"}
    for _ in range(2):
        talk.conn.send("/queue/a", "x", headers=headers, receipt=True)
        assert talk.peer.expect("SEND").headers["a"] == "b\nc"
    assert headers == {"a": "b\nc"}


@pytest.mark.requirement("BDY-06", "BDY-07")
@pytest.mark.parametrize(
    ("default", "here", "written"),
    [(True, None, True), (True, False, False), (False, None, False), (False, True, True)],
)
def test_content_length_can_be_switched_per_connection_and_per_send(
    talking: Talking, default: bool, here: bool | None, written: bool
) -> None:
    talk = talking(content_length=default)
    talk.conn.send("/queue/a", "x", content_length=here)
    assert ("content-length" in talk.peer.expect("SEND").headers) is written
    talk.conn.send("/queue/a", b"a\0b", content_length=here)
    assert talk.peer.expect("SEND").headers["content-length"] == "3"


def test_without_being_asked_for_there_is_no_receipt(talking: Talking) -> None:
    talk = talking()
    assert talk.conn.send("/queue/a", "x") is None
    assert "receipt" not in talk.peer.expect("SEND").headers


@pytest.mark.requirement("RCP-01")
def test_confirm_waits_for_the_broker(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.send("/queue/a", "x", confirm=True))
    frame = talk.peer.expect("SEND")
    call.until_blocked()
    talk.peer.receipt(frame)
    assert call.result().outcome == "confirmed"


def test_confirm_that_is_not_answered_in_time_is_a_timeout(talking: Talking) -> None:
    talk = talking(receipt_timeout=0.05)
    with pytest.raises(stompy.ReceiptTimeout):
        talk.conn.send("/queue/a", "x", confirm=True)
    with pytest.raises(stompy.ReceiptTimeout):
        talk.conn.send("/queue/a", "x", confirm=True, timeout=0.2)
    assert talk.conn.connected


def test_a_done_callback_runs_on_the_dispatcher(serving: Serving) -> None:
    conn, _ = serving()
    seen: list[tuple[str, str]] = []
    receipt = conn.send("/queue/a", "x", receipt=True)
    assert receipt is not None
    receipt.add_done_callback(lambda one: seen.append((one.outcome, threading.current_thread().name)))
    until(lambda: seen)
    ((outcome, thread),) = seen
    assert outcome == "confirmed"
    assert thread.endswith("-dispatcher")


def test_a_callback_that_raises_does_no_harm(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    conn, _ = serving()

    def broken(_: stompy.Receipt) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "stompy.connection"):
        receipt = conn.send("/queue/a", "x", receipt=True)
        assert receipt is not None
        receipt.add_done_callback(broken)
        until(lambda: "ZeroDivisionError" in caplog.text)
    conn.send("/queue/a", "x", confirm=True)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("", "x"), {}),
        ((None, "x"), {}),
        (("/queue/a", "\ud800"), {}),
        (("/queue/a", {1, 2}), {}),
        (("/queue/a", "x"), {"content_type": "text"}),
        (("/queue/a", "x"), {"headers": {"": "x"}}),
        (("/queue/a", "x"), {"headers": {"a": 1.5}}),
        (("/queue/a", "x"), {"headers": {"a": "\0"}}),
        (("/queue/a", "x"), {"headers": {"receipt": "x"}}),
        (("/queue/a\0", "x"), {}),
    ],
)
def test_what_cannot_be_sent_is_refused_and_nothing_leaves(
    talking: Talking, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    talk = talking()
    with pytest.raises(stompy.LocalProtocolError):
        talk.conn.send(*arguments, receipt=True, **options)
    assert talk.peer.quiet()
    assert talk.conn.stats().receipts_pending == 0
    talk.conn.send("/queue/a", "next")
    assert talk.peer.expect("SEND").body == b"next"


def test_a_line_end_in_a_header_is_refused_where_the_version_cannot_escape_it(talking: Talking) -> None:
    talk = talking("1.0")
    for name, value in (("a\nb", "c"), ("a", "b\nc:d"), ("a:b", "c")):
        with pytest.raises(stompy.LocalProtocolError):
            talk.conn.send("/queue/a", "x", headers={name: value})
    assert talk.peer.quiet()


def test_flush_waits_for_every_receipt_in_flight(talking: Talking, calling: Calling) -> None:
    talk = talking()
    receipts = [talk.conn.send("/queue/a", "x", receipt=True) for _ in range(3)]
    call = calling(talk.conn.flush)
    frames = [talk.peer.expect("SEND") for _ in range(3)]
    for frame in frames[:2]:
        talk.peer.receipt(frame)
    call.until_blocked()
    talk.peer.receipt(frames[2])
    call.result()
    assert all(receipt.done for receipt in receipts)


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
        with pytest.raises(stompy.NotConnected):
            attempt()
        with pytest.raises(stompy.NotConnected):
            calling(attempt).result()
    subscription.unsubscribe()
    talk.conn.disconnect()


def test_disconnect_is_idempotent_from_many_threads(serving: Serving, calling: Calling) -> None:
    conn, served = serving()
    for call in [calling(conn.disconnect) for _ in range(8)]:
        call.result()
    served.join(WITHIN)
    assert served.commands() == ["DISCONNECT"]


def test_a_second_disconnect_waits_for_the_first_instead_of_cutting_it_short(
    talking: Talking, calling: Calling
) -> None:
    talk = talking()
    first = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    second = calling(talk.conn.disconnect)
    second.until_blocked()
    assert first.is_alive()
    talk.peer.receipt(frame)
    first.result()
    second.result()
    assert talk.peer.rest() == []


@pytest.mark.requirement("DIS-06")
@pytest.mark.parametrize("answer", ["nothing", "end", "error"])
def test_disconnect_returns_without_a_receipt(talking: Talking, answer: str) -> None:
    talk = talking(close_timeout=0.2 if answer == "nothing" else WITHIN)
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
    receipt = talk.conn.send("/queue/a", "x", receipt=True)
    leaving = talk.leave()
    frame = talk.peer.expect("SEND")
    leaving.until_blocked()
    assert talk.peer.quiet()
    talk.peer.receipt(frame)
    talk.peer.expect_disconnect()
    leaving.result()
    assert receipt is not None
    assert receipt.outcome == "confirmed"


def test_from_the_moment_of_disconnect_on_nothing_new_is_sent(talking: Talking) -> None:
    talk = talking()
    talk.conn.send("/queue/a", "x", receipt=True)
    leaving = talk.leave()
    frame = talk.peer.expect("SEND")
    leaving.until_blocked()  # on the receipt; DISCONNECT has not gone out yet
    with pytest.raises(stompy.NotConnected):
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

        conn.subscribe("/queue/a", handler, id="1")
        served.peer.deliver("a", "b", "c")
        assert running.wait(WITHIN)
        leaving = threading.Thread(target=conn.disconnect, kwargs={"drain": drain})
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
    leaving = threading.Thread(target=conn.disconnect, kwargs={"drain": True})
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
        conn.disconnect(drain=True, timeout=math.inf)
    assert served.commands()[1:] == ["ACK", "DISCONNECT"]


def test_a_loop_that_was_left_is_not_waited_for(serving: Serving) -> None:
    conn, served = serving()
    subscription = conn.subscribe("/queue/a", id="1", ack="client-individual")
    served.peer.deliver("a", ack="a")
    leave = threading.Thread(target=lambda: next(iter(subscription)).ack())
    leave.start()
    leave.join(WITHIN)
    conn.disconnect(drain=True, timeout=math.inf)
    assert served.commands()[1:] == ["ACK", "DISCONNECT"]


def test_drain_works_inside_a_handler_too(serving: Serving) -> None:
    conn, served = serving()
    seen: list[str] = []

    def handler(message: stompy.Message) -> None:
        seen.append(message.text)
        conn.disconnect(drain=True)

    conn.subscribe("/queue/a", handler, id="1")
    served.peer.deliver("a")
    served.join(WITHIN)
    assert seen == ["a"]
    assert not conn.connected


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
        conn.disconnect(timeout=0.2)
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
        gc.collect()
        until(lambda: closing() is None)


def test_a_closed_connection_does_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    with Broker() as broker:
        conn = stompy.connect(broker.url)
        conn.disconnect()
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
