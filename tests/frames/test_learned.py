"""Heads that were learned: whoever knows them makes of every stream what he makes who does not, wherever it is cut."""

from __future__ import annotations

import pytest

from stompy.frames.frame import Frame
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Leniency, Version, grammar_of
from stompy.frames.heads import HeadChecker, LearnedHeads, Run, frames_of
from stompy.frames.parser import Parser
from tests.frames.case import FINAL, V1_0, V1_1, V1_2, Case
from tests.frames.test_parser import EVERY_CASE
from tests.support.codec import another, cut, parser, plain, taught, teach

LINES = (b"subscription:1", b"message-id:a\\cb", b"destination:/q", b"content-length:2")
GOOD = b"MESSAGE\n" + b"\n".join(LINES) + b"\n\nhi\0"
CRLF = b"MESSAGE\r\n" + b"\r\n".join(LINES) + b"\r\n\r\nhi\0\r\n"
UNCOUNTED = b"SEND\ndestination:/q\nk:\n\nhi\0"
RECEIPT = b"RECEIPT\nreceipt-id:r\n\n\0"
LIMITS = FrameLimits(max_headers=5, max_header_line=40, max_header_block=100, max_body=12)


def with_line(place: int, line: bytes, body: bytes = b"hi") -> bytes:
    lines = [*LINES]
    lines[place] = line
    return b"MESSAGE\n" + b"\n".join(lines) + b"\n\n" + body + b"\0"


ODD = {
    "an undefined escape": with_line(1, b"message-id:a\\tb"),
    "an escape of 1.2": with_line(1, b"message-id:a\\rb\\n\\\\c"),
    "a backslash at the end": with_line(1, b"message-id:a\\"),
    "a CR": with_line(2, b"destination:a\rb"),
    "a CR at the end": with_line(2, b"destination:a\r"),
    "a CR at the end of a length": with_line(3, b"content-length:2\r"),
    "CR LF": GOOD[:-3].replace(b"\n", b"\r\n") + b"hi\0",
    "a NUL": with_line(2, b"destination:a\0b"),
    "UTF-8": with_line(2, "destination:é😀".encode()),
    "bad UTF-8": with_line(2, b"destination:\xff"),
    "UTF-8 that is cut": with_line(2, b"destination:\xc3"),
    "a repeated header": with_line(2, b"destination:/q\ndestination:/r"),
    "a repeated length": with_line(3, b"content-length:2\ncontent-length:9"),
    "spaces": with_line(0, b"subscription: 1 "),
    "a padded length": with_line(3, b"content-length: 2"),
    "a length with zeros": with_line(3, b"content-length:002"),
    "a length of many digits": with_line(3, b"content-length:" + b"0" * 12 + b"2"),
    "no length": with_line(3, b"content-length:"),
    "a length in foreign digits": with_line(3, "content-length:٢".encode()),
    "a length that is too small": with_line(3, b"content-length:1"),
    "a length that is too large": with_line(3, b"content-length:3"),
    "a length beyond the limit": with_line(3, b"content-length:13", b"x" * 13),
    "a body with NULs": with_line(3, b"content-length:7", b"\0\n\0MES\0"),
    "no body": with_line(3, b"content-length:0", b""),
    "another header": with_line(2, b"destination:/q\nx:y"),
    "a header less": with_line(2, b"x:y"),
    "no colon": with_line(2, b"destination"),
    "no name": with_line(2, b":/q"),
    "a long line": with_line(2, b"destination:" + b"q" * 40),
    "long lines": with_line(2, b"destination:" + b"q" * 28).replace(b"subscription:1", b"subscription:" + b"1" * 27),
    "line ends after": GOOD + b"\n\n\n",
    "CR LF after": GOOD + b"\r\n\n\r\n",
    "a CR after": GOOD + b"\n\r",
    "a NUL after": GOOD + b"\n\0",
    "CR LF in it and after": CRLF,
    "CR LF in it and LF after": CRLF[:-2] + b"\n\r\n",
    "a receipt": RECEIPT,
    "a receipt with a body": RECEIPT[:-1] + b"x\0",
    "a receipt with a length": b"RECEIPT\nreceipt-id:r\ncontent-length:0\n\n\0",
    "an empty value": UNCOUNTED,
    "a body that does not end": UNCOUNTED[:-1] + b"x" * 11 + b"\0",
    "another command": b"SEND" + GOOD[7:],
    "no command": b"\x01" + GOOD,
}


