"""Text of others, made harmless to show: it cannot forge a line of a log or give orders to a terminal."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL and C1; line and paragraph separators; what changes the direction of text; halves of surrogate pairs."""


def printable(text: str, *, keep: str = "") -> str:
    r"""Return `text` with its control characters written as Python does, such as `\n` and `\x1b`.

    Args:
        text: of anybody; what was escaped already stays as it is.
        keep: control characters that stay.
    """
    return _UNPRINTABLE.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def printable_bytes(data: bytes) -> str:
    """Return octets as text of several lines: line ends and tabs stay, what is not UTF-8 is written as numbers."""
    return printable(data.decode("utf-8", "backslashreplace"), keep="\n\t")
