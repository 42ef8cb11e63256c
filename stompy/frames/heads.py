"""Heads of frames, which are their command lines and header lines: checked, and learned, as most of them repeat.

A broker writes thousands of frames with the same header names in the same order. One regular expression matches the
command and the header names that it has learned, in their order. For a head that it matches there is no need to search
for lines and names, and the values of many frames are checked at once. The parser handles a frame that does not match
on the slow path, which alone reports errors.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from stompy.errors import FrameTooLargeError, RemoteProtocolError
from stompy.frames.escaping import undefined_escape
from stompy.frames.frame import Frame, Headers, headers_from_head
from stompy.frames.grammar import BODY_COMMANDS, Version, body_limit

if TYPE_CHECKING:
    from stompy.frames.grammar import FrameLimits, Grammar

_SHOWN = 60
_HIDDEN = "(hidden: it may hold a credential)"
# A header block starts and ends with LF, so this finds a line without a name or without a colon.
_BAD_LINE = re.compile(r"\n(?![^:\n]+:|\Z)")
_WHOLE_BAD_LINE = re.compile(_BAD_LINE.pattern + r"[^\n]*")
_LINE_WITHOUT_COLON = re.compile(r"(?<=\n)[^:\n]{2,}(?=\n)")
_OPEN_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\\n\Z")
_SHORTEST_LINE = len("\nn:")
_COMMAND = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DIGITS = 18
_REST = rb"[^\n]*+" if sys.version_info >= (3, 11) else rb"[^\n]*"  # Python 3.10 has no possessive quantifiers
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
# Matched once per run of spaces, not once per space: a long run inside a line would take quadratic time.
_TRAILING = re.compile(rb"(?<![ \r])[ \r]+(?=\n)")


def show(data: bytes | bytearray | str) -> str:
    """Return invalid input for an error message: truncated, and hidden if it may hold a credential."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "backslashreplace")
    lowered = text.lower()
    if "passcode" in lowered or "login" in lowered:
        return _HIDDEN
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def checked_length(value: str, grammar: Grammar, limits: FrameLimits) -> int:
    """Return the value of a `content-length` header, in bytes.

    Raises:
        RemoteProtocolError: the value is not ASCII digits.
        FrameTooLargeError: the value exceeds the limit of a body.
    """
    if grammar.trim or grammar.handshake:  # the first frame may be from a 1.0 peer, which may pad values
        value = value.strip(" ")
    if not (value.isascii() and value.isdecimal()):
        raise RemoteProtocolError(f"content-length must be decimal digits, not {show(value)} (Header content-length)")
    digits = value if len(value) <= _DIGITS else value.lstrip("0")
    name, limit = body_limit(limits, first=grammar.handshake)
    # Converting thousands of digits would be slow, and the number is too large anyway.
    length = int(digits or "0") if len(digits) <= _DIGITS else limit + 1
    if length > limit:
        raise FrameTooLargeError(f"content-length {show(digits)} is too large", limit_name=name, limit=limit)
    return length


