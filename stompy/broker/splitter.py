"""Where frames begin and end in a stream of octets, without judging them.

Faults are done to octets, not to parsed frames: what is broken must pass as broken as it came, and what is not touched
must pass unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEARTBEAT = "heart-beat"
"""What stands for a command where line ends come between frames."""

_LINE_ENDS = re.compile(rb"[\r\n]+")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*\r?$", re.MULTILINE)
_MAX_HEAD = 1024 * 1024
"""Octets of a head after which the stream is taken for something else than STOMP, and passed on as it comes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the stream that belongs to one frame, or the line ends between two.

    Attributes:
        octets: as they came.
        command: of the frame; `HEARTBEAT` between frames; empty where no frame can be made out.
        begins: whether it is the first part of its frame; that part has the whole head.
        ends: whether it is the last.
    """

    octets: bytes
    command: str
    begins: bool
    ends: bool


class Splitter:
    """Cuts one direction of a conversation into parts.

    A head is held back until it is whole; a body is passed on as it comes.
    """

    def __init__(self) -> None:
        self._held = b""
        self._command: str | None = None  # of the frame whose body is under way
        self._left: int | None = None  # octets of that body and its NUL; None: up to the NUL
        self._lost = False

    def feed(self, data: bytes) -> list[Part]:
        """Return the parts that `data` completes."""
        octets, self._held = self._held + data, b""
        parts: list[Part] = []
        while octets:
            part = self._next(octets)
            if part is None:
                self._held = octets
                break
            parts.append(part)
            octets = octets[len(part.octets) :]
        return parts

    def _next(self, octets: bytes) -> Part | None:
        if self._lost:
            return Part(octets, "", begins=False, ends=False)
        if self._command is not None:
            end = self._body_end(octets)
            return self._part(octets, end, self._command, begins=False)
        if line_ends := _LINE_ENDS.match(octets):
            return Part(line_ends.group(), HEARTBEAT, begins=True, ends=True)
        return self._head(octets)

    def _head(self, octets: bytes) -> Part | None:
        blank = _HEAD_END.search(octets)
        nul = octets.find(b"\0", 0, blank.start() if blank else None)
        if blank is None and nul < 0:
            if len(octets) <= _MAX_HEAD:
                return None
            self._lost = True
            return Part(octets, "", begins=True, ends=False)
        command = octets[: _line_length(octets)].decode("ascii", "replace").upper()
        if nul >= 0:  # a frame without a blank line
            return Part(octets[: nul + 1], command, begins=True, ends=True)
        assert blank is not None
        head = octets[: blank.end()]
        length = _LENGTH.search(head)
        self._left = int(length[1]) + 1 if length else None
        end = self._body_end(octets[len(head) :])
        return self._part(octets, len(head) + end if end else -len(head), command, begins=True)

    def _body_end(self, body: bytes) -> int:
        """Return how many octets of `body` belong to the frame if it ends there, else 0."""
        if self._left is not None:
            return self._left if len(body) >= self._left else 0
        return body.find(b"\0") + 1

    def _part(self, octets: bytes, end: int, command: str, *, begins: bool) -> Part:
        if end > 0:
            self._command = self._left = None
            return Part(octets[:end], command, begins, ends=True)
        self._command = command
        if self._left is not None:
            self._left -= len(octets) + end  # `end` is minus the length of the head
        return Part(octets, command, begins, ends=False)


def _line_length(octets: bytes) -> int:
    found = re.search(rb"[\r\n\0]", octets)
    return found.start() if found else len(octets)
