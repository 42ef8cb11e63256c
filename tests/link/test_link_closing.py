"""Closing a link."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConnectionLostError,
    NotConnectedError,
    ReceiptTimeoutError,
    SendTimeoutError,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.link.link import Link
from tests.link.conftest import Linking, asked, reset, send
from tests.link.test_link import gone
from tests.support.peer import WITHIN, Linked, RecordingOwner
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

# Closing


@pytest.mark.requirement("DIS-02", "DIS-03")
def test_disconnecting_is_disconnect_its_receipt_and_the_end_of_the_stream(linking: Linking, calling: Calling) -> None:
    linked = linking()
    leaving = calling(lambda: linked.link.disconnect(Deadline(WITHIN)))
    frame = linked.peer.expect("DISCONNECT")
    assert list(frame.headers) == ["receipt"]
    with pytest.raises(NotConnectedError):
        send(linked.link)
    linked.peer.receipt(frame)
    leaving.result()
    assert linked.peer.rest() == []
    assert gone(linked)
    assert linked.owner.await_end() is None
    with pytest.raises(NotConnectedError):
        send(linked.link)


def test_a_frame_that_is_partly_written_when_the_link_is_closed_has_an_unknown_outcome(
    linking: Linking, calling: Calling
) -> None:
    linked = linking(capacity=1_000)
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    sending.until_blocked()
    linked.link.close()
    with pytest.raises(ConnectionLostError, match="closed while the frame was written") as lost:
        sending.result()
    assert lost.value.outcome == "unknown"
    with pytest.raises(NotConnectedError):
        send(linked.link)


def test_disconnecting_waits_for_the_receipts_in_flight_first(linking: Linking, calling: Calling) -> None:
    linked = linking()
    receipt = asked(linked.link)
    sent = linked.peer.expect("SEND")
    leaving = calling(lambda: linked.link.disconnect(Deadline(WITHIN)))
    leaving.until_blocked()
    assert linked.peer.quiet()
    linked.peer.receipt(sent)
    assert linked.peer.expect_disconnect() == []
    leaving.result()
    assert outcome_of(receipt) == "confirmed"


@pytest.mark.requirement("DIS-06")
def test_disconnecting_without_an_answer_ends_with_its_deadline(linking: Linking) -> None:
    linked = linking()
    with pytest.raises(ReceiptTimeoutError):
        linked.link.disconnect(Deadline(0.05))
    assert gone(linked)
    assert linked.owner.await_end() is None


@pytest.mark.requirement("DIS-06")
@pytest.mark.parametrize("how", ["end", "reset"])
def test_disconnecting_from_a_broker_that_just_closes_ends_at_once(
    tcp_linked: Linked, calling: Calling, how: str
) -> None:
    leaving = calling(lambda: tcp_linked.link.disconnect(Deadline(WITHIN)))
    tcp_linked.peer.expect("DISCONNECT")
    if how == "end":
        tcp_linked.peer.close()
    else:
        reset(tcp_linked.peer)
    with pytest.raises(ConnectionLostError, match="closed before the broker confirmed"):
        leaving.result()
    assert gone(tcp_linked)
    assert tcp_linked.owner.await_end() is None


def test_an_error_in_the_answer_to_disconnect_is_not_lost(linking: Linking, calling: Calling) -> None:
    """It is about a frame before DISCONNECT, which the broker had not looked at yet."""
    linked = linking()
    send(linked.link, b"refused later")
    leaving = calling(lambda: linked.link.disconnect(Deadline(WITHIN)))
    linked.peer.expect("SEND")
    linked.peer.expect("DISCONNECT")
    linked.peer.error("not allowed to write")
    with pytest.raises(BrokerError, match="not allowed to write"):
        leaving.result()
    reason = linked.owner.await_end()
    assert isinstance(reason, BrokerError)


def test_disconnecting_from_a_peer_that_does_not_read_ends_with_its_deadline(
    linking: Linking, calling: Calling
) -> None:
    linked = linking(capacity=1_000)
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    sending.until_blocked()
    with pytest.raises(SendTimeoutError):
        linked.link.disconnect(Deadline(0.05))
    with pytest.raises(StompError):
        sending.result()
    assert gone(linked)


def test_a_close_wakes_whoever_waits(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000)
    receipt = asked(linked.link)
    waiting = calling(receipt.result)
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    behind = calling(lambda: send(linked.link))
    for call in (waiting, sending):
        call.until_blocked()
    linked.link.close()
    for call in (waiting, sending, behind):
        with pytest.raises(StompError):
            call.result()
    assert gone(linked)


def test_a_close_may_come_from_the_reader_thread(linking: Linking) -> None:
    owner = RecordingOwner()
    owner.on_messages = lambda link, frames: link.close()
    linked = linking(owner=owner)
    linked.peer.deliver("one")
    assert owner.await_end() is None
    assert gone(linked)


def test_a_join_on_the_reader_thread_waits_for_nobody_but_the_others(linking: Linking) -> None:
    owner = RecordingOwner()
    joined: list[bool] = []

    def close_and_join(link: Link, frames: Sequence[Frame]) -> None:
        link.close()
        joined.append(link.join(Deadline(0)))

    owner.on_messages = close_and_join
    linked = linking(owner=owner)
    linked.peer.deliver("one")
    owner.await_end()
    assert joined == [True]


def test_a_close_is_idempotent_and_told_once(linking: Linking, calling: Calling) -> None:
    linked = linking(heartbeat=(1.0, 1.0))
    for call in [calling(linked.link.close) for _ in range(10)]:
        call.result()
    assert gone(linked)
    assert linked.owner.times_ended == 1
    assert linked.owner.reason is None
    assert repr(linked.link) == "<Link test-1 to peer:61613 ended>"


def test_a_receipt_asked_for_at_the_moment_of_the_end_is_never_left_hanging(linking: Linking, calling: Calling) -> None:
    for _ in range(50):
        linked = linking()
        asking = calling(partial(asked, linked.link))
        linked.peer.hang_up()
        try:
            receipt = asking.result()
        except ConnectionLostError:
            pass
        else:
            with pytest.raises(ConnectionLostError):
                receipt.result(WITHIN)
        linked.close()
