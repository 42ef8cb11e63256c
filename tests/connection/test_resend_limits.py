"""What is kept to be sent again is bounded; batches, and the end of the connection."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial

import pytest

import stompy
from stompy.broker import Broker
from stompy.testing.proxy import FaultProxy
from tests.connection.conftest import QUICK, Recorder, Sessions
from tests.connection.test_resend_buffer import DEDUPE, connected, expect_sends, sent
from tests.support.peer import WITHIN, until
from tests.support.receipts import outcome_of
from tests.support.seed import SEED_SETTING
from tests.support.seed import chance as chance_of
from tests.transport.conftest import Call, Calling


def await_reconnect(conn: stompy.Connection, calls: list[Call]) -> None:
    """Wait for the next link, or until all calls are over."""
    before = conn.stats().reconnects
    until(lambda: conn.stats().reconnects > before or not any(call.is_alive() for call in calls))


# The bounds.


def test_at_the_bound_of_messages_a_send_waits_until_one_is_confirmed(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, resend_unconfirmed=stompy.ResendLimits(max_messages=2))
    sent(conn, "1", "2")
    frames = expect_sends(first, "1", "2")
    third = calling(lambda: sent(conn, "3"))
    third.until_blocked()
    assert first.quiet()
    conn.send("/queue/a", "without receipt")
    expect_sends(first, "without receipt")
    first.receipt(frames[1])
    third.result()
    expect_sends(first, "3")


@pytest.mark.parametrize(
    ("bounds", "name"),
    [(stompy.ResendLimits(max_messages=2), "max_messages=2"), (stompy.ResendLimits(max_bytes=3000), "max_bytes=3000")],
)
def test_at_a_bound_a_send_gives_up_after_its_time_and_names_the_bound(
    sessions: Sessions, bounds: stompy.ResendLimits, name: str
) -> None:
    conn, first = connected(sessions, resend_unconfirmed=bounds)
    bodies = ["x" * 1200, "y" * 1200]
    sent(conn, *bodies)
    frames = expect_sends(first, *bodies)
    with pytest.raises(stompy.UnconfirmedFullError, match=name) as full:
        sent(conn, "z" * 1200, timeout=0.05)
    assert f"{full.value.limit_name}={full.value.limit}" == name
    assert first.quiet()
    first.receipt(frames[0])
    sent(conn, bodies[0])
    expect_sends(first, bodies[0])


def test_a_message_above_the_bound_is_refused_at_once(sessions: Sessions) -> None:
    conn, first = connected(sessions, resend_unconfirmed=stompy.ResendLimits(max_bytes=1000))
    with pytest.raises(stompy.LocalProtocolError, match="max_bytes=1000"):
        sent(conn, "x" * 1001)
    assert first.quiet()


def test_a_send_at_the_bound_in_a_listener_gets_room_though_the_inbox_is_full(
    sessions: Sessions, calling: Calling
) -> None:
    conn, first = connected(
        sessions, resend_unconfirmed=stompy.ResendLimits(max_messages=1), limits=stompy.Limits(max_inbox_messages=2)
    )
    done = threading.Event()

    def forward(message: stompy.Message) -> None:
        if message.text == "go":
            sent(conn, "1", "2", timeout=WITHIN)
            done.set()

    subscribing = calling(lambda: conn.subscribe("/queue/b", forward))
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    first.deliver("go", subscription=frame.headers["id"])
    (one,) = expect_sends(first, "1")
    for number in range(10):
        first.deliver(str(number), subscription=frame.headers["id"])
    first.receipt(one)
    expect_sends(first, "2")
    assert done.wait(WITHIN)


def test_at_the_bound_the_batch_of_the_thread_leaves_first(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, resend_unconfirmed=stompy.ResendLimits(max_messages=2))

    def batch() -> None:
        with conn.batch():
            sent(conn, "1", "2", "3")

    batching = calling(batch)
    for frame in expect_sends(first, "1", "2"):
        first.receipt(frame)
    batching.result()
    expect_sends(first, "3")


def test_what_is_refused_takes_no_room(sessions: Sessions) -> None:
    conn, first = connected(sessions, "1.0", resend_unconfirmed=stompy.ResendLimits(max_messages=1))
    for _ in range(3):
        with pytest.raises(stompy.LocalProtocolError):
            sent(conn, "x", headers={"a": "b\nc"})
    sent(conn, "good")
    expect_sends(first, "good")


# Batches.


def test_receipted_sends_of_a_batch_go_to_the_next_link_whether_or_not_they_had_left(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    with conn.batch():
        receipts = sent(conn, "1", "2")
        conn._sender.flush_batch()
        expect_sends(first, "1", "2")
        receipts += sent(conn, "3")
        first.close()
        until(lambda: not conn.connected)
        second = sessions.next()
        frames = expect_sends(second, "1", "2", "3")
        receipts += sent(conn, "4")  # the batch has moved to the new link
        assert second.quiet()
    frames += expect_sends(second, "4")
    for frame in frames:
        second.receipt(frame)
    for receipt in receipts:
        receipt.result(WITHIN)


def test_a_batch_with_plain_sends_says_that_they_are_lost_and_the_receipted_go_on(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts: list[stompy.Receipt] = []

    def batch() -> None:
        with conn.batch():
            conn.send("/queue/a", "plain")
            receipts.extend(sent(conn, "kept"))
            first.close()
            until(lambda: not conn.connected)

    with pytest.raises(stompy.ConnectionLostError) as lost:
        batch()
    assert lost.value.outcome == "unknown"  # of the whole block, a part of which is sent again
    second = sessions.next()
    (frame,) = expect_sends(second, "kept")
    second.receipt(frame)
    receipts[0].result(WITHIN)


def test_a_full_batch_whose_plain_sends_are_lost_says_so_once_and_takes_no_more(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    with conn.batch():
        conn.send("/queue/a", "plain")
        first.close()
        until(lambda: not conn.connected)
        with pytest.raises(stompy.ConnectionLostError):
            conn._sender.flush_batch()
        sessions.next()
        with pytest.raises(stompy.ConnectionLostError) as lost:
            sent(conn, "kept")
        assert lost.value.outcome == "not-sent"


def test_a_receipted_send_does_not_hide_that_the_batchs_plain_sends_are_lost(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    with conn.batch():
        conn.send("/queue/a", "plain")
        first.close()
        until(lambda: not conn.connected)
        sessions.next()
        with pytest.raises(stompy.ConnectionLostError):
            sent(conn, "kept")
        with pytest.raises(stompy.ConnectionLostError):
            conn.flush()
    assert conn.stats().receipts_pending == 0


# The end.


def test_close_ends_them_as_unknown(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    conn.close(timeout=0.1)
    with pytest.raises(stompy.ConnectionLostError, match="closed before the broker confirmed"):
        receipt.result(WITHIN)
    assert outcome_of(receipt) == "unknown"


def test_close_during_the_outage_ends_them_as_unknown_and_frees_who_waits(sessions: Sessions, calling: Calling) -> None:
    policy = stompy.Reconnect(backoff=stompy.Backoff(first=1000.0, longest=1000.0))
    heard = Recorder()
    conn, first = connected(
        sessions,
        reconnect=policy,
        resend_unconfirmed=stompy.ResendLimits(max_messages=1),
        listeners=[heard],
        timeouts=stompy.Timeouts(connect=1.0),
    )
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    full = calling(lambda: sent(conn, "2"))
    full.until_blocked()
    waiting = calling(lambda: receipt.result(WITHIN))
    waiting.until_blocked()
    sessions.shut()
    first.close()
    until(lambda: not conn.connected)
    conn.close()
    for call in (waiting, full):
        with pytest.raises((stompy.ConnectionLostError, stompy.NotConnectedError)):
            call.result()
    assert outcome_of(receipt) == "unknown"


def test_where_the_policy_gives_up_they_end_as_unknown_with_the_reason(sessions: Sessions) -> None:
    policy = stompy.Reconnect(attempts=1, backoff=stompy.Backoff(first=0.001, longest=0.001))
    conn, first = connected(sessions, reconnect=policy)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    sessions.shut()
    first.close()
    with pytest.raises(stompy.ConnectionLostError, match="for good") as lost:
        receipt.result(WITHIN)
    assert lost.value.outcome == "unknown"
    assert outcome_of(receipt) == "unknown"


# Against a broker.


def test_many_threads_over_many_cuts_lose_nothing_and_keep_each_threads_order(calling: Calling) -> None:
    chance = chance_of("cuts")
    each, threads = 60, 4

    def produce(conn: stompy.Connection, queue: str) -> list[stompy.Receipt]:
        receipts = []
        for start in range(0, each, 10):
            with conn.batch() if start % 20 else contextlib.nullcontext():
                for number in range(start, start + 10):
                    receipts.append(conn.send_async(queue, str(number), timeout=WITHIN))
        return receipts

    with Broker() as broker, FaultProxy(broker.url) as proxy, stompy.connect(broker.url) as direct:
        queues = [f"/queue/{number}" for number in range(threads)]
        bounds = stompy.ResendLimits(max_messages=15)
        with stompy.connect(proxy.url, reconnect=replace(QUICK, resend_unconfirmed=bounds)) as conn:
            proxy.running[0].cut_after(chance.randrange(2000), direction="up")
            producers: list[Call] = []
            for number in range(10):
                # Enough to get through the handshake and what is sent again, so that there is an end to it.
                proxy.upcoming.cut_after(chance.randrange(4000, 8000), direction="up")
                proxy.upcoming.cut_after(chance.randrange(300, 3000), direction="down")
                if number == 0:
                    producers = [calling(partial(produce, conn, queue)) for queue in queues]
                await_reconnect(conn, producers)
            proxy.upcoming.heal()
            proxy.cut("rst")
            for producer in producers:
                for receipt in producer.result():
                    receipt.result(WITHIN)
            assert conn.stats().reconnects > 3
        for queue in queues:
            subscription = direct.subscribe(queue)
            arrived: dict[str, set[str]] = {}
            while len(arrived) < each or subscription.queued:
                message = subscription.receive(timeout=WITHIN)
                arrived.setdefault(message.text, set()).add(message.headers[DEDUPE])
            assert list(arrived) == [str(number) for number in range(each)], SEED_SETTING
            assert all(len(ids) == 1 for ids in arrived.values()), SEED_SETTING
