"""A live session against a scripted broker: who writes, what is pending, and how it ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    HeartbeatTimeoutError,
    ReceiptTimeoutError,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.link.settings import Limits
from tests.link.conftest import Linking, asked, reset, send
from tests.support.peer import WITHIN, Linked, RecordingOwner, until
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling


def gone(linked: Linked) -> bool:
    """Whether the link's threads have ended."""
    return linked.link.join(Deadline(WITHIN))


# Receipts


def test_a_thousand_receipts_may_be_in_flight(linking: Linking) -> None:
    linked = linking(capacity=1 << 20)
    receipts = [asked(linked.link) for _ in range(1000)]
    frames = [linked.peer.expect("SEND") for _ in range(1000)]
    for frame in reversed(frames):
        linked.peer.receipt(frame)
    for receipt in receipts:
        receipt.result(WITHIN)
    assert len(linked.link.receipts) == 0


@pytest.mark.requirement("A-20")
def test_late_doubled_and_unknown_receipts_do_no_harm(linking: Linking) -> None:
    linked = linking()
    receipt = asked(linked.link)
    with pytest.raises(ReceiptTimeoutError):
        receipt.result(0)
    for name in (receipt.id, receipt.id, "unknown", ""):
        linked.peer.receipt(name)
    after = asked(linked.link)
    linked.peer.receipt(after.id)
    after.result(WITHIN)
    receipt.result(0)
    assert linked.link.alive
    assert linked.owner.receipt_ids == [receipt.id, receipt.id, "unknown", "", after.id]


@pytest.mark.requirement("SRV-17", "SRV-18")
def test_an_error_without_receipt_id_fails_every_pending_receipt(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1 << 20)
    receipts = [asked(linked.link) for _ in range(100)]
    waiters = [calling(receipt.result) for receipt in receipts[:2]]
    for waiter in waiters:
        waiter.until_blocked()
    linked.peer.error("out of order", b"details\nmore")
    for waiter in waiters:
        with pytest.raises(BrokerError, match="the broker reports an error: out of order: details"):
            waiter.result()
    reason = linked.owner.await_end()
    assert isinstance(reason, BrokerError)
    assert reason.frame.body == b"details\nmore"
    assert reason.receipt_id is None
    assert {outcome_of(receipt) for receipt in receipts} == {"unknown"}
    assert {type(receipt.exception(0)) for receipt in receipts} == {BrokerError}


@pytest.mark.requirement("SRV-18")
def test_an_error_with_receipt_id_rejects_that_one_and_ends_the_others(linking: Linking) -> None:
    linked = linking(capacity=1 << 20)
    receipts = [asked(linked.link) for _ in range(100)]
    linked.peer.error("no such queue", headers={"receipt-id": receipts[42].id})
    reason = linked.owner.await_end()
    assert isinstance(reason, BrokerError)
    assert reason.receipt_id == receipts[42].id
    assert [outcome_of(receipt) for receipt in receipts] == ["unknown"] * 42 + ["rejected"] + ["unknown"] * 57
    for number, outcome in ((42, "rejected"), (0, "unknown")):
        with pytest.raises(BrokerError, match="no such queue") as caught:
            receipts[number].result(0)
        assert caught.value.outcome == outcome


@pytest.mark.requirement("SRV-18")
def test_after_an_error_nothing_can_be_sent_and_the_stream_is_closed(linking: Linking) -> None:
    linked = linking()
    linked.peer.error("no")
    linked.owner.await_end()
    with pytest.raises(BrokerError, match="no"):
        send(linked.link)
    assert linked.peer.rest() == []
    assert not linked.link.alive
    assert isinstance(linked.link.end_reason, BrokerError)


def test_whatever_a_broker_sends_after_its_error_is_ignored(linking: Linking) -> None:
    linked = linking()
    receipt = asked(linked.link)
    peer = linked.peer
    confirmation = peer.encoded("RECEIPT", {"receipt-id": receipt.id})
    peer.raw(peer.encoded("ERROR", {"message": "no"}) + peer.message() + confirmation)
    assert isinstance(linked.owner.await_end(), BrokerError)
    assert outcome_of(receipt) == "unknown"
    assert linked.owner.frames == []


# Back-pressure

FEW = Limits(max_inbox_messages=10, max_inbox_bytes=10_000, hard_max_inbox_bytes=100_000, inbox_overhead=0)


def counting(link: Link, frames: Sequence[Frame]) -> None:
    """What a connection does with messages that wait for user code."""
    link.flow.added(len(frames), sum(len(frame.body) for frame in frames))


@pytest.fixture
def slow(linking: Linking) -> Linked:
    """A link whose messages nobody takes, over narrow pipes."""
    owner = RecordingOwner()
    owner.on_messages = counting
    return linking(capacity=2_000, owner=owner, limits=FEW)


def test_a_full_inbox_holds_the_broker_back(slow: Linked, calling: Calling) -> None:
    flood = calling(lambda: slow.peer.deliver(*[b"x" * 100] * 1000))
    until(lambda: slow.link.flow.paused)
    flood.until_blocked()
    held = len(slow.owner.frames)
    assert 10 <= held < 100
    assert slow.link.flow.waiting()[0] == held
    while len(slow.owner.frames) < 1000:  # user code takes some
        slow.link.flow.removed(*slow.link.flow.waiting())
        until(lambda: slow.link.flow.paused or len(slow.owner.frames) == 1000)
    flood.result()
    assert slow.link.flow.times_paused > 1
    slow.link.flow.removed(*slow.link.flow.waiting())


