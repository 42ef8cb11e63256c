from __future__ import annotations

import pytest

from stompy.errors import FrameTooLargeError, RemoteProtocolError
from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits
from stompy.frames.heads import HeadChecker, checked_length, show
from tests.frames.case import ALL, DRAFT, FINAL, HANDSHAKE, MODERN, V1_0, V1_1, V1_2
from tests.support.codec import grammar


def checker(profile: str, limits: FrameLimits = DEFAULT_LIMITS) -> HeadChecker:
    return HeadChecker(grammar(profile), limits)


def test_offending_input_is_shown_cut() -> None:
    assert show(b"a\r\xff") == repr("a\r\\xff")
    assert show(bytearray(b"x" * 60)) == repr("x" * 60)
    assert show("x" * 61) == repr("x" * 60) + "…"


@pytest.mark.parametrize("text", [b"passcode:x", "PassCode:x", b"LOGIN:x\n", b"x" * 100 + b"passcode"])
def test_what_may_hold_a_credential_is_not_shown(text: bytes | str) -> None:
    assert show(text) == "(hidden: it may hold a credential)"


@pytest.mark.requirement("BDY-03", "A-40")
@pytest.mark.parametrize("profile", [*ALL, HANDSHAKE])
def test_content_length_is_decimal_digits(profile: str) -> None:
    limits = FrameLimits(max_body=100)
    for value, length in (("0", 0), ("7", 7), ("100", 100), ("0" * 30 + "9", 9), ("0" * 5000, 0)):
        assert checked_length(value, grammar(profile), limits) == length
    for value in ("", "-1", "+1", "1.0", "1e1", "١", "²", "x", "1 1", "\t1"):
        with pytest.raises(RemoteProtocolError, match="must be decimal digits"):
            checked_length(value, grammar(profile), limits)
    for value in ("101", "9" * 18, "9" * 19, "9" * 5000):
        with pytest.raises(FrameTooLargeError, match="max_body=100"):
            checked_length(value, grammar(profile), limits)


@pytest.mark.requirement("A-40", "A-14", "FRM-10")
def test_content_length_may_be_padded_where_a_1_0_peer_may_speak() -> None:
    for profile in (DRAFT, V1_0, HANDSHAKE):
        assert checked_length(" 7 ", grammar(profile), DEFAULT_LIMITS) == 7
    for profile in MODERN:
        with pytest.raises(RemoteProtocolError, match="not ' 7'"):
            checked_length(" 7", grammar(profile), DEFAULT_LIMITS)


@pytest.mark.requirement("FRM-04", "FRM-03", "D10-04")
def test_a_command_may_end_with_a_cr_where_lines_may() -> None:
    for profile in (DRAFT, V1_0, V1_2, HANDSHAKE):
        assert checker(profile).command(b"FOO\r") == "FOO"
    with pytest.raises(RemoteProtocolError, match="not a STOMP command line"):
        checker(V1_1).command(b"FOO\r")


@pytest.mark.requirement("FRM-07", "D10-03")
def test_the_case_of_a_command_is_kept_but_in_the_draft() -> None:
    for profile in FINAL:
        assert checker(profile).command(b"Send") == "Send"
    assert checker(DRAFT).command(b"Send") == "SEND"


def test_header_lines_come_back_with_plain_line_ends() -> None:
    assert checker(V1_2).headers(b"\na:1\r\nb:2\n", "SEND") == "\na:1\nb:2\n"
    assert checker(DRAFT).headers(b"\na:1 \r\nb:2\n", "SEND") == "\na:1\nb:2\n"
    assert checker(V1_1).headers(b"\n", "SEND") == "\n"


def partial_error(profile: str, stream: bytes, limits: FrameLimits = DEFAULT_LIMITS) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        checker(profile, limits).partial(stream, 0)
    return str(caught.value)


@pytest.mark.requirement("LIM-01", "LIM-03")
def test_a_head_is_checked_while_it_comes_in() -> None:
    assert "not a STOMP command line" in partial_error(V1_2, b"SEND x")
    assert "not a STOMP command line" in partial_error(V1_2, b"S" * 65)
    assert "not a STOMP command line" in partial_error(V1_2, b"SEND x\nk:v")
    assert "a NUL" in partial_error(V1_2, b"SEND\nk:v\0")
    assert "max_headers=1" in partial_error(V1_2, b"SEND\na:1\nb:2\n", FrameLimits(max_headers=1))
    assert "max_header_line=4" in partial_error(V1_2, b"SEND\na:1\nb:234", FrameLimits(max_header_line=4))
    assert "max_header_line=4" in partial_error(V1_2, b"SEND\na:123\nb", FrameLimits(max_header_line=4))
    assert "max_header_line=4" in partial_error(V1_1, b"SEND\na:12\r", FrameLimits(max_header_line=4))


@pytest.mark.parametrize("profile", FINAL)
def test_what_was_searched_is_not_searched_again(profile: str) -> None:
    head = checker(profile)
    head.partial(b"SEND\nk:v", 0)
    assert head.scanned == len(b"SEND\nk:v")
    head.partial(b"SEND\nk:v\n", 0)
    assert head.scanned == head.last_lf == len(b"SEND\nk:v"), "the last LF may be half of the end"
    head.partial(b"SEND\nk:v\nl", 0)
    assert head.scanned == len(b"SEND\nk:v\nl")
    head.reset()
    assert head.scanned == 0


def test_a_cr_after_the_last_lf_may_belong_to_the_end() -> None:
    for profile, scanned in ((V1_2, 8), (V1_0, 8), (V1_1, 10)):
        head = checker(profile)
        head.partial(b"SEND\nk:v\n\r", 0)
        assert head.scanned == scanned


def test_a_blank_line_of_the_draft_is_not_searched_again() -> None:
    head = checker(DRAFT)
    stream = b"SEND\nk:v\n \r  k:w"
    for end in range(len("SEND\nk:v\n"), len(stream) + 1):
        head.partial(stream[:end], 0)
        assert (head.scanned, head.last_lf) == (end, 8)
        assert head.open_blank == (end <= stream.index(b"k:w"))
