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

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

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


class _Fault:
    """Shows a fault as the expression that makes it, and checks its values by their annotations and least values."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for each in fields(self):  # type: ignore[arg-type]  # all subclasses are dataclasses
            least, value = each.metadata.get("least"), getattr(self, each.name)
            if least is not None and value is not None and not value >= least:
                raise ConfigurationError(f"{each.name} must be {least} or more, not {value!r}")

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):  # type: ignore[arg-type]  # all subclasses are dataclasses
            value = getattr(self, each.name)
            if not each.kw_only:
                shown.append(repr(value))
            elif value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _at_least(least: int) -> Any:
    """Return a field for a number, `None` by default."""
    return field(default=None, kw_only=True, metadata={"least": least})


@dataclass(frozen=True, slots=True, repr=False)
class FrameFault(_Fault):
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
    nth: int | None = _at_least(1)
    chance: float = field(default=1.0, kw_only=True)
    link: int | None = _at_least(1)

    def __post_init__(self) -> None:
        if self.frame not in _FRAMES:
            raise ConfigurationError(f"no frame is called {self.frame!r}; it is one of {', '.join(sorted(_FRAMES))}")
        # Not super(): a slotted dataclass is a second class, which the empty super() does not know.
        _Fault.__post_init__(self)
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

    seconds: float | None = _at_least(0)


@dataclass(frozen=True, slots=True, repr=False)
class Cut(FrameFault):
    """The link ends at the frame, both ways at once.

    A frame that was received whole takes effect, but no answer to it reaches the client.

    Attributes:
        keep: bytes of the frame that pass before; 0 for none, `None` for all of it.
    """

    keep: int | None = _at_least(0)


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
class CutAfter(_Fault):
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
    link: int | None = _at_least(1)

    def __post_init__(self) -> None:
        _Fault.__post_init__(self)
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
class Refuse(_Fault):
    """The connection is closed as soon as it is accepted. For a port that refuses connections, use `FaultProxy.refuse`.

    Attributes:
        link: as for the faults of frames.
    """

    link: int | None = _at_least(1)


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

    Attributes:
        seed: as given.
        releases: the number of calls of `release`.
    """

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        check_arguments(FaultPlan.__init__, {"seed": seed})
        self.seed = seed
        self._changed = make_condition("fault plan", None)
        self._entries: tuple[tuple[int, Fault], ...] = ()
        self._added = 0
        self.releases = 0
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
            self.releases += 1
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

    def struck(self, fault: Fault, *, link: int) -> None:
        """Note that a fault took effect."""
        with self._changed:
            self._strikes.append(Strike(fault=fault, link=link))
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"FaultPlan({', '.join([*map(repr, self.faults), f'seed={self.seed}'])})"


_FRAMES = CLIENT_COMMANDS | SERVER_COMMANDS | {SENT, RECEIVED, HEARTBEAT}


@dataclass(frozen=True, slots=True)
class FramePiece:
    """Bytes that pass the proxy.

    Attributes:
        data: the bytes.
        delay: seconds that they wait, with all bytes after them; `math.inf` until a release.
        releases: the releases of the plan before the delay; the next one ends it.
        cut: the fault that ends the link after them.
    """

    data: bytes
    delay: float = 0.0
    releases: int = 0
    cut: Cut | None = None


