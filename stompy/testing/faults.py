"""Faults of single frames, for a `FaultProxy`: a program can be tested against a broker that answers wrongly.

::

    plan = FaultPlan(Drop("RECEIPT", nth=2), CutAfter(sent=(100, 5_000)), seed=7)
    with FaultProxy(broker.url, faults=plan) as proxy:
        ...

A fault counts the frames and bytes of each connection by itself, and connections are numbered in the order of
acceptance. So the same conversation meets the same faults each time, however threads are scheduled. Random choices come
from the seed of the plan. A plan prints as the expression that makes it.

| lock | guards | held over I/O? |
|---|---|---|
| `FaultPlan._changed` (a leaf) | the faults, the strikes, the releases | no |

Threads: any may use a plan.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from stompy.arguments import check_arguments, check_fields, check_value
from stompy.errors import ConfigurationError, StompTimeoutError
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS
from stompy.locks import make_condition
from stompy.world import random

SENT = "sent"
"""Instead of a command: any frame that the broker sends."""

RECEIVED = "received"
"""Instead of a command: any frame that the broker receives."""

HEARTBEAT = "heart-beat"
"""Instead of a command: line ends between frames."""

GARBAGE = b"\xff\xfe not a frame \x01\n:::\n\n\0"
"""For `Insert`: bytes that no version of STOMP allows."""

STRAY_MESSAGE = (
    b"MESSAGE\nsubscription:no-such-subscription\nmessage-id:stray-1\nack:stray-1\n"
    b"destination:/queue/stray\ncontent-length:5\n\nstray\0"
)
"""For `Insert`: a MESSAGE of an unknown subscription."""

_MOST_STRIKES = 10_000


class _Shown:
    """Shows a fault as the expression that makes it."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = []
        for one in fields(self):  # type: ignore[arg-type]  # all subclasses are dataclasses
            value = getattr(self, one.name)
            if not one.kw_only:
                shown.append(repr(value))
            elif value != one.default:
                shown.append(f"{one.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, slots=True, repr=False)
class FrameFault(_Shown):
    """Base of the faults that strike frames.

    Attributes:
        frame: a command (its side follows from it), `SENT`, `RECEIVED`, or `"heart-beat"` for the broker's heartbeats.
        nth: only this one of a link's matching frames, from 1, counted since the fault was added; `None` for each.
        chance: how probable it is that such a frame is struck, 0 to 1, drawn from the plan's seed.
        link: only this connection, from 1, in the order of acceptance; `None` for all.

    Raises:
        ConfigurationError: there is no such command, or a number is invalid.
    """

    frame: str
    nth: int | None = field(default=None, kw_only=True)
    chance: float = field(default=1.0, kw_only=True)
    link: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.frame not in _FRAMES:
            raise ConfigurationError(f"no frame is called {self.frame!r}; it is one of {', '.join(sorted(_FRAMES))}")
        check_fields(self)
        _check_count("nth", self.nth)
        _check_count("link", self.link)
        if not 0 <= self.chance <= 1:
            raise ConfigurationError(f"chance must be from 0 to 1, not {self.chance!r}")

    @property
    def direction(self) -> str:
        """`SENT` or `RECEIVED`."""
        return RECEIVED if self.frame == RECEIVED or self.frame in CLIENT_COMMANDS else SENT

    def concerns(self, command: str) -> bool:
        """Whether a frame of its own direction, with that command, counts for it; a heartbeat is not a frame."""
        return command == self.frame or (command != HEARTBEAT and self.frame in (SENT, RECEIVED))


@dataclass(frozen=True, slots=True, repr=False)
class Drop(FrameFault):
    """The frame is not passed on; nothing else happens."""


@dataclass(frozen=True, slots=True, repr=False)
class Delay(FrameFault):
    """The frame waits, and all that follows it in its direction.

    Attributes:
        seconds: how long; `None` until `FaultPlan.release` or the end of the link.
    """

    seconds: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        # Not super(): a slotted dataclass is a second class, which the empty super() does not know.
        FrameFault.__post_init__(self)
        if self.seconds is not None and not self.seconds >= 0:
            raise ConfigurationError(f"seconds must be 0 or more, not {self.seconds!r}")


@dataclass(frozen=True, slots=True, repr=False)
class Cut(FrameFault):
    """The link ends at the frame, both ways at once.

    A frame that was received whole takes effect, but no answer to it reaches the client.

    Attributes:
        keep: bytes of the frame that pass before; 0 for none, `None` for all of it.
    """

    keep: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        FrameFault.__post_init__(self)
        if self.keep is not None and self.keep < 0:
            raise ConfigurationError(f"keep must be 0 or more, not {self.keep!r}")


@dataclass(frozen=True, slots=True, repr=False)
class Double(FrameFault):
    """The frame passes twice."""


@dataclass(frozen=True, slots=True, repr=False)
class Rewrite(FrameFault):
    """A header of the frame gets another value; a frame without that header passes as it is.

    `Rewrite("RECEIPT", header="receipt-id", value="other")` confirms a receipt that no frame requested.

    Attributes:
        header: its name.
        value: its new value, as it stands on the wire.
    """

    header: str = field(kw_only=True)
    value: str = field(kw_only=True)


@dataclass(frozen=True, slots=True, repr=False)
class Insert(FrameFault):
    """Other bytes pass before the frame.

    Attributes:
        data: such as `GARBAGE` or `STRAY_MESSAGE`.
    """

    data: bytes = field(kw_only=True)


Range: TypeAlias = int | tuple[int, int]


@dataclass(frozen=True, slots=True, repr=False)
class CutAfter(_Shown):
    """The link ends, both ways at once, after a number of bytes, also within a frame.

    Give either `sent` or `received`. A pair is a range, both ends included, from which each link draws its number.

    Attributes:
        sent: bytes that the client still gets, counted since the fault was added.
        received: bytes that the broker still gets.
        link: as for the faults of frames.

    Raises:
        ConfigurationError: both are given, or none, or a number is invalid.
    """

    sent: Range | None = field(default=None, kw_only=True)
    received: Range | None = field(default=None, kw_only=True)
    link: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_count("link", self.link)
        if (self.sent is None) == (self.received is None):
            raise ConfigurationError("CutAfter takes sent or received, one of them")
        low, high = self.bounds
        if not 0 <= low <= high:
            raise ConfigurationError(f"not a number or range of bytes: {(low, high)}")

    @property
    def direction(self) -> str:
        """`SENT` or `RECEIVED`."""
        return RECEIVED if self.sent is None else SENT

    @property
    def bounds(self) -> tuple[int, int]:
        """The range to draw from."""
        chosen = self.received if self.sent is None else self.sent
        assert chosen is not None
        return chosen if isinstance(chosen, tuple) else (chosen, chosen)


@dataclass(frozen=True, slots=True, repr=False)
class Refuse(_Shown):
    """The connection is closed as soon as it is accepted. For a port that refuses connections, use `FaultProxy.refuse`.

    Attributes:
        link: as for the faults of frames.
    """

    link: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)
        _check_count("link", self.link)


