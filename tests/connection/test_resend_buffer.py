"""Sends that the broker did not confirm before their link died."""

from __future__ import annotations

import contextlib
import threading
from functools import partial
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.testing.proxy import FaultProxy
from tests.connection.conftest import QUICK, Recorder, Sessions
from tests.support.peer import WITHIN, Peer, until
from tests.support.seed import TOLD
from tests.support.seed import chance as chance_of
from tests.transport.conftest import Call, Calling

DEDUPE = "stompy-dedupe-id"


def connected(sessions: Sessions, *arguments: Any, **options: Any) -> tuple[stompy.Connection, Peer]:
    """Return a connection that sends again, and its first session."""
    options.setdefault("resend_unconfirmed", True)
    return sessions.connect(*arguments, **options)


def sent(conn: stompy.Connection, *bodies: str, **options: Any) -> list[stompy.Receipt]:
    """Send with receipts, and return them."""
    receipts = [conn.send("/queue/a", body, receipt=True, **options) for body in bodies]
    return [receipt for receipt in receipts if receipt is not None]


def await_reconnect(conn: stompy.Connection, calls: list[Call]) -> None:
    """Wait for the next link, or until all calls are over."""
    before = conn.stats().reconnects
    until(lambda: conn.stats().reconnects > before or not any(call.is_alive() for call in calls))


def expect_sends(peer: Peer, *bodies: str) -> list[Frame]:
    """Expect SEND frames with these bodies, in this order."""
    frames = [peer.expect("SEND") for _ in bodies]
    assert [frame.body.decode() for frame in frames] == list(bodies)
    return frames


# Sent again.


