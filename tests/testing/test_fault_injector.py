"""What becomes of a stream in one direction of a link that a plan strikes."""

from __future__ import annotations

import math
import re

import pytest

from stompy.testing.faults import (
    GARBAGE,
    HEARTBEAT,
    RECEIVED,
    SENT,
    STRAY_MESSAGE,
    Cut,
    CutAfter,
    Delay,
    Double,
    Drop,
    Fault,
    FaultInjector,
    FaultPlan,
    FramePiece,
    FrameSplitter,
    Insert,
    Rewrite,
)

FIRST = b"RECEIPT\nreceipt-id:1\n\n\0"
SECOND = b"RECEIPT\nreceipt-id:2\n\n\0"
MESSAGE = b"MESSAGE\nsubscription:1\ncontent-length:4\n\nab\0d\0"


def passed(pieces: list[FramePiece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def treated(*faults: Fault, link: int = 1, direction: str = SENT, seed: int = 0) -> FaultInjector:
    return FaultInjector(FaultPlan(*faults, seed=seed), link=link, direction=direction)


def test_without_faults_everything_passes_unchanged() -> None:
    data = FIRST + b"\n" + MESSAGE + GARBAGE
    assert passed(treated().feed(data)) == data


def test_a_frame_is_counted_by_its_command() -> None:
    assert passed(treated(Drop("RECEIPT", nth=2)).feed(FIRST + MESSAGE + SECOND + FIRST)) == FIRST + MESSAGE + FIRST


def test_each_frame_is_struck_without_a_number() -> None:
    assert passed(treated(Drop("RECEIPT")).feed(FIRST + MESSAGE + SECOND)) == MESSAGE


def test_any_frame_of_a_way_counts_and_heart_beats_do_not() -> None:
    assert passed(treated(Drop(SENT, nth=2)).feed(b"\n" + FIRST + b"\n" + MESSAGE + SECOND)) == (
        b"\n" + FIRST + b"\n" + SECOND
    )


def test_heart_beats_can_be_dropped() -> None:
    assert passed(treated(Drop("heart-beat")).feed(b"\n" + FIRST + b"\n")) == FIRST


def test_a_fault_of_the_other_way_does_nothing() -> None:
    sent = b"SEND\ndestination:a\n\n\0"
    treatment = treated(Drop("SEND"), Drop(RECEIVED), CutAfter(received=0))
    assert (passed(treatment.feed(sent)), [*treatment.limits(0)]) == (sent, [])
    assert passed(treated(Drop("SEND"), direction=RECEIVED).feed(sent)) == b""


def test_a_fault_of_another_link_does_nothing() -> None:
    faults = Drop("RECEIPT", link=2), CutAfter(sent=3, link=2)
    first, second = treated(*faults), treated(*faults, link=2)
    assert (passed(first.feed(FIRST)), [*first.limits(0)]) == (FIRST, [])
    assert (passed(second.feed(FIRST)), [*second.limits(0)]) == (b"", [(3, faults[1])])


def test_a_dropped_body_is_dropped_over_several_reads() -> None:
    treatment = treated(Drop("MESSAGE"))
    pieces = [step for byte in MESSAGE + FIRST for step in treatment.feed(bytes((byte,)))]
    assert passed(pieces) == FIRST


def test_what_waits_is_behind_what_came_before() -> None:
    assert treated(Delay("RECEIPT", nth=2)).feed(FIRST + SECOND) == [
        FramePiece(FIRST),
        FramePiece(SECOND, delay=math.inf),
    ]
    assert treated(Delay("RECEIPT", seconds=2)).feed(FIRST) == [FramePiece(FIRST, delay=2)]


@pytest.mark.parametrize("keep", [*range(len(MESSAGE) + 1), None])
def test_a_cut_keeps_exactly_the_bytes_asked_for(keep: int | None) -> None:
    fault = Cut("MESSAGE", keep=keep)
    for reads in ([FIRST + MESSAGE], [bytes((byte,)) for byte in FIRST + MESSAGE]):
        treatment = treated(fault)
        pieces = [piece for data in reads for piece in treatment.feed(data)]
        assert pieces == [FramePiece(FIRST), FramePiece(MESSAGE[:keep], cut=fault)]


def test_a_limit_of_bytes_counts_from_when_its_fault_was_added() -> None:
    plan = FaultPlan(CutAfter(sent=20))
    treatment = FaultInjector(plan, link=1, direction=SENT)
    assert [end for end, _ in treatment.limits(0)] == [20]
    plan.add(CutAfter(sent=3))
    assert [end for end, _ in treatment.limits(10)] == [20, 13]
    assert [end for end, _ in treatment.limits(12)] == [20, 13]


def test_a_range_draws_a_number_for_each_link_from_the_seed() -> None:
    drawn = [
        [end for link in range(1, 20) for end, _ in treated(CutAfter(sent=(1, 2_000)), link=link, seed=seed).limits(0)]
        for seed in (7, 7, 8)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) > 10
    assert all(1 <= number <= 2_000 for number in drawn[0])


def test_chance_strikes_the_same_frames_of_the_same_seed() -> None:
    stream = FIRST * 200
    left = [len(passed(treated(Drop("RECEIPT", chance=0.5), seed=seed).feed(stream))) for seed in (7, 7, 8)]
    assert left[0] == left[1] != left[2]
    assert 50 < left[0] // len(FIRST) < 150


def test_the_way_a_stream_is_read_does_not_change_its_fate() -> None:
    faults = Drop("RECEIPT", chance=0.3), Double("MESSAGE", chance=0.5)
    stream = (FIRST + MESSAGE + b"\n") * 50
    at_once = passed(treated(*faults, seed=3).feed(stream))
    treatment = treated(*faults, seed=3)
    assert passed([step for byte in stream for step in treatment.feed(bytes((byte,)))]) == at_once


def test_a_doubled_frame_passes_twice() -> None:
    assert passed(treated(Double("MESSAGE")).feed(FIRST + MESSAGE + SECOND)) == FIRST + MESSAGE + MESSAGE + SECOND


def test_a_doubled_frame_that_comes_in_pieces_passes_twice() -> None:
    treatment = treated(Double("MESSAGE"))
    pieces = [step for byte in MESSAGE + FIRST for step in treatment.feed(bytes((byte,)))]
    assert passed(pieces) == MESSAGE + MESSAGE + FIRST


def test_a_header_gets_another_value() -> None:
    fault = Rewrite("RECEIPT", header="receipt-id", value="other")
    assert passed(treated(fault).feed(FIRST + SECOND)) == b"RECEIPT\nreceipt-id:other\n\n\0" * 2


def test_the_first_header_of_a_name_is_rewritten_and_the_body_is_not() -> None:
    frame = b"MESSAGE\r\na:1\r\na:2\r\n\r\n\na:3\n\0"
    assert passed(treated(Rewrite("MESSAGE", header="a", value=r"\1")).feed(frame)) == frame.replace(b"1", rb"\1")


def test_a_frame_without_the_header_passes_as_it_is() -> None:
    assert passed(treated(Rewrite("RECEIPT", header="receipt", value="x")).feed(FIRST)) == FIRST


@pytest.mark.parametrize("data", [GARBAGE, STRAY_MESSAGE])
def test_something_stands_before_the_frame(data: bytes) -> None:
    assert passed(treated(Insert("RECEIPT", nth=2, data=data)).feed(FIRST + SECOND)) == FIRST + data + SECOND


def test_several_faults_strike_one_frame() -> None:
    wait = Delay("RECEIPT", seconds=1)
    rewrite = Rewrite("RECEIPT", header="receipt-id", value="9")
    pieces = treated(wait, Insert("RECEIPT", data=b"\n"), rewrite, Double("RECEIPT")).feed(FIRST)
    changed = re.sub(b"1", b"9", FIRST)
    assert pieces == [FramePiece(b"\n" + changed + changed, delay=1)]


def test_a_fault_that_is_added_later_counts_from_then_on() -> None:
    plan = FaultPlan()
    treatment = FaultInjector(plan, link=1, direction=SENT)
    treatment.feed(FIRST)
    plan.add(Drop("RECEIPT", nth=1))
    assert passed(treatment.feed(FIRST + SECOND + MESSAGE)) == SECOND + MESSAGE


def test_a_fault_that_was_removed_does_nothing() -> None:
    faults = Drop("RECEIPT"), CutAfter(sent=100)
    plan = FaultPlan(*faults)
    treatment = FaultInjector(plan, link=1, direction=SENT)
    assert passed(treatment.feed(FIRST)) == b""
    plan.remove(*faults)
    assert (passed(treatment.feed(FIRST * 20)), [*treatment.limits(0)]) == (FIRST * 20, [])


def test_what_was_done_is_noted() -> None:
    plan = FaultPlan(Drop("RECEIPT"), Double("MESSAGE"), CutAfter(sent=1_000))
    FaultInjector(plan, link=4, direction=SENT).feed(FIRST + MESSAGE)
    assert [(strike.fault, strike.link) for strike in plan.strikes] == [(Drop("RECEIPT"), 4), (Double("MESSAGE"), 4)]


# FrameSplitter

CONVERSATION = (
    b"\n\r\n"
    b"CONNECTED\nversion:1.2\n\n\0"
    b"\n"
    b"MESSAGE\ndestination:/queue/a\ncontent-length:5\n\na\0\n\0b\0"
    b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0"
    b"ERROR\nmessage:no\n\nas far as the nul\0"
    b"NO-BLANK-LINE\na:b\0"
)
FRAMES = [
    (HEARTBEAT, b"\n\r\n"),
    ("CONNECTED", b"CONNECTED\nversion:1.2\n\n\0"),
    (HEARTBEAT, b"\n"),
    ("MESSAGE", b"MESSAGE\ndestination:/queue/a\ncontent-length:5\n\na\0\n\0b\0"),
    ("RECEIPT", b"RECEIPT\r\nreceipt-id:1\r\n\r\n\0"),
    ("ERROR", b"ERROR\nmessage:no\n\nas far as the nul\0"),
    ("NO-BLANK-LINE", b"NO-BLANK-LINE\na:b\0"),
]


def test_frames_that_come_in_one_read_are_told_apart() -> None:
    assert list(FrameSplitter().feed(CONVERSATION)) == FRAMES


@pytest.mark.parametrize("at", range(len(CONVERSATION)))
def test_frames_cut_anywhere_are_put_together(at: int) -> None:
    splitter = FrameSplitter()
    frames = [*splitter.feed(CONVERSATION[:at]), *splitter.feed(CONVERSATION[at:])]
    assert b"".join(data for _, data in frames) == CONVERSATION
    assert [frame for frame in frames if frame[0] != HEARTBEAT] == [frame for frame in FRAMES if frame[0] != HEARTBEAT]


def test_a_conversation_byte_by_byte_is_the_same() -> None:
    splitter = FrameSplitter()
    frames = [frame for byte in CONVERSATION for frame in splitter.feed(bytes((byte,)))]
    assert [frame for frame in frames if frame[0] != HEARTBEAT] == [frame for frame in FRAMES if frame[0] != HEARTBEAT]


def test_a_frame_is_held_back_until_it_is_whole() -> None:
    splitter = FrameSplitter()
    for part in (b"SEND\ncontent-length:4\n", b"\nab", b"c"):
        assert list(splitter.feed(part)) == []
    assert list(splitter.feed(b"d\0\n")) == [
        ("SEND", b"SEND\ncontent-length:4\n\nabcd\0"),
        (HEARTBEAT, b"\n"),
    ]


def test_the_rest_of_a_stream_passes_at_its_end() -> None:
    treatment = treated()
    assert treatment.feed(b"SEND\ncontent-") == []
    assert treatment.feed(b"") == [FramePiece(b"SEND\ncontent-")]


def test_what_never_becomes_a_head_is_passed_on() -> None:
    data = b"x" * (1024 * 1024 + 1)
    assert [part for _, part in FrameSplitter().feed(data)] == [data]
