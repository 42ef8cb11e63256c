"""The connection that users hold: what it says of itself, what it sends, how it closes, how it is forgotten."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from typing import Any

import pytest

import stompy
from tests.connection.conftest import Serving, Talking
from tests.support.peer import until
from tests.support.receipts import outcome_of
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
        talk.conn.send_async("/queue/a", "x")
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
    assert [frame.body for frame in frames] == [b"\x00\x01", b'{"n":1}', b""]
    assert [frame.headers.get("content-type") for frame in frames] == [None, "application/json", None]


def test_the_callers_headers_are_left_as_they_are(talking: Talking) -> None:
    talk = talking()
    headers = {"a": "b\nc"}
    for _ in range(2):
        talk.conn.send_async("/queue/a", "x", headers=headers)
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
    talk.conn.send("/queue/a", "x")
    assert "receipt" not in talk.peer.expect("SEND").headers


@pytest.mark.requirement("RCP-01")
def test_confirm_waits_for_the_broker(talking: Talking, calling: Calling) -> None:
    talk = talking()
    call = calling(lambda: talk.conn.send("/queue/a", "x", confirm=True))
    frame = talk.peer.expect("SEND")
    call.until_blocked()
    talk.peer.receipt(frame)
    call.result()


def test_confirm_that_is_not_answered_in_time_is_a_timeout(talking: Talking) -> None:
    talk = talking(timeouts=stompy.Timeouts(receipt=0.05))
    with pytest.raises(stompy.ReceiptTimeoutError):
        talk.conn.send("/queue/a", "x", confirm=True)
    with pytest.raises(stompy.ReceiptTimeoutError):
        talk.conn.send("/queue/a", "x", confirm=True, timeout=0.2)
    assert talk.conn.connected


def test_a_done_callback_runs_on_the_dispatcher(serving: Serving) -> None:
    conn, _ = serving()
    seen: list[tuple[str, str]] = []
    receipt = conn.send_async("/queue/a", "x")
    assert receipt is not None
    receipt.add_done_callback(lambda one: seen.append((outcome_of(one), threading.current_thread().name)))
    until(lambda: seen)
    ((outcome, thread),) = seen
    assert outcome == "confirmed"
    assert thread.endswith("-dispatcher")


def test_a_callback_that_raises_does_no_harm(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    conn, _ = serving()

    def broken(_: stompy.Receipt) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "stompy.connection"):
        receipt = conn.send_async("/queue/a", "x")
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
    with pytest.raises((stompy.LocalProtocolError, stompy.ConfigurationError)):
        talk.conn.send_async(*arguments, **options)
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
    receipts = [talk.conn.send_async("/queue/a", "x") for _ in range(3)]
    call = calling(talk.conn.flush)
    frames = [talk.peer.expect("SEND") for _ in range(3)]
    for frame in frames[:2]:
        talk.peer.receipt(frame)
    call.until_blocked()
    talk.peer.receipt(frames[2])
    call.result()
    assert all(receipt.done() for receipt in receipts)
