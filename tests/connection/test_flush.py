"""`flush`: no error of a frame that was sent before it is missed, whatever became of its session."""

from __future__ import annotations

import pytest

import stompy
from stompy.broker import Broker
from tests.connection.conftest import QUICK, Sessions, Talking
from tests.support.peer import until
from tests.support.seed import SEED_SETTING, chance
from tests.transport.conftest import Calling


def refused(conn: stompy.Connection, sessions: Sessions, calling: Calling) -> None:
    """Have a frame refused, and wait for the next session."""
    before = conn.stats().reconnects
    conn.send_async("/queue/a", "x")
    peer = sessions.latest
    frame = peer.expect("SEND")
    peer.error("no such queue", headers={"receipt-id": frame.headers["receipt"]})
    peer.close()
    sessions.next()
    until(lambda: conn.connected and conn.stats().reconnects > before)


def test_it_raises_what_the_broker_refused_although_there_is_a_new_session(
    sessions: Sessions, calling: Calling
) -> None:
    conn, _ = sessions.connect()
    for _ in range(10):
        refused(conn, sessions, calling)
        with pytest.raises(stompy.BrokerError, match="no such queue"):
            conn.flush()
        conn.flush()  # once for each


def test_what_wait_has_raised_is_not_raised_again(sessions: Sessions, calling: Calling) -> None:
    conn, peer = sessions.connect()
    receipts = [conn.send_async("/queue/a", "x") for _ in range(2)]
    peer.close()
    sessions.next()
    until(lambda: all(receipt.done() for receipt in receipts))
    for receipt in receipts:
        with pytest.raises(stompy.ConnectionLostError):
            receipt.result()
    conn.flush()
    confirming = calling(lambda: conn.send("/queue/a", "x", confirm=True))
    frame = sessions.latest.expect("SEND")
    sessions.latest.error("no", headers={"receipt-id": frame.headers["receipt"]})
    sessions.latest.close()
    with pytest.raises(stompy.BrokerError):
        confirming.result()
    sessions.next()
    until(lambda: conn.connected)
    conn.flush()


def test_one_wait_of_several_does_not_hide_the_others(sessions: Sessions) -> None:
    conn, peer = sessions.connect()
    receipts = [conn.send_async("/queue/a", "x") for _ in range(2)]
    peer.close()
    sessions.next()
    with pytest.raises(stompy.ConnectionLostError):
        receipts[0].result()
    with pytest.raises(stompy.ConnectionLostError) as lost:
        conn.flush()
    assert lost.value.outcome == "unknown"


def test_each_threads_flush_raises_for_its_own_frames(sessions: Sessions, calling: Calling) -> None:
    conn, _ = sessions.connect()

    def other() -> None:
        with pytest.raises(stompy.BrokerError):
            conn.flush()
        conn.flush()

    refused(conn, sessions, calling)
    calling(other).result()
    with pytest.raises(stompy.BrokerError):
        conn.flush()
    conn.flush()


def test_the_flush_of_one_thread_raises_for_frames_of_others(sessions: Sessions, calling: Calling) -> None:
    conn, _ = sessions.connect()
    calling(lambda: refused(conn, sessions, calling)).result()
    with pytest.raises(stompy.BrokerError):
        conn.flush()
    conn.flush()


def test_without_another_session_the_broker_s_reason_comes_first(talking: Talking) -> None:
    talk = talking()
    talk.conn.send_async("/queue/a", "x")
    frame = talk.peer.expect("SEND")
    talk.peer.error("no such queue", headers={"receipt-id": frame.headers["receipt"]})
    until(lambda: not talk.conn.connected)
    with pytest.raises(stompy.BrokerError, match="no such queue") as caught:
        talk.conn.flush()
    assert caught.value.outcome == "rejected"


def test_frames_of_a_lost_session_are_not_said_to_be_unsent(talking: Talking) -> None:
    """By no call: the reason of the end of a session is that of another thread's frame."""
    talk = talking()
    talk.conn.send_async("/queue/a", "x")
    talk.peer.expect("SEND")
    talk.peer.close()
    until(lambda: not talk.conn.connected)
    for _ in range(2):
        with pytest.raises(stompy.ConnectionLostError) as caught:
            talk.conn.flush()
        assert caught.value.outcome == "unknown"


def test_it_raises_for_acknowledgements_too(sessions: Sessions, calling: Calling) -> None:
    conn, peer = sessions.connect()
    subscribing = calling(lambda: conn.subscribe("/queue/a", ack="client-individual", id="1"))
    peer.expect_and_confirm("SUBSCRIBE")
    peer.deliver("x", ack="a")
    subscribing.result().receive().ack_async()
    frame = peer.expect("ACK")
    peer.error("no", headers={"receipt-id": frame.headers["receipt"]})
    peer.close()
    sessions.next().expect_and_confirm("SUBSCRIBE")
    with pytest.raises(stompy.BrokerError):
        conn.flush()


def test_a_random_mix_of_calls_misses_no_error(sessions: Sessions, calling: Calling) -> None:
    """Of the frames refused, each is raised by its `wait` or by the flush that comes next."""
    print(SEED_SETTING)
    draw = chance("flush")
    conn, _ = sessions.connect()
    for _ in range(20):
        expected = 0
        for _ in range(draw.randrange(4)):
            receipt = conn.send_async("/queue/a", "x")
            assert receipt is not None
            frame, confirmed = sessions.latest.expect("SEND"), draw.random() < 0.5
            if confirmed:
                sessions.latest.receipt(frame)
                receipt.result()
                continue
            before = conn.stats().reconnects
            sessions.latest.error("no", headers={"receipt-id": frame.headers["receipt"]})
            sessions.latest.close()
            sessions.next()
            until(lambda before=before: conn.connected and conn.stats().reconnects > before)  # type: ignore[misc]
            if draw.random() < 0.5:
                with pytest.raises(stompy.BrokerError):
                    receipt.result()
            else:
                expected += 1
        if expected:
            with pytest.raises(stompy.BrokerError):
                conn.flush()
        conn.flush()


def test_the_embedded_broker_s_refusal_is_raised_ten_times_of_ten() -> None:
    with Broker(like="rabbitmq") as broker, stompy.connect(broker.url, reconnect=QUICK) as conn:
        for _ in range(10):
            conn.send_async("/nonsense/out", "x")
            with pytest.raises(stompy.BrokerError):
                conn.flush()