class HeadChecker:
    """Check the head of a frame, also while it is still arriving.

    Args:
        grammar: the rules of the version.
        limits: limits of a frame.
    """

    def __init__(self, grammar: Grammar, limits: FrameLimits) -> None:
        self._grammar = grammar
        self._limits = limits
        # A block of at most this size cannot exceed any limit, whatever its lines are.
        self._harmless = min(limits.max_header_line, limits.max_header_block, limits.max_headers * _SHORTEST_LINE)
        self._open_line = re.compile(rb"[ \r]*\Z" if grammar.draft else rb"\r?\Z" if grammar.crlf else rb"\Z")
        self.reset()

    def reset(self) -> None:
        """Start with the next head."""
        self.scanned = 0
        """The number of bytes at the start of the head that need not be searched for its end again."""
        self.open_blank = False
        """Whether the last, incomplete line is blank so far."""
        self._seen = 0
        self._lines = 0
        self._line_start = 0
        self._block_start = 0

    @property
    def last_lf(self) -> int:
        """The index of the last line end in the head."""
        return self._line_start - 1

    def partial(self, source: bytes | bytearray, at: int) -> None:
        """Check an incomplete head, which starts at `at` in `source`; each byte is only checked once.

        Raises:
            FrameTooLargeError: there are too many lines, or too many bytes in a line or in all lines.
            RemoteProtocolError: there is a NUL, or the first line cannot be a command.
        """
        start, line_start = at + self._seen, at + self._line_start
        count = source.count(b"\n", start)
        if count:
            self._check_count(self._lines + count - 1)
            self._partial_lines(source[line_start:])
            if not self._lines:
                self._block_start = source.find(b"\n", at) + 1 - at
            self._lines += count
            line_start = source.rfind(b"\n") + 1
            self._check_block(line_start - at - self._block_start)
        elif self._lines:
            self.check_length(len(source) - line_start, source[-1:])
        else:
            self.command(source[at:])
        if source.find(b"\0", start) >= 0:
            raise _nul_in_head(source[at:])
        self._seen, self._line_start = len(source) - at, line_start - at
        self.open_blank = self._is_open_blank(source, start, line_start, bool(count))
        # If only blanks follow the last LF, it may be the LF before the empty line that ends the head.
        self.scanned = self._line_start - 1 if self.open_blank and not self._grammar.draft else self._seen

    def _is_open_blank(self, source: bytes | bytearray, start: int, line_start: int, new_line: bool) -> bool:
        """Return whether the incomplete line is blank so far, without checking the start of a long one again."""
        if not self._lines or not (new_line or self.open_blank):
            return False
        at = line_start if new_line or not self._grammar.draft else start
        return self._open_line.match(source, at) is not None

    def _partial_lines(self, data: bytes | bytearray) -> None:
        lines = data.split(b"\n")
        if not self._lines:
            self.command(lines.pop(0))
        for line in lines:
            self.check_length(len(line), line[-1:])

    def command(self, line: bytes | bytearray) -> str:
        """Return the command of a first line that is not exactly a known command.

        Raises:
            RemoteProtocolError: it cannot be a command.
        """
        if self._grammar.crlf and line.endswith(b"\r"):
            line = line[:-1]
        if self._grammar.padded_commands:
            line = line.strip()
        if not _COMMAND.fullmatch(line) and (not self._grammar.any_command or b"\r" in line):
            raise RemoteProtocolError(f"not a STOMP command line: {show(line)} (STOMP Frames)")
        command = line.decode("utf-8", "replace")
        return command.upper() if self._grammar.draft else command

    def headers(self, block: bytes, command: str) -> str:
        """Check the header lines of `block`, which starts and ends with LF, and return them with LF line ends.

        Raises:
            RemoteProtocolError: they are not UTF-8, or there is a NUL, a line without a name or a colon, a stray CR, or
                an undefined escape sequence, unless the grammar tolerates it.
            FrameTooLargeError: there are too many headers, or too many bytes in a line or in all lines.
        """
        grammar = self._grammar
        if len(block) > self._harmless:
            self._check_count(block.count(b"\n") - 1)
            self._check_block(len(block) - 1)
            for line in block.split(b"\n"):
                self.check_length(len(line), line[-1:])
        if grammar.draft:
            block = _TRAILING.sub(b"", block)
        text = self.text(block, command)
        if grammar.lines_as_artemis:
            text = _lines_as_artemis(text, grammar)
        if grammar.names_alone:
            text = _LINE_WITHOUT_COLON.sub(r"\g<0>:", text)
        bad = _BAD_LINE.search(text)
        if bad is not None and grammar.lenient_lines:
            text = _WHOLE_BAD_LINE.sub("", text)
        elif bad is not None:
            raise _malformed_line(text, bad.end(), command)
        if grammar.draft:
            control = _CONTROL.search(text)
            if control is not None:
                raise RemoteProtocolError(f"control character {control[0]!r} in a header (1.0-draft, Frames)")
        return text

    def text(self, block: bytes, command: str) -> str:
        """Check the header lines of one or more frames, except limits and colons, and return them with LF line ends.

        Raises:
            RemoteProtocolError: they are not UTF-8, or there is a NUL, a stray CR, or an undefined escape sequence.
        """
        grammar = self._grammar
        try:
            text = block.decode("utf-8", grammar.utf8_errors)
        except UnicodeDecodeError as error:
            wrong = show(block[error.start : error.end])
            raise RemoteProtocolError(f"headers must be UTF-8: {wrong} (Value Encoding)") from None
        if "\r" in text:
            text = self._without_cr(text, command)
        if "\0" in text:
            raise _nul_in_head(block)
        if "\\" in text and not grammar.lenient_escapes and grammar.escaped(command):
            if grammar.lines_as_artemis:
                text = _OPEN_ESCAPE.sub(r"\1\n", text)
            bad = undefined_escape(text, grammar.unescapes)
            if bad is not None:
                raise RemoteProtocolError(f"undefined escape sequence {show(bad)} in a header (Value Encoding)")
        return text

    def _without_cr(self, text: str, command: str) -> str:
        if self._grammar.crlf:
            text = text.replace("\r\n", "\n")
        if "\r" in text and not self._grammar.bare_cr:
            line = next(line for line in text.split("\n") if "\r" in line)
            raise RemoteProtocolError(f"a CR inside a header must be escaped: {_line(line, command)} (Augmented BNF)")
        return text

    def _check_count(self, count: int) -> None:
        if count > self._limits.max_headers:
            raise FrameTooLargeError(
                "too many headers in a frame", limit_name="max_headers", limit=self._limits.max_headers
            )

    def _check_block(self, size: int) -> None:
        limit = self._limits.max_header_block
        if size > limit:
            raise FrameTooLargeError("the headers of a frame are too long", limit_name="max_header_block", limit=limit)

    def check_length(self, length: int, last: bytes | bytearray) -> None:
        """Raise `FrameTooLargeError` if a line is too long; `last` is its last byte, perhaps the CR of its end."""
        limit = self._limits.max_header_line
        if length > limit and (length > limit + 1 or not self._grammar.crlf or last != b"\r"):
            raise FrameTooLargeError("a header line is too long", limit_name="max_header_line", limit=limit)


