"""Heartbeats: ours, the peer's, and what does not count as one."""

from __future__ import annotations

import threading
from functools import partial

import pytest

import stompy
from stompy.deadline import Deadline
from stompy.errors import ConnectionLostError, HeartbeatTimeoutError, StompError
from tests.link.conftest import Linking, send, send_many
from tests.link.test_link import counting
from tests.support.peer import WITHIN, Linked, RecordingOwner, until
from tests.transport.conftest import Calling

FAST = 0.05
"""Seconds of an agreed interval; silence is death after seven of them, as there is a least margin of 0.3 s."""


def pacemakers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.endswith("-heartbeat")]


# Ours


@pytest.mark.requirement("HBT-05", "HBT-08", "HBT-09", "HBT-10")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_in_silence_single_line_feeds_are_sent(linking: Linking, version: str) -> None:
    linked = linking(version=version, heartbeat=(FAST, 0.0))
    linked.peer.await_beats(5)
    for _ in range(3):
        assert set(linked.peer.transport.recv(Deadline(WITHIN))) == {ord("\n")}


def test_traffic_takes_the_place_of_beats(linking: Linking) -> None:
    """A beat is due when nothing was sent for its time, so each frame puts it off."""
    linked = linking(heartbeat=(1000.0, 0.0))
    timer = linked.link.timer
    before = timer.last_sent
    send(linked.link)
    assert timer.last_sent > before
    due = timer.next_check(timer.last_sent)
    assert due is not None
    assert due > 500


@pytest.mark.requirement("HBT-14")
def test_beats_stand_between_frames_only(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=300, heartbeat=(0.001, 0.0))
    calls = [calling(partial(send_many, linked.link, b"x" * 700, 20)) for _ in range(4)]
    bodies = [linked.peer.expect("SEND").body for _ in range(80)]
    for call in calls:
        call.result()
    assert set(bodies) == {b"x" * 700}
    linked.peer.await_beats(3)


def test_a_beat_never_waits_for_a_writer(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000, heartbeat=(0.001, 0.0))
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    sending.until_blocked()
    assert linked.link.writer.beat() is False
    linked.peer.expect("SEND")
    sending.result()
    linked.peer.await_beats(1)


def test_a_beat_into_a_full_window_does_no_harm(linking: Linking) -> None:
    linked = linking(capacity=150, heartbeat=(1000.0, 0.0))
    beats = 0
    while linked.link.writer.beat():
        beats += 1
        assert beats <= 150
    assert linked.link.alive
    linked.peer.await_beats(beats)
    assert linked.link.writer.beat()


def test_a_beat_on_a_broken_stream_leaves_the_news_to_the_reader(linking: Linking) -> None:
    linked = linking(start=False)
    linked.peer.close()
    assert linked.link.writer.beat() is False
    assert linked.link.alive
    linked.link.start()
    assert isinstance(linked.owner.await_end(), ConnectionLostError)


def test_a_beat_after_a_frame_that_closing_cut_off_is_none(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000)
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    sending.until_blocked()
    linked.link.close()
    with pytest.raises(StompError):
        sending.result()
    assert linked.link.writer.beat() is False


# None


@pytest.mark.requirement("HBT-01", "HBT-03", "HBT-04")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ((0.0, 0.0), (FAST, FAST)),
        ((FAST, FAST), (0.0, 0.0)),
        ((FAST, 0.0), (FAST, 0.0)),
        ((0.0, FAST), (0.0, FAST)),
    ],
)
def test_where_nothing_was_agreed_on_there_is_no_heartbeat_thread(
    linking: Linking, ours: tuple[float, float], theirs: tuple[float, float]
) -> None:
    linked = linking(heartbeat=ours, peer_heartbeat=theirs)
    assert pacemakers() == []
    assert linked.link.alive


@pytest.mark.requirement("HBT-13")
def test_1_0_has_no_heartbeat_thread(linking: Linking) -> None:
    linking(version="1.0", heartbeat=(FAST, FAST))
    assert pacemakers() == []


