"""Bytes in, frames routed."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Sequence

import pytest

from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConnectionLostError, FrameTooLargeError
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.link.settings import Limits
from tests.link.conftest import Linking
from tests.support.memory import memory_pair
from tests.support.peer import WITHIN, Linked, Peer, RecordingOwner, until


def chunks_of(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """Cut `data` into pieces of the sizes, over and over."""
    pieces: list[bytes] = []
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(data):
            return pieces
        pieces.append(data[at : at + size])
        at += size
    return pieces


def feed(linked: Linked, pieces: Sequence[bytes]) -> None:
    """Let the reader read one piece at a time."""
    read = linked.link.bytes_in
    for piece in pieces:
        linked.peer.raw(piece)
        read += len(piece)
        until(lambda: linked.link.bytes_in >= read)  # noqa: B023


BEATS = [b"\n", b"\n\n", b"\r\n", b"\r\n\r\n", b"\n\r\n\n\n\r\n", b"\n" * 50]


@pytest.mark.requirement("HBT-09", "HBT-10", "HBT-14", "FRM-11")
@pytest.mark.parametrize("beats", BEATS)
@pytest.mark.parametrize("sizes", [[1], [2], [3], [7], [1, 2], [5, 1], [4096]], ids=str)
def test_messages_between_coalesced_heartbeats_all_arrive(linking: Linking, beats: bytes, sizes: list[int]) -> None:
    linked = linking()
    data = beats + b"".join(linked.peer.message(b"m%d" % number) + beats for number in range(4))
    feed(linked, chunks_of(data, sizes))
    linked.owner.await_messages(4)
    assert linked.owner.bodies == [b"m0", b"m1", b"m2", b"m3"]
    assert linked.link.alive


def test_messages_arrive_at_every_split_in_two(linking: Linking) -> None:
    linked = linking()
    peer, sent = linked.peer, 0
    for beats in (b"\n\n", b"\r\n\r\n"):
        sample = beats + peer.message(b"a\0b") + beats + peer.message(b"") + beats
        for at in range(1, len(sample)):
            feed(linked, [sample[:at], sample[at:]])
            sent += 2
    linked.owner.await_messages(sent)
    assert linked.owner.bodies == [b"a\0b", b""] * (sent // 2)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_messages_arrive_under_any_chunking(linking: Linking, version: str) -> None:
    linked = linking(version=version)
    choice = random.Random(version)
    bodies = [choice.randbytes(choice.choice([0, 1, 50, 3000])) for _ in range(300)]
    data = b"".join(linked.peer.message(body) + b"\n" * choice.randrange(4) for body in bodies)
    while data:
        size = choice.choice([1, 2, 10, 1000, 9000])
        linked.peer.raw(data[:size])
        data = data[size:]
    linked.owner.await_messages(300)
    assert linked.owner.bodies == bodies


def test_frames_that_came_with_connected_are_routed_first(linking: Linking) -> None:
    scribe = Peer(memory_pair()[0])
    early = scribe.message(b"early") + b"\n\n" + scribe.encoded("RECEIPT", {"receipt-id": "r"})
    linked = linking(behind_connected=early + scribe.message(b"half", id="h")[:10])
    linked.peer.raw(scribe.message(b"half", id="h")[10:])
    linked.owner.await_messages(2)
    assert linked.owner.bodies == [b"early", b"half"]
    assert linked.owner.receipt_ids == ["r"]


def test_an_offence_that_came_with_connected_ends_the_link(linking: Linking) -> None:
    linked = linking(behind_connected=b"NONSENSE\n\n\0")
    assert "NONSENSE" in str(linked.owner.await_end())


def test_an_error_that_came_with_connected_ends_the_link_with_its_words(linking: Linking) -> None:
    linked = linking(behind_connected=b"ERROR\nmessage:going down\n\n\0")
    reason = linked.owner.await_end()
    assert isinstance(reason, BrokerError)
    assert "going down" in str(reason)


def test_messages_are_handed_over_in_whole_runs_and_in_order(linking: Linking) -> None:
    linked = linking(start=False)
    peer = linked.peer
    receipt = peer.encoded("RECEIPT", {"receipt-id": "r"})
    peer.raw(peer.message(b"0") + peer.message(b"1") + receipt + receipt + peer.message(b"2") + receipt)
    linked.link.start()
    until(lambda: len(linked.owner.receipt_ids) == 3)
    assert [[frame.body for frame in run] for run in linked.owner.runs] == [[b"0", b"1"], [b"2"]]
    assert linked.link.frames_in == 6


def test_messages_come_on_the_reader_thread(linking: Linking) -> None:
    linked = linking()
    linked.peer.deliver("x")
    linked.owner.await_messages(1)
    assert linked.owner.threads == {"stompy-test-1-reader"}


def test_messages_in_front_of_an_error_are_delivered(linking: Linking) -> None:
    linked = linking()
    peer = linked.peer
    peer.raw(peer.message(b"before") + peer.encoded("ERROR", {"message": "no"}) + peer.message(b"behind"))
    assert isinstance(linked.owner.await_end(), BrokerError)
    assert linked.owner.bodies == [b"before"]


def test_bytes_are_counted(linking: Linking) -> None:
    linked = linking()
    data = b"\n" + linked.peer.message(b"x") + b"\n\n"
    linked.peer.raw(data)
    until(lambda: linked.link.bytes_in == len(data))


@pytest.mark.requirement("LIM-03")
def test_a_frame_beyond_a_limit_ends_the_link_and_names_the_limit(linking: Linking) -> None:
    linked = linking(limits=Limits(max_body=1000))
    linked.peer.raw(b"MESSAGE\ndestination:/q\nmessage-id:1\nsubscription:1\ncontent-length:1001\n\n")
    reason = linked.owner.await_end()
    assert isinstance(reason, ConnectionLostError)
    assert isinstance(reason.__cause__, FrameTooLargeError)
    assert "max_body=1000" in str(reason)


def test_half_a_frame_at_the_end_of_the_stream_is_no_message(linking: Linking) -> None:
    linked = linking()
    linked.peer.raw(linked.peer.message(b"whole") + linked.peer.message(b"cut")[:-2])
    linked.peer.hang_up()
    assert isinstance(linked.owner.await_end(), ConnectionLostError)
    assert linked.owner.bodies == [b"whole"]


def test_a_bug_in_the_owner_ends_the_link_and_is_logged(linking: Linking, caplog: pytest.LogCaptureFixture) -> None:
    owner = RecordingOwner()

    def broken(link: Link, frames: Sequence[Frame]) -> None:
        raise ZeroDivisionError

    owner.on_messages = broken
    with caplog.at_level(logging.ERROR, "stompy.link"):
        linked = linking(owner=owner)
        linked.peer.deliver("x")
        assert isinstance(owner.await_end(), ConnectionLostError)
        assert linked.link.join(Deadline(WITHIN))
    assert "stompy-test-1-reader" in caplog.text
    assert "ZeroDivisionError" in caplog.text
