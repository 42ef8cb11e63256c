"""The receivers of a spool as threads of this process, and its lanes as their reader sees them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from stompy.deadline import Deadline
from stompy.spark.receiver.bell import Bell
from stompy.spark.receiver.health import Health
from stompy.spark.receiver.receiver import Receiver, join
from stompy.spark.source_options import SpoolOptions
from stompy.spark.spool.claims import Patience
from stompy.spark.spool.index import LaneIndex
from stompy.spark.spool.lane import LaneWriter
from stompy.spark.spool.spool import Spool
from stompy.spark.spool.suspects import Identifier
from stompy.spark.spool.view import LaneView

T = TypeVar("T")

_STOPPING = 5.0
"""Seconds that receivers get for their end."""
_MOMENT = 0.01
"""Seconds, the least that are waited for."""


class Lane(Protocol):
    """A lane as its reader sees it: one that this process fills, or one that another does."""

    @property
    def lane(self) -> int:
        """Its number."""
        ...

    @property
    def next(self) -> int:
        """The number behind the last message that can be read."""
        ...

    @property
    def planned(self) -> int:
        """Up to here Spark was told of the messages."""
        ...

    def snapshot(self, look: Callable[[LaneIndex], T]) -> T:
        """Return what a function finds in the index."""
        ...

    def refresh(self) -> None:
        """Look what another process has written."""
        ...

    def note_planned(self, end: int) -> None:
        """Note that Spark was told of messages up to `end`."""
        ...

    def purge(self, low: int, *, retention: float = 0.0) -> int:
        """Forget what was processed."""
        ...

    def close(self) -> None:
        """Write what was left for later."""
        ...


class Crew(Protocol):
    """Receivers, wherever they run."""

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes of the spool, in order."""
        ...

    def check(self) -> None:
        """Raise what keeps messages from coming."""
        ...

    def quiet_for(self) -> float:
        """Return for how many seconds none of the receivers, all of them subscribed, has got a message."""
        ...

    def subscribed_for(self) -> float:
        """Return for how many seconds all of them have had a subscription."""
        ...

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`, as soon as there is something to raise.

        Args:
            left: seconds after which it is to be asked again; it is also when a receiver gets or loses its broker, or
                ends.
        """
        ...

    def stop(self) -> None:
        """End them; idempotent."""
        ...


class ThreadCrew:
    """Receivers as threads of this process.

    Args:
        options: how many, and what they do.
        spool: to fill.
        first: the number of the first lane that they fill.
        limit: messages in a lane after which its receiver is done.
        closing: ends the wait for predecessors.

    Raises:
        SpoolError: a lane cannot be opened; nothing was begun.
    """

    def __init__(
        self,
        options: SpoolOptions,
        spool: Spool,
        *,
        first: int = 0,
        limit: int | None = None,
        closing: threading.Event | None = None,
    ) -> None:
        self._options = options
        self._stopped = False
        self._writers: list[LaneWriter] = []
        own = range(first, first + options.receivers)
        try:
            for lane in own:
                self._writers.append(_open(options, spool, lane, closing or threading.Event()))
            others = [LaneView(spool.files, spool.origin(lane)) for lane in spool.lanes() if lane not in own]
        except BaseException:
            for writer in self._writers:
                writer.close()
            raise
        lanes: list[Lane] = [*self._writers, *others]
        self._lanes = sorted(lanes, key=lambda lane: lane.lane)
        self._bell = Bell()
        self.healths = [Health(f"receiver {lane} of {options.destination}", changed=self._bell.ring) for lane in own]
        """One a receiver."""
        pairs = zip(self._writers, self.healths, strict=True)
        self._receivers = [Receiver(options, *pair, limit=limit) for pair in pairs]
        for receiver in self._receivers:
            receiver.start()

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes of the spool, those that nobody fills any more included."""
        return self._lanes

    @property
    def writers(self) -> Sequence[LaneWriter]:
        """The lanes that these receivers fill."""
        return self._writers

    @property
    def finished(self) -> bool:
        """Whether all receivers have ended, as they do at their limit."""
        return all(health.ended for health in self.healths)

    def check(self) -> None:
        """Raise what keeps messages from coming; see `Health.check`."""
        for health in self.healths:
            health.check(self._options.broker_timeout)

    def quiet_for(self) -> float:
        """Return for how many seconds none of the receivers, all of them subscribed, has got a message."""
        return min(health.quiet_for() for health in self.healths)

    def subscribed_for(self) -> float:
        """Return for how many seconds all of them have had a subscription."""
        return min(health.subscribed_for() for health in self.healths)

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`, as soon as there is something to raise."""

        def look() -> float:
            self.check()
            seconds = left()
            patience = min(health.patience(self._options.broker_timeout) for health in self.healths)
            return seconds if seconds <= 0 else min(seconds, patience + _MOMENT)

        self._bell.watch(look)

    def stop(self) -> None:
        """End the receivers and close the lanes; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        for receiver in self._receivers:
            receiver.close()
        ended = join(self._receivers, Deadline(_STOPPING))
        for lane in self._lanes:
            # A thread that hangs in a dead file system keeps its lane: two must not write to it.
            if ended or not isinstance(lane, LaneWriter):
                with contextlib.suppress(OSError):
                    lane.close()


def _open(options: SpoolOptions, spool: Spool, lane: int, closing: threading.Event) -> LaneWriter:
    return LaneWriter(
        spool.files,
        spool.origin(lane),
        patience=Patience(wait=options.lock_timeout, frozen=options.take_over_after),
        identifier=Identifier(options.dedup_header),
        fail_on_loss=options.fail_on_data_loss,
        closing=closing,
    )


class Onlooker:
    """No receivers here: another process fills the spool.

    Args:
        spool: to read.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._views: dict[int, LaneView] = {}
        self._refresh()

    def _refresh(self) -> None:
        for lane in self._spool.lanes():
            if lane not in self._views:
                self._views[lane] = LaneView(self._spool.files, self._spool.origin(lane))

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes of the spool."""
        self._refresh()
        return [self._views[lane] for lane in sorted(self._views)]

    def check(self) -> None:
        """Do nothing: whether the receivers live is told where they run."""

    def quiet_for(self) -> float:
        """Return that it has always been quiet: what is in the spool is all there is."""
        return float("inf")

    def subscribed_for(self) -> float:
        """Return the same."""
        return float("inf")

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less."""
        Bell().watch(left)

    def stop(self) -> None:
        """Write what was left for later."""
        for view in self._views.values():
            view.close()
