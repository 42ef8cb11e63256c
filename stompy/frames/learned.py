"""A fast path for heads that a peer repeats: one regular expression matches command and header names, in their order.

A broker writes thousands of frames with the same header names in the same order. For a head that the pattern matches
there is no need to search for lines and names; the values of many frames are checked at once, by the rules of `checks`.
The parser handles a frame that does not match on the slow path, which alone reports errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.errors import RemoteProtocolError
from stompy.frames.frame import Frame, Headers, headers_from_head
from stompy.frames.grammar import BODY_COMMANDS

if TYPE_CHECKING:
    from stompy.frames.checks import HeadChecker
    from stompy.frames.grammar import FrameLimits, Grammar

Row = tuple[bytes | Headers, bytes, bytes]
"""A frame in a run: its header lines, starting with LF; the value of `subscription`, or `b""`; its body."""

_SEEN_BEFORE = 32
"""The number of frames on the slow path before the first head is learned; it doubles for each further head."""
_SHAPES = 8
"""The maximum number of learned heads; every frame may be matched against all of them."""
_LONGEST = 4096
"""The maximum size in bytes of a learned head, as a pattern takes time to compile."""


class Run:
    """Consecutive frames with the same command; iterating over it makes `Frame`s.

    Attributes:
        command: the command of all frames.
        names: the names of headers that every frame has.
        rows: the frames.
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
        return map(self.frame, self.rows)

    def frame(self, row: Row) -> Frame:
        """Return a row as a frame."""
        head, _, body = row
        assert isinstance(head, bytes)
        return Frame(self.command, headers_from_head(head, self._grammar, self.command), body)


def frames_of(items: Iterable[Frame | Run]) -> Iterator[Frame]:
    """Yield the frames of `items` one by one."""
    for item in items:
        if isinstance(item, Run):
            yield from item
        else:
            yield item


@dataclass(frozen=True, slots=True)
class HeadShape:
    """One learned head.

    Attributes:
        command: the command.
        names: the names of the headers, as on the wire.
        groups: the groups of the pattern for the header lines, the values of `subscription` and `content-length`.
        bodyless: whether the frame must not have a body.
        line_end: the line end; one after the NUL belongs to the frame.
    """

    command: str
    names: frozenset[str]
    groups: tuple[int, int, int]
    bodyless: bool
    line_end: bytes


class LearnedHeads:
    """The heads that a parser has learned.

    Args:
        grammar: the rules of the version; nothing is learned in the handshake, nor in the 1.0-draft, where names are in
            any case.
        checker: checks the values.
        limits: limits of a frame.
    """

    def __init__(self, grammar: Grammar, checker: HeadChecker, limits: FrameLimits) -> None:
        self._grammar = grammar
        self._checker = checker
        # A block of at most this size is within the limits: its number of lines was checked when it was learned.
        self._harmless = min(limits.max_header_line, limits.max_header_block)
        self._patterns: list[bytes] = []
        self.pattern: re.Pattern[bytes] | None = None
        """Matches a learned head; `None` before the first one."""
        self.shapes: dict[int | None, HeadShape] = {}
        """The learned heads by the last group of the match."""
        self._learn_after = _SEEN_BEFORE
        self._slow_frames = 0
        self._off = grammar.draft or grammar.handshake

    def observe(self, command: str, line: bytes, block: bytes) -> None:
        """Count a frame that was parsed on the slow path; from time to time, learn its head.

        Args:
            command: the command of the frame.
            line: the command line, without its LF.
            block: the checked header lines, which start and end with LF.
        """
        self._slow_frames += 1
        if self._slow_frames < self._learn_after or self._off or not 1 < len(block) <= _LONGEST:
            return
        self._slow_frames = 0
        if self.pattern is not None and self.pattern.match(line + block + (b"\r\n" if line[-1:] == b"\r" else b"\n")):
            return  # it is learned already; the frame was incomplete and so on the slow path
        if len(self._patterns) == _SHAPES:
            self.forget()
        self._learn_after *= 2
        self._learn(command, line, block[1:])

    def _learn(self, command: str, line: bytes, lines: bytes) -> None:
        line_end = b"\r\n" if self._grammar.crlf and line.endswith(b"\r") else b"\n"
        bodyless = command not in BODY_COMMANDS
        group = first = 1 + self.pattern.groups if self.pattern is not None else 1
        groups: dict[bytes, int] = {}
        parts = []
        names = [entry.split(b":", 1)[0] for entry in lines.split(b"\n")[:-1]]
        for name in names:
            value = rb"[^\n]*"
            if name in (b"subscription", b"content-length") and name not in groups:
                group += 1
                groups[name] = group
                value = rb"([0-9]{1,9})" if name == b"content-length" else rb"([^\n]*)"
            parts.append(re.escape(name) + b":" + value + line_end)
        if b"" in names or (bodyless and b"content-length" in groups):
            return
        last = group + 1  # an empty group: its number identifies the head, and it stands for a missing header
        self._patterns.append(re.escape(line) + rb"(\n" + b"".join(parts) + b")" + line_end + b"()")
        self.pattern = re.compile(b"|".join(self._patterns))
        self.shapes[last] = HeadShape(
            command,
            frozenset(name.decode("utf-8", "replace") for name in names),
            (first, groups.get(b"subscription", last), groups.get(b"content-length", last)),
            bodyless,
            line_end,
        )

    def forget(self) -> None:
        """Remove all learned heads."""
        self._patterns.clear()
        self.shapes.clear()
        self.pattern, self._slow_frames = None, 0

    def check(self, run: Run) -> bool:
        """Return whether the header lines of a run are valid; the slow path reports the error if they are not."""
        heads = [head for head, _, _ in run.rows if isinstance(head, bytes)]
        if max(map(len, heads)) > self._harmless:
            return False
        try:
            self._checker.text(b"".join(heads), run.command)
        except RemoteProtocolError:
            return False
        return True
