"""Bodies and header values to bytes and back."""

from __future__ import annotations

import math
from typing import Any

import pytest

from stompy.connection.encoding import (
    OWN_HEADERS,
    charset_of,
    decode_json,
    decode_text,
    encode_body,
    header_text,
    user_headers,
)
from stompy.errors import BodyDecodeError, ConfigurationError, LocalProtocolError


@pytest.mark.requirement("BDY-11", "BDY-16", "D10-12")
def test_text_is_utf_8_and_says_so() -> None:
    assert encode_body("é😀", None) == ("é😀".encode(), "text/plain;charset=utf-8")


@pytest.mark.parametrize("body", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
def test_bytes_stay_as_they_are_and_get_no_type(body: Any) -> None:
    assert encode_body(body, None) == (b"\x00\xff", None)
    assert encode_body(body, "image/png") == (b"\x00\xff", "image/png")
    assert encode_body(body, "text/plain;charset=utf-16") == (b"\x00\xff", "text/plain;charset=utf-16")


@pytest.mark.parametrize(
    ("value", "data"),
    [({"n": 1}, b'{"n":1}'), ([1, "é"], '[1,"é"]'.encode()), (5, b"5"), (True, b"true")],
)
def test_anything_else_is_json(value: object, data: bytes) -> None:
    assert encode_body(value, None) == (data, "application/json")
    assert encode_body(value, "application/geo+json") == (data, "application/geo+json")


def test_json_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match="a body of list cannot be encoded as JSON"):
            encode_body(circle, None)
    assert encode_body([circle[:0]], None) == (b"[[]]", "application/json")


def test_text_with_a_json_type_is_json_already() -> None:
    assert encode_body('{"n":1}', "application/json") == (b'{"n":1}', "application/json")


@pytest.mark.requirement("BDY-15")
@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        ("text/html;charset=utf-16", "é".encode("utf-16")),
        ("text/plain; charset=ISO-8859-1", b"\xe9"),
        ('text/plain;charset="latin-1"', b"\xe9"),
        ("text/plain", "é".encode()),
        ("application/xml;charset=utf-8", "é".encode()),
    ],
)
def test_text_is_written_in_the_charset_of_its_type_and_read_by_it(content_type: str, data: bytes) -> None:
    assert encode_body("é", content_type) == (data, content_type)
    assert decode_text(data, content_type) == "é"


@pytest.mark.requirement("BDY-15")
def test_text_of_a_type_that_is_not_text_says_its_charset() -> None:
    data, content_type = encode_body("<é/>", "application/xml")
    assert (data, content_type) == ("<é/>".encode(), "application/xml;charset=utf-8")
    assert decode_text(data, content_type) == "<é/>"


@pytest.mark.requirement("BDY-12")
@pytest.mark.parametrize("wrong", ["", "text", "/", "text/", "/plain", ";charset=utf-8", " / "])
def test_a_content_type_must_be_a_mime_type(wrong: str) -> None:
    with pytest.raises(LocalProtocolError, match="not a MIME type"):
        encode_body(b"x", wrong)


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        ("x", "text/plain;charset=klingon", "unknown charset 'klingon'"),
        ("x", "text/plain;charset=rot13", "unknown charset"),
        ("x", "text/plain;charset=base64", "unknown charset"),
        ("é", "text/plain;charset=ascii", "cannot be encoded in ascii"),
        ("\ud800", None, "cannot be encoded in utf-8"),
        ({1, 2}, None, "body of set cannot be encoded as JSON"),
        (math.nan, None, "cannot be encoded as JSON"),
        (object(), None, "body of object cannot be encoded as JSON"),
        (None, None, "send b'' for an empty body, or 'null' with content_type='application/json' for JSON's null"),
    ],
)
def test_what_cannot_be_written_is_refused(body: object, content_type: str | None, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words):
        encode_body(body, content_type)


def test_a_value_nested_without_end_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        encode_body(endless, None)
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        encode_body(deep, None)


@pytest.mark.requirement("BDY-14")
@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/plain", "utf-8"),
        ("TEXT/Plain", "utf-8"),
        ("text/plain;format=flowed", "utf-8"),
        ("text/plain;charset=utf-16", "utf-16"),
        ("text/plain; Charset = UTF-16 ", "UTF-16"),
        ("text/plain;charset=", None),
        ("application/json", "utf-8"),
        ("application/geo+json", "utf-8"),
        ("application/xml", None),
        ("application/octet-stream", None),
        ("image/svg+xml;charset=latin-1", "latin-1"),
    ],
)
def test_a_type_names_or_implies_its_charset(content_type: str, charset: str | None) -> None:
    assert charset_of(content_type) == charset


@pytest.mark.requirement("BDY-13", "BDY-15")
@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        (b"\x89PNG", "image/png", "is binary"),
        (b"<a/>", "application/xml", "is binary"),
        (b"\xff", "text/plain", "not valid utf-8"),
        (b"\xff", None, "not valid utf-8"),
        (b"x", "text/plain;charset=klingon", "unknown charset 'klingon'"),
        (b"x", "text/plain;charset=hex", "unknown charset"),
        (b"x", "text/plain;charset=" + "k" * 1000, "unknown charset 'k{40}'"),
        (b"x", "text/plain;charset=a\0b", "unknown charset"),
        (b"x", "text/plain;charset=é\ud800", "charset"),
        (b"\x00", "text/plain;charset=utf-16", "not valid utf-16"),
    ],
)
def test_what_is_not_text_is_an_error_that_keeps_the_bytes(body: bytes, content_type: str | None, words: str) -> None:
    with pytest.raises(BodyDecodeError, match=words) as caught:
        decode_text(body, content_type)
    assert caught.value.body == body
    assert isinstance(caught.value, ValueError)


def test_a_body_without_a_type_is_taken_for_utf_8() -> None:
    """1.0 has no types, and the text messages of ActiveMQ carry none."""
    assert decode_text("é".encode(), None) == "é"


def test_json_is_read_whatever_its_declared_type() -> None:
    assert decode_json(b'{"n": [1, "\xc3\xa9"]}', None) == {"n": [1, "é"]}
    assert decode_json('"é"'.encode("utf-16"), "application/json;charset=utf-16") == "é"
    assert decode_json(b"1", "image/png") == 1


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"", None), (b"{", None), (b"\xff", None), (b"1", "text/plain;charset=klingon"), (b"[" * 100_000, None)],
)
def test_what_is_not_json_is_an_error_that_keeps_the_bytes(body: bytes, content_type: str | None) -> None:
    with pytest.raises(BodyDecodeError, match="not JSON") as caught:
        decode_json(body, content_type)
    assert caught.value.body == body


def test_header_values_are_rendered_as_documented() -> None:
    assert user_headers({"s": " as it is ", "i": -7, "t": True, "f": False, "e": ""}) == {
        "s": " as it is ",
        "i": "-7",
        "t": "true",
        "f": "false",
        "e": "",
    }
    assert user_headers(None) == {}


@pytest.mark.parametrize("value", [None, 1.5, b"x", ["a"], object()])
def test_a_header_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(LocalProtocolError, match=f"header 'h' must be str, int or bool, not {type(value).__name__}"):
        header_text("h", value)


def test_a_header_name_must_be_text() -> None:
    with pytest.raises(LocalProtocolError, match="header name must be str, not int"):
        user_headers({5: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", sorted(OWN_HEADERS))
def test_headers_with_an_argument_of_their_own_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=repr(name)):
        user_headers({name: "x"})