def _lines_as_artemis(text: str, grammar: Grammar) -> str:
    """Return header lines as Artemis keeps them in its map; a first line without a colon is left as it is."""
    kept: dict[str, str] = {}
    name = ""
    for line in text[1:-1].split("\n") if len(text) > 1 else ():
        key, colon, value = line.partition(":")
        name, value = (key, value) if colon else (name, line)
        if name not in kept or grammar.version is not Version.V1_2 or grammar.handshake:
            kept[name] = value.replace(":", "") if grammar.escapes and not grammar.handshake else value
    return "\n" + "".join(f"{name}:{value}\n" if name else f"{value}\n" for name, value in kept.items())


def _malformed_line(text: str, start: int, command: str) -> RemoteProtocolError:
    line = text[start:].split("\n", 1)[0]
    lack = "name" if line.startswith(":") else "colon"
    return RemoteProtocolError(f"a header line without a {lack}: {_line(line, command)} (Augmented BNF)")


def _line(line: str, command: str) -> str:
    # The rest of a passcode with a line end in it would look like any other line.
    return _HIDDEN if command in ("CONNECT", "STOMP") else show(line)


def _nul_in_head(data: bytes | bytearray) -> RemoteProtocolError:
    return RemoteProtocolError(f"a NUL before the empty line that ends the headers: {show(data)} (Augmented BNF)")


RunRow = tuple[bytes, bytes, bytes]
"""A frame in a run: its header lines, starting with LF; the value of `subscription`, or `b""`; its body."""
Row = RunRow | tuple[Headers, bytes, bytes]
"""The same, or a frame whose headers were read."""

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
        self.rows: list[RunRow] = []
        self._grammar = grammar

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Frame]:
        return map(self.frame, self.rows)

    def frame(self, row: RunRow) -> Frame:
        """Return a row as a frame."""
        return Frame(self.command, headers_from_head(row[0], self._grammar, self.command), row[2])


def frames_of(items: Iterable[Frame | Run]) -> Iterator[Frame]:
    """Yield the frames of `items` one by one."""
    for item in items:
        if isinstance(item, Run):
            yield from item
        else:
            yield item


class HeadShape(NamedTuple):
    """One learned head.

    Attributes:
        command: the command.
        names: the names of the headers, as on the wire.
        groups: the groups of the pattern for the header lines, the values of `subscription` and `content-length`.
        bodyless: whether the frame must not have a body.
        crlf: whether lines end with CR LF; then such an end after the NUL belongs to the frame too.
    """

    command: str
    names: frozenset[str]
    groups: tuple[int, int, int]
    bodyless: bool
    crlf: bool


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
        # A value never gives back what it has matched, unless that is the CR of its end; to be able to costs more.
        rest = rb"[^\n]*" if line_end == b"\r\n" else _REST
        bodyless = command not in BODY_COMMANDS
        group = first = 1 + self.pattern.groups if self.pattern is not None else 1
        groups: dict[bytes, int] = {}
        parts = []
        names = [entry.split(b":", 1)[0] for entry in lines.split(b"\n")[:-1]]
        for name in names:
            value = rest
            if name in (b"subscription", b"content-length") and name not in groups:
                group += 1
                groups[name] = group
                value = rb"([0-9]{1,9})" if name == b"content-length" else b"(" + rest + b")"
            parts.append(re.escape(name) + b":" + value + line_end)
        if self._grammar.lines_as_artemis and len(set(names)) < len(names):
            return
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
            line_end == b"\r\n",
        )

    def forget(self) -> None:
        """Remove all learned heads."""
        self._patterns.clear()
        self.shapes.clear()
        self.pattern, self._slow_frames = None, 0

    def check(self, run: Run) -> bool:
        """Return whether the header lines of a run are valid; the slow path reports the error if they are not."""
        heads = [head for head, _, _ in run.rows]
        block = b"".join(heads)
        if len(block) > self._harmless and max(map(len, heads)) > self._harmless:
            return False
        try:
            self._checker.text(block, run.command)
        except RemoteProtocolError:
            return False
        return True