def seen(reader: Parser, reads: list[bytes]) -> tuple[object, ...]:
    """Return all that is to be seen of a parser that reads a stream."""
    before, found = reader.line_ends, []
    for read in reads:
        if reader.error is None:
            found += plain(reader.feed(read))
    return found, str(reader.error), reader.pending, reader.line_ends - before


@pytest.mark.parametrize(
    ("leniency", "limits"),
    [(Leniency.NONE, DEFAULT_LIMITS), (Leniency.NONE, LIMITS), (~Leniency.NONE, DEFAULT_LIMITS)],
    ids=["strict", "tight", "lenient"],
)
@pytest.mark.parametrize("profile", FINAL)
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_at_every_boundary_the_learned_way_gives_what_the_long_way_gives(
    odd: bytes, profile: str, limits: FrameLimits, leniency: Leniency
) -> None:
    stream = GOOD + b"\n" + odd + UNCOUNTED + b"\n\n" + RECEIPT + GOOD + GOOD[:20]
    long_way = parser(profile, leniency, limits)
    learned = teach(another(long_way), GOOD, UNCOUNTED, RECEIPT)
    for at in range(len(GOOD) - 3, len(stream) - len(GOOD)):
        reads = [stream[:at], stream[at:]]
        assert seen(another(learned), reads) == seen(another(long_way), reads), at


