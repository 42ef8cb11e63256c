"""The way out: whole frames in order, one thread at a time, and what is in their way."""

from __future__ import annotations

from functools import partial

import pytest

import stompy
from stompy.deadline import Deadline
from stompy.errors import (
    ConnectionLostError,
    LocalProtocolError,
    SendTimeoutError,
)
from tests.link.conftest import SEND, Linking, asked, send, send_many
from tests.support.memory import MemoryTransport
from tests.support.peer import WITHIN, Linked
from tests.support.receipts import outcome_of
from tests.transport.conftest import Calling

# Writing


def test_frames_leave_whole_and_in_the_order_of_the_calls(linking: Linking) -> None:
    linked = linking()
    for number in range(50):
        send(linked.link, b"%d" % number)
    assert [linked.peer.expect("SEND").body for _ in range(50)] == [b"%d" % number for number in range(50)]
    assert linked.link.writer.frames == 50
    assert linked.link.alive


def test_frames_of_many_threads_never_mix(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=64)
    bodies = [bytes([65 + thread]) * 500 for thread in range(8)]
    calls = [calling(partial(send_many, linked.link, body, 5)) for body in bodies]
    got = [linked.peer.expect("SEND").body for _ in range(40)]
    for call in calls:
        call.result()
    assert sorted(got) == sorted(bodies * 5)


def test_a_receipt_is_registered_before_the_bytes_leave(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=200)
    call = calling(lambda: asked(linked.link, b"x" * 1000))
    call.until_blocked()
    assert len(linked.link.receipts) == 1
    linked.peer.expect_and_confirm("SEND")
    call.result().result(WITHIN)


@pytest.mark.parametrize(
    ("command", "headers"),
    [
        ("SEND", {}),
        ("SUBSCRIBE", {"destination": "/q"}),
        ("FLY", {}),
        ("CONNECT", {}),
    ],
)
def test_what_may_not_be_sent_leaves_nothing_behind(linking: Linking, command: str, headers: dict[str, str]) -> None:
    linked = linking()
    with pytest.raises(LocalProtocolError):
        linked.link.writer.request(command, headers, receipt=linked.link.receipts.make())
    assert len(linked.link.receipts) == 0
    send(linked.link, b"next")
    assert linked.peer.expect("SEND").body == b"next"


def test_many_frames_may_share_one_write(linking: Linking) -> None:
    link, peer = (linked := linking()).link, linked.peer
    data = b"".join(link.protocol.send("SEND", SEND, b"%d" % number) for number in range(3))
    assert peer.quiet()
    link.writer.write(data, frames=3)
    assert [peer.expect("SEND").body for _ in range(3)] == [b"0", b"1", b"2"]
    assert link.writer.frames == 3


def test_a_frame_in_parts_leaves_whole_between_those_of_other_threads(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=64)
    parts = b"SEND\ndestination:/queue/a\n\n", b"y" * 500, b"\0"
    calls = [calling(partial(send_many, linked.link, b"x" * 500, 5)) for _ in range(4)]
    calls += [calling(partial(linked.link.writer.write, parts)) for _ in range(5)]
    got = [linked.peer.expect("SEND").body for _ in range(25)]
    for call in calls:
        call.result()
    assert sorted(got) == [b"x" * 500] * 20 + [b"y" * 500] * 5


@pytest.mark.parametrize(("part", "outcome"), [(0, "not-sent"), (1, "unknown"), (2, "unknown")])
def test_of_a_frame_of_which_a_part_has_left_nobody_knows_what_became(
    linking: Linking, monkeypatch: pytest.MonkeyPatch, part: int, outcome: str
) -> None:
    linked = linking()
    whole, parts = MemoryTransport.sendall, (b"SEND\ndestination:/queue/a\n\n", b"x", b"\0")

    def lost(transport: MemoryTransport, data: bytes, deadline: Deadline) -> None:
        if data == parts[part]:
            raise ConnectionLostError("connection to peer lost", outcome="not-sent")
        whole(transport, data, deadline)

    monkeypatch.setattr(MemoryTransport, "sendall", lost)
    with pytest.raises(ConnectionLostError) as caught:
        linked.link.writer.write(parts)
    assert caught.value.outcome == outcome
    assert not linked.link.alive


# Two full windows


@pytest.mark.parametrize("carrier", ["memory", "tcp"])
def test_two_sides_that_both_send_3_mb_before_they_read_do_not_stop_each_other(
    linking: Linking, calling: Calling, tcp_linked: Linked, carrier: str
) -> None:
    linked = linking() if carrier == "memory" else tcp_linked
    body = bytes(range(256)) * 4 * 1024 * 3
    sending = calling(lambda: send(linked.link, body))
    linked.peer.deliver(body)
    linked.owner.await_messages(1)
    assert linked.owner.bodies == [body]
    assert linked.peer.expect("SEND").body == body
    sending.result()


def test_messages_and_receipts_come_in_while_a_send_is_stuck(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1000)
    receipt = asked(linked.link)
    sending = calling(lambda: send(linked.link, b"x" * 100_000))
    sending.until_blocked()
    linked.peer.deliver(*[b"y" * 100] * 100)
    linked.peer.receipt(receipt.id)
    linked.owner.await_messages(100)
    receipt.result(WITHIN)
    linked.peer.expect("SEND")
    assert len(linked.peer.expect("SEND").body) == 100_000
    sending.result()


# A peer that stops reading


def test_a_writer_stuck_on_a_deaf_peer_ends_by_its_own_timeout(linking: Linking) -> None:
    linked = linking(capacity=1_000)
    receipt = asked(linked.link)
    with pytest.raises(SendTimeoutError) as caught:
        send(linked.link, b"x" * 10_000, timeout=0.05)
    assert caught.value.outcome == "unknown"
    assert isinstance(linked.owner.await_end(), SendTimeoutError)
    assert outcome_of(receipt) == "unknown"
    with pytest.raises(SendTimeoutError):
        send(linked.link)


def test_the_send_timeout_of_the_settings_is_the_default(linking: Linking) -> None:
    linked = linking(capacity=1_000, timeouts=stompy.Timeouts(send=0.05))
    with pytest.raises(SendTimeoutError):
        send(linked.link, b"x" * 10_000)


def test_who_waits_behind_a_stuck_writer_gives_up_without_ending_the_link(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000)
    stuck = calling(lambda: send(linked.link, b"x" * 10_000))
    stuck.until_blocked()
    with pytest.raises(SendTimeoutError) as caught:
        send(linked.link, timeout=0.05)
    assert caught.value.outcome == "not-sent"
    assert linked.link.alive
    assert len(linked.peer.expect("SEND").body) == 10_000
    stuck.result()


def test_a_frame_cut_by_an_interrupt_ends_the_link(linking: Linking, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = linking(capacity=1 << 20)
    whole = MemoryTransport.sendall

    def interrupted(transport: MemoryTransport, data: bytes, deadline: Deadline) -> None:
        whole(transport, data[:10], deadline)
        raise KeyboardInterrupt

    receipt = asked(linked.link)
    linked.peer.expect("SEND")
    monkeypatch.setattr(MemoryTransport, "sendall", interrupted)
    with pytest.raises(KeyboardInterrupt):
        send(linked.link, b"half of a frame is on the wire")
    monkeypatch.undo()
    with pytest.raises(ConnectionLostError):
        send(linked.link, b"this would be read as the rest of that frame")
    linked.owner.await_end()
    assert outcome_of(receipt) == "unknown"
    assert not linked.link.alive
