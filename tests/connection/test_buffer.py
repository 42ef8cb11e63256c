"""Frames that wait to leave together; their use is in test_batch.py and test_transaction.py."""

from __future__ import annotations

import pytest

from stompy.connection.buffer import FrameBuffer
from stompy.errors import ConnectionLost, LimitExceeded, NotConnected
from stompy.link.receipts import Receipt
from tests.connection.conftest import Talking
from tests.support.peer import until
from tests.transport.conftest import Calling

FRAME = b"SEND\ndestination:/q\n\nx\0"


def add_asking(buffer: FrameBuffer) -> Receipt:
    receipt = buffer.link.receipts.make()
    buffer.add(b"SEND\ndestination:/q\n%b\nx\0" % receipt.line, receipt)
    return receipt


def test_nothing_leaves_before_the_flush_and_nothing_twice(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    buffer.flush()
    assert not buffer.flushed
    buffer.add(FRAME)
    assert talk.peer.quiet()
    buffer.flush()
    buffer.flush()
    assert talk.peer.expect("SEND").body == b"x"
    assert talk.peer.quiet()
    assert buffer.flushed


def test_a_full_buffer_flushes_itself(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    for _ in range(7):
        buffer.add(b"SEND\ndestination:/q\n\n%b\0" % (b"x" * 10_000))
    assert buffer.flushed
    assert len(talk.peer.expect("SEND").body) == 10_000


def test_a_frame_whose_receipt_has_no_room_is_not_in_it(talking: Talking) -> None:
    talk = talking(max_receipts=1)
    buffer = FrameBuffer(talk.conn._links.link)
    add_asking(buffer)
    with pytest.raises(LimitExceeded):
        add_asking(buffer)
    buffer.flush()
    talk.peer.expect_and_confirm("SEND")
    assert talk.peer.quiet()
    until(lambda: talk.conn.stats().receipts_pending == 0)


def test_a_receipt_is_registered_when_its_frame_is_added(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    receipt = add_asking(buffer)
    buffer.flush()
    talk.peer.expect_and_confirm("SEND")
    receipt.wait()


def test_it_dies_with_its_link(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    buffer.add(FRAME)
    talk.peer.hang_up()
    until(lambda: not talk.conn.connected)
    with pytest.raises(ConnectionLost):
        buffer.add(FRAME)
    with pytest.raises(ConnectionLost):
        buffer.flush()


def test_nothing_follows_a_disconnect(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    buffer.add(FRAME)
    leaving = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    with pytest.raises(NotConnected):
        buffer.flush()
    talk.peer.receipt(frame)
    leaving.result()
    assert talk.peer.rest() == []


def test_what_did_not_leave_in_time_may_still_leave_later(talking: Talking, calling: Calling) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    receipt = add_asking(buffer)
    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    blocking.until_blocked()
    with pytest.raises(ConnectionLost):
        buffer.flush(timeout=0.01)
    assert not buffer.flushed
    talk.peer.expect("SEND")
    blocking.result()
    buffer.flush()
    assert talk.peer.expect_and_confirm("SEND").body == b"x"
    receipt.wait()
