"""The faults of a TCP connection, as switches for each direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from stompy.errors import ConfigurationError

Direction: TypeAlias = Literal["up", "down"]
"""`"up"` is from the client to the broker."""

Which: TypeAlias = Literal["up", "down", "both"]

Ending: TypeAlias = Literal["fin", "rst"]
"""How a connection ends: closed in order, or reset."""

DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


@dataclass(frozen=True, slots=True)
class LaneFaults:
    """What is wrong with one direction.

    Attributes:
        stalled: nothing is read or forwarded.
        chop: the most octets that go out in one write; 0 for no limit.
        rate: octets per second.
        latency: seconds that each octet is held.
        cut_after: octets until the connection ends, counted from when it was set; `None` for never.
        ending: how it ends then.
    """

    stalled: bool = False
    chop: int = 0
    rate: float = math.inf
    latency: float = 0.0
    cut_after: int | None = None
    ending: Ending = "fin"


class Switches:
    """Sets faults, from any thread; when a call returns, it has taken effect."""

    def stall(self, direction: Which = "both") -> None:
        """Stop forwarding and reading, so that the sender's TCP window fills up and its writes block."""
        self._set(direction, stalled=True)

    def resume(self, direction: Which = "both") -> None:
        """Go on after `stall`."""
        self._set(direction, stalled=False)

    def chop(self, octets: int = 1, *, direction: Which = "both") -> None:
        """Forward at most so many octets in one write; 0 for no limit.

        Raises:
            ConfigurationError: a negative number.
        """
        _check("octets", octets, octets >= 0)
        self._set(direction, chop=octets)

    def throttle(self, rate: float, *, direction: Which = "both") -> None:
        """Forward `rate` octets per second; `math.inf` for no limit.

        Raises:
            ConfigurationError: not a positive number.
        """
        _check("rate", rate, rate > 0)
        self._set(direction, rate=rate)

    def delay(self, seconds: float, *, direction: Which = "both") -> None:
        """Forward each octet that comes from now on so many seconds later; 0 for at once.

        Of each direction 64 KiB are on their way at most.

        Raises:
            ConfigurationError: not a finite number of 0 or more.
        """
        _check("seconds", seconds, 0 <= seconds < math.inf)
        self._set(direction, latency=seconds)

    def cut_after(self, octets: int, *, direction: Which, ending: Ending = "fin") -> None:
        """Forward exactly so many octets from now on, then end the connection both ways.

        Each connection counts for itself, and each direction too. With `"rst"` the peer loses those of the octets that
        did not fit its TCP window.

        Raises:
            ConfigurationError: a negative number, or no such ending.
        """
        _check("octets", octets, octets >= 0)
        check_ending(ending)
        self._set(direction, cut_after=octets, ending=ending)

    def heal(self) -> None:
        """Take all of these faults back."""
        sound = LaneFaults()
        self._set("both", **{name: getattr(sound, name) for name in LaneFaults.__slots__})

    def _set(self, direction: Which, **changes: Any) -> None:
        if direction not in (*DIRECTIONS, "both"):
            raise ConfigurationError(f"a direction is 'up', 'down' or 'both', not {direction!r}")
        self._change(DIRECTIONS if direction == "both" else (direction,), changes)

    def _change(self, directions: Sequence[Direction], changes: dict[str, Any]) -> None:
        """Apply changes of `LaneFaults`; overridden."""
        raise NotImplementedError


def check_ending(ending: str) -> None:
    """Raise `ConfigurationError` unless `ending` is one."""
    _check("ending", ending, ending in ("fin", "rst"))


def _check(name: str, value: object, holds: bool) -> None:
    if not holds:
        raise ConfigurationError(f"{name} cannot be {value!r}")
