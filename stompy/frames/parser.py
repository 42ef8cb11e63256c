"""Bytes in, frames out: an incremental parser in linear time and bounded memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stompy.errors import FrameTooLarge, RemoteProtocolError
from stompy.frames.checks import HeadChecker, checked_length, show
from stompy.frames.frame import Frame, Headers
from stompy.frames.grammar import BODY_COMMANDS, CLIENT_COMMANDS, DEFAULT_LIMITS, SERVER_COMMANDS, Limits
from stompy.frames.learned import LearnedHeads, Run, frames_of

if TYPE_CHECKING:
    from stompy.frames.grammar import Grammar

_COMMANDS = {command.encode("ascii"): command for command in CLIENT_COMMANDS | SERVER_COMMANDS}
_BODYLESS = (CLIENT_COMMANDS | SERVER_COMMANDS) - BODY_COMMANDS


class _LineEnds:
    """How lines end: the octets that may stand between frames, runs of empty lines, and the end of a head."""

    def __init__(self, between: bytes, before_lf: bytes) -> None:
        self.between = between
        # A run of one class of octets takes no memory, where a repeated group would keep its way back.
        self.run = re.compile(rb"[%b]*" % between)
        self.open = re.compile(rb"%b\Z" % before_lf)
        self.head_end = re.compile(rb"\n%b\n" % before_lf)


_STRAY_CR = re.compile(rb"\r(?!\n)")
_LF = _LineEnds(b"\n", b"")
_CRLF = _LineEnds(b"\n\r", rb"\r?")
_LF_NUL = _LineEnds(b"\n\0", b"")
_CRLF_NUL = _LineEnds(b"\n\r\0", rb"\r?")
_DRAFT = _LineEnds(b"\n\r ", rb"[ \r]*")
_DRAFT_BLANK = re.compile(rb"[ \r]*\n")
# A head that ends within this many octets takes the fast path; a longer search could cost a scan of the whole read.
_WINDOW = 4096


class _Body:
    """A body that goes on beyond what was read; `need` counts its NUL, and is None where only the NUL ends it."""

    __slots__ = ("command", "data", "headers", "need")

    def __init__(self, command: str, headers: Headers, data: bytearray, need: int | None) -> None:
        self.command, self.headers, self.data, self.need = command, headers, data, need


class Parser:
    """Cuts a byte stream into frames, whatever the chunks it comes in.

    Not for two threads at once. Line ends between frames belong to no frame and are skipped (STOMP 1.2, STOMP Frames).

    Args:
        grammar: the rules of the version spoken.
        limits: maxima for a frame.
        single: stop behind the first frame, as the version of what follows depends on it; `switch` goes on.
    """

    def __init__(self, grammar: Grammar, limits: Limits = DEFAULT_LIMITS, *, single: bool = False) -> None:
        self.error: RemoteProtocolError | None = None
        """What ended the parsing; set by the `feed` that met it, raised by every later one."""
        self.line_ends = 0
        """Octets of line ends between frames so far, and of the NULs that a leniency allows there."""
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
        self._ends = _DRAFT if grammar.draft else crlf if grammar.crlf else lf
        # In the draft an empty line may hold spaces, which the fast search does not see.
        self._window = 0 if grammar.draft else _WINDOW

    def switch(self, grammar: Grammar) -> None:
        """Read what follows by `grammar`; call `feed(b"")` for frames that had already arrived."""
        self._single = self._paused = False
        self._use(grammar)

    @property
    def pending(self) -> int:
        """Octets held of a frame that is not whole yet, the lines of its headers among them."""
        return len(self._buffer) + (len(self._body.data) + self._body.headers.size if self._body else 0)

    def drop(self) -> None:
        """Forget what is held of a frame that is not whole yet, as nothing more comes."""
        self._buffer, self._body = bytearray(), None

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order; `error` and what is raised are as for `read`."""
        return list(frames_of(self.read(data)))

    def read(self, data: bytes) -> list[Frame | Run]:
        """Return the frames that `data` completes, in order; those whose heads were learned come as runs.

        Frames before an offence are still returned: look at `error` afterwards.

        Raises:
            RemoteProtocolError: an earlier call met an offence; nothing more can be read.
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
        """Append the frames that `source` holds and return how many octets were used up."""
        find, between, window = source.find, self._ends.between, self._window
        crlf, end, at = self._grammar.crlf, len(source), 0
        while at < end:
            if self._learned.pattern is not None:
                at = self._take_learned(source, at, frames)
                if at == end:
                    break
            if source[at] in between:
                after = self._skip_blank(source, at)
                if after == at:
                    return at  # half of a line end
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
                # Where lines end with CR LF the search for LF LF would run on beyond each head.
                window = self._window if start - stop == 2 else 0
            at = self._frame(source, at, stop, start, frames)
            if self._body is not None or self._paused:
                return at
        return at

    def _take_learned(self, source: bytes, at: int, frames: list[Frame | Run]) -> int:
        """Take the frames from `at` on that have learned heads and are whole; return where they end.

        Nothing is taken of frames that are not as they must be: what they need is found on the long way.
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
                if runs and runs[-1].command == shape.command:
                    runs[-1].names &= shape.names
                else:
                    runs.append(Run(shape.command, shape.names, self._grammar))
                put = runs[-1].rows.append
            head, key, digits = found.group(lines, subscription, length)
            start = found.end()
            stop = start + int(digits) if digits else start if shape.bodyless else find(b"\0", start)
            if not start <= stop < end or source[stop] or stop - start > most:
                break
            put((head, key, source[start:stop]))
            at = stop + 1
            if source.startswith(shape.line_end, at):
                at += len(shape.line_end)
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
        """Return where the line ends between frames that begin at `at` stop; half a line end is left."""
        match = self._ends.run.match(source, at)
        assert match is not None
        after = self._whole_lines(source, at, match.end())
        if after < len(source) and source[after] in self._ends.between:
            if not self._ends.open.match(source, after):
                wrong = show(source[after : after + 20])
                raise RemoteProtocolError(f"between frames only line ends may stand, not {wrong} (Augmented BNF)")
            after = len(source) - 1  # the last octet of an open blank line says as much as all of it
        return after

    def _whole_lines(self, source: bytes, at: int, end: int) -> int:
        """Return where the last whole line end of the run `at:end` stops."""
        if self._grammar.draft:
            return source.rfind(b"\n", at, end) + 1 or at
        stray = _STRAY_CR.search(source, at, end) if self._grammar.crlf else None
        return end if stray is None else stray.start()

    def _head_end(self, source: bytes | bytearray, at: int) -> tuple[int, int] | None:
        """Return where the head at `at` ends and where its body begins, or `None` while that is not to be seen."""
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
        """Take the frame whose head lies in `at:stop` and whose body begins at `start`; return where it ends."""
        grammar, head = self._grammar, self._head
        eol = source.find(b"\n", at, stop + 1)
        command = _COMMANDS.get(source[at:eol]) or head.command(source[at:eol])
        text = head.headers(source[eol : stop + 1], command)
        if head.scanned:
            head.reset()
        self._learned.see(command, source[at:eol], source[eol : stop + 1])
        headers = Headers.from_wire(text, grammar, "\\" in text and grammar.escaped(command))
        length = self._announced(text, headers)
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
                raise _not_terminated(command, length, source[stop])
        if stop < 0:
            data = bytearray(memoryview(source)[start:])
            self._body = _Body(command, headers, data, None if length is None else length + 1)
            return len(source)
        self._emit(command, headers, source[start:stop], frames)
        after = stop + 1
        if source.startswith(b"\n", after):
            return after + 1
        return after + 2 if source[start - 2 : start] == b"\r\n" == source[after : after + 2] else after

    def _announced(self, text: str, headers: Headers) -> int | None:
        value: str | None = None
        if self._grammar.draft:  # there it may be written in any case
            value = headers.peek("content-length")
        elif (start := text.find("\ncontent-length:") + 16) > 15:
            # No need to unescape: no sequence stands for a digit.
            value = text[start : text.index("\n", start)]
        return None if value is None else checked_length(value, self._grammar, self._limits)

    def _more_body(self, data: bytes, frames: list[Frame | Run]) -> bytes:
        """Add `data` to the open body; return what lies behind the frame, or nothing."""
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
        if last:
            raise _not_terminated(body.command, len(body.data), last)
        self._body = None
        self._emit(body.command, body.headers, bytes(body.data), frames)
        return data[used:]

    def _check_uncounted(self, size: int) -> None:
        name, limit = self._limits.body(first=self._grammar.handshake)
        if size > limit:
            raise FrameTooLarge("a body without content-length does not end", limit_name=name, limit=limit)

    def _emit(self, command: str, headers: Headers, body: bytes, frames: list[Frame | Run]) -> None:
        if body and command in _BODYLESS and self._grammar.unexpected_body == "drop":
            body = b""
        frames.append(Frame(command, headers, body))
        if self._single:
            self._paused = True


def _unexpected_body(command: str, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"a {command} frame must not have a body: {what} (Body)")


def _not_terminated(command: str, length: int, octet: int) -> RemoteProtocolError:
    if command in _BODYLESS and not length:
        return _unexpected_body(command, show(bytes((octet,))))
    return RemoteProtocolError(
        f"a body of content-length {length} must be followed by a NUL, not by {show(bytes((octet,)))}"
        " (Header content-length)"
    )
