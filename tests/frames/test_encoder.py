from __future__ import annotations

import pytest

from stompy.errors import LocalProtocolError
from stompy.frames.encoder import HEARTBEAT, encode, encode_head, encode_lines, finish
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS, Leniency
from tests.frames.case import ALL, DRAFT, FINAL, HANDSHAKE, MODERN, V1_0, V1_1, V1_2
from tests.support.codec import grammar, parser, plain

EVERY = (*ALL, HANDSHAKE)
Pairs = list[tuple[str, str]]


def written(
    profile: str,
    command: str,
    headers: Pairs,
    body: bytes = b"",
    *,
    leniency: Leniency = Leniency.NONE,
    content_length: bool = True,
    crlf: bool = False,
) -> bytes:
    by = grammar(profile, leniency)
    return encode(command, headers, body, grammar=by, content_length=content_length, crlf=crlf)


def refused(profile: str, command: str, headers: Pairs, body: bytes = b"", *, crlf: bool = False) -> str:
    with pytest.raises(LocalProtocolError) as caught:
        written(profile, command, headers, body, crlf=crlf)
    return str(caught.value)


@pytest.mark.requirement("FRM-01", "FRM-02", "A-12", "BNF-01", "D10-02")
@pytest.mark.parametrize("profile", FINAL)
def test_a_frame_is_written_as_the_grammar_says(profile: str) -> None:
    assert written(profile, "DISCONNECT", []) == b"DISCONNECT\n\n\0"
    stream = written(profile, "SEND", [("destination", "/queue/a")], b"hi", content_length=False)
    assert stream == b"SEND\ndestination:/queue/a\n\nhi\0"


@pytest.mark.requirement("FRM-05")
def test_only_1_2_may_end_lines_with_cr_lf() -> None:
    assert written(V1_2, "DISCONNECT", [], crlf=True) == b"DISCONNECT\r\n\r\n\0"
    stream = written(V1_2, "SEND", [("k", "a\nb"), ("l", "v")], b"x\ny", crlf=True)
    assert stream == b"SEND\r\nk:a\\nb\r\nl:v\r\ncontent-length:3\r\n\r\nx\ny\0"
    for profile in (DRAFT, V1_0, V1_1):
        assert "ends lines with LF only" in refused(profile, "DISCONNECT", [], crlf=True)


@pytest.mark.requirement("FRM-08", "A-38", "D10-11", "FRM-09")
@pytest.mark.parametrize("profile", EVERY)
def test_headers_are_utf_8(profile: str) -> None:
    assert b"\nk:\xc3\xa9\xf0\x9f\x98\x80\n" in written(profile, "SEND", [("k", "é😀")])
    assert "not valid Unicode" in refused(profile, "SEND", [("k", "\ud800")])


@pytest.mark.requirement("A-38")
def test_bytes_that_are_not_utf_8_go_out_as_they_came_where_that_is_tolerated() -> None:
    assert b"\nk:\xff\n" in written(V1_2, "SEND", [("k", "\udcff")], leniency=Leniency.INVALID_UTF8)


@pytest.mark.requirement("FRM-10", "A-02")
@pytest.mark.parametrize("profile", FINAL)
def test_no_space_is_added_or_removed(profile: str) -> None:
    assert b"\nfoo: bar \n x :\n" in written(profile, "MESSAGE", [("foo", " bar "), (" x ", "")])


@pytest.mark.requirement("ESC-04", "ESC-02", "A-09", "BNF-07", "BNF-08")
@pytest.mark.parametrize("profile", MODERN)
def test_lf_colon_and_backslash_are_escaped(profile: str) -> None:
    assert b"\nk:a\\cb\\\\c\\n\n" in written(profile, "SEND", [("k", "a:b\\c\n")])
    assert b"\nk:\xc3\xa9\\c\n" in written(profile, "SEND", [("k", "é:")])
    assert b"\nk:\\\\n\n" in written(profile, "SEND", [("k", "\\n")])


