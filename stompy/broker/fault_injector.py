"""What a plan makes of one direction of one link: bytes in, steps out. No thread, clock or socket."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from stompy.broker.faults import HEARTBEAT, Cut, CutAfter, Delay, Double, Drop, FrameFault, Insert, Rewrite

if TYPE_CHECKING:
    from stompy.broker.faults import Fault, FaultPlan
    from stompy.world import random


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass bytes on."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait as the fault says."""

    fault: Delay


@dataclass(frozen=True, slots=True)
class End:
    """End the link."""

    fault: Fault


_HEAD = re.compile(rb".*?\r?\n\r?\n", re.DOTALL)
Step: TypeAlias = "Pass | Wait | End"


@dataclass(slots=True)
class _Frame:
    """What is done to the current frame."""

    dropped: bool = False
    left: int | None = None  # bytes until the link ends
    cut: Cut | None = None
    kept: bytearray | None = None  # of a frame that passes twice
    rewrites: list[Rewrite] = field(default_factory=list)


class _Count:
    """How often a fault was asked for on this link, and its chance."""

    def __init__(self, lot: random.Random) -> None:
        self.seen = 0
        self.lot = lot


class FaultInjector:
    """Applies a plan to what passes one direction on one link.

    Args:
        plan: asked anew for each frame.
        link: the number of the connection.
        direction: `SENT` or `RECEIVED`.
    """

    def __init__(self, plan: FaultPlan, *, link: int, direction: str) -> None:
        self._plan = plan
        self._link = link
        self._direction = direction
        self._frame_splitter = FrameSplitter()
        self._frame = _Frame()
        self._counts: dict[int, _Count] = {}
        self._ends_at: dict[int, int] = {}
        self._passed = 0
        self._over = False

    def feed(self, data: bytes) -> list[Step]:
        """Return what to do, in order; nothing any more after an `End`."""
        steps: list[Step] = []
        for part in self._frame_splitter.feed(data):
            if part.begins:
                steps += self._begin(part)
            steps += self._part(part)
        return self._limited(steps)

    # Frames

    def _begin(self, part: Part) -> list[Step]:
        """Decide what happens to a frame; return what comes before it."""
        self._frame = frame = _Frame()
        before: list[Step] = []
        for fault in self._struck_by(part.command):
            if isinstance(fault, Delay):
                before.append(Wait(fault))
                continue  # noted when it waits
            if isinstance(fault, Cut):
                frame.cut, frame.left = fault, fault.keep
                continue  # noted when it ends
            if isinstance(fault, Insert):
                before.append(Pass(fault.data))
            elif isinstance(fault, Double):
                frame.kept = bytearray()
            elif isinstance(fault, Drop):
                frame.dropped = True
            elif isinstance(fault, Rewrite):
                frame.rewrites.append(fault)
            self._plan.struck(fault, link=self._link)
        return before

    def _struck_by(self, command: str) -> list[FrameFault]:
        struck = []
        for number, fault in self._plan.entries(link=self._link):
            if not isinstance(fault, FrameFault) or fault.direction != self._direction or not fault.concerns(command):
                continue
            count = self._counts.setdefault(number, _Count(self._plan.lot(number, link=self._link)))
            count.seen += 1
            if fault.nth in (None, count.seen) and count.lot.random() < fault.chance:
                struck.append(fault)
        return struck

    def _part(self, part: Part) -> list[Step]:
        frame = self._frame
        data = part.data
        if part.begins:
            for rewrite in frame.rewrites:
                data = _with_header(data, rewrite)
        if frame.kept is not None:
            frame.kept += data
        steps: list[Step] = []
        if frame.cut is not None and frame.left is not None:
            data, frame.left = data[: frame.left], max(0, frame.left - len(data))
        if not frame.dropped:
            steps.append(Pass(data))
        if part.ends and frame.kept and not frame.dropped and frame.cut is None:
            steps.append(Pass(bytes(frame.kept)))
        if frame.cut is not None and (part.ends or frame.left == 0):
            steps.append(End(frame.cut))
        return steps

    # Bytes

    def _limited(self, steps: list[Step]) -> list[Step]:
        """Shorten the steps to what passes before the link ends."""
        limit = self._limit()
        done: list[Step] = []
        for step in steps:
            if self._over:
                break
            if limit is not None and self._passed >= limit[0]:
                step = End(limit[1])
            if isinstance(step, Pass):
                data = step.data if limit is None else step.data[: limit[0] - self._passed]
                self._passed += len(data)
                if data and done and isinstance(done[-1], Pass):
                    done[-1] = Pass(done[-1].data + data)
                elif data:
                    done.append(Pass(data))
                if limit is None or self._passed < limit[0]:
                    continue
                step = End(limit[1])
            done.append(step)
            self._over = isinstance(step, End)
        return done

    def _limit(self) -> tuple[int, CutAfter] | None:
        """Return the nearest place where the link must end, counted in bytes that passed."""
        nearest: tuple[int, CutAfter] | None = None
        for number, fault in self._plan.entries(link=self._link):
            if not isinstance(fault, CutAfter) or fault.direction != self._direction:
                continue
            if number not in self._ends_at:
                drawn = self._plan.lot(number, link=self._link).randint(*fault.bounds)
                self._ends_at[number] = self._passed + drawn
            if nearest is None or self._ends_at[number] < nearest[0]:
                nearest = (self._ends_at[number], fault)
        return nearest


