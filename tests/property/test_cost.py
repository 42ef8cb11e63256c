"""Time is linear and memory bounded: shown by counts and by inputs that anything else would never finish.

Nothing here looks at a clock: work that grows with the square of these inputs runs into the timeout of the test.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest

from stompy.errors import FrameTooLargeError
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits
from stompy.frames.parser import Parser
from tests.support.codec import cut, parser
from tests.support.reference import PROFILES

KIB, MIB = 1024, 1024 * 1024
ROOMY = FrameLimits(max_first_body=DEFAULT_LIMITS.max_body)


def reads(stream: bytes, size: int) -> Iterator[bytes]:
    """Yield the reads one by one, so that they do not add to the memory that is measured."""
    view = memoryview(stream)
    return (bytes(view[start : start + size]) for start in range(0, len(stream), size))


def count(reader: Parser, chunks: Iterable[bytes]) -> int:
    return sum(len(reader.feed(chunk)) for chunk in chunks)


def body_stream(size: int, *, counted: bool) -> bytes:
    head = b"MESSAGE\ncontent-length:%d\n\n" % size if counted else b"MESSAGE\n\n"
    return b"".join((head, b"x" * size, b"\0"))


@pytest.mark.requirement("BDY-03", "BDY-05", "FRM-12", "LIM-03")
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
@pytest.mark.parametrize(("size", "read"), [(MIB // 4, 1), (20 * MIB, KIB), (50 * MIB, MIB), (50 * MIB, 64 * MIB)])
def test_a_large_body_is_read_in_reads_of_any_size(size: int, read: int, counted: bool) -> None:
    reader = parser("1.2")
    (frame,) = [frame for chunk in reads(body_stream(size, counted=counted), read) for frame in reader.feed(chunk)]
    assert len(frame.body) == size
    assert reader.pending == 0


@pytest.mark.requirement("LIM-03")
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "uncounted"])
@pytest.mark.parametrize("read", [100 * KIB, MIB, 64 * MIB])
def test_a_large_body_is_held_no_more_than_twice(read: int, counted: bool) -> None:
    size = 50 * MIB
    stream = body_stream(size, counted=counted)
    reader = parser("1.2")
    tracemalloc.start()
    try:
        assert count(reader, reads(stream, read)) == 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A read of the whole is itself one copy, made by `reads`.
    assert peak < 2.3 * size


@pytest.mark.requirement("LIM-01", "LIM-03")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("read", [1, 100, 64 * KIB, 8 * MIB])
def test_a_head_of_a_million_lines_is_refused_at_the_limit(profile: str, read: int) -> None:
    stream = b"MESSAGE\n" + b"a:b\n" * 1_000_000
    limits = FrameLimits()
    reader = parser(profile)
    used = 0
    tracemalloc.start()
    try:
        for chunk in reads(stream, read):
            reader.feed(chunk)
            used += len(chunk)
            assert reader.pending <= 8 + 4 * (limits.max_headers + 1) + read
            if reader.error is not None:
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(reader.error, FrameTooLargeError)
    assert reader.error.limit_name == "max_headers"
    assert used <= 8 + 4 * (limits.max_headers + 1) + read
    assert peak < 3 * read + MIB


@pytest.mark.parametrize("read", [100, 4 * KIB, 8 * MIB])
def test_a_head_of_many_lines_is_read_where_it_is_let_in(read: int) -> None:
    stream = b"MESSAGE\n" + b"a:b\n" * 200_000 + b"\n\0"
    reader = parser("1.2", limits=FrameLimits(max_headers=200_000))
    (frame,) = [frame for chunk in reads(stream, read) for frame in reader.feed(chunk)]
    assert len(frame.headers.pairs) == 200_000


@pytest.mark.requirement("FRM-06", "A-46")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize(("size", "read"), [(MIB // 16, 1), (4 * MIB, KIB), (10 * MIB, 64 * MIB)])
def test_endless_line_ends_take_no_room(profile: str, size: int, read: int) -> None:
    reader = parser(profile, limits=ROOMY)
    for chunk in reads(b"\n" * size, read):
        assert reader.feed(chunk) == []
        assert reader.pending == 0


@pytest.mark.requirement("FRM-06")
@pytest.mark.parametrize("read", [1, KIB - 1, 64 * MIB])
def test_endless_cr_lf_takes_no_room(read: int) -> None:
    reader = parser("1.2")
    for chunk in reads(b"\r\n" * (MIB // 16 if read == 1 else 5 * MIB), read):
        assert reader.feed(chunk) == []
        assert reader.pending <= 1


@pytest.mark.requirement("LIM-01", "FRM-12")
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("filling", [b"x", b"\\\\", b"\r"], ids=["x", "escapes", "cr"])
def test_a_long_header_line_is_read_byte_by_byte(profile: str, filling: bytes) -> None:
    line = b"k:" + filling * ((64 * KIB - 2) // len(filling))
    reader = parser(profile, limits=ROOMY)
    found = count(reader, reads(b"MESSAGE\n" + line + b"\n\n", 1))
    fatal = filling == b"\r" and profile == "1.2"
    assert (found, reader.error is not None) == (0, fatal)
    assert fatal or count(reader, [b"\0"]) == 1


@pytest.mark.requirement("D10-01")
@pytest.mark.parametrize("line", [b" " * 65_000, b" \r" * 32_500, b" " * 32_500 + b"k:" + b"v" * 32_000])
def test_a_long_line_of_spaces_of_the_draft_is_read_byte_by_byte(line: bytes) -> None:
    reader = parser("1.0-draft")
    assert count(reader, reads(b"MESSAGE\nk:v\n" + line + b"\n", 1)) == 0
    assert count(reader, [b"\n\0"]) == 1


@pytest.mark.requirement("FRM-04")
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_many_small_frames_are_read_in_one_go(line_end: bytes) -> None:
    head = line_end.join([b"MESSAGE", b"destination:/queue/a", b"message-id:1", b"subscription:1", b"", b""])
    stream = (head + b"x" * 190 + b"\0" + line_end) * 50_000
    assert len(stream) > 11 * MIB
    assert len(parser("1.2").feed(stream)) == 50_000


def events(profile: str, stream: bytes, read: int) -> int:
    """Return how many calls, of Python and C functions, it takes to read `stream`."""
    chunks = cut(stream, read)
    reader = parser(profile, limits=ROOMY)
    number = 0

    def tick(*_: object) -> None:
        nonlocal number
        number += 1

    previous = sys.getprofile()
    sys.setprofile(tick)
    try:
        for chunk in chunks:
            reader.feed(chunk)
    finally:
        sys.setprofile(previous)
    return number


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("read", [1, 500])
@pytest.mark.parametrize(
    ("start", "again"),
    [
        (b"MESSAGE\n\n", b"x" * 100),
        (b"MESSAGE\ncontent-length:1000000\n\n", b"x" * 100),
        (b"MESSAGE\nk:", b"x" * 100),
        (b"MESSAGE\n", b"k:v\nlonger:value\n"),
        (b"", b"\n" * 100),
        (b"", b"MESSAGE\nk:a b\n\nbody\0\n"),
        (b"", b"SEND\nk:v\ncontent-length:4\n\nbody\0"),
    ],
    ids=["body", "counted body", "line", "lines", "line ends", "frames", "counted frames"],
)
def test_twice_the_bytes_take_twice_the_calls(profile: str, read: int, start: bytes, again: bytes) -> None:
    once, twice = (events(profile, start + again * times, read) for times in (50, 100))
    assert twice < 2.1 * once + 100
