from __future__ import annotations

import pytest

from stompy.errors import RemoteProtocolError
from stompy.frames.escaping import escape, undefined_escape, unescape

SET_1_1 = {"\\": "\\\\", "\n": "\\n", ":": "\\c"}
SET_1_2 = {**SET_1_1, "\r": "\\r"}
SETS = {"1.1": SET_1_1, "1.2": SET_1_2}


def reverse(escapes: dict[str, str]) -> dict[str, str]:
    return {sequence: char for char, sequence in escapes.items()}


@pytest.mark.requirement("ESC-02", "ESC-03", "ESC-04", "ESC-09")
@pytest.mark.parametrize("version", SETS)
@pytest.mark.parametrize("text", ["", "plain", ":", "\n", "\\", "a:b\\c\n", "\\n", "\\\\n\\c:", "é:😀\\", "\n\n::\\\\"])
def test_unescape_is_the_reverse_of_escape(version: str, text: str) -> None:
    written = escape(text, SETS[version])
    assert not {":", "\n"} & set(written)
    assert unescape(written, reverse(SETS[version])) == text


@pytest.mark.requirement("ESC-10", "ESC-03")
def test_cr_is_special_in_1_2_only() -> None:
    assert escape("a\rb", SET_1_1) == "a\rb"
    assert escape("a\rb", SET_1_2) == "a\\rb"


@pytest.mark.requirement("ESC-01")
def test_without_a_set_nothing_changes() -> None:
    assert escape("a:\\\n", {}) == "a:\\\n"
    assert unescape("a\\c\\t\\", {}) == "a\\c\\t\\"


@pytest.mark.requirement("ESC-09")
@pytest.mark.parametrize(
    ("written", "text"),
    [("\\\\n", "\\n"), ("\\\\\\n", "\\\n"), ("\\\\c\\c", "\\c:"), ("\\n\\c", "\n:"), ("\\\\r", "\\r")],
)
def test_unescaping_is_one_pass_from_left_to_right(written: str, text: str) -> None:
    assert unescape(written, reverse(SET_1_2)) == text


@pytest.mark.requirement("ESC-06", "A-05", "A-06")
@pytest.mark.parametrize(
    ("version", "text", "sequence"),
    [
        ("1.1", "a\\rb", "\\r"),
        ("1.1", "\\\\\\r", "\\r"),
        ("1.2", "a\\tb", "\\t"),
        ("1.2", "a\\\\\\tb", "\\t"),
        ("1.2", "\\", "\\"),
        ("1.2", "\\\\\\", "\\"),
        ("1.2", "a\\\nb", "\\\n"),
        ("1.2", "\\C", "\\C"),
        ("1.2", "\\r\\é", "\\é"),
    ],
)
def test_an_undefined_sequence_is_found_and_refused(version: str, text: str, sequence: str) -> None:
    unescapes = reverse(SETS[version])
    assert undefined_escape(text, unescapes) == sequence
    with pytest.raises(RemoteProtocolError) as caught:
        unescape(text, unescapes)
    assert repr(sequence) in str(caught.value)


@pytest.mark.parametrize("text", ["", "plain", "\\n\\c\\\\", "\\\\t", "\\\\\\\\x", "\\\\r"])
def test_defined_sequences_are_no_error(text: str) -> None:
    assert undefined_escape(text, reverse(SET_1_1)) is None


@pytest.mark.requirement("A-05")
def test_an_undefined_sequence_stays_where_that_is_tolerated() -> None:
    assert unescape("\\t\\n\\\\\\x\\", reverse(SET_1_2), lenient=True) == "\\t\n\\\\x\\"
    assert unescape("\\t\\c", reverse(SET_1_2), lenient=True) == "\\t:"