def test_receipts_resolve_behind_the_messages_that_filled_the_inbox(slow: Linked, calling: Calling) -> None:
    receipt = asked(slow.link)
    peer = slow.peer
    confirmation = peer.encoded("RECEIPT", {"receipt-id": receipt.id})
    data = b"".join(peer.message(b"x" * 100) for _ in range(200)) + confirmation
    flood = calling(lambda: peer.raw(data))
    until(lambda: slow.link.flow.paused)
    assert not receipt.done()
    receipt.result(WITHIN)
    flood.result()
    assert len(slow.owner.frames) == 200


def test_a_waiting_receipt_holds_the_gate_only_up_to_the_hard_limit(slow: Linked, calling: Calling) -> None:
    receipt = asked(slow.link)
    flood = calling(lambda: slow.peer.deliver(*[b"x" * 1000] * 300))
    waiter = calling(lambda: receipt.result(1.0))
    until(lambda: slow.link.flow.waiting()[1] >= FEW.hard_max_inbox_bytes)
    until(lambda: slow.link.flow.paused)
    with pytest.raises(ReceiptTimeoutError, match="inbox is at its hard limit"):
        waiter.result()
    assert slow.link.flow.waiting()[1] < FEW.hard_max_inbox_bytes + 5_000
    slow.close()
    with pytest.raises(ConnectionLostError):
        flood.result()


def test_frames_still_leave_while_the_gate_is_shut(slow: Linked, calling: Calling) -> None:
    flood = calling(lambda: slow.peer.deliver(*[b"x" * 100] * 100))
    until(lambda: slow.link.flow.paused)
    flood.until_blocked()
    send(slow.link, b"still here")
    slow.close()
    with pytest.raises(ConnectionLostError):
        flood.result()


def test_a_link_can_be_closed_while_its_gate_is_shut(slow: Linked, calling: Calling) -> None:
    flood = calling(lambda: slow.peer.deliver(*[b"x" * 100] * 100))
    until(lambda: slow.link.flow.paused)
    slow.link.close()
    assert gone(slow)
    with pytest.raises(ConnectionLostError):
        flood.result()


# The end, and its reason


def test_the_end_of_the_stream_is_the_end_of_the_link(linking: Linking) -> None:
    linked = linking()
    receipt = asked(linked.link)
    linked.peer.hang_up()
    reason = linked.owner.await_end()
    assert isinstance(reason, ConnectionLostError)
    assert str(reason) == "peer:61613 closed the connection"
    assert outcome_of(receipt) == "unknown"
    with pytest.raises(ConnectionLostError):
        send(linked.link)
    assert gone(linked)
    assert linked.owner.times_ended == 1


def test_a_reset_is_the_end_of_the_link(tcp_linked: Linked) -> None:
    receipt = asked(tcp_linked.link)
    tcp_linked.peer.expect("SEND")
    reset(tcp_linked.peer)
    reason = tcp_linked.owner.await_end()
    assert isinstance(reason, ConnectionLostError)
    assert isinstance(receipt.exception(0), ConnectionLostError)
    assert gone(tcp_linked)


def test_a_reset_during_a_send_is_the_end_of_both(tcp_linked: Linked, calling: Calling) -> None:
    sending = calling(lambda: send(tcp_linked.link, b"x" * 50_000_000))
    sending.until_blocked()
    reset(tcp_linked.peer)
    with pytest.raises(ConnectionLostError) as caught:
        sending.result()
    assert caught.value.outcome == "unknown"
    assert isinstance(tcp_linked.owner.await_end(), ConnectionLostError)


def test_the_brokers_error_is_the_reason_of_a_write_that_failed(linking: Linking, calling: Calling) -> None:
    """A broker says why and closes; our write meets the closed stream before the reader has read the words."""
    linked = linking(start=False)
    linked.peer.error("frame too large")
    linked.peer.close()
    sending = calling(lambda: send(linked.link))
    sending.until_blocked()
    linked.link.start()
    with pytest.raises(BrokerError, match="frame too large") as caught:
        sending.result()
    assert caught.value.outcome == "not-sent"
    assert isinstance(linked.owner.await_end(), BrokerError)


def test_a_stuck_send_is_told_that_the_broker_fell_silent(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000, heartbeat=(0.0, 0.05))
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    with pytest.raises(HeartbeatTimeoutError) as caught:
        sending.result()
    assert caught.value.outcome == "unknown"
    assert isinstance(linked.owner.await_end(), HeartbeatTimeoutError)


@pytest.mark.parametrize(
    "offence", [b"NONSENSE\n\n\0", b"MESSAGE\nbroken\n\n\0", b"RECEIPT\n\n\0", b"CONNECTED\nversion:1.2\n\n\0"]
)
def test_a_broken_protocol_ends_the_link_and_says_how(linking: Linking, offence: bytes) -> None:
    linked = linking()
    receipt = asked(linked.link)
    linked.peer.raw(linked.peer.message("before") + offence)
    reason = linked.owner.await_end()
    assert isinstance(reason, ConnectionLostError)
    assert "broke the protocol" in str(reason)
    assert linked.owner.bodies == [b"before"]
    assert isinstance(receipt.exception(0), ConnectionLostError)
    assert str(receipt.exception(0)) == str(reason)


def test_the_link_counts_as_ended_only_when_its_owner_has_heard(linking: Linking) -> None:
    class Asking(RecordingOwner):
        def ended(self, link: Link, reason: StompError | None) -> None:
            self.early = link.ended.is_set()
            super().ended(link, reason)

    owner = Asking()
    linked = linking(owner=owner)
    linked.link.close()
    assert linked.link.ended.wait(WITHIN)
    assert owner.times_ended == 1
    assert owner.early is False


def test_the_first_reason_stays(linking: Linking) -> None:
    linked = linking()
    first, second = ConnectionLostError("first"), ConnectionLostError("second")
    linked.link.fail(first)
    linked.link.fail(second)
    assert linked.owner.await_end() is first
    assert linked.link.end_reason is first
