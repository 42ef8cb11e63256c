"""Batches: sends of one thread that share writes, and the frames that wait for one; see also test_transaction.py."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import stompy
from stompy.broker import Broker
from stompy.connection.resend_buffer import FrameBuffer
from stompy.errors import ConnectionLostError, LimitExceededError, NotConnectedError
from stompy.link.receipts import Receipt, receipt_line
from tests.connection.conftest import Serving, Talking
from tests.support.peer import until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

FRAME = b"SEND\ndestination:/q\n\nx\0"


def add_asking(buffer: FrameBuffer) -> Receipt:
    receipt = buffer.link.receipts.make()
    buffer.add(b"SEND\ndestination:/q\n%b\nx\0" % receipt_line(receipt), receipt)
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
    talk = talking(limits=stompy.Limits(max_receipts=1))
    buffer = FrameBuffer(talk.conn._links.link)
    add_asking(buffer)
    with pytest.raises(LimitExceededError):
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
    receipt.result()


def test_it_dies_with_its_link(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    buffer.add(FRAME)
    talk.peer.hang_up()
    until(lambda: not talk.conn.connected)
    with pytest.raises(ConnectionLostError):
        buffer.add(FRAME)
    with pytest.raises(ConnectionLostError):
        buffer.flush()


def test_nothing_follows_a_disconnect(talking: Talking) -> None:
    talk = talking()
    buffer = FrameBuffer(talk.conn._links.link)
    buffer.add(FRAME)
    leaving = talk.leave()
    frame = talk.peer.expect("DISCONNECT")
    with pytest.raises(NotConnectedError):
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
    with pytest.raises(ConnectionLostError):
        buffer.flush(timeout=0.01)
    assert not buffer.flushed
    talk.peer.expect("SEND")
    blocking.result()
    buffer.flush()
    assert talk.peer.expect_and_confirm("SEND").body == b"x"
    receipt.result()


@pytest.mark.parametrize("act", ["flush", "wait", "confirm", "request"])
def test_frames_that_stay_in_the_batch_are_not_said_to_be_unsent(talking: Talking, calling: Calling, act: str) -> None:
    """They are written at the end of the block: a caller that sends them again would send them twice."""
    talk = talking(timeouts=stompy.Timeouts(send=20))
    if act == "request":
        first = calling(lambda: talk.conn.request("/queue/a", "first"))  # subscribes to the replies
        talk.peer.expect_and_confirm("SUBSCRIBE")
        request = talk.peer.expect("SEND")
        reply = {"correlation-id": request.headers["correlation-id"]}
        talk.peer.deliver("y", subscription=request.headers["reply-to"], headers=reply)
        first.result()
    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    with talk.conn.batch():
        receipt = talk.conn.send_async("/queue/a", "kept")
        assert receipt is not None
        blocking.until_blocked()
        acts: dict[str, Callable[[], object]] = {
            "flush": lambda: talk.conn.flush(timeout=0.01),
            "wait": lambda: receipt.result(0.01),
            "confirm": lambda: talk.conn.send("/queue/a", "kept too", confirm=True, timeout=0.01),
            "request": lambda: talk.conn.request("/queue/a", "kept too", timeout=0.01),
        }
        with pytest.raises(stompy.SendTimeoutError) as caught:
            acts[act]()
        assert caught.value.outcome == "unknown"
        assert talk.peer.expect("SEND").body[:1] == b"x"
        blocking.result()
    bodies = [talk.peer.expect("SEND").body for _ in range(2 if act in ("confirm", "request") else 1)]
    assert bodies == [b"kept", b"kept too"][: len(bodies)]


def test_a_batch_of_which_a_part_was_written_does_not_say_that_nothing_was(talking: Talking) -> None:
    talk = talking()

    def block() -> None:
        with talk.conn.batch():
            talk.conn.send("/queue/a", b"x" * 70_000)
            assert len(talk.peer.expect("SEND").body) == 70_000
            talk.conn.send("/queue/a", "not written")
            talk.peer.close()
            until(lambda: not talk.conn.connected)

    with pytest.raises(stompy.ConnectionLostError) as caught:
        block()
    assert caught.value.outcome == "unknown"


def test_a_send_that_a_full_batch_could_not_take_in_time_is_not_in_it(talking: Talking, calling: Calling) -> None:
    talk = talking(timeouts=stompy.Timeouts(send=0.2))
    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    with talk.conn.batch():
        talk.conn.send("/queue/a", "first")
        blocking.until_blocked()
        with pytest.raises(stompy.SendTimeoutError) as caught:
            talk.conn.send_async("/queue/a", "y" * 70_000)
        assert caught.value.outcome == "not-sent"
        assert talk.conn.stats().receipts_pending == 0
        talk.peer.expect("SEND")
        blocking.result()
    talk.conn.send("/queue/a", "last")
    assert [talk.peer.expect("SEND").body for _ in range(2)] == [b"first", b"last"]


def test_a_send_that_is_kept_stays_in_a_batch_that_could_not_leave_in_time(talking: Talking, calling: Calling) -> None:
    talk = talking(timeouts=stompy.Timeouts(send=0.2), reconnect=stompy.Reconnect(resend_unconfirmed=True))
    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    with talk.conn.batch():
        talk.conn.send("/queue/a", "first")
        blocking.until_blocked()
        receipt = talk.conn.send_async("/queue/a", "y" * 70_000)
        talk.peer.expect("SEND")
        blocking.result()
    assert talk.peer.expect("SEND").body == b"first"
    assert talk.peer.expect_and_confirm("SEND").body == b"y" * 70_000
    receipt.result()


def test_sends_of_a_batch_leave_together_at_its_end_and_in_order(talking: Talking) -> None:
    talk = talking()
    with talk.conn.batch():
        for number in range(20):
            talk.conn.send("/queue/a", str(number))
        assert talk.peer.quiet()
    assert [talk.peer.expect("SEND").body for _ in range(20)] == [b"%d" % number for number in range(20)]
    assert talk.conn.stats().frames_sent == 20
    talk.conn.send("/queue/a", "at once")
    assert talk.peer.expect("SEND").body == b"at once"


def test_a_batch_that_grows_leaves_in_parts(talking: Talking) -> None:
    talk = talking()
    with talk.conn.batch():
        talk.conn.send("/queue/a", b"x" * 70_000)
        assert len(talk.peer.expect("SEND").body) == 70_000


def test_what_was_accepted_leaves_also_when_the_block_raises(talking: Talking) -> None:
    talk = talking()
    with pytest.raises(ZeroDivisionError), talk.conn.batch():  # noqa: PT012
        talk.conn.send("/queue/a", "accepted")
        _ = 1 / 0
    assert talk.peer.expect("SEND").body == b"accepted"


def test_other_threads_are_not_affected(talking: Talking, calling: Calling) -> None:
    talk = talking()
    with talk.conn.batch():
        talk.conn.send("/queue/a", "held")
        calling(lambda: talk.conn.send("/queue/a", "at once")).result()
        assert talk.peer.expect("SEND").body == b"at once"
    assert talk.peer.expect("SEND").body == b"held"


def test_receipts_of_a_batch_are_resolved(serving: Serving) -> None:
    conn, _ = serving()
    with conn.batch():
        receipts = [conn.send_async("/queue/a", "x") for _ in range(10)]
        assert conn.stats().receipts_pending == 10
    conn.flush()
    assert all(outcome_of(receipt) == "confirmed" for receipt in receipts)


def test_confirm_and_flush_inside_a_batch_do_not_wait_for_its_end(serving: Serving) -> None:
    conn, _ = serving()
    with conn.batch():
        receipt = conn.send_async("/queue/a", "x")
        conn.send("/queue/a", "y", confirm=True)
        assert receipt.done()
        other = conn.send_async("/queue/a", "z")
        conn.flush()
        assert other.done()


def test_a_batch_in_a_batch_is_refused_and_the_outer_one_lives_on(talking: Talking) -> None:
    talk = talking()
    with talk.conn.batch():
        talk.conn.send("/queue/a", "x")
        with pytest.raises(stompy.ConcurrencyError, match="open batch"), talk.conn.batch():
            pass
        talk.conn.send("/queue/a", "y")
        assert talk.peer.quiet()
    assert [talk.peer.expect("SEND").body for _ in range(2)] == [b"x", b"y"]


def test_each_thread_and_each_connection_has_a_batch_of_its_own(talking: Talking, calling: Calling) -> None:
    one, two = talking(), talking()
    opened = threading.Barrier(2)

    def batch() -> None:
        with one.conn.batch():
            one.conn.send("/queue/a", "x")
            opened.wait(20)

    calls = [calling(batch), calling(batch)]
    with two.conn.batch():
        two.conn.send("/queue/a", "y")
    for call in calls:
        call.result()
    assert [one.peer.expect("SEND").body for _ in range(2)] == [b"x", b"x"]
    assert two.peer.expect("SEND").body == b"y"


def test_a_frame_that_cannot_be_written_leaves_the_rest_whole(talking: Talking) -> None:
    talk = talking("1.0")
    with talk.conn.batch():
        talk.conn.send("/queue/a", "good")
        with pytest.raises(stompy.LocalProtocolError):
            talk.conn.send_async("/queue/a", "bad", headers={"a": "b\nc"})
    assert talk.peer.expect("SEND").body == b"good"
    assert talk.conn.stats().receipts_pending == 0


def test_a_batch_whose_link_died_says_so_and_the_thread_may_open_another(talking: Talking) -> None:
    talk, other = talking(), talking()

    def batch() -> None:
        with talk.conn.batch():
            talk.conn.send("/queue/a", "x")
            talk.peer.close()
            until(lambda: not talk.conn.connected)

    with pytest.raises(stompy.ConnectionLostError) as caught:
        batch()
    assert caught.value.outcome == "not-sent"
    with other.conn.batch():
        other.conn.send("/queue/a", "y")
    assert other.peer.expect("SEND").body == b"y"


@pytest.mark.requirement("RCP-04")
def test_one_receipt_tells_that_all_earlier_frames_were_received() -> None:
    with Broker() as broker, stompy.connect(broker.url) as conn:
        with conn.batch():
            for body in ("1", "2", "3"):
                conn.send("/queue/a", body)
            receipt = conn.send_async("/queue/a", "4")
        assert receipt is not None
        receipt.result(10)
        assert broker.depth("/queue/a") == 4


def test_waiting_inside_a_batch_writes_it_out_first(serving: Serving) -> None:
    conn, served = serving()
    with conn.batch():
        conn.send("/queue/a", "x")
        receipt = conn.send_async("/queue/a", "y")
        assert receipt is not None
        receipt.result(20)
        assert served.commands() == ["SEND", "SEND"]


def test_another_thread_that_waits_does_not_write_it_out(talking: Talking, calling: Calling) -> None:
    talk = talking()
    with talk.conn.batch():
        receipt = talk.conn.send_async("/queue/a", "x")
        assert receipt is not None
        waiting = calling(lambda: receipt.result(20))
        waiting.until_blocked()
        assert talk.peer.quiet()
    talk.peer.expect_and_confirm("SEND")
    waiting.result()


def test_a_batch_that_cannot_leave_in_time_ends_its_receipts(talking: Talking, calling: Calling) -> None:
    talk = talking(timeouts=stompy.Timeouts(send=0.2))
    receipts: list[stompy.Receipt] = []

    def batch() -> None:
        with talk.conn.batch():
            receipts.append(talk.conn.send_async("/queue/a", "x"))
            blocking.until_blocked()

    blocking = calling(lambda: talk.conn.send("/queue/a", b"x" * 50_000_000, timeout=20))
    with pytest.raises(stompy.SendTimeoutError) as caught:
        batch()
    assert caught.value.outcome == "not-sent"
    (receipt,) = receipts
    assert outcome_of(receipt) == "not-sent"
    assert talk.conn.stats().receipts_pending == 0
    talk.peer.expect("SEND")
    blocking.result()
    talk.conn.send("/queue/a", "y")
    assert talk.peer.expect("SEND").body == b"y"