def test_what_was_not_confirmed_is_sent_again_in_order_and_its_receipts_are_resolved(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2", "3")
    before = expect_sends(first, "1", "2", "3")
    first.close()
    second = sessions.next()
    after = expect_sends(second, "1", "2", "3")
    assert [receipt.outcome for receipt in receipts] == ["pending"] * 3
    for frame in after:
        second.receipt(frame)
    for receipt in receipts:
        receipt.wait(WITHIN)
    assert [frame.headers[DEDUPE] for frame in before] == [frame.headers[DEDUPE] for frame in after]
    assert len({frame.headers[DEDUPE] for frame in after}) == 3


def test_what_was_confirmed_is_not_sent_again(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2", "3")
    frames = expect_sends(first, "1", "2", "3")
    first.receipt(frames[1])
    receipts[1].wait(WITHIN)
    assert conn._unconfirmed is not None
    assert conn._unconfirmed.receipts() == [receipts[0], receipts[2]]
    first.close()
    second = sessions.next()
    expect_sends(second, "1", "3")
    sent(conn, "new")
    expect_sends(second, "new")


def test_what_was_cut_in_the_middle_of_its_frame_is_sent_again_once(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    body = "x" * 50_000_000
    sending = calling(lambda: sent(conn, body))
    sending.until_blocked()
    first.close()
    second = sessions.next()
    (frame,) = expect_sends(second, body)
    (receipt,) = sending.result()
    second.receipt(frame)
    receipt.wait(WITHIN)
    conn.send("/queue/a", "new")
    expect_sends(second, "new")


def test_messages_that_come_meanwhile_do_not_stop_it(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, inbox=stompy.InboxLimits(max_messages=2))
    subscribing = calling(lambda: conn.subscribe("/queue/b"))
    first.expect_and_confirm("SUBSCRIBE")
    body = "x" * 10_000_000
    subscription = subscribing.result()
    receipts = sent(conn, "1")
    reading = calling(lambda: expect_sends(first, "1", body))
    receipts += sent(conn, body)
    reading.result()
    first.close()
    second = sessions.next()
    second.expect_and_confirm("SUBSCRIBE")
    # The broker does not read before all of this is read by the client.
    for _ in range(4):
        second.deliver(body, subscription=subscription.id)
    for frame in expect_sends(second, "1", body):
        second.receipt(frame)
    for receipt in receipts:
        receipt.wait(WITHIN)


def test_a_copy_that_dies_with_the_next_link_too_goes_to_the_one_after(sessions: Sessions) -> None:
    conn, peer = connected(sessions)
    (receipt,) = sent(conn, "1")
    ids = set()
    for _ in range(4):
        (frame,) = expect_sends(peer, "1")
        ids.add(frame.headers[DEDUPE])
        peer.close()
        peer = sessions.next()
    (frame,) = expect_sends(peer, "1")
    assert ids == {frame.headers[DEDUPE]}
    peer.receipt(frame)
    receipt.wait(WITHIN)


def test_a_link_lost_in_the_middle_of_it_changes_nothing_of_the_order(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    bodies = [f"{number:04}" * 2500 for number in range(40)]  # several writes
    receipts = sent(conn, *bodies)
    expect_sends(first, *bodies)
    first.close()
    second = sessions.next()
    second.receipt(expect_sends(second, bodies[0])[0])
    receipts[0].wait(WITHIN)
    second.close()  # a part of them may be on its way
    third = sessions.next()
    for frame in expect_sends(third, *bodies[1:]):
        third.receipt(frame)
    for receipt in receipts:
        receipt.wait(WITHIN)


def test_it_comes_behind_the_subscriptions_and_before_new_sends_of_other_threads(
    sessions: Sessions, calling: Calling
) -> None:
    conn, first = connected(sessions)
    subscribing = calling(lambda: conn.subscribe("/queue/b"))
    first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    sent(conn, "old")
    expect_sends(first, "old")
    first.close()
    until(lambda: not conn.connected)
    senders = [calling(lambda: conn.send("/queue/a", "new")), calling(lambda: sent(conn, "new"))]
    for sender in senders:
        sender.until_blocked()
    second = sessions.next()
    subscribe = second.expect("SUBSCRIBE")
    assert second.quiet()
    second.receipt(subscribe)
    expect_sends(second, "old", "new", "new")
    for sender in senders:
        sender.result()


def test_a_confirmed_send_returns_when_its_copy_is_confirmed(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    sending = calling(lambda: conn.send("/queue/a", "1", confirm=True))
    expect_sends(first, "1")
    sending.until_blocked()
    first.close()
    second = sessions.next()
    (frame,) = expect_sends(second, "1")
    sending.until_blocked()
    second.receipt(frame)
    receipt = sending.result()
    assert receipt.outcome == "confirmed"


def test_without_it_nothing_is_sent_again(sessions: Sessions) -> None:
    conn, first = connected(sessions, resend_unconfirmed=False)
    (receipt,) = sent(conn, "1")
    (frame,) = expect_sends(first, "1")
    assert DEDUPE not in frame.headers
    first.close()
    second = sessions.next()
    with pytest.raises(stompy.ConnectionLost):
        receipt.wait(WITHIN)
    sent(conn, "2")
    expect_sends(second, "2")


def test_sends_without_receipt_acks_and_transactions_are_not_sent_again(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    subscribing = calling(lambda: conn.subscribe("/queue/b", ack="client-individual"))
    subscription = subscribing
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    first.deliver("in", subscription=frame.headers["id"], ack="a-1")
    message = subscription.receive(WITHIN)
    conn.send("/queue/a", "plain")
    ack = message.ack(receipt=True)
    assert ack is not None
    assert DEDUPE not in first.expect("SEND").headers
    first.expect("ACK")
    with pytest.raises(stompy.ConnectionLost), conn.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send("/queue/a", "half")
        first.close()
        until(lambda: not conn.connected)
    with pytest.raises(stompy.ConnectionLost):
        ack.wait(WITHIN)
    second = sessions.next()
    second.expect_and_confirm("SUBSCRIBE")
    conn.send("/queue/a", "new")
    expect_sends(second, "new")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_it_works_in_every_version_also_where_the_next_broker_speaks_another(sessions: Sessions, version: str) -> None:
    conn, first = connected(sessions, version)
    (receipt,) = sent(conn, "1")
    (before,) = expect_sends(first, "1")
    first.close()
    second = sessions.next("1.0")
    (after,) = expect_sends(second, "1")
    assert before.headers[DEDUPE] == after.headers[DEDUPE]
    second.receipt(after)
    receipt.wait(WITHIN)


def test_a_copy_that_the_next_version_cannot_write_ends_as_unknown_and_holds_nobody_up(sessions: Sessions) -> None:
    conn, first = connected(sessions, "1.2")
    (bad,) = sent(conn, "bad", headers={"note": "two\nlines"})
    (good,) = sent(conn, "good")
    expect_sends(first, "bad", "good")
    first.close()
    second = sessions.next("1.0")
    (frame,) = expect_sends(second, "good")
    second.receipt(frame)
    good.wait(WITHIN)
    assert bad.outcome == "unknown"
    with pytest.raises(stompy.ConnectionLost, match="cannot be resent"):
        bad.wait()


# The id.


def test_artemis_gets_its_own_header_on_the_first_copy_already(sessions: Sessions) -> None:
    conn, first = connected(sessions, server="ActiveMQ-Artemis/2.40.0")
    sent(conn, "1")
    (frame,) = expect_sends(first, "1")
    assert frame.headers["_AMQ_DUPL_ID"] == frame.headers[DEDUPE]
    first.close()
    (again,) = expect_sends(sessions.next(server="other/1"), "1")
    assert again.headers[DEDUPE] == frame.headers[DEDUPE]
    assert "_AMQ_DUPL_ID" not in again.headers


def test_an_id_of_the_programs_own_is_kept(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    sent(conn, "1", headers={DEDUPE: "order-5"})
    expect_sends(first, "1")
    first.close()
    (frame,) = expect_sends(sessions.next(), "1")
    assert frame.headers[DEDUPE] == "order-5"


def test_an_id_given_by_its_argument_is_the_id_of_every_copy(sessions: Sessions) -> None:
    conn, first = connected(sessions, dialect="artemis")
    sent(conn, "1", dedupe_id="order-5")
    expect_sends(first, "1")
    first.close()
    (frame,) = expect_sends(sessions.next(), "1")
    assert frame.headers[DEDUPE] == frame.headers["_AMQ_DUPL_ID"] == "order-5"


def test_ids_of_two_connections_differ(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    sent(conn, "1")
    (frame,) = expect_sends(first, "1")
    with contextlib.closing(Sessions(calling)) as others:
        other, peer = connected(others)
        sent(other, "1")
        (theirs,) = expect_sends(peer, "1")
    assert frame.headers[DEDUPE] != theirs.headers[DEDUPE]


# Receipts.


def test_callbacks_are_called_once_when_the_copy_is_confirmed(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    outcomes: list[str] = []
    receipt.add_done_callback(lambda done: outcomes.append(done.outcome))
    expect_sends(first, "1")
    first.close()
    second = sessions.next()
    (frame,) = expect_sends(second, "1")
    second.receipt(frame)
    until(lambda: outcomes)
    assert outcomes == ["confirmed"]


def test_flush_waits_for_what_is_sent_again(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    first.close()
    until(lambda: not conn.connected)
    flushing = calling(conn.flush)
    second = sessions.next()
    (frame,) = expect_sends(second, "1")
    flushing.until_blocked()
    second.receipt(frame)
    flushing.result()
    assert receipt.outcome == "confirmed"


def test_flush_waits_for_what_no_link_has_at_the_moment(
    sessions: Sessions, calling: Calling, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    lost = conn._links.link
    first.close()
    assert lost.ended.wait(WITHIN)
    monkeypatch.setattr(conn._links, "live", lambda timeout=None: lost)  # as if it had died just now
    flushing = calling(conn.flush)
    second = sessions.next()
    (frame,) = expect_sends(second, "1")
    flushing.until_blocked()
    second.receipt(frame)
    flushing.result()
    assert receipt.outcome == "confirmed"


def test_who_waits_for_a_receipt_keeps_the_next_links_gate_open(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, inbox=stompy.InboxLimits(max_messages=2))
    subscribing = calling(lambda: conn.subscribe("/queue/b"))
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    waiting = calling(lambda: receipt.wait(WITHIN))
    waiting.until_blocked()
    first.close()
    second = sessions.next()
    second.expect_and_confirm("SUBSCRIBE")
    (again,) = expect_sends(second, "1")
    for number in range(10):  # each in a write of its own, so that the gate could shut in between
        second.deliver(str(number), subscription=frame.headers["id"])
    second.receipt(again)
    waiting.result()


def test_a_rejected_send_is_rejected_once_and_not_sent_again(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2", "3")
    frames = expect_sends(first, "1", "2", "3")
    first.error("no", headers={"receipt-id": frames[1].headers["receipt"]})
    first.close()
    second = sessions.next()
    for frame in expect_sends(second, "1", "3"):
        second.receipt(frame)
    receipts[0].wait(WITHIN)
    receipts[2].wait(WITHIN)
    with pytest.raises(stompy.BrokerError):
        receipts[1].wait(WITHIN)
    assert receipts[1].outcome == "rejected"


def test_a_copy_that_is_rejected_is_rejected_and_the_connection_goes_on(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2")
    expect_sends(first, "1", "2")
    first.close()
    second = sessions.next()
    frames = expect_sends(second, "1", "2")
    second.error("no", headers={"receipt-id": frames[0].headers["receipt"]})
    second.close()
    third = sessions.next()
    for frame in expect_sends(third, "2"):
        third.receipt(frame)
    receipts[1].wait(WITHIN)
    assert receipts[0].outcome == "rejected"
    sent(conn, "new")
    expect_sends(third, "new")


def test_an_error_before_the_new_link_is_in_use_does_not_end_the_connection(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2")
    expect_sends(first, "1", "2")
    assert conn._unconfirmed is not None
    replay = conn._unconfirmed.replay

    def replay_and_wait_for_its_end(link: Link) -> None:
        replay(link)
        assert link.ended.wait(WITHIN)

    monkeypatch.setattr(conn._unconfirmed, "replay", replay_and_wait_for_its_end)
    first.close()
    second = sessions.next()
    frames = expect_sends(second, "1", "2")
    monkeypatch.setattr(conn._unconfirmed, "replay", replay)
    second.error("no", headers={"receipt-id": frames[0].headers["receipt"]})
    second.close()
    third = sessions.next()
    (frame,) = expect_sends(third, "2")
    third.receipt(frame)
    receipts[1].wait(WITHIN)
    assert receipts[0].outcome == "rejected"


def test_after_an_error_that_names_nobody_they_go_one_by_one_until_the_culprit_is_found(sessions: Sessions) -> None:
    conn, peer = connected(sessions)
    receipts = sent(conn, "good", "bad", "fine")
    expect_sends(peer, "good", "bad", "fine")
    peer.error("one of them is wrong")
    peer.close()
    for number in range(3):
        peer = sessions.next()
        if number == 0:
            (frame,) = expect_sends(peer, "good")
            assert peer.quiet()
            peer.receipt(frame)
        expect_sends(peer, "bad")
        assert peer.quiet()
        peer.error("I do not say which")
        peer.close()
    peer = sessions.next()
    (frame,) = expect_sends(peer, "fine")
    peer.receipt(frame)
    receipts[2].wait(WITHIN)
    assert [receipt.outcome for receipt in receipts] == ["confirmed", "rejected", "confirmed"]
    with pytest.raises(stompy.BrokerError, match="I do not say which"):
        receipts[1].wait()


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
    with pytest.raises(stompy.UnconfirmedFull, match=name) as full:
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
        sessions, resend_unconfirmed=stompy.ResendLimits(max_messages=1), inbox=stompy.InboxLimits(max_messages=2)
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
        receipt.wait(WITHIN)


def test_a_batch_with_plain_sends_says_that_they_are_lost_and_the_receipted_go_on(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts: list[stompy.Receipt] = []

    def batch() -> None:
        with conn.batch():
            conn.send("/queue/a", "plain")
            receipts.extend(sent(conn, "kept"))
            first.close()
            until(lambda: not conn.connected)

    with pytest.raises(stompy.ConnectionLost) as lost:
        batch()
    assert lost.value.outcome == "not-sent"
    second = sessions.next()
    (frame,) = expect_sends(second, "kept")
    second.receipt(frame)
    receipts[0].wait(WITHIN)


def test_a_full_batch_whose_plain_sends_are_lost_says_so_once_and_takes_no_more(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    with conn.batch():
        conn.send("/queue/a", "plain")
        first.close()
        until(lambda: not conn.connected)
        with pytest.raises(stompy.ConnectionLost):
            conn._sender.flush_batch()
        sessions.next()
        with pytest.raises(stompy.ConnectionLost) as lost:
            sent(conn, "kept")
        assert lost.value.outcome == "not-sent"


def test_a_receipted_send_does_not_hide_that_the_batchs_plain_sends_are_lost(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    with conn.batch():
        conn.send("/queue/a", "plain")
        first.close()
        until(lambda: not conn.connected)
        sessions.next()
        with pytest.raises(stompy.ConnectionLost):
            sent(conn, "kept")
        with pytest.raises(stompy.ConnectionLost):
            conn.flush()
    assert conn.stats().receipts_pending == 0


# The end.


def test_close_ends_them_as_unknown(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    conn.disconnect(timeout=0.1)
    assert receipt.outcome == "unknown"
    with pytest.raises(stompy.ConnectionLost, match="closed before the broker confirmed"):
        receipt.wait(0)


def test_close_during_the_outage_ends_them_as_unknown_and_frees_who_waits(sessions: Sessions, calling: Calling) -> None:
    policy = stompy.Reconnect(first_delay=1000.0, max_delay=1000.0)
    heard = Recorder()
    conn, first = connected(
        sessions,
        reconnect=policy,
        resend_unconfirmed=stompy.ResendLimits(max_messages=1),
        listeners=[heard],
        connect_timeout=1.0,
    )
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    full = calling(lambda: sent(conn, "2"))
    full.until_blocked()
    waiting = calling(lambda: receipt.wait(WITHIN))
    waiting.until_blocked()
    sessions.shut()
    first.close()
    until(lambda: not conn.connected)
    conn.disconnect()
    for call in (waiting, full):
        with pytest.raises((stompy.ConnectionLost, stompy.NotConnected)):
            call.result()
    assert receipt.outcome == "unknown"


def test_where_the_policy_gives_up_they_end_as_unknown_with_the_reason(sessions: Sessions) -> None:
    policy = stompy.Reconnect(attempts=1, first_delay=0.001, max_delay=0.001)
    conn, first = connected(sessions, reconnect=policy)
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    sessions.shut()
    first.close()
    with pytest.raises(stompy.ConnectionLost, match="for good") as lost:
        receipt.wait(WITHIN)
    assert lost.value.outcome == "unknown"
    assert receipt.outcome == "unknown"


def test_it_needs_a_policy() -> None:
    with pytest.raises(stompy.ConfigurationError, match="reconnect"):
        stompy.connect("stomp://127.0.0.1:1", resend_unconfirmed=True)
    with pytest.raises(stompy.ConfigurationError, match="reconnect"):
        stompy.connect("failover:(stomp://127.0.0.1:1)?maxReconnectAttempts=0", resend_unconfirmed=True)


# Against a broker.


def test_many_threads_over_many_cuts_lose_nothing_and_keep_each_threads_order(calling: Calling) -> None:
    chance = chance_of("cuts")
    each, threads = 60, 4

    def produce(conn: stompy.Connection, queue: str) -> list[stompy.Receipt]:
        receipts = []
        for start in range(0, each, 10):
            with conn.batch() if start % 20 else contextlib.nullcontext():
                for number in range(start, start + 10):
                    receipts.append(conn.send(queue, str(number), receipt=True, timeout=WITHIN))
        return receipts

    with Broker() as broker, FaultProxy(broker.url) as proxy, stompy.connect(broker.url) as direct:
        queues = [f"/queue/{number}" for number in range(threads)]
        bounds = stompy.ResendLimits(max_messages=15)
        with stompy.connect(proxy.url, reconnect=QUICK, resend_unconfirmed=bounds) as conn:
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
                    receipt.wait(WITHIN)
            assert conn.stats().reconnects > 3
        for queue in queues:
            subscription = direct.subscribe(queue)
            arrived: dict[str, set[str]] = {}
            while len(arrived) < each or subscription.queued:
                message = subscription.receive(WITHIN)
                arrived.setdefault(message.text, set()).add(message.headers[DEDUPE])
            assert list(arrived) == [str(number) for number in range(each)], TOLD
            assert all(len(ids) == 1 for ids in arrived.values()), TOLD
