from __future__ import annotations

import unicodedata

import pytest

from stompy.printable import printable, printable_bytes

HOSTILE = {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", *map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}  # fmt: skip # noqa: E501


def test_every_control_character_is_escaped_and_nothing_else() -> None:
    for character in map(chr, range(0x11000)):
        hostile = unicodedata.category(character) in {"Cc", "Cs"} or character in HOSTILE
        shown = printable(character)
        assert (shown != character) is hostile, ascii(character)
        assert not hostile or (shown.isascii() and shown.isprintable() and shown == ascii(character)[1:-1])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x\nCRITICAL root it burns", "x\\nCRITICAL root it burns"),
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("Zürich – 東京 👩‍🚀", "Zürich – 東京 👩‍🚀"),
        ("", ""),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_lines_and_tabs_of_a_body_stay() -> None:
    assert printable_bytes(b"a\tb\nc\rd\x1b[2J \xff\xc3\xbc") == "a\tb\nc\\rd\\x1b[2J \\xffü"
