"""What a plan makes of one direction of one link: octets in, steps out. No thread, clock or socket."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from stompy.broker.faults import Cut, CutAfter, Delay, Double, Drop, FrameFault, Insert, Rewrite
from stompy.broker.splitter import Part, Splitter

if TYPE_CHECKING:
    import random

    from stompy.broker.faults import Fault, FaultPlan


@dataclass(frozen=True, slots=True)
class Pass:
    """Pass octets on."""

    octets: bytes


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
    """What is done to the frame that is under way."""

    dropped: bool = False
    left: int | None = None  # octets until the link ends
    cut: Cut | None = None
    kept: bytearray | None = None  # of a frame that passes twice
    rewrites: list[Rewrite] = field(default_factory=list)


class _Count:
    """How often a fault was asked for on this link, and its chance."""

    def __init__(self, lot: random.Random) -> None:
        self.seen = 0
        self.lot = lot


class Treatment:
    """Applies a plan to what passes one way on one link.

    Args:
        plan: asked anew for each frame.
        link: the number of the connection.
        way: `SENT` or `RECEIVED`.
    """

    def __init__(self, plan: FaultPlan, *, link: int, way: str) -> None:
        self._plan = plan
        self._link = link
        self._way = way
        self._splitter = Splitter()
        self._frame = _Frame()
        self._counts: dict[int, _Count] = {}
        self._ends_at: dict[int, int] = {}
        self._passed = 0
        self._over = False

    def feed(self, data: bytes) -> list[Step]:
        """Return what to do, in order; nothing any more after an `End`."""
        steps: list[Step] = []
        for part in self._splitter.feed(data):
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
                before.append(Pass(fault.octets))
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
            if not isinstance(fault, FrameFault) or fault.way != self._way or not fault.concerns(command):
                continue
            count = self._counts.setdefault(number, _Count(self._plan.lot(number, link=self._link)))
            count.seen += 1
            if fault.nth in (None, count.seen) and count.lot.random() < fault.chance:
                struck.append(fault)
        return struck

    def _part(self, part: Part) -> list[Step]:
        frame = self._frame
        octets = part.octets
        if part.begins:
            for rewrite in frame.rewrites:
                octets = _with_header(octets, rewrite)
        if frame.kept is not None:
            frame.kept += octets
        steps: list[Step] = []
        if frame.cut is not None and frame.left is not None:
            octets, frame.left = octets[: frame.left], max(0, frame.left - len(octets))
        if not frame.dropped:
            steps.append(Pass(octets))
        if part.ends and frame.kept and not frame.dropped and frame.cut is None:
            steps.append(Pass(bytes(frame.kept)))
        if frame.cut is not None and (part.ends or frame.left == 0):
            steps.append(End(frame.cut))
        return steps

    # Octets

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
                octets = step.octets if limit is None else step.octets[: limit[0] - self._passed]
                self._passed += len(octets)
                if octets and done and isinstance(done[-1], Pass):
                    done[-1] = Pass(done[-1].octets + octets)
                elif octets:
                    done.append(Pass(octets))
                if limit is None or self._passed < limit[0]:
                    continue
                step = End(limit[1])
            done.append(step)
            self._over = isinstance(step, End)
        return done

    def _limit(self) -> tuple[int, CutAfter] | None:
        """Return the nearest place where the link must end, counted in octets that passed."""
        nearest: tuple[int, CutAfter] | None = None
        for number, fault in self._plan.entries(link=self._link):
            if not isinstance(fault, CutAfter) or fault.way != self._way:
                continue
            if number not in self._ends_at:
                drawn = self._plan.lot(number, link=self._link).randint(*fault.bounds)
                self._ends_at[number] = self._passed + drawn
            if nearest is None or self._ends_at[number] < nearest[0]:
                nearest = (self._ends_at[number], fault)
        return nearest


def _with_header(octets: bytes, rewrite: Rewrite) -> bytes:
    """Return the octets that begin a frame with the first header of that name changed."""
    name, value = rewrite.header.encode(), rewrite.value.encode()
    head = _HEAD.match(octets)
    if head is None:
        return octets
    line = re.compile(rb"(?<=\n)(" + re.escape(name) + rb"):[^\r\n]*")
    return line.sub(lambda found: found[1] + b":" + value, head.group(), count=1) + octets[head.end() :]