Fault: TypeAlias = FrameFault | CutAfter | Refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """A fault that took effect.

    Attributes:
        fault: the fault.
        link: the number of the connection.
    """

    fault: Fault
    link: int


class FaultPlan:
    """The frame faults of one proxy. It may be changed while the proxy runs, and takes effect at once.

    Args:
        faults: any of this module; more than one may strike the same frame.
        seed: of everything drawn at random.
    """

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        check_arguments(FaultPlan.__init__, {"seed": seed})
        self._seed = seed
        self._changed = make_condition("fault plan", None)
        self._entries: tuple[tuple[int, Fault], ...] = ()
        self._added = 0
        self._releases = 0
        self._on_release: Callable[[], None] = lambda: None
        self._strikes: deque[Strike] = deque(maxlen=_MOST_STRIKES)
        self.add(*faults)

    # For tests

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults that can still strike."""
        return tuple(fault for _, fault in self._entries)

    @property
    def strikes(self) -> tuple[Strike, ...]:
        """The latest 10,000 strikes, oldest first."""
        with self._changed:
            return tuple(self._strikes)

    def add(self, *faults: Fault) -> None:
        """Add faults; they count the frames and bytes from now on."""
        check_value("faults", faults, tuple[Fault, ...])
        with self._changed:
            first = self._added
            self._added += len(faults)
            self._entries += tuple(enumerate(faults, first))

    def remove(self, *faults: Fault) -> None:
        """Remove faults."""
        with self._changed:
            self._entries = tuple(entry for entry in self._entries if entry[1] not in faults)

    def clear(self) -> None:
        """Remove all faults, and release delayed frames."""
        with self._changed:
            self._entries = ()
        self.release()

    def release(self) -> None:
        """Let the frames pass that a `Delay` holds now."""
        with self._changed:
            self._releases += 1
        self._on_release()

    def await_strikes(self, count: int = 1, *, timeout: float = 5.0) -> tuple[Strike, ...]:
        """Wait until `count` faults have struck, and return all that have.

        Raises:
            StompTimeoutError: they did not within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._strikes) >= count, timeout):
                raise StompTimeoutError(f"{len(self._strikes)} of {count} faults struck within {timeout:g} s: {self!r}")
            return tuple(self._strikes)

    # For the proxy

    def when_released(self, call: Callable[[], None]) -> None:
        """Call a function after each `release`."""
        self._on_release = call

    def entries(self, *, link: int) -> list[tuple[int, Fault]]:
        """Return the faults that concern a link, each with a number of its own."""
        return [entry for entry in self._entries if entry[1].link in (None, link)]

    def refusal(self, link: int) -> Refuse | None:
        """Return the fault by which a connection is closed when it is accepted."""
        return next((fault for _, fault in self.entries(link=link) if isinstance(fault, Refuse)), None)

    def lot(self, number: int, *, link: int) -> random.Random:
        """Return the source of chance for one fault on one link."""
        return random.Random(f"{self._seed}/{number}/{link}")  # noqa: S311 - faults

    def struck(self, fault: Fault, *, link: int) -> None:
        """Note that a fault took effect."""
        with self._changed:
            self._strikes.append(Strike(fault=fault, link=link))
            self._changed.notify_all()

    @property
    def releases(self) -> int:
        """A number that grows with each `release`."""
        return self._releases

    def __repr__(self) -> str:
        return f"FaultPlan({', '.join([*map(repr, self.faults), f'seed={self._seed}'])})"


_FRAMES = CLIENT_COMMANDS | SERVER_COMMANDS | {SENT, RECEIVED, HEARTBEAT}


def _check_count(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigurationError(f"{name} counts from 1, it cannot be {value!r}")


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
    """The fate of the current frame."""

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
    """Applies a plan to one direction of one link.

    Args:
        plan: read again for each frame.
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

    @property
    def releases(self) -> int:
        """A number that grows with each release of delayed frames."""
        return self._plan.releases

    def struck(self, fault: Fault) -> None:
        """Note that a delay began, or that the link was ended."""
        self._plan.struck(fault, link=self._link)

    def feed(self, data: bytes) -> list[Step]:
        """Return the steps, in order; none after an `End`."""
        steps: list[Step] = []
        for part in self._frame_splitter.feed(data):
            if part.begins:
                steps += self._begin(part)
            steps += self._part(part)
        return self._limited(steps)

    # Frames

    def _begin(self, part: Part) -> list[Step]:
        """Decide the fate of a frame; return the steps before the frame."""
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
            self.struck(fault)
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
        """Cut the steps off where the link ends."""
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
