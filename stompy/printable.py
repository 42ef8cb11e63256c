"""Text for people: control characters of peers escaped, as they could forge log lines or control a terminal; hints."""

from __future__ import annotations

import re
from collections.abc import Iterable

_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""C0, DEL and C1; line and paragraph separators; controls of the text direction; unpaired surrogates."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with each control character as a Python escape sequence, such as `\n` or `\x1b`.

    Args:
        text: from any source; escape sequences that it already holds stay as they are.
        keep: control characters that are not escaped.
    """
    if text.isprintable():
        return text
    return re.sub(_UNPRINTABLE, lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def printable_bytes(data: bytes) -> str:
    r"""Return bytes as printable text; line ends and tabs are kept, bytes that are not UTF-8 become `\x..`."""
    return printable(data.decode("utf-8", "backslashreplace"), keep="\n\t")


def did_you_mean(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return a hint for the end of an error message; empty if nothing is like `word`."""
    import difflib

    found = difflib.get_close_matches(word, known, n=1, cutoff=likeness)
    return f"; did you mean {found[0]!r}?" if found else ""
