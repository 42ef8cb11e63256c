"""What the parser checks of the head of a frame before it believes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.errors import FrameTooLarge, RemoteProtocolError
from stompy.frames.escaping import undefined_escape

if TYPE_CHECKING:
    from stompy.frames.grammar import Grammar
    from stompy.frames.limits import Limits

_SHOWN = 60
# Text of a header block starts with LF, so this finds a line that is empty of a name or has no colon at all.
_BAD_LINE = re.compile(r"\n(?::|[^:\n]*(?:\n|\Z))")
_COMMAND = re.compile(rb"[A-Za-z][A-Za-z0-9_-]{0,63}")
_DIGITS = re.compile(r"[0-9]+")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")
_TRAILING = re.compile(rb"[ \r]+(?=\n|\Z)")


def show(octets: bytes | bytearray | str) -> str:
    """Return offending input for an error message: cut, and without a secret."""
    text = octets if isinstance(octets, str) else bytes(octets).decode("utf-8", "backslashreplace")
    lowered = text.lower()
    if "passcode" in lowered or "login" in lowered:
        return "(hidden: it may hold a credential)"
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}…"


def checked_length(value: str, grammar: Grammar, limits: Limits) -> int:
    """Return the octets that a `content-length` header announces.

    Raises:
        RemoteProtocolError: not a run of ASCII digits.
        FrameTooLarge: more than `limits.max_body`.
    """
    if grammar.handshake:
        value = value.strip(" ")  # it may come from a 1.0 server, which may pad
    if not _DIGITS.fullmatch(value):
        raise RemoteProtocolError(f"content-length must be decimal digits, not {show(value)} (Header content-length)")
    digits = value.lstrip("0") or "0"
    # A number of thousands of digits would be slow to convert, and refused all the same.
    length = int(digits) if len(digits) <= 19 else limits.max_body + 1
    if length > limits.max_body:
        raise FrameTooLarge(f"content-length {show(digits)} is too large", limit_name="max_body", limit=limits.max_body)
    return length


class HeadChecker:
    """Checks command and header lines by one grammar, also while they are still coming in."""

    def __init__(self, grammar: Grammar, limits: Limits) -> None:
        self._grammar = grammar
        self._limits = limits
        self._open_line = re.compile(rb"[ \r]*\Z" if grammar.draft else rb"\r?\Z" if grammar.crlf else rb"\Z")
        self.reset()

    def reset(self) -> None:
        """Forget what was seen of a head that has now come to its end."""
        self.scanned = 0
        """Octets of the head, from its first one, that need not be searched again for its end."""
        self._seen = 0
        self._lines = 0
        self._line_start = 0

    def partial(self, source: bytes | bytearray, at: int, end: int) -> None:
        """Check the octets `at:end` of a head without an end, looking at each of them once.

        Raises:
            FrameTooLarge: too many lines, or a line without an end.
            RemoteProtocolError: a NUL, or a first line that cannot be a command.
        """
        start = at + self._seen
        if source.find(b"\0", start, end) >= 0:
            raise _nul_in_head(source[at:end])
        self._lines += source.count(b"\n", start, end)
        last = source.rfind(b"\n", start, end)
        if last >= 0:
            self._line_start = last + 1 - at
        eol = source.find(b"\n", at, end)
        if eol < 0:
            self._partial_command(source[at:end])
        else:
            self.command(source[at:eol])
        self._check_count(self._lines - 1)
        self.check_line(end - at - self._line_start)
        self._seen = end - at
        # Only the last LF can be the first half of the empty line that ends the head, if nothing but blank followed it.
        half = self._lines and self._open_line.match(source, at + self._line_start)
        self.scanned = self._line_start - 1 if half else self._seen

    def command(self, line: bytes | bytearray) -> str:
        """Return the command of a first line that is not simply one of the known ones.

        Raises:
            RemoteProtocolError: it cannot be a command.
        """
        if self._grammar.crlf and line.endswith(b"\r"):
            line = line[:-1]
        if not _COMMAND.fullmatch(line):
            raise RemoteProtocolError(f"not a STOMP command line: {show(line)} (STOMP Frames)")
        command = bytes(line).decode("ascii")
        return command.upper() if self._grammar.draft else command

    def headers(self, block: bytes | bytearray, command: str) -> str:
        """Return the header lines of `block`, each preceded by LF, checked and with plain LF line ends.

        Raises:
            RemoteProtocolError: not UTF-8, a NUL, a line without name or colon, a stray CR, an undefined escape.
            FrameTooLarge: too many headers, or a line too long.
        """
        if not block:
            return ""
        grammar = self._grammar
        self._check_count(block.count(b"\n"))
        if len(block) > self._limits.max_header_line:
            self.check_line(max(map(len, block.split(b"\n"))))
        if grammar.draft:
            block = _TRAILING.sub(b"", bytes(block))
        try:
            text = block.decode("utf-8", grammar.utf8_errors)
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(
                f"headers must be UTF-8: {show(block[error.start : error.end])} (Value Encoding)"
            ) from None
        if "\r" in text:
            text = self._without_cr(text)
        if "\0" in text:
            raise _nul_in_head(block)
        bad = _BAD_LINE.search(text)
        if bad is not None:
            self._refuse_line(text, bad.start() + 1)
        if "\\" in text and grammar.escaped(command) and not grammar.lenient_escapes:
            self._check_escapes(text)
        if grammar.draft:
            control = _CONTROL.search(text)
            if control is not None:
                raise RemoteProtocolError(f"control character {control[0]!r} in a header (1.0-draft, Frames)")
        return text

    def _without_cr(self, text: str) -> str:
        if self._grammar.crlf:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        if "\r" in text and not self._grammar.bare_cr:
            line = next(line for line in text.split("\n") if "\r" in line)
            raise RemoteProtocolError(f"a CR inside a header must be escaped: {show(line)} (Augmented BNF)")
        return text

    def _refuse_line(self, text: str, start: int) -> None:
        line = text[start:].split("\n", 1)[0]
        if line.startswith(":"):
            raise RemoteProtocolError(f"a header line without a name: {show(line)} (Augmented BNF)")
        raise RemoteProtocolError(f"a header line without a colon: {show(line)} (Augmented BNF)")

    def _check_escapes(self, text: str) -> None:
        bad = undefined_escape(text, self._grammar.unescapes)
        if bad is not None:
            raise RemoteProtocolError(f"undefined escape sequence {show(bad)} in a header (Value Encoding)")

    def _check_count(self, count: int) -> None:
        if count > self._limits.max_headers:
            raise FrameTooLarge("too many headers in a frame", limit_name="max_headers", limit=self._limits.max_headers)

    def check_line(self, length: int) -> None:
        """Refuse a line of more octets than the limit."""
        if length > self._limits.max_header_line:
            limit = self._limits.max_header_line
            raise FrameTooLarge("a header line is too long", limit_name="max_header_line", limit=limit)

    def _partial_command(self, line: bytes | bytearray) -> None:
        self.check_line(len(line))
        candidate = bytes(line).removesuffix(b"\r") if self._grammar.crlf else bytes(line)
        if not _COMMAND.fullmatch(candidate):
            raise RemoteProtocolError(f"not the beginning of a STOMP frame: {show(line)} (STOMP Frames)")


def _nul_in_head(octets: bytes | bytearray) -> RemoteProtocolError:
    return RemoteProtocolError(f"a NUL before the empty line that ends the headers: {show(octets)} (Augmented BNF)")