class FaultInjector:
    """Applies a plan to one direction of one link.

    Args:
        plan: read again for each frame.
        link: the number of the connection.
        direction: `SENT` or `RECEIVED`.
    """

    def __init__(self, plan: FaultPlan, *, link: int, direction: str) -> None:
        self.plan = plan
        self._link = link
        self._direction = direction
        self._frame_splitter = FrameSplitter()
        self._seen: Counter[int] = Counter()
        self._lots: dict[int, random.Random] = {}
        self._ends_at: dict[int, int] = {}

    def feed(self, data: bytes) -> list[FramePiece]:
        """Return the pieces that take the place of `data`; `b""`, at the end of the stream, returns the held bytes."""
        if not data:
            return [FramePiece(self._frame_splitter.rest())]
        return [self._struck(command, frame) for command, frame in self._frame_splitter.feed(data)]

    def limits(self, forwarded: int) -> Iterator[tuple[int, CutAfter]]:
        """Yield each fault that ends the link after a number of bytes, and that number.

        Args:
            forwarded: the bytes so far, from which a new fault counts.
        """
        for number, fault in self.plan.entries(link=self._link):
            if isinstance(fault, CutAfter) and fault.direction == self._direction:
                if number not in self._ends_at:
                    self._ends_at[number] = forwarded + self._lot(number).randint(*fault.bounds)
                yield self._ends_at[number], fault

    def _struck(self, command: str, frame: bytes) -> FramePiece:
        """Return the piece that takes the place of a frame."""
        # Read before any strike is noted: the test that waits for the strike may release the delay at once.
        releases = self.plan.releases
        before, copies, delay = b"", 1, 0.0
        cut: Cut | None = None
        for fault in self._faults_of(command):
            if isinstance(fault, Cut):
                cut = fault
                continue  # noted when the link ends
            if isinstance(fault, Delay):
                delay += math.inf if fault.seconds is None else fault.seconds
            elif isinstance(fault, Insert):
                before += fault.data
            elif isinstance(fault, Rewrite):
                frame = _with_header(frame, fault)
            else:
                copies *= 2 if isinstance(fault, Double) else 0
            self.plan.struck(fault, link=self._link)
        data = before + (frame * copies if cut is None else (frame * min(copies, 1))[: cut.keep])
        return FramePiece(data, delay, releases, cut)

    def _faults_of(self, command: str) -> Iterator[FrameFault]:
        """Yield the faults that strike a frame, and count it for all faults that concern it."""
        for number, fault in self.plan.entries(link=self._link):
            if isinstance(fault, FrameFault) and fault.direction == self._direction and fault.concerns(command):
                self._seen[number] += 1
                if fault.nth in (None, self._seen[number]) and self._lot(number).random() < fault.chance:
                    yield fault

    def _lot(self, number: int) -> random.Random:
        """Return the source of chance for one fault on this link."""
        if number not in self._lots:
            self._lots[number] = random.Random(f"{self.plan.seed}/{number}/{self._link}")  # noqa: S311 - faults
        return self._lots[number]


_HEAD = re.compile(rb".*?\r?\n\r?\n", re.DOTALL)


def _with_header(frame: bytes, rewrite: Rewrite) -> bytes:
    """Return the frame with the first header of that name changed."""
    head = _HEAD.match(frame)
    if head is None:
        return frame
    line = re.compile(rb"(?<=\n)(" + re.escape(rewrite.header.encode()) + rb"):[^\r\n]*")
    changed = line.sub(lambda found: found[1] + b":" + rewrite.value.encode(), head.group(), count=1)
    return changed + frame[head.end() :]


_LINE_ENDS = re.compile(rb"[\r\n]+")
_COMMAND = re.compile(rb"[^\r\n\0]*")
_LENGTH = re.compile(rb"^content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*\r?$", re.MULTILINE)
_MAX_HEAD = 1024 * 1024
"""Bytes without the end of a head after which the stream is taken for something else than STOMP, and passed on."""


class FrameSplitter:
    """Cuts one direction of a conversation into frames, and the line ends between frames.

    Bytes are held back until their frame is whole.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._needed = 1

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the command and the bytes of each frame that `data` completes; `HEARTBEAT` stands for line ends."""
        self._held += data
        while len(self._held) >= self._needed and (size := self._size()):
            taken = bytes(self._held[:size])
            del self._held[:size]
            self._needed = 1
            found = _COMMAND.match(taken)
            assert found is not None
            yield found[0].decode("ascii", "replace").upper() or HEARTBEAT, taken

    def rest(self) -> bytes:
        """Return the bytes that belong to no whole frame."""
        return bytes(self._held)

    def _size(self) -> int:
        """Return the size of the frame, or of the line ends, at the beginning; 0 if it is not known yet."""
        if line_ends := _LINE_ENDS.match(self._held):
            return line_ends.end()
        head = _HEAD.match(self._held)
        nul = self._held.find(b"\0", 0, head.end() if head else None)
        if nul >= 0:  # a frame without a blank line
            return nul + 1
        if head is None:
            return len(self._held) if len(self._held) > _MAX_HEAD else 0
        length = _LENGTH.search(self._held, 0, head.end())
        if length is None:
            return self._held.find(b"\0", head.end()) + 1
        self._needed = head.end() + int(length[1]) + 1
        return self._needed if len(self._held) >= self._needed else 0
