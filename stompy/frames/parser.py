"""An incremental parser: bytes in, frames out, in linear time and limited memory.

The head of a frame is its command line and its header lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.errors import FrameTooLargeError, RemoteProtocolError
from stompy.frames.frame import Frame, Headers, headers_from_wire
from stompy.frames.grammar import (
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    DEFAULT_LIMITS,
    SERVER_COMMANDS,
    FrameLimits,
    body_limit,
)
from stompy.frames.heads import HeadChecker, LearnedHeads, Run, checked_length, frames_of, show

if TYPE_CHECKING:
    from stompy.frames.grammar import Grammar

_COMMANDS = {command.encode("ascii"): command for command in CLIENT_COMMANDS | SERVER_COMMANDS}
_BODYLESS = (CLIENT_COMMANDS | SERVER_COMMANDS) - BODY_COMMANDS


class _Lengths(dict[bytes, int]):
    """The value of a `content-length` header by its digits: a cache, as to convert them costs several times as much."""

    def __missing__(self, digits: bytes) -> int:
        length = int(digits)
        if len(self) < _MAX_LENGTHS:
            self[digits] = length
        return length


_MAX_LENGTHS = 1000
_LENGTHS = _Lengths()


class _LineEnds:
    """The patterns for line ends: bytes allowed between frames, runs of them, and the end of a head."""

    def __init__(self, between: bytes, before_lf: bytes) -> None:
        self.between = between
        # Matching a character class takes no memory; a repeated group would store a backtracking point each time.
        self.run = re.compile(rb"[%b]*" % between)
        self.open = re.compile(rb"%b\Z" % before_lf)
        self.head_end = re.compile(rb"\n%b\n" % before_lf)


_STRAY_CR = re.compile(rb"\r(?!\n)")
_LF = _LineEnds(b"\n", b"")
_CRLF = _LineEnds(b"\n\r", rb"\r?")
_LF_NUL = _LineEnds(b"\n\0", b"")
_CRLF_NUL = _LineEnds(b"\n\r\0", rb"\r?")
_DRAFT = _LineEnds(b"\n\r ", rb"[ \r]*")
_LINE_FEED = ord("\n")
_DRAFT_BLANK = re.compile(rb"[ \r]*\n")
# A head that ends within this many bytes is found by a plain search; a longer search could scan the whole read.
_WINDOW = 4096


class _Body:
    """An incomplete body; `need` is its size with the NUL, or `None` if it ends at the first NUL."""

    __slots__ = ("command", "data", "headers", "need")

    def __init__(self, command: str, headers: Headers, data: bytearray, need: int | None) -> None:
        self.command, self.headers, self.data, self.need = command, headers, data, need


class Parser:
    """Split a byte stream into frames; the bytes may arrive in chunks of any size.

    Not thread-safe. Line ends between frames are skipped (STOMP 1.2, STOMP Frames).

    Args:
        grammar: the rules of the version.
        limits: limits of a frame.
        single: whether to pause after the first frame, which determines the version, until `switch` is called.
    """

    def __init__(self, grammar: Grammar, limits: FrameLimits = DEFAULT_LIMITS, *, single: bool = False) -> None:
        self.error: RemoteProtocolError | None = None
        """The error that ended parsing; the call that finds it returns normally, every later one raises it."""
        self.line_ends = 0
        """The number of bytes of line ends between frames so far, including NULs if the grammar allows them."""
        self._limits = limits
        self._buffer = bytearray()
        self._body: _Body | None = None
        self._single = single
        self._paused = False
        self._use(grammar)

    def _use(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._head = HeadChecker(grammar, self._limits)
        self._learned = LearnedHeads(grammar, self._head, self._limits)
        lf, crlf = (_LF_NUL, _CRLF_NUL) if grammar.nul_between else (_LF, _CRLF)
        self._crlf = grammar.crlf or grammar.padded_commands
        self._ends = _DRAFT if grammar.draft else crlf if self._crlf else lf
        # In the draft an empty line may contain spaces, which the plain search does not find.
        self._window = 0 if grammar.draft else _WINDOW
        self._drops = grammar.longer_bodies and grammar.version.has_heartbeats

    def switch(self, grammar: Grammar, *, single: bool = False) -> None:
        """Parse what follows by `grammar`; call `feed(b"")` for frames that have already arrived.

        Args:
            grammar: the rules of the version.
            single: whether to pause again after the next frame.
        """
        self._single, self._paused = single, False
        self._use(grammar)

    @property
    def pending(self) -> int:
        """The number of bytes that are held for an incomplete frame, including its headers."""
        return len(self._buffer) + (len(self._body.data) + self._body.headers.size if self._body else 0)

    def drop(self) -> None:
        """Drop the incomplete frame at the end of the stream."""
        self._buffer, self._body = bytearray(), None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order; errors are those of `read`."""
        return list(frames_of(self.read(data)))

    def read(self, data: bytes) -> list[Frame | Run]:
        """Return the frames that `data` completes, in order; those with a learned head as runs.

        Frames before a protocol error are still returned: check `error` afterwards.

        Raises:
            RemoteProtocolError: an earlier call found a protocol error.
        """
        if self.error is not None:
            raise self.error
        frames: list[Frame | Run] = []
        try:
            if self._body is not None:
                data = self._more_body(data, frames)
            self._feed(data, frames)
        except RemoteProtocolError as error:
            self.error = error
            self.drop()
        return frames

    def _feed(self, data: bytes, frames: list[Frame | Run]) -> None:
        buffer = self._buffer
        if buffer:
            buffer += data
            if self._paused or (self._head.scanned and self._head_end(buffer, 0) is None):
                return
            data = bytes(buffer)
            buffer.clear()
        used = 0 if self._paused else self._parse(data, frames)
        if used < len(data):
            buffer += memoryview(data)[used:]

    def _parse(self, source: bytes, frames: list[Frame | Run]) -> int:
        """Append the frames in `source`, and return the number of bytes used."""
        find, between, window = source.find, self._ends.between, self._window
        crlf, end, at = self._crlf, len(source), 0
        while at < end:
            if self._learned.pattern is not None:
                at = self._take_learned(source, at, frames)
                if at == end:
                    break
            if source[at] in between:
                after = self._skip_blank(source, at)
                if after == at:
                    return at  # an incomplete line end
                self.line_ends += after - at
                at = after
                continue
            stop = find(b"\n\n", at, at + window)
            start = stop + 2
            if stop < 0 or (crlf and b"\r" in source[at:stop]):
                found = self._head_end(source, at)
                if found is None:
                    return at
                stop, start = found
                # If lines end with CR LF, the search for LF LF would continue after each head.
                window = self._window if start - stop == 2 else 0
            at = self._frame(source, at, stop, start, frames)
            if self._body is not None or self._paused:
                return at
        return at

    def _take_learned(self, source: bytes, at: int, frames: list[Frame | Run]) -> int:
        """Append the complete frames with learned heads, from `at` on; return where they end.

        If one of them is invalid, append none: the slow path then reports the error.
        """
        learned, begin, end = self._learned, at, len(source)
        assert learned.pattern is not None
        match, find, most = learned.pattern.match, source.find, self._limits.max_body
        runs: list[Run] = []
        last = None
        while (found := match(source, at)) is not None:
            if found.lastindex != last:
                last = found.lastindex
                shape = learned.shapes[last]
                lines, subscription, length = shape.groups
                bodyless, crlf = shape.bodyless, shape.crlf
                if runs and runs[-1].command == shape.command:
                    runs[-1].names &= shape.names
                else:
                    runs.append(Run(shape.command, shape.names, self._grammar))
                put = runs[-1].rows.append
            head, key, digits = found.group(lines, subscription, length)
            start = found.end()
            stop = start + _LENGTHS[digits] if digits else start if bodyless else find(b"\0", start)
            if stop >= end or stop < start or source[stop] or stop - start > most:
                break
            put((head, key, source[start:stop]))
            at = stop + 1
            if at < end and source[at] == _LINE_FEED:  # which costs less than `startswith`
                at += 1
            elif crlf and source.startswith(b"\r\n", at):
                at += 2
        if at == begin:
            return at
        if runs and not runs[-1].rows:
            runs.pop()
        if not all(map(learned.check, runs)):
            learned.forget()
            return begin
        if self._head.scanned:
            self._head.reset()
        if isinstance(before := frames[-1] if frames else None, Run) and before.command == runs[0].command:
            before.names &= runs[0].names
            before.rows += runs.pop(0).rows
        frames += runs
        return at

    def _skip_blank(self, source: bytes, at: int) -> int:
        """Return where the line ends between frames, from `at` on, stop; an incomplete line end is not included."""
        match = self._ends.run.match(source, at)
        assert match is not None
        after = self._whole_lines(source, at, match.end())
        if after < len(source) and source[after] in self._ends.between:
            if not self._ends.open.match(source, after):
                wrong = show(source[after : after + 20])
                raise RemoteProtocolError(f"only line ends are allowed between frames, not {wrong} (Augmented BNF)")
            after = len(source) - 1  # the last byte of an incomplete blank line is enough to continue from
        return after

    def _whole_lines(self, source: bytes, at: int, end: int) -> int:
        """Return where the last complete line end in `at:end` stops."""
        if self._grammar.draft:
            return source.rfind(b"\n", at, end) + 1 or at
        stray = _STRAY_CR.search(source, at, end) if self._grammar.crlf else None
        return end if stray is None else stray.start()

    def _head_end(self, source: bytes | bytearray, at: int) -> tuple[int, int] | None:
        """Return where the head at `at` ends and where its body starts, or `None` if the head is incomplete."""
        head = self._head
        rest = _DRAFT_BLANK.match(source, at + head.scanned) if head.open_blank and self._grammar.draft else None
        if rest is not None:
            stop, start = at + head.last_lf, rest.end()
        else:
            match = self._ends.head_end.search(source, at + head.scanned)
            if match is None:
                head.partial(source, at)
                return None
            stop, start = match.span()
        head.check_length(start - stop - 2, source[start - 2 : start - 1])
        return stop, start

    def _frame(self, source: bytes, at: int, stop: int, start: int, frames: list[Frame | Run]) -> int:
        """Append the frame with the head `at:stop` and a body from `start` on; return where it ends."""
        grammar, head = self._grammar, self._head
        eol = source.find(b"\n", at, stop + 1)
        command = _COMMANDS.get(source[at:eol]) or head.command(source[at:eol])
        text = head.headers(source[eol : stop + 1], command)
        if head.scanned:
            head.reset()
        if command == "SEND" or not self._grammar.length_of_send_alone:
            self._learned.observe(command, source[at:eol], source[eol : stop + 1])
        headers = headers_from_wire(text, grammar, "\\" in text and grammar.escaped(command))
        ignored = grammar.length_of_send_alone and command not in ("SEND", "MESSAGE", "ERROR")
        length = None if ignored else self._announced(text, headers)
        if command in _BODYLESS and grammar.unexpected_body == "refuse":
            if length:
                raise _unexpected_body(command, f"content-length {length}")
            if length is None and source[start : start + 1] not in (b"", b"\0"):
                raise _unexpected_body(command, show(source[start : start + 20]))
            length = 0
        if length is None:
            stop = source.find(b"\0", start)
            self._check_uncounted((stop if stop >= 0 else len(source)) - start)
        else:
            stop = start + length
            if stop >= len(source):
                stop = -1
            elif source[stop]:
                return self._longer(command, headers, source, start, stop, frames)
        if stop < 0:
            data = bytearray(memoryview(source)[start:])
            self._body = _Body(command, headers, data, None if length is None else length + 1)
            return len(source)
        self._emit(command, headers, source[start:stop], frames)
        after = stop + 1
        if source.startswith(b"\n", after):
            return after + 1
        return after + 2 if source[start - 2 : start] == b"\r\n" == source[after : after + 2] else after

    def _longer(
        self, command: str, headers: Headers, source: bytes, start: int, stop: int, frames: list[Frame | Run]
    ) -> int:
        """Append a frame whose body `start:stop` is followed by more; return where that ends, if it may be dropped."""
        if not self._drops:
            raise _not_terminated(command, stop - start, source[stop])
        end = source.find(b"\0", stop)
        if end < 0:
            self._body = _Body(command, headers, bytearray(source[start:stop]), stop - start + 1)
            return len(source)
        self._emit(command, headers, source[start:stop], frames)
        return end + 1

    def _announced(self, text: str, headers: Headers) -> int | None:
        value: str | None = None
        if self._grammar.draft:  # the name may be in any case there
            value = headers.get("content-length")
        elif (start := text.find("\ncontent-length:") + 16) > 15:
            # Without unescaping: no escape sequence stands for a digit.
            value = text[start : text.index("\n", start)]
            value = value.strip() if self._grammar.padded_commands else value
        if value == "-1" and self._grammar.longer_bodies:
            return None
        return None if value is None else checked_length(value, self._grammar, self._limits)

    def _more_body(self, data: bytes, frames: list[Frame | Run]) -> bytes:
        """Add `data` to the incomplete body; return the bytes after the frame."""
        body = self._body
        assert body is not None
        if body.need is None:
            used = data.find(b"\0") + 1 or len(data)
            complete = data[used - 1 : used] == b"\0"
            self._check_uncounted(len(body.data) + used - complete)
        else:
            missing = body.need - len(body.data)
            used = min(missing, len(data))
            complete = used == missing
        body.data += data[:used]
        if not complete:
            return b""
        last = body.data.pop()
        if last and not self._drops:
            raise _not_terminated(body.command, len(body.data), last)
        if last:
            used = data.find(b"\0", used) + 1
            if not used:
                return b""  # the next byte is looked at as the last one
        self._body = None
        self._emit(body.command, body.headers, bytes(body.data), frames)
        return data[used:]

    def _check_uncounted(self, size: int) -> None:
        name, limit = body_limit(self._limits, first=self._grammar.handshake)
        if size > limit:
            raise FrameTooLargeError("a body without content-length does not end", limit_name=name, limit=limit)

    def _emit(self, command: str, headers: Headers, body: bytes, frames: list[Frame | Run]) -> None:
        if body and command in _BODYLESS and self._grammar.unexpected_body == "drop":
            body = b""
        frames.append(Frame(command, headers, body))
        if self._single:
            self._paused = True


def _unexpected_body(command: str, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"a {command} frame must not have a body: {what} (Body)")


def _not_terminated(command: str, length: int, byte: int) -> RemoteProtocolError:
    if command in _BODYLESS and not length:
        return _unexpected_body(command, show(bytes((byte,))))
    return RemoteProtocolError(
        f"a body of content-length {length} must be followed by a NUL, not by {show(bytes((byte,)))}"
        " (Header content-length)"
    )
