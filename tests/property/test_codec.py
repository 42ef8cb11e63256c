"""What holds for the codec whatever is said: encode and parse are reverses, and the parser is never surprised."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stompy.errors import LocalProtocolError
from stompy.frames.encoder import encode
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Leniency
from tests.fuzz.target import TIGHT, check_second_trip, check_stream
from tests.property import strategies
from tests.support.codec import cut, feed_all, grammar, parser
from tests.support.reference import PROFILES, Decoded, Reference

limits = st.sampled_from([DEFAULT_LIMITS, TIGHT])


def as_read(frame: Decoded, profile: str) -> Decoded:
    """Return what the peer makes of a frame: 1.0 loses the spaces around values."""
    command, pairs, body = frame
    if profile == "1.0":
        pairs = tuple((name, value.strip(" ")) for name, value in pairs)
    return command, pairs, body


def without_length(frame: Decoded) -> Decoded:
    command, pairs, body = frame
    return command, tuple(pair for pair in pairs if pair[0] != "content-length"), body


@pytest.mark.requirement("FRM-01", "FRM-12", "ESC-04", "ESC-05", "ESC-09", "BDY-03", "BDY-09", "BDY-10", "BDY-06")
@pytest.mark.parametrize("profile", PROFILES)
@given(data=st.data())
def test_what_is_written_is_read_under_any_chunking(profile: str, data: st.DataObject) -> None:
    frames = data.draw(st.lists(strategies.frames(profile), min_size=1, max_size=4))
    stream = b"\n".join(strategies.written(frame, profile) for frame in frames)
    found, error = feed_all(parser(profile), cut(stream, data.draw(strategies.read_sizes)))
    assert error is None
    assert [without_length(frame) for frame in found] == [as_read(frame, profile) for frame in frames]


@given(
    profile=strategies.profiles,
    leniency=strategies.leniencies,
    limits=limits,
    size=strategies.read_sizes,
    data=st.data(),
)
def test_broken_streams_give_what_the_reference_gives(
    profile: str, leniency: Leniency, limits: FrameLimits, size: int, data: st.DataObject
) -> None:
    check_stream(data.draw(strategies.broken_streams(profile)), profile, leniency, limits, size=size)


@given(strategies.soups, strategies.profiles, strategies.leniencies, limits, strategies.read_sizes)
def test_any_bytes_give_what_the_reference_gives(
    stream: bytes, profile: str, leniency: Leniency, limits: FrameLimits, size: int
) -> None:
    check_stream(stream, profile, leniency, limits, size=size)


@given(profile=strategies.profiles, limits=limits, data=st.data())
def test_the_chunking_changes_nothing(profile: str, limits: FrameLimits, data: st.DataObject) -> None:
    stream = data.draw(strategies.broken_streams(profile))
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    reads = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    whole, error = feed_all(parser(profile, limits=limits), [stream])
    cut_frames, cut_error = feed_all(parser(profile, limits=limits), reads)
    assert cut_frames == whole
    assert (cut_error is None) == (error is None)


@given(profile=strategies.profiles, data=st.data())
def test_pending_is_bounded_by_the_limits_and_a_read(profile: str, data: st.DataObject) -> None:
    stream = data.draw(strategies.broken_streams(profile)) * 20
    size = data.draw(strategies.read_sizes)
    head = 65 + (TIGHT.max_headers + 1) * (TIGHT.max_header_line + 2)
    reader = parser(profile, limits=TIGHT)
    for read in cut(stream, size):
        if reader.error is None:
            reader.feed(read)
            assert reader.pending <= max(head, TIGHT.max_body + 1) + size


@given(profile=strategies.profiles, leniency=strategies.leniencies, data=st.data())
def test_any_headers_are_written_so_that_they_are_read_or_refused(
    profile: str, leniency: Leniency, data: st.DataObject
) -> None:
    text = st.text("\n\r:\\\0 aAé\x7f", max_size=4)
    command = data.draw(st.sampled_from(["SEND", "CONNECT", "ACK", "FOO", "message"]))
    pairs = tuple(data.draw(st.lists(st.tuples(text, text), max_size=3)))
    body = data.draw(strategies.bodies)
    try:
        stream = encode(command, pairs, body, grammar=grammar(profile, leniency))
    except LocalProtocolError:
        assume(False)
    found, refusal = Reference(profile, leniency).decode(stream)
    assert refusal is None
    if profile == "1.0-draft":
        command, pairs = command.upper(), tuple((name.lower(), value) for name, value in pairs)
    assert [without_length(frame) for frame in found] == [as_read((command, pairs, body), profile)]


@given(profile=strategies.profiles, data=st.data())
def test_a_frame_survives_a_second_trip(profile: str, data: st.DataObject) -> None:
    for frame in feed_all(parser(profile), [data.draw(strategies.broken_streams(profile))])[0]:
        check_second_trip(frame, profile, Leniency.NONE)
