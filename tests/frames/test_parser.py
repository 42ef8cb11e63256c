from __future__ import annotations

import pytest

from stompy.errors import FrameTooLargeError, RemoteProtocolError
from stompy.frames.grammar import FrameLimits, Leniency, Version, grammar_of, handshake_grammar
from stompy.frames.parser import Parser
from tests.frames.case import ALL, DRAFT, FINAL, HANDSHAKE, V1_0, V1_1, V1_2, Case, frame
from tests.frames.cases import GROUPS
from tests.support.codec import cut, feed_all, parser, plain
from tests.support.reference import Reference

EVERY_CASE = [
    pytest.param(case, profile, id=f"{profile} {group}: {case.name}", marks=pytest.mark.requirement(*case.rows))
    for group, cases in GROUPS.items()
    for case in cases
    for profile in case.profiles
]


def check(case: Case, profile: str, reads: list[bytes], more: int = 0) -> None:
    """Feed the case to a fresh parser; `more` frames of no interest may follow its own where it is a good one."""
    frames, error = feed_all(parser(profile, case.leniency, case.limits), reads)
    expected = list(case.frames)
    assert frames[: len(expected)] == expected
    if case.error is not None:
        assert len(frames) == len(expected)
        assert error is not None
    else:
        assert error is None
        assert len(frames) == len(expected) + more


@pytest.mark.parametrize(("case", "profile"), EVERY_CASE)
def test_the_parser_makes_of_it(case: Case, profile: str) -> None:
    stream = case.stream
    whole = parser(profile, case.leniency, case.limits)
    whole.feed(stream)
    assert (case.error or "") in str(whole.error)

    check(case, profile, [stream])
    check(case, profile, cut(stream, 1))
    for at in range(1, len(stream)):
        check(case, profile, [stream[:at], stream[at:]])

    another = b"\n\n\nACK\nid:1\n\n\0"
    check(case, profile, [stream + another], more=1)
    check(case, profile, cut(stream + another, 1), more=1)
    check(case, profile, [stream, another], more=1)
    check(case, profile, [stream + b"\n\n"])
    check(case, profile, [stream, b"\n", b"\n"])


@pytest.mark.parametrize(("case", "profile"), EVERY_CASE)
def test_the_reference_makes_of_it(case: Case, profile: str) -> None:
    frames, refusal = Reference(profile, case.leniency, case.limits).decode(case.stream)
    assert frames == list(case.frames)
    assert (refusal is not None) == (case.error is not None)


@pytest.mark.requirement("A-14", "CON-19")
def test_after_the_first_frame_the_rest_waits_for_the_version() -> None:
    parser = Parser(handshake_grammar(), single=True)
    rest = b"MESSAGE\nk: a\\tb \n\n\0"
    assert plain(parser.feed(b"\r\nCONNECTED\r\nsession: 1\n\n\0\n" + rest[:7])) == [frame("CONNECTED", "session: 1")]
    assert parser.feed(rest[7:]) == []
    assert parser.pending == len(rest)

    parser.switch(grammar_of(Version.V1_0))
    assert plain(parser.feed(b"")) == [frame("MESSAGE", "k:a\\tb")]
    assert plain(parser.feed(rest)) == [frame("MESSAGE", "k:a\\tb")]
    assert parser.pending == 0


def test_a_switch_may_wait_for_one_frame_again() -> None:
    parser = Parser(handshake_grammar(), single=True)
    assert len(parser.feed(b"CONNECT\n\n\0STOMP\n\n\0SEND\n\n\0")) == 1
    parser.switch(handshake_grammar(), single=True)
    assert [found.command for found in parser.feed(b"")] == ["STOMP"]


def test_a_first_frame_with_a_body_in_two_reads_also_stops_the_parser() -> None:
    parser = Parser(handshake_grammar(), single=True)
    assert parser.feed(b"ERROR\n\nn") == []
    assert plain(parser.feed(b"o\0ERROR\n\nno\0")) == [frame("ERROR", body=b"no")]
    assert parser.feed(b"") == []
    parser.switch(grammar_of(Version.V1_2))
    assert plain(parser.feed(b"")) == [frame("ERROR", body=b"no")]


