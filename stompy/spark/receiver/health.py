"""Whether a receiver receives: written by its thread, asked by those who wait for its messages, and their waiting.

| who | does | lock |
|---|---|---|
| receiver thread | `subscribed`, `arrived`, `stored`, `lost`, `fail`, `end` | health (leaf) |
| any thread | `check`, `quiet_for`, `patience` | the same |
| any thread; it never blocks | `Wakeup.wake` | |
| one thread, which blocks in it | `Wakeup.watch` | |
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from stompy.errors import ConnectTimeout, StompError
from stompy.locks import Rank, make_lock

_LOG = logging.getLogger("stompy.spark")

_MAX_WAIT = 3600.0
"""Seconds of one wait; what is waited for is looked at again then."""


class Wakeup:
    """Wakes one waiting thread when something has changed."""

    def __init__(self) -> None:
        self._changed = threading.Event()

    def wake(self) -> None:
        """Have the waiting thread look again, now or as soon as it waits."""
        self._changed.set()

    def watch(self, look: Callable[[], float]) -> None:
        """Return when `look` returns 0 or less; raises what it raises.

        Args:
            look: called at once, after each `wake`, and when the seconds that it returned are over.
        """
        while True:
            # First: what changes while it looks is looked at again.
            self._changed.clear()
            left = look()
            if left <= 0:
                return
            self._changed.wait(min(left, _MAX_WAIT))


class Health:
    """The state of one receiver.

    Args:
        name: of the receiver, for the log and errors.
        changed: called, without the lock, when the receiver gets or loses its broker, and when it ends.
    """

    def __init__(self, name: str, *, changed: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._changed = changed
        self._lock = make_lock(Rank.LEAF, "receiver health")
        self._error: StompError | None = None
        self._lost_since: float | None = time.monotonic()
        self._reason = "there was no connection yet"
        self._quiet_since: float | None = None
        self._subscribed_at: float | None = None
        self.links = 0
        """How many sessions there were."""
        self.ended = False
        """Whether the receiver receives no more, for whatever reason."""

    def subscribed(self) -> None:
        """Note that the broker has confirmed the subscription."""
        now = time.monotonic()
        with self._lock:
            self.links += 1
            self._lost_since = None
            self._quiet_since = now
            if self._subscribed_at is None:
                self._subscribed_at = now
        self._changed()

    def arrived(self) -> None:
        """Note that messages came: until they are `kept` it is not quiet, however long the disk takes."""
        with self._lock:
            self._quiet_since = None

    def stored(self) -> None:
        """Note that what came is in the spool; the broker could not send while it waited for the ACK."""
        with self._lock:
            self._quiet_since = time.monotonic()

    def lost(self, reason: StompError) -> None:
        """Note that there is no session now."""
        with self._lock:
            if self._lost_since is None:
                self._lost_since = time.monotonic()
            self._reason = str(reason)
            self._quiet_since = None
        _LOG.warning("%s has no connection: %s", self._name, reason)
        self._changed()

    def fail(self, error: StompError) -> None:
        """Note that the receiver has ended for good."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._quiet_since = None
        _LOG.error("%s has ended: %s", self._name, error)
        self._changed()

    def end(self) -> None:
        """Note that the receiver receives no more."""
        self.ended = True
        self._changed()

    @property
    def error(self) -> StompError | None:
        """Why it has ended, or `None`."""
        return self._error

    def check(self, broker_timeout: float) -> None:
        """Raise what keeps messages from coming.

        Args:
            broker_timeout: seconds that there may be no broker.

        Raises:
            ConnectTimeout: there was none for longer.
            StompError: the receiver has ended.
        """
        with self._lock:
            error, since, reason = self._error, self._lost_since, self._reason
        if error is not None:
            raise error.with_traceback(None)
        if since is not None and time.monotonic() - since > broker_timeout:
            raise ConnectTimeout(
                f"{self._name} had no connection to a broker for more than {broker_timeout:g} s "
                f"(option brokerTimeout): {reason}"
            )

    def patience(self, broker_timeout: float) -> float:
        """Return after how many seconds `check` may raise for want of a broker; infinity while there is one."""
        with self._lock:
            since = self._lost_since
        return math.inf if since is None else max(0.0, broker_timeout - (time.monotonic() - since))

    def quiet_for(self) -> float:
        """Return for how many seconds no message has come although there is a subscription.

        0 where there is none, and while messages are on their way into the spool.
        """
        with self._lock:
            return 0.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def subscribed_for(self) -> float:
        """Return for how many seconds there has been a subscription, with interruptions; 0 where there never was."""
        with self._lock:
            return 0.0 if self._subscribed_at is None else time.monotonic() - self._subscribed_at
