"""What the embedded broker is to do wrong, on purpose, so that a program can be tested against it.

::

    plan = FaultPlan(Drop("RECEIPT", nth=2), CutAfter(sent=(100, 5_000)), seed=7)
    with Broker(faults=plan) as broker:
        ...

Everything counts by link, the connections in the order in which they are accepted, and within a link by the frames and
bytes that pass. So the same conversation meets the same faults each time, however threads are scheduled; what is drawn
at random comes from the seed. A plan prints as the expression that makes it.

| lock | guards | held over I/O? |
|---|---|---|
| `FaultPlan._changed` (a leaf) | the faults, what struck, releases | no |

Threads: any may use a plan; sessions' readers and writers wait in it where a `Delay` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, StompTimeoutError
from stompy.frames.grammar import CLIENT_COMMANDS, SERVER_COMMANDS
from stompy.locks import make_condition
from stompy.world import random

SENT = "sent"
"""In the place of a command: any frame that the broker sends."""

RECEIVED = "received"
"""In the place of a command: any frame that the broker receives."""

HEARTBEAT = "heart-beat"
"""In the place of a command: line ends between frames."""

GARBAGE = b"\xff\xfe not a frame \x01\n:::\n\n\0"
"""For `Insert`: bytes that no version of STOMP allows."""

STRAY_MESSAGE = (
    b"MESSAGE\nsubscription:no-such-subscription\nmessage-id:stray-1\nack:stray-1\n"
    b"destination:/queue/stray\ncontent-length:5\n\nstray\0"
)
"""For `Insert`: a MESSAGE that nobody has subscribed to."""

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
        nth: only this one of those frames on a link, from 1, counted since the fault was added; `None` for each.
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

    `Rewrite("RECEIPT", header="receipt-id", value="other")` confirms what was never asked for.

    Attributes:
        header: its name.
        value: its new value, as it stands on the wire.
    """

    header: str = field(kw_only=True)
    value: str = field(kw_only=True)


@dataclass(frozen=True, slots=True, repr=False)
class Insert(FrameFault):
    """Something stands before the frame that nobody has sent.

    Attributes:
        data: such as `GARBAGE` or `STRAY_MESSAGE`.
    """

    data: bytes = field(kw_only=True)


Range: TypeAlias = "int | tuple[int, int]"


@dataclass(frozen=True, slots=True, repr=False)
class CutAfter(_Shown):
    """The link ends, both ways at once, when so many bytes have passed, wherever in a frame that is.

    Of `sent` and `received` one is given; a pair is a range, both ends included, from which each link draws.

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
    """The connection is closed as soon as it is accepted, before a word.

    For a port that nobody listens on, use `Broker.stop` and `Broker.start`.

    Attributes:
        link: as for the faults of frames.
    """

    link: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_count("link", self.link)


Fault: TypeAlias = "FrameFault | CutAfter | Refuse"


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault that came true.

    Attributes:
        fault: which one.
        link: on which connection.
    """

    fault: Fault
    link: int


class FaultPlan:
    """What goes wrong, for one broker. It may be changed while the broker runs, and takes effect at once.

    Args:
        faults: any of this module; more than one may strike the same frame.
        seed: of everything drawn at random.
    """

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self._seed = seed
        self._changed = make_condition("fault plan", None)
        self._entries: tuple[tuple[int, Fault], ...] = ()
        self._added = 0
        self._releases = 0
        self._links = 0
        self._strikes: deque[Strike] = deque(maxlen=_MOST_STRIKES)
        self.add(*faults)

    # For tests

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What may still strike."""
        return tuple(fault for _, fault in self._entries)

    @property
    def strikes(self) -> tuple[Strike, ...]:
        """What has struck, oldest first; of very many the latest."""
        with self._changed:
            return tuple(self._strikes)

    @property
    def links(self) -> int:
        """How many connections came so far, refused ones included."""
        return self._links

    def add(self, *faults: Fault) -> None:
        """Add faults; they count the frames and bytes from now on."""
        with self._changed:
            first = self._added
            self._added += len(faults)
            self._entries += tuple(enumerate(faults, first))

    def remove(self, *faults: Fault) -> None:
        """Take faults out."""
        with self._changed:
            self._entries = tuple(entry for entry in self._entries if entry[1] not in faults)

    def clear(self) -> None:
        """Take all faults out and release what waits."""
        with self._changed:
            self._entries = ()
        self.release()

    def release(self) -> None:
        """Let the frames go on that a `Delay` holds at this moment."""
        with self._changed:
            self._releases += 1
            self._changed.notify_all()

    def await_strikes(self, count: int = 1, *, timeout: float = 5.0) -> tuple[Strike, ...]:
        """Wait until `count` faults have struck, and return all that have.

        Raises:
            StompTimeoutError: they did not within `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._strikes) >= count, timeout):
                raise StompTimeoutError(f"{len(self._strikes)} of {count} faults struck within {timeout:g} s: {self!r}")
            return tuple(self._strikes)

    # For the broker

    def next_link(self) -> int:
        """Return the number of a connection that was accepted just now."""
        with self._changed:
            self._links += 1
            return self._links

    def entries(self, *, link: int) -> list[tuple[int, Fault]]:
        """Return the faults that concern a link, each with a number of its own."""
        return [entry for entry in self._entries if entry[1].link in (None, link)]

    def lot(self, number: int, *, link: int) -> random.Random:
        """Return the source of chance for one fault on one link."""
        return random.Random(f"{self._seed}/{number}/{link}")  # noqa: S311 - faults

    def struck(self, fault: Fault, *, link: int) -> None:
        """Note that a fault came true."""
        with self._changed:
            self._strikes.append(Strike(fault, link))
            self._changed.notify_all()

    @property
    def releases(self) -> int:
        """A number that grows with each `release`."""
        return self._releases

    def hold(self, *, until: Deadline, over: Callable[[], bool], releases: int, deadline: Deadline) -> bool:
        """Wait until a moment, until `over()`, or until there are more releases; `False` if the deadline came first."""
        with self._changed:
            self._changed.wait_for(
                lambda: over() or self._releases > releases, deadline.sooner(until.remaining()).remaining()
            )
            return over() or self._releases > releases or until.expired

    def wake(self) -> None:
        """Let those who `hold` look again whether it is over."""
        with self._changed:
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"FaultPlan({', '.join([*map(repr, self.faults), f'seed={self._seed}'])})"


_FRAMES = CLIENT_COMMANDS | SERVER_COMMANDS | {SENT, RECEIVED, HEARTBEAT}


def _check_count(name: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ConfigurationError(f"{name} counts from 1, it cannot be {value!r}")
