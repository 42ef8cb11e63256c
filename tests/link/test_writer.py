"""The way out: whole frames in order, one thread at a time, and what is in their way."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
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
from tests.transport.conftest import Call, Calling

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


# Several threads


class Held:
    """Holds the first write of a frame that contains a text until it is let go; records what is written.

    Attributes:
        cut: of what is written for others, how much leaves before a signal raises; `None` if none does.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.written: list[bytes] = []
        self.cut: int | None = None
        sendall, send_held = MemoryTransport.sendall, MemoryTransport.send_held

        def held(transport: MemoryTransport, data: bytes, deadline: Deadline) -> None:
            if data.startswith(b"SEND\n"):
                self.written.append(data)
            sendall(transport, data, deadline)
            if text in data and not self.entered.is_set():
                self.entered.set()
                assert self.let_go.wait(WITHIN)

        def at_once(transport: MemoryTransport, data: bytes) -> int:
            self.written.append(data)
            sent = send_held(transport, data[: self.cut])
            if self.cut is not None:
                raise KeyboardInterrupt
            return sent

        monkeypatch.setattr(MemoryTransport, "sendall", held)
        monkeypatch.setattr(MemoryTransport, "send_held", at_once)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch, b"first")


def waiting_behind(held: Held, linked: Linked, calling: Calling, *sends: Callable[[], object]) -> list[Call]:
    """Start a write that is held, and then these calls, each of which waits for it."""
    calls = [calling(partial(send, linked.link, b"first"))]
    assert held.entered.wait(WITHIN)
    for each in sends:
        calls.append(calling(each))
        calls[-1].until_blocked()
    return calls


def test_threads_that_wait_leave_their_frames_to_the_one_that_writes(
    linking: Linking, calling: Calling, held: Held
) -> None:
    linked = linking()
    sends = [partial(send, linked.link, b"%d" % number) for number in range(5)]
    calls = waiting_behind(held, linked, calling, *sends)
    assert linked.peer.expect("SEND").body == b"first"
    assert linked.peer.quiet()
    held.let_go.set()
    for call in calls:
        call.result()
    assert [linked.peer.expect("SEND").body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert [data.count(b"SEND\n") for data in held.written] == [1, 5]
    assert linked.link.writer.frames == 6
    assert linked.link.writer.bytes == sum(map(len, held.written))


def test_what_needs_the_session_takes_its_turn_between_frames(linking: Linking, calling: Calling, held: Held) -> None:
    linked = linking()
    subscribe = partial(linked.link.writer.request, "SUBSCRIBE", {"id": "1", "destination": "/queue/a"})
    calls = waiting_behind(
        held, linked, calling, partial(send, linked.link, b"1"), subscribe, partial(asked, linked.link, b"2")
    )
    held.let_go.set()
    for call in calls:
        call.result()
    assert sorted(linked.peer.frame().command for _ in range(4)) == ["SEND", "SEND", "SEND", "SUBSCRIBE"]


def test_who_waits_gives_up_by_its_own_time_and_leaves_nothing(linking: Linking, calling: Calling, held: Held) -> None:
    linked = linking()
    calls = waiting_behind(held, linked, calling, partial(send, linked.link, b"patient"))
    with pytest.raises(SendTimeoutError) as caught:
        send(linked.link, b"impatient", timeout=0.05)
    assert caught.value.outcome == "not-sent"
    held.let_go.set()
    for call in calls:
        call.result()
    assert [linked.peer.expect("SEND").body for _ in range(2)] == [b"first", b"patient"]
    assert linked.peer.quiet()
    assert linked.link.alive


def test_the_rest_of_a_frame_is_written_by_its_own_thread(linking: Linking, calling: Calling, held: Held) -> None:
    linked = linking(capacity=1_000)
    big = partial(send, linked.link, b"x" * 2_000)
    one, three = (partial(send, linked.link, body) for body in (b"1", b"3"))
    calls = waiting_behind(held, linked, calling, one, big, three)
    held.let_go.set()
    calls[0].result()
    calls[1].result()  # which wrote a part of the next, and does not wait for room
    assert not linked.link.beat()
    with pytest.raises(SendTimeoutError) as caught:
        send(linked.link, timeout=0.05)
    assert caught.value.outcome == "not-sent"
    assert linked.link.alive
    assert [len(linked.peer.expect("SEND").body) for _ in range(4)] == [5, 1, 2_000, 1]
    for call in calls:
        call.result()


def test_a_frame_of_which_a_part_was_written_by_another_ends_the_link_by_its_own_timeout(
    linking: Linking, calling: Calling, held: Held
) -> None:
    linked = linking(capacity=1_000)
    big = partial(send, linked.link, b"x" * 2_000, timeout=1.0)
    calls = waiting_behind(held, linked, calling, big, partial(send, linked.link, b"after it"))
    held.let_go.set()
    calls[0].result()
    with pytest.raises(SendTimeoutError) as caught:
        calls[1].result()
    assert caught.value.outcome == "unknown"
    with pytest.raises(ConnectionLostError) as lost:
        calls[2].result()
    assert lost.value.outcome == "not-sent"
    assert isinstance(linked.owner.await_end(), ConnectionLostError)
    assert linked.link.writer.frames == 1


def test_the_end_of_the_link_tells_who_waits_that_nothing_was_sent(
    linking: Linking, calling: Calling, held: Held
) -> None:
    linked = linking()
    calls = waiting_behind(held, linked, calling, *[partial(send, linked.link)] * 3)
    linked.link.fail(ConnectionLostError("lost"))
    held.let_go.set()
    for call in calls[1:]:
        with pytest.raises(ConnectionLostError) as caught:
            call.result()
        assert caught.value.outcome == "not-sent"


@pytest.mark.parametrize("cut", [0, 10])
def test_an_interrupt_while_frames_of_others_are_written_ends_the_link(
    linking: Linking, calling: Calling, held: Held, cut: int
) -> None:
    linked = linking()
    receipt = asked(linked.link, b"confirmed")
    linked.peer.expect("SEND")
    calls = waiting_behind(held, linked, calling, *[partial(send, linked.link)] * 2)
    held.cut = cut
    held.let_go.set()
    with pytest.raises(KeyboardInterrupt):
        calls[0].result()
    for call in calls[1:]:
        with pytest.raises(ConnectionLostError) as caught:
            call.result()
        assert caught.value.outcome == "unknown"
    linked.owner.await_end()
    assert outcome_of(receipt) == "unknown"


def test_frames_of_threads_that_share_writes_are_whole_once_and_in_order(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=300)
    count = 200

    def work(thread: int) -> None:
        for number in range(count):
            send(linked.link, b"%d %d " % (thread, number) + b"x" * (number % 7 * 60))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        calls = [calling(partial(work, thread)) for thread in range(4)]
        got = [linked.peer.expect("SEND").body.split(b" ") for _ in range(4 * count)]
        for call in calls:
            call.result()
    finally:
        sys.setswitchinterval(before)
    for thread in range(4):
        assert [int(number) for whose, number, _ in got if int(whose) == thread] == list(range(count))
    assert linked.peer.quiet()


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