@pytest.mark.parametrize("reads", [[b"MESS"], [b"MESSAGE\nk:v\n", b"l:"], [b"\r"]])
def test_an_unfinished_head_is_read_anew_after_a_switch(reads: list[bytes]) -> None:
    parser = Parser(grammar_of(Version.V1_2))
    for read in reads:
        assert parser.feed(read) == []
    assert parser.pending == len(b"".join(reads))
    parser.switch(grammar_of(Version.V1_0))
    rest = {b"MESS": b"AGE\n\n\0", b"\r": b"\nMESSAGE\n\n\0"}.get(reads[0], b"w\n\n\0")
    assert [found.command for found in parser.feed(rest)] == ["MESSAGE"]


def test_what_ended_the_parsing_is_raised_by_every_later_feed() -> None:
    parser = Parser(grammar_of(Version.V1_2))
    assert plain(parser.feed(b"SEND\n\nx\0SEND\nfoo\n\n\0SEND\n\ny\0")) == [frame("SEND", body=b"x")]
    assert parser.error is not None
    assert parser.pending == 0
    for _ in range(2):
        with pytest.raises(RemoteProtocolError) as caught:
            parser.feed(b"SEND\n\nx\0")
        assert caught.value is parser.error


def test_pending_counts_the_bytes_of_the_unfinished_frame() -> None:
    parser = Parser(grammar_of(Version.V1_2))
    parser.feed(b"SEND\n\nx\0SEND\nk:")
    assert parser.pending == len(b"SEND\nk:")
    parser.feed(b"v\n\nbo")
    assert parser.pending == len(b"\nk:v\nbo")
    parser.feed(b"dy\0\n")
    assert parser.pending == 0


@pytest.mark.requirement("D10-01")
def test_an_endless_blank_line_between_frames_of_the_draft_is_not_kept() -> None:
    parser = Parser(grammar_of(Version.DRAFT))
    for _ in range(100):
        assert parser.feed(b" \r ") == []
        assert parser.pending == 1
    assert plain(parser.feed(b"\nSEND\n\nx\0")) == [frame("SEND", body=b"x")]


@pytest.mark.requirement("LIM-01", "LIM-03")
@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize(
    ("stream", "name", "limit"),
    [
        (b"SEND\na:1\nb:2\n", "max_headers", 1),
        (b"SEND\na:1234\n", "max_header_line", 5),
        (b"SEND\na:1\nb:2\n", "max_header_block", 7),
        (b"SEND\n\n1234567", "max_body", 6),
        (b"SEND\ncontent-length:7\n\n", "max_body", 6),
    ],
)
def test_a_limit_that_was_passed_is_named(profile: str, stream: bytes, name: str, limit: int) -> None:
    limits = FrameLimits(**{name: limit})
    for size in (1, len(stream)):
        _, error = feed_all(parser(profile, limits=limits), cut(stream, size))
        assert isinstance(error, FrameTooLargeError)
        assert (error.limit_name, error.limit) == (name, limit)
        assert f"{name}={limit}" in str(error)
        assert parser(profile).feed(stream) == []


@pytest.mark.parametrize("profile", [*FINAL, HANDSHAKE])
@pytest.mark.parametrize(
    "stream",
    [
        b"CONNECT\nlogin:u\npasscode:s3cret\0\n",
        b"CONNECT\npasscode:s3\ncret\n\n\0",
        b"CONNECT\npasscode:s3\r\ncret\n\n\0",
        b"STOMP\npasscode:s3\ncret\n\n\0",
        b"passcode:s3cret\n\n\0",
        b"CONNECT\npasscode:s3cret\n\n\0passcode:s3cret\n",
    ],
)
def test_no_error_shows_a_passcode(profile: str, stream: bytes) -> None:
    for size in (1, 16, len(stream)):
        _, error = feed_all(parser(profile), cut(stream, size))
        assert error is not None
        assert "cret" not in str(error)


def test_lines_that_came_whole_in_one_read_are_measured_before_the_head_ends() -> None:
    limits = FrameLimits(max_header_line=8)
    _, error = feed_all(parser(V1_2, limits=limits), [b"SEND\nk:1", b"\nlong:6789\nk:"])
    assert isinstance(error, FrameTooLargeError)


