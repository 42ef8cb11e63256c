"""Frames that wait to leave together; their use is in test_batch.py and test_transaction.py."""

from __future__ import annotations

import pytest

from stompy.connection.buffer import FrameBuffer
from stompy.errors import ConnectionLost, LocalProtocolError, NotConnected
from tests.connection.conftest import Talking
from tests.support.peer import until
from tests.transport.conftest import Calling


def test_nothing_leaves_before_the_flush_and_nothing_twice(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    buffer.flush()
    assert not buffer.flushed
    buffer.add("SEND", {"destination": "/q"}, b"x")
    assert talk.peer.quiet()
    buffer.flush()
    buffer.flush()
    assert talk.peer.expect("SEND").body == b"x"
    assert talk.peer.quiet()
    assert buffer.flushed


def test_a_full_buffer_flushes_itself(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    for _ in range(7):
        buffer.add("SEND", {"destination": "/q"}, b"x" * 10_000)
    assert buffer.flushed
    assert len(talk.peer.expect("SEND").body) == 10_000


def test_a_frame_that_is_refused_is_not_in_it_and_its_receipt_is_forgotten(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    with pytest.raises(LocalProtocolError):
        buffer.add("SEND", {}, b"x", receipt=True)
    buffer.flush()
    assert talk.peer.quiet()
    assert talk.conn.stats().receipts_pending == 0


def test_a_receipt_is_registered_when_its_frame_is_added(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    receipt = buffer.add("SEND", {"destination": "/q"}, receipt=True)
    assert receipt is not None
    buffer.flush()
    talk.peer.expect_and_confirm("SEND")
    receipt.wait()


def test_it_dies_with_its_link(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    buffer.add("SEND", {"destination": "/q"}, b"x")
    talk.peer.hang_up()
    until(lambda: not talk.conn.connected)
    with pytest.raises(ConnectionLost):
        buffer.add("SEND", {"destination": "/q"}, b"y")
    with pytest.raises(ConnectionLost):
        buffer.flush()


def test_nothing_follows_a_disconnect(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    buffer.add("SEND", {"destination": "/q"}, b"x")
    leaving = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    with pytest.raises(NotConnected):
        buffer.flush()
    talk.peer.receipt(frame)
    leaving.result()
    assert talk.peer.rest() == []


def test_what_did_not_leave_in_time_may_still_leave_later(talking: Talking, calling: Calling) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._core.link)
    receipt = buffer.add("SEND", {"destination": "/q"}, b"x", receipt=True)
    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    blocking.until_blocked()
    with pytest.raises(ConnectionLost):
        buffer.flush(timeout=0.01)
    assert not buffer.flushed
    talk.peer.expect("SEND")
    blocking.result()
    buffer.flush()
    assert talk.peer.expect_and_confirm("SEND").body == b"x"
    assert receipt is not None
    receipt.wait()
