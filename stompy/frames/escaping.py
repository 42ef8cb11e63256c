r"""Header escapes: `\n`, `\c` and `\\` from 1.1 on, and `\r` in 1.2 (STOMP 1.2, Value Encoding)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEQUENCE = re.compile(r"\\.?", re.DOTALL)
# Matches every undefined sequence that ends, and some defined ones: a quick first check, as most texts have neither.
_SUSPECT = re.compile(r"\\[^nc\\]")


def escape(text: str, escapes: Mapping[str, str]) -> str:
    """Return `text` with each special character replaced by its escape sequence."""
    if "\\" in text and escapes:
        text = text.replace("\\", escapes["\\"])  # first, as the other sequences begin with it
    for char, sequence in escapes.items():
        if char != "\\" and char in text:
            text = text.replace(char, sequence)
    return text


def undefined_escape(text: str, unescapes: Mapping[str, str]) -> str | None:
    """Return the first sequence in `text` that is not in `unescapes`, or `None`."""
    if not _SUSPECT.search(text) and not text.endswith("\\"):
        return None
    return next((sequence for sequence in _SEQUENCE.findall(text) if sequence not in unescapes), None)


def unescape(text: str, unescapes: Mapping[str, str], *, lenient: bool = False) -> str:
    """Return `text` with each escape sequence replaced, in one pass from left to right.

    Args:
        text: a header name or value, as on the wire.
        unescapes: the character of each sequence; empty means that the version has no escapes.
        lenient: whether to leave undefined sequences unchanged.

    Raises:
        RemoteProtocolError: an undefined sequence, which is a fatal error in STOMP 1.1 and 1.2.
    """
    if not unescapes or "\\" not in text:
        return text
    if "\\\\" not in text:
        # Without two backslashes in a row, no replacement can create a sequence that the next one would find.
        plain = text
        for sequence, char in unescapes.items():
            plain = plain.replace(sequence, char)
            if "\\" not in plain:
                return plain
    if not lenient:
        bad = undefined_escape(text, unescapes)
        if bad is not None:
            raise RemoteProtocolError(f"undefined escape sequence {bad!r} (Value Encoding)")
    return _SEQUENCE.sub(lambda match: unescapes.get(match[0], match[0]), text)
