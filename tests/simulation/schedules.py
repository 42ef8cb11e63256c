"""Schedules of the simulated world: which thread goes on, drawn at random, with few preemptions, or each of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stompy.testing.world import PATIENT, at_once

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

    from stompy.testing.world import Chooser, Thread


class Drawn:
    """A random schedule: the thread that has the baton mostly keeps it, and who gets it next is drawn.

    Args:
        random: what draws.
        rate: how often the baton is taken from a thread that could go on.
    """

    def __init__(self, random: random.Random, rate: float) -> None:
        self._random = random
        self._scale = -1 / math.log1p(-rate) if rate else math.inf

    def patience(self) -> int:
        """Return how often a thread keeps the baton."""
        return int(min(PATIENT, self._scale * -math.log1p(-self._random.random())))

    def __call__(self, able: Sequence[Thread], current: Thread) -> int:
        """Return the index of the next thread."""
        return self._random.randrange(len(able))


class Few:
    """A schedule with few preemptions (PCT): threads have priorities that are drawn, and the first that can runs.

    At some steps, which are drawn too, the thread that has the baton becomes the last of all, and stands still until
    the others wait: what needs so many preemptions is found with a known probability, however long the run is.

    Args:
        random: what draws.
        depth: how many preemptions.
        steps: of the run, about.
    """

    def __init__(self, random: random.Random, depth: int, steps: int) -> None:
        self._random = random
        points = sorted(random.randrange(steps) for _ in range(depth))
        self._waits = [after - before for before, after in zip([0, *points], points, strict=False)]
        self._priorities: dict[Thread, float] = {}
        self._last = 0.0

    def patience(self) -> int:
        """Return how many steps the next preemption is away."""
        return max(1, self._waits.pop(0)) if self._waits else PATIENT

    def __call__(self, able: Sequence[Thread], current: Thread) -> int:
        """Return the index of the next thread."""
        priorities = self._priorities
        for thread in able:
            if thread not in priorities:
                priorities[thread] = self._random.random()
        if current in able and current.ready is at_once:
            self._last -= 1.0
            priorities[current] = self._last
        return max(range(len(able)), key=lambda index: priorities[able[index]])


class Schedules:
    """Every schedule up to a number of preemptions, one after the other; a depth-first search over the choices.

    A preemption takes the baton from a thread that could go on. Few of them find most errors (CHESS), and bounding them
    keeps what is to be tried finite. A schedule repeats the choices of the one before up to the last that is not
    exhausted, and takes the next alternative there.

    Args:
        preemptions: how many.
    """

    def __init__(self, preemptions: int) -> None:
        self._most = preemptions
        self._plan: list[list[int]] = []
        """Of each choice: the alternatives that are left, the current one first."""
        self.count = 0

    def __iter__(self) -> Iterator[Chooser]:
        while True:
            self.count += 1
            self._at = self._spent = 0
            yield self._choose
            while self._plan and len(self._plan[-1]) == 1:
                self._plan.pop()
            if not self._plan:
                return
            self._plan[-1].pop(0)

    def _choose(self, able: Sequence[Thread], current: Thread) -> int:
        if self._at == len(self._plan):
            own = able.index(current) if current in able else -1
            others = [index for index in range(len(able)) if index != own]
            self._plan.append(others if own < 0 else [own, *others] if self._spent < self._most else [own])
        chosen = self._plan[self._at][0]
        self._at += 1
        self._spent += current in able and able[chosen] is not current
        return chosen