def test_a_head_longer_than_the_fast_search_is_read() -> None:
    lines = "".join(f"name-{number}:value {number}\n" for number in range(600))
    stream = f"MESSAGE\n{lines}\nbody\0".encode()
    for profile in ALL:
        for reads in ([stream], cut(stream, 1), cut(stream, 4096)):
            frames, error = feed_all(parser(profile), [*reads, stream])
            assert error is None
            assert [len(pairs) for _, pairs, _ in frames] == [600, 600]


@pytest.mark.requirement("FRM-12")
@pytest.mark.parametrize("profile", [V1_0, V1_1, V1_2, DRAFT, HANDSHAKE])
def test_frames_of_every_size_come_out_of_reads_of_every_size(profile: str) -> None:
    stream = b"".join(
        b"MESSAGE\ndestination:/q\nsize:%d\n%s\n%s\0\n"
        % (size, b"content-length:%d\n" % size * (size % 2), b"x" * size)
        for size in (0, 1, 2, 3, 5, 20, 100, 300, 1000)
    )
    expected, _ = Reference(profile).decode(stream)
    assert len(expected) == 9
    for size in (1, 2, 3, 7, 50, 333, 1024, len(stream)):
        assert feed_all(parser(profile), cut(stream, size)) == (expected, None)


@pytest.mark.parametrize("profile", [*FINAL, HANDSHAKE])
@pytest.mark.parametrize("ending", ["", "a:b", "\n\0"])
def test_many_short_lines_are_too_much_together(profile: str, ending: str) -> None:
    limits = FrameLimits(max_header_block=1_000)
    stream = ("SEND\n" + "k:v\n" * 250 + ending).encode()
    for size in (1, 7, len(stream)):
        frames, error = feed_all(parser(profile, limits=limits), cut(stream, size))
        assert error is None
        frames, error = feed_all(parser(profile, limits=limits), cut(stream.replace(b"SEND\n", b"SEND\nk:\n"), size))
        assert frames == []
        assert isinstance(error, FrameTooLargeError)
        assert error.limit_name == "max_header_block"


@pytest.mark.parametrize("stream", [b"CONNECT\ncontent-length:65537\n\n", b"ERROR\n\n" + b"x" * 65_537])
def test_a_peer_that_is_not_authenticated_yet_gets_less_space_for_a_body(stream: bytes) -> None:
    for size in (1000, len(stream)):
        _, error = feed_all(parser(HANDSHAKE), cut(stream, size))
        assert isinstance(error, FrameTooLargeError)
        assert error.limit_name == "max_first_body"


@pytest.mark.parametrize("version", [Version.V1_0, Version.V1_1, Version.V1_2])
@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_nuls_between_frames_are_skipped_and_counted_where_they_are_tolerated(version: Version, cut: int) -> None:
    stream = b"\0\n\0\0BEGIN\ntransaction:1\n\n\0\0\0\nBEGIN\ntransaction:2\n\n\0"
    parser = Parser(grammar_of(version, Leniency.NUL_BETWEEN_FRAMES))
    frames = [frame for start in range(0, len(stream), cut) for frame in parser.feed(stream[start : start + cut])]
    assert [frame.headers["transaction"] for frame in frames] == ["1", "2"]
    assert (parser.error, parser.line_ends) == (None, 7)


def test_a_cr_before_a_nul_between_frames_is_still_an_error() -> None:
    parser = Parser(grammar_of(Version.V1_2, Leniency.NUL_BETWEEN_FRAMES))
    assert parser.feed(b"\r\0SEND\ndestination:a\n\n\0") == []
    assert "only line ends are allowed" in str(parser.error)


def test_line_ends_between_frames_are_counted() -> None:
    reader = parser(V1_2)
    reader.feed(b"\n\r\n\nSEND\na:b\n\n\n\n\0\n\n\nSE")
    assert reader.line_ends == 4 + 2  # the one after the NUL is taken with the frame
    reader.feed(b"ND\n\n\0")
    assert reader.line_ends == 6
    reader.feed(b"SEND\r\n\r\n\0\r\n\r\n")
    assert reader.line_ends == 6 + 2
