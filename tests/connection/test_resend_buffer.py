"""Sends that the broker did not confirm before their link died."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import Any

import pytest

import stompy
from stompy.frames.frame import Frame
from tests.connection.conftest import QUICK, Sessions
from tests.support.peer import WITHIN, Peer, until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

DEDUPE = "stompy-dedupe-id"


def connected(sessions: Sessions, *arguments: Any, **options: Any) -> tuple[stompy.Connection, Peer]:
    """Return a connection that sends again, and its first session."""
    policy = replace(options.pop("reconnect", QUICK), resend_unconfirmed=options.pop("resend_unconfirmed", True))
    return sessions.connect(*arguments, reconnect=policy, **options)


def sent(conn: stompy.Connection, *bodies: str, **options: Any) -> list[stompy.Receipt]:
    """Send with receipts, and return them."""
    return [conn.send_async("/queue/a", body, **options) for body in bodies]


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
    assert [outcome_of(receipt) for receipt in receipts] == ["pending"] * 3
    for frame in after:
        second.receipt(frame)
    for receipt in receipts:
        receipt.result(WITHIN)
    assert [frame.headers[DEDUPE] for frame in before] == [frame.headers[DEDUPE] for frame in after]
    assert len({frame.headers[DEDUPE] for frame in after}) == 3


def test_a_session_is_counted_and_logged_before_it_can_confirm_what_is_sent_again(
    sessions: Sessions, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    def filter_record(record: logging.LogRecord) -> bool:
        if "connected again" in record.getMessage():
            found.extend([conn.stats().reconnects, sessions.latest.quiet()])
        return True

    monkeypatch.setattr(caplog.handler, "filters", [filter_record])
    conn, first = connected(sessions)
    sent(conn, "1")
    expect_sends(first, "1")
    first.close()
    second = sessions.next()
    until(lambda: len(found) == 2)
    expect_sends(second, "1")
    assert found == [1, True]


def test_what_was_confirmed_is_not_sent_again(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2", "3")
    frames = expect_sends(first, "1", "2", "3")
    first.receipt(frames[1])
    receipts[1].result(WITHIN)
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
    receipt.result(WITHIN)
    conn.send("/queue/a", "new")
    expect_sends(second, "new")


def test_messages_that_come_meanwhile_do_not_stop_it(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, limits=stompy.Limits(max_inbox_messages=2))
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
        receipt.result(WITHIN)


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
    receipt.result(WITHIN)


def test_where_links_end_before_a_receipt_the_first_is_sent_alone_then_twice_as_many(sessions: Sessions) -> None:
    """All of them at once would end each link as before, and the copies of the first would have no end."""
    conn, peer = connected(sessions)
    bodies = [str(number) for number in range(8)]
    receipts = sent(conn, *bodies)
    for _ in range(2):
        expect_sends(peer, *bodies)
        peer.close()
        peer = sessions.next()
    for group in (bodies[:1], bodies[1:3], bodies[3:7], bodies[7:]):
        frames = expect_sends(peer, *group)
        assert peer.quiet()
        for frame in frames:
            peer.receipt(frame)
    for receipt in receipts:
        receipt.result(WITHIN)


def test_a_link_lost_in_the_middle_of_it_changes_nothing_of_the_order(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    bodies = [f"{number:04}" * 2500 for number in range(40)]  # several writes
    receipts = sent(conn, *bodies)
    expect_sends(first, *bodies)
    first.close()
    second = sessions.next()
    second.receipt(expect_sends(second, bodies[0])[0])
    receipts[0].result(WITHIN)
    second.close()  # a part of them may be on its way
    third = sessions.next()
    for frame in expect_sends(third, *bodies[1:]):
        third.receipt(frame)
    for receipt in receipts:
        receipt.result(WITHIN)


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
    sending.result()


def test_without_it_nothing_is_sent_again(sessions: Sessions) -> None:
    conn, first = connected(sessions, resend_unconfirmed=False)
    (receipt,) = sent(conn, "1")
    (frame,) = expect_sends(first, "1")
    assert DEDUPE not in frame.headers
    first.close()
    second = sessions.next()
    with pytest.raises(stompy.ConnectionLostError):
        receipt.result(WITHIN)
    sent(conn, "2")
    expect_sends(second, "2")


def test_sends_without_receipt_acks_and_transactions_are_not_sent_again(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions)
    subscribing = calling(lambda: conn.subscribe("/queue/b", ack="client-individual"))
    subscription = subscribing
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscription = subscribing.result()
    first.deliver("in", subscription=frame.headers["id"], ack="a-1")
    message = subscription.receive(timeout=WITHIN)
    conn.send("/queue/a", "plain")
    ack = message.ack_async()
    assert ack is not None
    assert DEDUPE not in first.expect("SEND").headers
    first.expect("ACK")
    with pytest.raises(stompy.ConnectionLostError), conn.transaction() as transaction:  # noqa: PT012 - the block
        transaction.send("/queue/a", "half")
        first.close()
        until(lambda: not conn.connected)
    with pytest.raises(stompy.ConnectionLostError):
        ack.result(WITHIN)
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
    receipt.result(WITHIN)


def test_a_copy_that_the_next_version_cannot_write_ends_as_unknown_and_holds_nobody_up(sessions: Sessions) -> None:
    conn, first = connected(sessions, "1.2")
    (bad,) = sent(conn, "bad", headers={"note": "two\nlines"})
    (good,) = sent(conn, "good")
    expect_sends(first, "bad", "good")
    first.close()
    second = sessions.next("1.0")
    (frame,) = expect_sends(second, "good")
    second.receipt(frame)
    good.result(WITHIN)
    assert outcome_of(bad) == "unknown"
    with pytest.raises(stompy.ConnectionLostError, match="cannot be resent"):
        bad.result()


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