@pytest.mark.parametrize(("case", "profile"), EVERY_CASE)
def test_every_case_comes_out_the_same_where_its_first_head_was_learned(case: Case, profile: str) -> None:
    for stream in (case.stream, case.stream * 2):
        long_way = parser(profile, case.leniency, case.limits)
        learned = taught(stream, profile, case.leniency, case.limits)
        if learned is None:
            return
        for at in range(0, len(stream), 1 + len(stream) // 200):
            reads = [stream[:at], stream[at:]]
            assert seen(another(learned), reads) == seen(another(long_way), reads), at


def shown(items: list[Frame | Run]) -> list[tuple[str, int]]:
    """Return the command of each item and how many frames it holds; 0 for one that took the slow path."""
    return [(item.command, len(item) if isinstance(item, Run) else 0) for item in items]


@pytest.mark.parametrize("profile", FINAL)
def test_after_some_dozens_of_frames_those_of_a_read_come_as_one_run(profile: str) -> None:
    reader = parser(profile)
    assert shown(reader.read(GOOD * 100)) == [*[("MESSAGE", 0)] * 32, ("MESSAGE", 68)]
    assert shown(reader.read(GOOD * 100)) == [("MESSAGE", 100)]


def test_line_ends_between_frames_keep_no_read_off_the_fast_path() -> None:
    reader = teach(parser(V1_2), GOOD)
    for read in (b"\n" + GOOD * 3, b"\n\n" + (GOOD + b"\n\n\n") * 3, b"\r\n" + (GOOD + b"\r\n") * 3):
        assert shown(reader.read(read)) == [("MESSAGE", 3)]


def test_frames_whose_lines_end_with_cr_lf_come_as_one_run_too() -> None:
    reader = teach(parser(V1_2), CRLF)
    assert shown(reader.read(CRLF * 100)) == [("MESSAGE", 100)]
    assert reader.line_ends == 0


def test_a_frame_cut_by_the_end_of_a_read_is_alone_in_taking_the_slow_path() -> None:
    reader = teach(parser(V1_2), GOOD)
    stream = GOOD * 100
    for read in cut(stream, 1000):
        items = reader.read(read)
        assert len([item for item in items if not isinstance(item, Run)]) <= 1
    assert reader.pending == 0


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"], ids=["LF", "CR LF"])
@pytest.mark.parametrize("body", [b"", b"text", bytes(range(256))], ids=["none", "text", "binary"])
def test_heads_with_either_line_end_and_any_body_are_learned(eol: bytes, body: bytes) -> None:
    head = [b"MESSAGE", b"a:b", b"content-length:%d" % len(body), b"", b""]
    reader = teach(parser(V1_2), eol.join(head) + body + b"\0")
    (run,) = reader.read((eol.join(head) + body + b"\0\n") * 3)
    assert isinstance(run, Run)
    assert plain(run) == [("MESSAGE", (("a", "b"), ("content-length", str(len(body)))), body)] * 3


def test_several_heads_are_known_at_a_time_and_runs_hold_one_command_each() -> None:
    more = with_line(2, b"destination:/q\nredelivered:true")
    reader = teach(parser(V1_2), GOOD, more, RECEIPT)
    items = reader.read(GOOD + more + GOOD + RECEIPT + RECEIPT + more)
    assert shown(items) == [("MESSAGE", 3), ("RECEIPT", 2), ("MESSAGE", 1)]
    assert isinstance(items[0], Run)
    (reverse,) = reader.read(more + GOOD)
    assert isinstance(reverse, Run)
    assert items[0].names == reverse.names == {"subscription", "message-id", "destination", "content-length"}
    assert [frame.headers.get("redelivered") for frame in frames_of(items[:1])] == [None, "true", None]


def test_of_a_run_with_something_odd_in_it_nothing_is_believed() -> None:
    reader = teach(parser(V1_1), GOOD)
    frames = reader.feed(GOOD + with_line(1, b"message-id:\\t") + GOOD)
    assert [frame.headers["message-id"] for frame in frames] == ["a:b"]
    assert "undefined escape" in str(reader.error)


def test_a_head_whose_values_do_not_pass_is_forgotten_and_learned_again_later() -> None:
    reader = teach(parser(V1_0, limits=FrameLimits(max_header_line=64)), GOOD)
    odd = with_line(0, b"subscription:more than one").replace(b"message-id:a\\cb", b"message-id:")
    assert shown(reader.read(GOOD + odd)) == [("MESSAGE", 0)] * 2
    assert shown(reader.read(GOOD * 61)) == [("MESSAGE", 0)] * 61
    assert shown(reader.read(GOOD * 2)) == [("MESSAGE", 0), ("MESSAGE", 1)]


def test_heads_that_differ_each_time_are_tried_less_and_less() -> None:
    reader = parser(V1_2)
    stream = b"".join(b"MESSAGE\nname-%d:x\n\n\0" % number for number in range(100))
    assert len(reader.feed(stream * 5)) == 500
    learned = sum(len(item) for item in reader.read(stream) if isinstance(item, Run))
    assert learned <= 8


def test_a_version_that_begins_knows_nothing_of_the_one_before() -> None:
    reader = teach(parser(V1_1), GOOD)
    reader.switch(parser(V1_2)._grammar)
    assert shown(reader.read(GOOD)) == [("MESSAGE", 0)]


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
def test_a_head_is_learned_once_however_often_it_takes_the_slow_path(eol: bytes) -> None:
    grammar = grammar_of(Version.V1_2)
    heads = LearnedHeads(grammar, HeadChecker(grammar, DEFAULT_LIMITS), DEFAULT_LIMITS)
    line, block = (b"MESSAGE" + eol)[:-1], b"\n" + b"".join(line + eol for line in LINES)
    for _ in range(1000):
        heads.observe("MESSAGE", line, block)
    assert len(heads.shapes) == 1


def test_a_line_without_a_name_is_ignored_in_each_frame() -> None:
    reader = parser(V1_2, Leniency.LINES_WITHOUT_COLON)
    data = b"MESSAGE\ndestination:/q\n:nobody\nk:v\n\nhi\0"
    seen = [frame for _ in range(200) for frame in frames_of(reader.read(data))]
    assert {tuple(frame.headers.items()) for frame in seen} == {(("destination", "/q"), ("k", "v"))}
    assert len(seen) == 200
