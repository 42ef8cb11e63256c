"""The receivers of a spool: threads of this process that share its one writer.

| thread | owns | may block on |
|---|---|---|
| `stompy-spool-<number>` | see `receiver.py` | |
| `stompy-spool-maintenance` | the marks, the heartbeat, the removal of what was processed | the disk |
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable
from typing import Protocol

from stompy.deadline import Deadline
from stompy.errors import ConnectTimeout, StompError
from stompy.spark.receiver.health import Health, Wakeup
from stompy.spark.receiver.receiver import Receiver
from stompy.spark.source_options import SpoolOptions
from stompy.spark.spool.claims import ClaimTimeouts
from stompy.spark.spool.spool import Spool
from stompy.spark.spool.view import SpoolView
from stompy.spark.spool.writer import SpoolWriter
from stompy.threads import DaemonThread

_STOP_TIMEOUT = 5.0
"""Seconds that receivers get for their end."""
_MIN_WAIT = 0.01
"""Seconds, the least that are waited for."""
_PERIOD, _PERIOD_FULL = 1.0, 0.1
"""Seconds between two looks at the marks; while the spool is full, its receivers wait for them."""


class Receivers(Protocol):
    """What fills a spool, wherever it runs."""

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


class ReceiverPool:
    """Receivers as threads of this process.

    Args:
        options: how many, and what they do.
        spool: to fill.
        limit: messages in the spool after which a receiver is done.
        closing: ends the wait for a predecessor.

    Raises:
        SpoolError: the spool cannot be opened; nothing was begun.
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
        self.writer = SpoolWriter(
            spool,
            patience=ClaimTimeouts(wait=options.lock_timeout, frozen=options.take_over_after),
            dedup_header=options.dedup_header,
            fail_on_loss=options.fail_on_data_loss,
            closing=closing,
        )
        """Shared by all of them."""
        self._wakeup = Wakeup()
        names = [f"receiver {number} of {options.origin}" for number in range(options.receivers)]
        self.healths = [Health(name, changed=self._wakeup.wake) for name in names]
        """One a receiver."""
        self._receivers = [
            Receiver(options, self.writer, number, health, limit=limit) for number, health in enumerate(self.healths)
        ]
        self._maintenance = _Maintenance(self.writer, options, changed=self._wakeup.wake)
        for thread in (self._maintenance, *self._receivers):
            thread.start()

    @property
    def finished(self) -> bool:
        """Whether all receivers have ended, as they do at their limit."""
        return all(health.ended for health in self.healths)

    def check(self) -> None:
        """Raise what keeps messages from coming; see `Health.check`."""
        if self._maintenance.error is not None:
            raise self._maintenance.error.with_traceback(None)
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
            return seconds if seconds <= 0 else min(seconds, patience + _MIN_WAIT)

        self._wakeup.watch(look)

    def stop(self) -> None:
        """End the receivers and close the spool; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        for receiver in self._receivers:
            receiver.close()
        deadline = Deadline(_STOP_TIMEOUT)
        ended = [receiver.join_until(deadline) for receiver in self._receivers]
        self._maintenance.close()
        # A thread that hangs in a dead file system keeps the spool: two must not write to it.
        if self._maintenance.join_until(deadline) and all(ended):
            with contextlib.suppress(OSError):
                self.writer.close()


class _Maintenance(DaemonThread):
    """Looks after a spool as long as it is being filled, also while there is no broker."""

    def __init__(self, writer: SpoolWriter, options: SpoolOptions, *, changed: Callable[[], None]) -> None:
        super().__init__("stompy-spool-maintenance")
        self._writer = writer
        self._limits = (options.max_spool_messages, options.max_spool_bytes)
        self._changed = changed
        self._closing = threading.Event()
        self.error: StompError | None = None
        """Why it has ended before it was closed."""

    def close(self) -> None:
        """Let it come to an end."""
        self._closing.set()

    def run(self) -> None:
        """Look after the spool until closed."""
        try:
            while not self._closing.wait(_PERIOD_FULL if self._writer.is_full(*self._limits) else _PERIOD):
                self._writer.maintain()
                self._writer.compact(self._closing.is_set)
        except StompError as error:
            self.error = error
            self._changed()


class NoReceivers:
    """Another process fills the spool.

    Args:
        view: of the spool.
        patience: seconds without a heartbeat of that process.
    """

    def __init__(self, view: SpoolView, patience: float) -> None:
        self._view = view
        self._patience = patience

    def check(self) -> None:
        """Raise if nobody fills the spool.

        Raises:
            ConnectTimeout: no process has shown a heartbeat for `patience` seconds.
        """
        if self._view.silent_for() > self._patience:
            raise ConnectTimeout(
                f"no process has filled the spool for more than {self._patience:g} s (option brokerTimeout). "
                "With receivers=0, `stompy spool` must fill it while the query runs, except with "
                "Trigger.AvailableNow"
            )

    def quiet_for(self) -> float:
        """Return that it has always been quiet: what is in the spool is all there is."""
        return math.inf

    def subscribed_for(self) -> float:
        """Return the same."""
        return math.inf

    def watch(self, left: Callable[[], float]) -> None:
        """Wait until `left` returns 0 or less."""
        Wakeup().watch(left)

    def stop(self) -> None:
        """Do nothing."""