@pytest.mark.requirement("ESC-03", "ESC-10", "A-06")
def test_cr_is_escaped_in_1_2_and_raw_in_1_1() -> None:
    assert written(V1_2, "SEND", [("k", "a\rb\r")]) == b"SEND\nk:a\\rb\\r\n\n\0"
    assert written(V1_1, "SEND", [("k", "a\rb\r")]) == b"SEND\nk:a\rb\r\n\n\0"


@pytest.mark.requirement("A-03")
def test_a_cr_that_a_lenient_reader_would_take_for_the_line_end_is_refused() -> None:
    for leniency in (Leniency.CRLF_IN_1_1, Leniency.CRLF_IN_1_1 | Leniency.CR_ESCAPE_IN_1_1):
        with pytest.raises(LocalProtocolError, match="CR before the line end"):
            written(V1_1, "SEND", [("k", "a\r")], leniency=leniency)
        assert b"\nk:a\rb\n" in written(V1_1, "SEND", [("k", "a\rb")], leniency=leniency)


@pytest.mark.requirement("ESC-05")
@pytest.mark.parametrize("profile", MODERN)
def test_names_are_escaped_too(profile: str) -> None:
    assert written(profile, "SEND", [("a:b", "1"), ("\n\\", "2")]) == b"SEND\na\\cb:1\n\\n\\\\:2\n\n\0"


@pytest.mark.requirement("ESC-07", "A-07", "A-08")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
@pytest.mark.parametrize("profile", [*MODERN, HANDSHAKE])
def test_connect_and_connected_are_not_escaped(profile: str, command: str) -> None:
    stream = written(profile, command, [("host", "h"), ("passcode", "a:b\\c")])
    assert stream == command.encode() + b"\nhost:h\npasscode:a:b\\c\n\n\0"
    escaped = written(profile, command, [("passcode", "a:b\\c")], leniency=Leniency.ESCAPED_CONNECT)
    assert b"\npasscode:a\\cb\\\\c\n" in escaped


@pytest.mark.requirement("ESC-08", "ESC-01")
@pytest.mark.parametrize("char", ["\n", "\r", "\0"])
@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
@pytest.mark.parametrize("profile", [V1_0, V1_1, V1_2, HANDSHAKE])
def test_connect_cannot_hold_a_line_end(profile: str, command: str, char: str) -> None:
    assert "a line end or a NUL" in refused(profile, command, [("passcode", f"a{char}admin")])
    assert "a line end or a NUL" in refused(profile, command, [(f"pass{char}code", "a")])


@pytest.mark.requirement("ESC-08")
@pytest.mark.parametrize("profile", [*MODERN, HANDSHAKE])
def test_connect_cannot_hold_a_colon_in_a_name(profile: str) -> None:
    assert "a colon in a name" in refused(profile, "CONNECT", [("a:b", "c")])


@pytest.mark.requirement("ESC-08")
def test_a_refusal_does_not_show_the_value() -> None:
    assert "s3cret" not in refused(HANDSHAKE, "CONNECT", [("passcode", "s3cret\n")])


@pytest.mark.requirement("ESC-01", "A-04", "BNF-05")
def test_1_0_has_no_escapes() -> None:
    assert written(V1_0, "SEND", [("path", "C:\\new"), ("k", "a\rb")]) == b"SEND\npath:C:\\new\nk:a\rb\n\n\0"
    assert "a line end" in refused(V1_0, "SEND", [("k", "a\nb")])
    assert "a line end" in refused(V1_0, "SEND", [("a\nb", "k")])
    assert "a line end" in refused(V1_0, "SEND", [("k", "a\r")])
    assert "a colon in a name" in refused(V1_0, "SEND", [("a:b", "k")])