@pytest.mark.requirement("HBT-03")
def test_who_only_sends_never_holds_silence_against_the_peer(linking: Linking) -> None:
    linked = linking(heartbeat=(FAST, 0.0))
    linked.peer.await_beats(15)  # longer than any silence that could be held against it
    assert linked.link.alive


# The peer's


@pytest.mark.requirement("HBT-06", "HBT-11")
def test_silence_ends_the_link(linking: Linking) -> None:
    linked = linking(heartbeat=(0.0, FAST))
    reason = linked.owner.await_end()
    assert isinstance(reason, HeartbeatTimeoutError)
    assert str(reason).startswith("received nothing from peer:61613 for ")
    assert linked.link.join(Deadline(WITHIN))
    assert pacemakers() == []


@pytest.mark.requirement("HBT-07", "HBT-12")
@pytest.mark.parametrize("data", [b"\n", b"\r\n", b"x"], ids=["LF", "CRLF", "parts of a frame"])
def test_any_byte_shows_that_the_peer_is_alive(linking: Linking, data: bytes) -> None:
    linked = linking(heartbeat=(FAST, 0.2))
    if data == b"x":
        linked.peer.raw(linked.peer.message(b"\0" * 100)[:80])
    for _ in range(15):  # our own beats are the clock: in all longer than the silence allowed
        linked.peer.await_beats(1)
        linked.peer.raw(data)
    assert linked.link.alive


def test_silence_is_noticed_while_a_send_is_stuck(linking: Linking, calling: Calling) -> None:
    linked = linking(capacity=1_000, heartbeat=(FAST, FAST))
    receipt = linked.link.receipts.make()
    linked.link.writer.request("SEND", {"destination": "/q"}, receipt=receipt)
    sending = calling(lambda: send(linked.link, b"x" * 10_000))
    assert isinstance(linked.owner.await_end(), HeartbeatTimeoutError)
    with pytest.raises(ConnectionLostError):
        sending.result()
    assert isinstance(receipt.exception(0), HeartbeatTimeoutError)


def test_silence_while_reading_is_paused_does_not_count_against_the_peer(linking: Linking) -> None:
    owner = RecordingOwner()
    owner.on_messages = counting
    linked = linking(owner=owner, heartbeat=(FAST, FAST), limits=stompy.Limits(max_inbox_messages=1))
    linked.peer.deliver("fills the inbox")
    until(lambda: linked.link.flow.paused)
    linked.peer.await_beats(20)  # ours go on; the peer says nothing for longer than is allowed
    assert linked.link.alive
    linked.link.flow.removed(*linked.link.flow.waiting())
    until(lambda: not linked.link.flow.paused)
    linked.peer.deliver("goes on")
    owner.await_messages(2)
    assert linked.link.alive


def test_a_peer_that_died_behind_a_shut_gate_is_found_out_when_it_opens(linking: Linking) -> None:
    owner = RecordingOwner()
    owner.on_messages = counting
    linked = linking(owner=owner, heartbeat=(0.0, FAST), limits=stompy.Limits(max_inbox_messages=1))
    linked.peer.deliver("fills the inbox")
    until(lambda: linked.link.flow.paused)
    linked.link.flow.removed(*linked.link.flow.waiting())
    assert isinstance(owner.await_end(), HeartbeatTimeoutError)


def test_a_machine_that_slept_does_not_take_its_own_sleep_for_the_brokers_silence(linking: Linking) -> None:
    linked = linking(heartbeat=(0.0, 1.0), start=False)
    timer = linked.link.timer
    now = timer.last_heard
    assert timer.next_check(now) == pytest.approx(3.0)
    assert not linked.link.flow.peer_dead(now + 3600)  # the look that was planned for then comes an hour late
    linked.link.start()
    linked.peer.deliver("what had arrived meanwhile")
    linked.owner.await_messages(1)
    assert linked.link.alive


def test_the_end_of_the_link_ends_the_heartbeat_thread(linking: Linking) -> None:
    linked: Linked = linking(heartbeat=(1000.0, 1000.0))
    assert pacemakers() == ["stompy-test-1-heartbeat"]
    linked.peer.hang_up()
    linked.owner.await_end()
    assert linked.link.join(Deadline(WITHIN))
    assert pacemakers() == []