def _with_header(data: bytes, rewrite: Rewrite) -> bytes:
    """Return the bytes that begin a frame with the first header of that name changed."""
    name, value = rewrite.header.encode(), rewrite.value.encode()
    head = _HEAD.match(data)
    if head is None:
        return data
    line = re.compile(rb"(?<=\n)(" + re.escape(name) + rb"):[^\r\n]*")
    return line.sub(lambda found: found[1] + b":" + value, head.group(), count=1) + data[head.end() :]


# Where frames begin and end

_LINE_ENDS = re.compile(rb"[\r\n]+")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*\r?$", re.MULTILINE)
_MAX_HEAD = 1024 * 1024
"""Bytes of a head after which the stream is taken for something else than STOMP, and passed on as it comes."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the stream that belongs to one frame, or the line ends between two.

    Attributes:
        data: as they came.
        command: of the frame; `HEARTBEAT` between frames; empty where no frame can be made out.
        begins: whether it is the first part of its frame; that part has the whole head.
        ends: whether it is the last.
    """

    data: bytes
    command: str
    begins: bool
    ends: bool


class FrameSplitter:
    """Cuts one direction of a conversation into parts.

    A head is held back until it is whole; a body is passed on as it comes.
    """

    def __init__(self) -> None:
        self._held = b""
        self._command: str | None = None  # of the frame whose body is passing
        self._left: int | None = None  # bytes of that body and its NUL; None: up to the NUL
        self._lost = False

    def feed(self, data: bytes) -> list[Part]:
        """Return the parts that `data` completes."""
        data, self._held = self._held + data, b""
        parts: list[Part] = []
        while data:
            part = self._next(data)
            if part is None:
                self._held = data
                break
            parts.append(part)
            data = data[len(part.data) :]
        return parts

    def _next(self, data: bytes) -> Part | None:
        if self._lost:
            return Part(data, "", begins=False, ends=False)
        if self._command is not None:
            end = self._body_end(data)
            return self._part(data, end, self._command, begins=False)
        if line_ends := _LINE_ENDS.match(data):
            return Part(line_ends.group(), HEARTBEAT, begins=True, ends=True)
        return self._head(data)

    def _head(self, data: bytes) -> Part | None:
        blank = _HEAD_END.search(data)
        nul = data.find(b"\0", 0, blank.start() if blank else None)
        if blank is None and nul < 0:
            if len(data) <= _MAX_HEAD:
                return None
            self._lost = True
            return Part(data, "", begins=True, ends=False)
        command = data[: _line_length(data)].decode("ascii", "replace").upper()
        if nul >= 0:  # a frame without a blank line
            return Part(data[: nul + 1], command, begins=True, ends=True)
        assert blank is not None
        head = data[: blank.end()]
        length = _LENGTH.search(head)
        self._left = int(length[1]) + 1 if length else None
        end = self._body_end(data[len(head) :])
        return self._part(data, len(head) + end if end else -len(head), command, begins=True)

    def _body_end(self, body: bytes) -> int:
        """Return how many bytes of `body` belong to the frame if it ends there, else 0."""
        if self._left is not None:
            return self._left if len(body) >= self._left else 0
        return body.find(b"\0") + 1

    def _part(self, data: bytes, end: int, command: str, *, begins: bool) -> Part:
        if end > 0:
            self._command = self._left = None
            return Part(data[:end], command, begins, ends=True)
        self._command = command
        if self._left is not None:
            self._left -= len(data) + end  # `end` is minus the length of the head
        return Part(data, command, begins, ends=False)


def _line_length(data: bytes) -> int:
    found = re.search(rb"[\r\n\0]", data)
    return found.start() if found else len(data)
