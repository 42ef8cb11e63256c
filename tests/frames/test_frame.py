from __future__ import annotations

import pickle

import pytest

from stompy.frames.frame import Frame, Headers, show_body, trimmed
from tests.frames.case import ALL, DRAFT, FINAL, V1_0, V1_1, V1_2
from tests.support.codec import parser

MADE, READ = "made", "read"


def read(profile: str, *lines: bytes) -> Headers:
    (frame,) = parser(profile).feed(b"MESSAGE\n" + b"".join(line + b"\n" for line in lines) + b"\n\0")
    return frame.headers


@pytest.fixture(params=[MADE, READ])
def twice(request: pytest.FixtureRequest) -> Headers:
    """Headers with a repeat, made by a caller or read from the wire."""
    if request.param == READ:
        return read(V1_2, b"foo:World", b"bar:1", b"foo:Hello")
    return Headers([("foo", "World"), ("bar", "1"), ("foo", "Hello")])


@pytest.mark.requirement("REP-01", "REP-02", "REP-03", "A-36")
def test_the_first_entry_is_the_value_and_all_are_kept_in_order(twice: Headers) -> None:
    assert twice["foo"] == twice.get("foo") == "World"
    assert twice.getall("foo") == ("World", "Hello")
    assert twice.pairs == (("foo", "World"), ("bar", "1"), ("foo", "Hello"))
    assert dict(twice) == {"foo": "World", "bar": "1"}
    assert twice["foo"] == twice.get("foo") == "World"


@pytest.mark.requirement("REP-01", "REP-04")
@pytest.mark.parametrize("profile", ALL)
def test_a_prepended_entry_wins(profile: str) -> None:
    assert read(profile, b"destination:/new", b"destination:/old")["destination"] == "/new"


def test_headers_are_a_mapping(twice: Headers) -> None:
    assert list(twice) == ["foo", "bar"]
    assert len(twice) == 2
    assert "foo" in twice
    assert "baz" not in twice
    other: object = 1
    assert other not in twice
    assert twice.get("baz") is None
    assert twice.get("baz", "x") == "x"
    assert twice.get("bar", "x") == "1"
    assert list(twice.items()) == [("foo", "World"), ("bar", "1")]
    with pytest.raises(KeyError, match="baz"):
        twice["baz"]


def test_headers_of_a_mapping_keep_its_order() -> None:
    assert Headers({"b": "2", "a": "1"}).pairs == (("b", "2"), ("a", "1"))
    assert Headers().pairs == ()


@pytest.mark.parametrize("profile", ALL)
def test_a_frame_without_headers_has_none(profile: str) -> None:
    headers = read(profile)
    assert headers.get("k") is None
    assert "k" not in headers
    assert (headers.pairs, len(headers), dict(headers)) == ((), 0, {})


@pytest.mark.parametrize("profile", ALL)
def test_a_peek_finds_first_middle_and_last_and_takes_no_part_of_a_line_for_a_name(profile: str) -> None:
    lines = (b"first:1", b"x-middle:no", b"middle:2", b"empty:", b"value:last:9", b"last:3")
    for name, value in (("first", "1"), ("middle", "2"), ("last", "3"), ("empty", "")):
        assert read(profile, *lines).get(name) == value
        assert read(profile, *lines)[name] == value
    for name in ("irst", "mid", "dle", "1", "", "value:last", "first:1\nx-middle"):
        assert read(profile, *lines).get(name) is None


@pytest.mark.requirement("ESC-05", "ESC-02", "ESC-09")
@pytest.mark.parametrize("profile", [V1_1, V1_2])
def test_an_escaped_name_is_found_under_what_it_means(profile: str) -> None:
    for name in ("a:b", "a\nb", "a\\b"):
        headers = read(profile, b"a\\cb:1:", b"a\\nb:\\c", b"a\\\\b:3")
        assert headers[name] == {"a:b": "1:", "a\nb": ":", "a\\b": "3"}[name]
    assert read(V1_2, b"a\\rb:1").get("a\rb") == "1"
    assert read(profile, b"a\\cb:1").get("a\\cb") is None
    assert read(V1_1, b"a\rb:1").get("a\rb") == "1"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (b"", ""),
        (b"a\\cb\\c", "a:b:"),
        (b"a:b", "a:b"),
        (b"a:\\c", "a::"),
        (b"\\\\c", "\\c"),
        (b"\\\\\\c", "\\:"),
        (b"a\\n\\cb", "a\n:b"),
    ],
)
@pytest.mark.parametrize("profile", [V1_1, V1_2])
def test_one_look_up_all_headers_and_all_entries_have_the_same_value(profile: str, value: bytes, meant: str) -> None:
    lines = (b"first:1", b"k:" + value, b"last:\\c")
    assert read(profile, *lines)["k"] == meant
    assert dict(read(profile, *lines)) == {"first": "1", "k": meant, "last": ":"}
    assert read(profile, *lines, b"k:2").pairs == (("first", "1"), ("k", meant), ("last", ":"), ("k", "2"))
    assert dict(read(profile, *lines, b"k:2")) == {"first": "1", "k": meant, "last": ":"}


