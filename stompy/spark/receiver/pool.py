"""The receivers of a spool, as threads of this process that share one writer.

| thread | owns | may block on |
|---|---|---|
| `stompy-spool-<number>` | see `receiver.py` | |
| `stompy-spool-maintenance` | the marks, the heartbeat, the removal of processed segments | the disk |
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Protocol

from stompy.deadline import Deadline
from stompy.errors import ConnectTimeoutError, StompError
from stompy.forks import Owner
from stompy.spark.receiver.health import Health, Wakeup
from stompy.spark.receiver.receiver import Receiver
from stompy.spark.source_options import SpoolOptions
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.spool import Spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter
from stompy.threads import DaemonThread
from stompy.world import threading

_STOP_TIMEOUT = 5.0
"""Seconds to wait for receivers to end."""
_MIN_WAIT = 0.01
"""Minimum seconds of a wait."""
_PERIOD, _PERIOD_FULL = 1.0, 0.1
"""Seconds between checks of the marks: usually, and while the spool is full and its receivers wait."""


class Receivers(Protocol):
    """The receivers of a spool: in this process, in another one, or none."""

    def check(self) -> None:
        """Raise if no messages can arrive."""
        ...

    def quiet_for(self) -> float:
        """Return the seconds since any receiver got a message; 0 unless all of them are subscribed."""
        ...

    def subscribed_for(self) -> float:
        """Return the seconds since all of them were subscribed for the first time."""
        ...

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`, as soon as that raises.

        Args:
            left: returns the seconds until its next call; it is also called when a receiver connects, loses its
                connection, or ends.
        """
        ...

    def stop(self) -> None:
        """End the receivers. Idempotent."""
        ...


class ReceiverPool:
    """Receivers as threads of this process.

    Args:
        options: of the receivers.
        spool: to fill.
        limit: number of messages in the spool at which the receivers end; `None` for no limit.
        closing: ends the wait for a predecessor.

    Raises:
        SpoolError: the spool cannot be opened; no receiver was started.
    """

    def __init__(
        self,
        options: SpoolOptions,
        spool: Spool,
        *,
        limit: int | None = None,
        closing: threading.Event | None = None,
    ) -> None:
        self._options = options
        self._stopped = False
        self._owner = Owner("pool of receivers")
        self.writer = SpoolWriter(
            spool,
            patience=ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after),
            dedup_header=options.dedup_header,
            fail_on_loss=options.fail_on_data_loss,
            closing=closing,
        )
        """Shared by all receivers."""
        self._wakeup = Wakeup()
        names = [f"receiver {number} of {options.origin}" for number in range(options.receivers)]
        self.healths = [Health(name, changed=self._wakeup.wake) for name in names]
        """The state of each receiver, by its number."""
        self._receivers = [
            Receiver(options, self.writer, number, health, limit=limit) for number, health in enumerate(self.healths)
        ]
        self._maintenance = _Maintenance(self.writer, options, changed=self._wakeup.wake)
        for thread in (self._maintenance, *self._receivers):
            thread.start()

    @property
    def finished(self) -> bool:
        """Whether all receivers have ended, such as at the limit."""
        return all(health.ended for health in self.healths)

    def check(self) -> None:
        """Raise if no messages can arrive; see `Health.check`."""
        if self._maintenance.error is not None:
            raise self._maintenance.error.with_traceback(None)
        for health in self.healths:
            health.check(self._options.broker_timeout)

    def quiet_for(self) -> float:
        """Return the seconds since any receiver got a message; 0 unless all of them are subscribed."""
        return min(health.quiet_for() for health in self.healths)

    def subscribed_for(self) -> float:
        """Return the seconds since all of them were subscribed for the first time."""
        return min(health.subscribed_for() for health in self.healths)

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less; raises as `check`, as soon as that raises."""

        def look() -> float:
            self.check()
            seconds = left()
            patience = min(health.patience(self._options.broker_timeout) for health in self.healths)
            return seconds if seconds <= 0 else min(seconds, patience + _MIN_WAIT)

        self._wakeup.watch(look)

    def stop(self) -> None:
        """End the receivers and close the spool. Idempotent."""
        if self._stopped or self._owner.forked:
            return
        self._stopped = True
        for receiver in self._receivers:
            receiver.close()
        deadline = Deadline(_STOP_TIMEOUT)
        ended = [receiver.join_until(deadline) for receiver in self._receivers]
        self._maintenance.close()
        # If a thread is blocked in a file system, the claim is kept, as only one process may write to the spool.
        if self._maintenance.join_until(deadline) and all(ended):
            with contextlib.suppress(OSError):
                self.writer.close()


class _Maintenance(DaemonThread):
    """Runs `SpoolWriter.maintain` and `compact` regularly, also while there is no session."""

    def __init__(self, writer: SpoolWriter, options: SpoolOptions, *, changed: Callable[[], None]) -> None:
        super().__init__("stompy-spool-maintenance")
        self._writer = writer
        self._limits = (options.max_spool_messages, options.max_spool_bytes)
        self._changed = changed
        self._closing = threading.Event()
        self.error: StompError | None = None
        """The error that ended it, or `None`."""

    def close(self) -> None:
        """Ask the thread to end; does not wait."""
        self._closing.set()

    def run(self) -> None:
        """Maintain the spool until closed."""
        try:
            while not self._closing.wait(_PERIOD_FULL if self._writer.is_full(*self._limits) else _PERIOD):
                self._writer.maintain()
                self._writer.compact(self._closing.is_set)
        except StompError as error:
            self.error = error
            self._changed()


class NoReceivers:
    """Stands for receivers in another process, which fills the spool on its own.

    Args:
        view: of the spool.
        patience: seconds without a heartbeat of that process that are tolerated.
    """

    def __init__(self, view: SpoolView, patience: float) -> None:
        self._view = view
        self._patience = patience

    def check(self) -> None:
        """Raise if no process fills the spool.

        Raises:
            ConnectTimeoutError: there was no heartbeat for `patience` seconds.
        """
        if self._view.silent_for() > self._patience:
            raise ConnectTimeoutError(
                f"no process has filled the spool for more than {self._patience:g} s (option brokerTimeout). "
                "With receivers=0, `stompy spool` must fill it while the query runs, except with "
                "Trigger.AvailableNow"
            )

    def quiet_for(self) -> float:
        """Return infinity: a query only processes what is already in the spool."""
        return math.inf

    def subscribed_for(self) -> float:
        """Return infinity, as `quiet_for`."""
        return math.inf

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less."""
        Wakeup().watch(left)

    def stop(self) -> None:
        """Do nothing."""
