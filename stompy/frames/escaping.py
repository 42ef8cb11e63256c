r"""Header escapes: `\n`, `\c`, `\\` from 1.1, and `\r` in 1.2 (STOMP 1.2, Value Encoding)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


def escape(text: str, escapes: Mapping[str, str]) -> str:
    """Return `text` with each special character replaced by its escape sequence."""
    return text.translate({ord(char): sequence for char, sequence in escapes.items()}) if escapes else text


def undefined_escape(text: str, unescapes: Mapping[str, str]) -> str | None:
    """Return the first sequence in `text` that `unescapes` does not define, or `None`."""
    return next((sequence for sequence in _SEQUENCE.findall(text) if sequence not in unescapes), None)


def unescape(text: str, unescapes: Mapping[str, str], *, lenient: bool = False) -> str:
    """Return `text` with each escape sequence replaced, in one pass from left to right.

    Args:
        text: a header name or value as it was on the wire.
        unescapes: sequence to character; empty means that nothing is an escape.
        lenient: leave undefined sequences as they are.

    Raises:
        RemoteProtocolError: an undefined sequence, which STOMP 1.1 and 1.2 call fatal.
    """
    if not unescapes or "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        sequence = match[0]
        char = unescapes.get(sequence)
        if char is not None:
            return char
        if lenient:
            return sequence
        raise RemoteProtocolError(f"undefined escape sequence {sequence!r} (Value Encoding)")

    return _SEQUENCE.sub(replace, text)