@pytest.mark.requirement("D10-07", "A-01")
def test_names_of_the_draft_are_found_in_lower_case() -> None:
    headers = read(DRAFT, b"Destination: /q ")
    assert headers["destination"] == headers.get("destination") == "/q"
    assert "Destination" not in headers


@pytest.mark.requirement("FRM-07", "A-01")
@pytest.mark.parametrize("profile", FINAL)
def test_names_are_case_sensitive(profile: str) -> None:
    assert read(profile, b"Destination:/q").get("destination") is None


@pytest.mark.requirement("FRM-11", "A-02")
def test_trimmed_headers_have_no_spaces_around_values() -> None:
    headers = read(V1_2, b"k: v ", b" n :\t", b"k: w")
    assert trimmed(headers).pairs == (("k", "v"), (" n ", "\t"), ("k", "w"))
    assert headers["k"] == " v "
    assert read(V1_0, b"k: v ").get("k") == "v"


def test_headers_are_equal_by_their_entries() -> None:
    assert read(V1_2, b"a:1", b"a:2") == Headers([("a", "1"), ("a", "2")])
    assert read(V1_2, b"a:1", b"a:2") != Headers([("a", "1")])
    assert read(V1_2, b"a:1", b"a:2") == {"a": "1"}
    assert read(V1_2, b"a:1") != {"a": "2"}
    assert read(V1_2, b"a:1") != 1
    assert hash(read(V1_2, b"a:1")) == hash(Headers({"a": "1"}))


def test_headers_can_be_pickled(twice: Headers) -> None:
    copy = pickle.loads(pickle.dumps(twice))
    assert copy.pairs == twice.pairs
    assert copy["foo"] == "World"


def test_repr_shows_values_but_no_passcode() -> None:
    assert repr(Headers({"a": "1", "Passcode": "s3cret", "passcode": "s3cret"})) == (
        "Headers({'a': '1', 'Passcode': '***', 'passcode': '***'})"
    )


def test_headers_may_come_in_any_shape() -> None:
    headers = Headers({"k": "v"})
    assert Frame("SEND", headers).headers is headers
    assert Frame("SEND", {"k": "v"}).headers == headers
    assert Frame("SEND", [("k", "v")]).headers == headers
    assert (Frame("ACK").headers.pairs, Frame("ACK").body) == ((), b"")


def test_frames_are_equal_by_command_headers_and_body() -> None:
    frame = Frame("SEND", {"k": "v"}, b"x")
    assert frame == Frame("SEND", [("k", "v")], b"x")
    assert hash(frame) == hash(Frame("SEND", [("k", "v")], b"x"))
    for other in (Frame("ACK", {"k": "v"}, b"x"), Frame("SEND", {}, b"x"), Frame("SEND", {"k": "v"}, b"y"), "SEND"):
        assert frame != other


def test_a_frame_can_be_pickled() -> None:
    frame = Frame("SEND", [("k", "v"), ("k", "w")], b"x")
    assert pickle.loads(pickle.dumps(frame)) == frame


def test_repr_shows_what_it_holds_but_no_passcode() -> None:
    assert repr(Frame("SEND", {"k": "v"}, b"x")) == "<Frame SEND Headers({'k': 'v'}) b'x'>"
    assert "s3cret" not in repr(Frame("CONNECT", {"passcode": "s3cret"}))


def test_a_long_body_is_shown_cut() -> None:
    assert show_body(b"x" * 60) == repr(b"x" * 60)
    assert show_body(b"x" * 61) == repr(b"x" * 60) + "… (61 bytes)"
