"""Heads that a peer writes again and again: after a while one pattern knows the names of their headers, in their order.

A broker writes the same names in the same order into thousands of frames. What the pattern finds needs no search for
lines and names; the values are checked for many frames at once, by the rules of `checks`. The pattern refuses what is
odd, and the parser then takes the frame the long way, which owns every error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame, Headers
from stompy.frames.grammar import BODY_COMMANDS

if TYPE_CHECKING:
    from stompy.frames.checks import HeadChecker
    from stompy.frames.grammar import Grammar, Limits

Row = tuple[bytes | Headers, bytes, bytes]
"""A frame in a run: its header lines behind a LF, the value of `subscription` among them or nothing, and its body."""

_SEEN_BEFORE = 32
"""Frames that are checked the long way before the first head is learned; twice as many before each further one."""
_SHAPES = 8
"""Heads that are known at a time; each is tried at every frame."""
_LONGEST = 4096
"""Octets of a head that is learned, as a pattern takes time to compile."""


class Run:
    """Frames of one command, one behind the other; `Frame`s are only made when it is iterated.

    Attributes:
        command: of all of them.
        names: of headers that each of them has.
        rows: what came.
    """

    __slots__ = ("_grammar", "command", "names", "rows")

    def __init__(self, command: str, names: frozenset[str], grammar: Grammar) -> None:
        self.command = command
        self.names = names
        self.rows: list[Row] = []
        self._grammar = grammar

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Frame]:
        for head, _, body in self.rows:
            assert isinstance(head, bytes)
            yield Frame(self.command, Headers.from_head(head, self._grammar, self.command), body)


def frames_of(items: Iterable[Frame | Run]) -> Iterator[Frame]:
    """Yield single frames."""
    for item in items:
        if isinstance(item, Run):
            yield from item
        else:
            yield item


@dataclass(frozen=True, slots=True)
class Shape:
    """What the pattern tells of a frame that it has found.

    Attributes:
        command: of the frame.
        names: of the headers, as they stand on the wire.
        groups: of the match: the header lines, the value of `subscription`, that of `content-length`.
        bodyless: whether the frame has no body.
        line_end: of its lines; the one after the NUL belongs to the frame.
    """

    command: str
    names: frozenset[str]
    groups: tuple[int, int, int]
    bodyless: bool
    line_end: bytes


class LearnedHeads:
    """Which heads a parser knows by one grammar.

    Args:
        grammar: what is learned in the handshake would be of no use, and in the draft names come in any case.
        checker: has the rules for values.
        limits: maxima for a frame.
    """

    def __init__(self, grammar: Grammar, checker: HeadChecker, limits: Limits) -> None:
        self._grammar = grammar
        self._checker = checker
        # A block of no more octets passes: the number of its lines was checked when it was learned.
        self._harmless = min(limits.max_header_line, limits.max_header_block)
        self._patterns: list[bytes] = []
        self.pattern: re.Pattern[bytes] | None = None
        """Matches a head that is known; `None` before the first."""
        self.shapes: dict[int | None, Shape] = {}
        """By the last group of the match."""
        self._patience = _SEEN_BEFORE
        self._odd = 0
        self._off = grammar.draft or grammar.handshake

    def see(self, command: str, line: bytes, block: bytes) -> None:
        """Take note of a frame that came the long way; now and then its head is learned.

        Args:
            command: of the frame.
            line: the command line, without its LF.
            block: the header lines, which were checked, with a LF in front and behind.
        """
        self._odd += 1
        if self._odd < self._patience or self._off or not 1 < len(block) <= _LONGEST:
            return
        self._odd = 0
        if self.pattern is not None and self.pattern.match(line + block + (b"\r\n" if line[-1:] == b"\r" else b"\n")):
            return  # it is known, and came the long way since it was not whole
        if len(self._patterns) == _SHAPES:
            self.forget()
        self._patience *= 2
        self._learn(command, line, block[1:])

    def _learn(self, command: str, line: bytes, lines: bytes) -> None:
        line_end = b"\r\n" if self._grammar.crlf and line.endswith(b"\r") else b"\n"
        bodyless = command not in BODY_COMMANDS
        group = first = 1 + self.pattern.groups if self.pattern is not None else 1
        places: dict[bytes, int] = {}
        parts = []
        names = [entry.split(b":", 1)[0] for entry in lines.split(b"\n")[:-1]]
        for name in names:
            value = rb"[^\n]*"
            if name in (b"subscription", b"content-length") and name not in places:
                group += 1
                places[name] = group
                value = rb"([0-9]{1,9})" if name == b"content-length" else rb"([^\n]*)"
            parts.append(re.escape(name) + b":" + value + line_end)
        if bodyless and b"content-length" in places:
            return
        last = group + 1  # an empty group: the last one tells which head it is, and it stands for what is not there
        self._patterns.append(re.escape(line) + rb"(\n" + b"".join(parts) + b")" + line_end + b"()")
        self.pattern = re.compile(b"|".join(self._patterns))
        self.shapes[last] = Shape(
            command,
            frozenset(name.decode("utf-8", "replace") for name in names),
            (first, places.get(b"subscription", last), places.get(b"content-length", last)),
            bodyless,
            line_end,
        )

    def forget(self) -> None:
        """Know no head any more."""
        self._patterns.clear()
        self.shapes.clear()
        self.pattern, self._odd = None, 0

    def check(self, run: Run) -> bool:
        """Return whether the header lines of a run are as they must be; of one that is not, an error is for others."""
        heads = [head for head, _, _ in run.rows if isinstance(head, bytes)]
        if max(map(len, heads)) > self._harmless:
            return False
        try:
            self._checker.text(b"".join(heads), run.command)
        except RemoteProtocolError:
            return False
        return True
