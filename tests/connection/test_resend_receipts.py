"""The receipts of what is sent again."""

from __future__ import annotations

import pytest

import stompy
from stompy.link.link import Link
from tests.connection.conftest import Sessions
from tests.connection.test_resend_buffer import connected, expect_sends, sent
from tests.support.peer import WITHIN, until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

# Receipts.


def test_callbacks_are_called_once_when_the_copy_is_confirmed(sessions: Sessions) -> None:
    conn, first = connected(sessions)
    (receipt,) = sent(conn, "1")
    outcomes: list[str] = []
    receipt.add_done_callback(lambda done: outcomes.append(outcome_of(done)))
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
    assert outcome_of(receipt) == "confirmed"


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
    assert outcome_of(receipt) == "confirmed"


def test_who_waits_for_a_receipt_keeps_the_next_links_gate_open(sessions: Sessions, calling: Calling) -> None:
    conn, first = connected(sessions, limits=stompy.Limits(max_inbox_messages=2))
    subscribing = calling(lambda: conn.subscribe("/queue/b"))
    frame = first.expect_and_confirm("SUBSCRIBE")
    subscribing.result()
    (receipt,) = sent(conn, "1")
    expect_sends(first, "1")
    waiting = calling(lambda: receipt.result(WITHIN))
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
    receipts[0].result(WITHIN)
    receipts[2].result(WITHIN)
    with pytest.raises(stompy.BrokerError):
        receipts[1].result(WITHIN)
    assert outcome_of(receipts[1]) == "rejected"


def test_the_outcome_of_a_rejected_copy_is_unknown_and_the_connection_goes_on(sessions: Sessions) -> None:
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
    receipts[1].result(WITHIN)
    assert outcome_of(receipts[0]) == "unknown"
    with pytest.raises(stompy.BrokerError, match="may have the first"):
        receipts[0].result()
    sent(conn, "new")
    expect_sends(third, "new")


def test_an_error_before_the_new_link_is_in_use_does_not_end_the_connection(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn, first = connected(sessions)
    receipts = sent(conn, "1", "2")
    expect_sends(first, "1", "2")
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
    receipts[1].result(WITHIN)
    assert outcome_of(receipts[0]) == "unknown"


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
    receipts[2].result(WITHIN)
    assert [outcome_of(receipt) for receipt in receipts] == ["confirmed", "unknown", "confirmed"]
    with pytest.raises(stompy.BrokerError, match="I do not say which"):
        receipts[1].result()