@pytest.mark.requirement("A-04")
def test_1_0_is_escaped_where_the_peer_does_so() -> None:
    stream = written(V1_0, "SEND", [("a:b", "c\\\r\n")], leniency=Leniency.ESCAPES_IN_1_0)
    assert stream == b"SEND\na\\cb:c\\\\\\r\\n\n\n\0"


@pytest.mark.requirement("A-37", "BNF-07")
@pytest.mark.parametrize("profile", EVERY)
def test_an_empty_value_is_written(profile: str) -> None:
    assert b"\nk:\n" in written(profile, "BEGIN", [("k", "")])


@pytest.mark.requirement("BNF-09", "A-39")
@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("command", ["SEND", "CONNECT", "FOO"])
def test_an_empty_name_or_a_nul_is_refused(profile: str, command: str) -> None:
    for headers in ([("", "v")], [("k", "v"), ("", "v")], [("k", "\0")], [("\0", "v")]):
        refused(profile, command, headers)


@pytest.mark.requirement("BDY-01", "D10-14", "SRV-09")
@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("command", sorted((CLIENT_COMMANDS | SERVER_COMMANDS) - {"SEND", "MESSAGE", "ERROR"}))
def test_a_body_is_refused_where_none_may_be(profile: str, command: str) -> None:
    assert "must not have a body" in refused(profile, command, [], b"x")
    assert written(profile, command, []).endswith(b"\n\n\0")


@pytest.mark.requirement("BDY-07", "BDY-09")
@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("command", ["SEND", "MESSAGE", "ERROR"])
def test_a_body_is_counted_in_bytes(profile: str, command: str) -> None:
    stream = written(profile, command, [("k", "v")], "é".encode())
    assert stream == command.encode() + b"\nk:v\ncontent-length:2\n\n\xc3\xa9\0"


@pytest.mark.requirement("BDY-06", "D10-09")
@pytest.mark.parametrize("profile", EVERY)
def test_a_body_with_a_nul_is_counted_in_any_case(profile: str) -> None:
    assert written(profile, "SEND", [], b"a\0b", content_length=False) == b"SEND\ncontent-length:3\n\na\0b\0"


@pytest.mark.requirement("BDY-07")
def test_a_body_without_a_nul_need_not_be_counted() -> None:
    assert written(V1_2, "SEND", [], b"ab", content_length=False) == b"SEND\n\nab\0"
    assert written(V1_2, "SEND", []) == b"SEND\n\n\0"


@pytest.mark.requirement("D10-10", "D10-21")
def test_the_draft_counts_every_body() -> None:
    assert written(DRAFT, "SEND", [("destination", "/q")]) == b"SEND\ndestination:/q\ncontent-length:0\n\n\0"
    assert written(DRAFT, "SEND", [], b"x", content_length=False) == b"SEND\ncontent-length:1\n\nx\0"
    assert written(DRAFT, "DISCONNECT", []) == b"DISCONNECT\ncontent-length:0\n\n\0"


@pytest.mark.requirement("BDY-09", "BDY-08", "REP-05")
@pytest.mark.parametrize("profile", FINAL)
def test_a_content_length_of_the_caller_must_fit(profile: str) -> None:
    assert written(profile, "SEND", [("content-length", "2")], b"hi") == b"SEND\ncontent-length:2\n\nhi\0"
    assert written(profile, "ACK", [("content-length", "0")]) == b"ACK\ncontent-length:0\n\n\0"
    for wrong in ("1", "3", "02", "", "two"):
        assert "does not match a body of 2 bytes" in refused(profile, "SEND", [("content-length", wrong)], b"hi")
    refused(profile, "SEND", [("content-length", "3"), ("content-length", "2")], b"hi")
    assert written(profile, "SEND", [("content-length", "2"), ("content-length", "3")], b"hi").count(b"length") == 2


