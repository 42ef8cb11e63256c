"""A second decoder, to judge the first by: small, obvious and slow.

It takes the whole input at once, goes line by line, and was written from the requirements, not from the parser. The
two share nothing but the names of versions, leniencies and limits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stompy.frames.grammar import DEFAULT_LIMITS, FrameLimits, Leniency

PROFILES = ("1.0-draft", "1.0", "1.1", "1.2", "handshake")
"""The versions, and the rules of the first frame of each side, before a version is agreed."""

Pairs = tuple[tuple[str, str], ...]
Decoded = tuple[str, Pairs, bytes]
"""Command, headers in order, body."""

WITH_BODY = {"SEND", "MESSAGE", "ERROR"}
WITHOUT_BODY = {"CONNECT", "STOMP", "CONNECTED", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"}
WITHOUT_BODY |= {"DISCONNECT", "RECEIPT"}
NEVER_ESCAPED = {"CONNECT", "STOMP", "CONNECTED"}


class Refusal(Exception):
    """The input breaks a rule."""


class Incomplete(Exception):
    """The input ends inside of a frame."""


@dataclass
class Reference:
    """Decodes by the rules of one profile."""

    profile: str
    leniency: Leniency = Leniency.NONE
    limits: FrameLimits = DEFAULT_LIMITS

    def decode(self, stream: bytes) -> tuple[list[Decoded], str | None]:
        """Return the frames that `stream` hold, and the rule that what follows them breaks, or `None`."""
        frames: list[Decoded] = []
        try:
            while True:
                stream = self.without_line_ends(stream)
                frame, stream = self.frame(stream)
                frames.append(frame)
        except Incomplete:
            return frames, None
        except Refusal as refusal:
            return frames, str(refusal)

    # -- lines

    def takes_crlf(self) -> bool:
        return self.profile != "1.1" or Leniency.CRLF_IN_1_1 in self.leniency

    def line(self, stream: bytes) -> tuple[bytes, bytes]:
        """Split after the first LF; the line is returned without its line end, including a CR that belongs to it."""
        line, lf, rest = stream.partition(b"\n")
        if self.takes_crlf() and line.endswith(b"\r"):
            line = line[:-1]
        if not lf:
            raise OpenLine(line)
        return line, rest

    def without_line_ends(self, stream: bytes) -> bytes:
        blanks = b"\n \r" if self.profile == "1.0-draft" else b"\n\r" if self.takes_crlf() else b"\n"
        while stream and stream[0] in blanks:
            try:
                line, stream = self.line(stream)
            except OpenLine as last:
                line, stream = last.stream, b""
            if self.is_data(line):
                raise Refusal("no line end between frames")
        if not stream:
            raise Incomplete
        return stream

    def is_data(self, line: bytes) -> bool:
        return bool(line.strip(b" \r") if self.profile == "1.0-draft" else line)

    # -- the head

    def frame(self, stream: bytes) -> tuple[Decoded, bytes]:
        command, lines, stream = self.head(stream)
        pairs = tuple(self.header(line, command) for line in lines)
        length = self.length(pairs)
        if command in WITHOUT_BODY and self.refuses_bodies():
            if length or (length is None and stream and stream[0] != 0):
                raise Refusal("a body where none may be")
            length = 0
        body, stream = self.uncounted(stream) if length is None else self.counted(stream, length)
        if command in WITHOUT_BODY and self.drops_bodies():
            body = b""
        return (command, pairs, body), stream

    def head(self, stream: bytes) -> tuple[str, list[bytes], bytes]:
        lines: list[bytes] = []
        command = None
        size = 0
        while True:
            before = len(stream)
            try:
                line, stream = self.line(stream)
            except OpenLine as last:
                self.check_line(last.stream, command is None)
                raise Incomplete from None
            self.check_line(line, command is None)
            if command is not None and not self.is_data(line):
                return command, lines, stream
            if command is None:
                command = line.decode("ascii")
                if self.profile == "1.0-draft":
                    command = command.upper()
            else:
                lines.append(line)
                size += before - len(stream)
            if size > self.limits.max_header_block:
                raise Refusal("too many bytes of headers")
            if len(lines) > self.limits.max_headers:
                raise Refusal("too many headers")

    def check_line(self, line: bytes, first: bool) -> None:
        if b"\0" in line:
            raise Refusal("a NUL in the head")
        if first and not re.fullmatch(rb"[A-Za-z][A-Za-z0-9_-]{0,63}", line):
            raise Refusal("not a command")
        if not first and len(line) > self.limits.max_header_line:
            raise Refusal("a line too long")

    def header(self, line: bytes, command: str) -> tuple[str, str]:
        if self.profile == "1.0-draft":
            line = line.rstrip(b" \r")
        elif self.profile == "1.2" and b"\r" in line:
            raise Refusal("a CR that is not part of a line end")
        try:
            handler = "surrogateescape" if Leniency.INVALID_UTF8 in self.leniency else "strict"
            text = line.decode("utf-8", handler)
        except UnicodeDecodeError:
            raise Refusal("not UTF-8") from None
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise Refusal("no colon or no name")
        if self.profile == "1.0-draft":
            if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
                raise Refusal("a control character")
            name = name.lower()
        if self.profile in ("1.0", "1.0-draft"):
            value = value.strip(" ")
        escapes = self.escapes(command)
        return unescaped(name, escapes, self.bears_escapes()), unescaped(value, escapes, self.bears_escapes())

    def escapes(self, command: str) -> dict[str, str]:
        if command in NEVER_ESCAPED and Leniency.ESCAPED_CONNECT not in self.leniency:
            return {}
        known = {"n": "\n", "c": ":", "\\": "\\"}
        if self.profile == "1.1":
            knows_cr = Leniency.CR_ESCAPE_IN_1_1 | Leniency.WRITE_CR_ESCAPE_IN_1_1
            return {**known, "r": "\r"} if knows_cr & self.leniency else known
        if self.profile == "1.0-draft" or (self.profile == "1.0" and Leniency.ESCAPES_IN_1_0 not in self.leniency):
            return {}
        return {**known, "r": "\r"}

    def bears_escapes(self) -> bool:
        return self.profile == "handshake" or Leniency.UNDEFINED_ESCAPES in self.leniency

    # -- the body

    def length(self, pairs: Pairs) -> int | None:
        value = next((value for name, value in pairs if name == "content-length"), None)
        if value is None:
            return None
        if self.profile == "handshake":
            value = value.strip(" ")
        if not value or any(char not in "0123456789" for char in value):
            raise Refusal("no decimal number in content-length")
        value = value.lstrip("0") or "0"
        if len(value) > 18 or int(value) > self.max_body():
            raise Refusal("content-length above the limit")
        return int(value)

    def max_body(self) -> int:
        first = self.limits.max_first_body if self.profile == "handshake" else self.limits.max_body
        return min(first, self.limits.max_body)

    def refuses_bodies(self) -> bool:
        return self.profile in ("1.1", "1.2") and Leniency.UNEXPECTED_BODY not in self.leniency

    def drops_bodies(self) -> bool:
        if self.profile in ("1.1", "1.2"):
            return Leniency.UNEXPECTED_BODY in self.leniency
        return self.profile != "handshake"

    def counted(self, stream: bytes, length: int) -> tuple[bytes, bytes]:
        if len(stream) <= length:
            raise Incomplete
        if stream[length] != 0:
            raise Refusal("no NUL behind a counted body")
        return stream[:length], stream[length + 1 :]

    def uncounted(self, stream: bytes) -> tuple[bytes, bytes]:
        body, nul, rest = stream.partition(b"\0")
        if len(body) > self.max_body():
            raise Refusal("a body too long")
        if not nul:
            raise Incomplete
        return body, rest


class OpenLine(Exception):
    """The input ends inside of a line."""

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self.stream = stream


def unescaped(text: str, escapes: dict[str, str], lenient: bool) -> str:
    """Go through `text` once, from left to right."""
    if not escapes:
        return text
    result, chars = "", iter(text)
    for char in chars:
        if char != "\\":
            result += char
            continue
        following = next(chars, "")
        if following in escapes:
            result += escapes[following]
        elif lenient:
            result += char + following
        else:
            raise Refusal("an undefined escape")
    return result