@pytest.mark.requirement("REP-03", "REP-04", "A-36")
@pytest.mark.parametrize("profile", FINAL)
def test_repeats_are_written_in_order(profile: str) -> None:
    assert written(profile, "MESSAGE", [("a", "1"), ("b", "2"), ("a", "3")]) == b"MESSAGE\na:1\nb:2\na:3\n\n\0"


@pytest.mark.requirement("D10-03", "D10-06", "D10-07")
def test_the_draft_writes_commands_in_upper_and_names_in_lower_case() -> None:
    assert written(DRAFT, "send", [("X-Foo", "Bar")]) == b"SEND\nx-foo:Bar\ncontent-length:0\n\n\0"
    assert written(DRAFT, "Send", [("Content-Length", "0")]) == b"SEND\ncontent-length:0\n\n\0"
    for name in ("X_Foo", "-x", "x-", "x--y", "x y", "é", "x:y", ""):
        assert "header name" in refused(DRAFT, "SEND", [(name, "v")])
    assert "must not have a body" in refused(DRAFT, "ack", [], b"x")


@pytest.mark.requirement("D10-08", "D10-01", "D10-05")
@pytest.mark.parametrize("value", ["a\tb", "\x1b", "a\rb", "a\nb", "\0", "\x7f", " a", "a "])
def test_the_draft_refuses_values_that_would_not_arrive(value: str) -> None:
    assert "does not allow control characters or outer spaces" in refused(DRAFT, "SEND", [("k", value)])


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("command", ["", "SE ND", "SEND\n", "SEND\0", "1SEND", "ÉCOLE", "A" * 65, "SEND:", "-"])
def test_what_cannot_be_a_command_is_refused(profile: str, command: str) -> None:
    assert "cannot be a STOMP command" in refused(profile, command, [("k", "v")])


@pytest.mark.requirement("FRM-13", "FRM-07")
@pytest.mark.parametrize("profile", FINAL)
@pytest.mark.parametrize("command", ["FOO", "send", "X-y_2", "A" * 64])
def test_an_unknown_command_is_written_as_it_is(profile: str, command: str) -> None:
    stream = written(profile, command, [("k", "v")], b"x")
    assert stream == command.encode() + b"\nk:v\ncontent-length:1\n\nx\0"


@pytest.mark.parametrize("profile", EVERY)
def test_a_parsed_frame_is_written_as_it_came(profile: str) -> None:
    stream = b"MESSAGE\na:1\nb:x y\na:2\ncontent-length:3\n\nx\0y\0"
    (frame,) = parser(profile).feed(stream)
    assert encode(frame.command, frame.headers.pairs, frame.body, grammar=grammar(profile)) == stream


def test_headers_may_be_any_iterable_and_are_not_changed() -> None:
    pairs = [("k", "v")]
    assert written(V1_2, "SEND", pairs, b"x")
    assert pairs == [("k", "v")]
    assert encode("SEND", iter(pairs), grammar=grammar(V1_2)) == b"SEND\nk:v\n\n\0"


@pytest.mark.requirement("HBT-09", "HBT-10", "A-46")
@pytest.mark.parametrize("profile", EVERY)
def test_a_heartbeat_is_one_lf_and_no_frame(profile: str) -> None:
    assert HEARTBEAT == b"\n"
    assert plain(parser(profile).feed(HEARTBEAT * 3)) == []


@pytest.mark.parametrize("profile", ALL)
@pytest.mark.parametrize("body", [b"", b"x", b"\0", "é".encode() * 300])
@pytest.mark.parametrize("content_length", [True, False])
def test_a_head_that_was_made_before_gives_the_same_frame(profile: str, body: bytes, content_length: bool) -> None:
    by, headers = grammar(profile), [("destination", "/queue/é"), ("a", "b")]
    head = encode_head("SEND", headers[:1], grammar=by) + encode_lines("SEND", headers[1:], grammar=by)
    made = finish(head, body, grammar=by, content_length=content_length)
    assert made == written(profile, "SEND", headers, body, content_length=content_length)
