"""The state of a receiver, which its thread updates and other threads check, and waiting for a change of it.

| who | does | lock |
|---|---|---|
| receiver thread | `subscribed`, `arrived`, `settled`, `lost`, `fail`, `end` | health (leaf) |
| any thread | `check`, `quiet_for`, `patience` | the same |
| any thread; it never blocks | `Wakeup.wake` | |
| one thread, which blocks in it | `Wakeup.watch` | |
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from stompy.errors import ConnectTimeoutError, StompError
from stompy.locks import Rank, make_lock
from stompy.world import threading, time

_LOG = logging.getLogger("stompy.spark")

_MAX_WAIT = 3600.0
"""Maximum seconds of one wait, after which the state is checked again."""


class Wakeup:
    """Wakes one waiting thread when something has changed."""

    def __init__(self) -> None:
        self._changed = threading.Event()

    def wake(self) -> None:
        """Make the waiting thread check again, now or when it next waits."""
        self._changed.set()

    def watch(self, look: Callable[[], float]) -> None:
        """Return when `look` returns 0 or less; raises what it raises.

        Args:
            look: called at once, after each `wake`, and when the seconds that it returned are over.
        """
        while True:
            # Cleared first, so that a change during the check causes another check.
            self._changed.clear()
            left = look()
            if left <= 0:
                return
            self._changed.wait(min(left, _MAX_WAIT))


class Health:
    """The state of one receiver.

    Args:
        name: of the receiver, for the log and errors.
        changed: called, without the lock, when the receiver connects, loses its connection, or ends.
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
        """The number of sessions so far."""
        self.ended = False
        """Whether the receiver has ended, for whatever reason."""

    def subscribed(self) -> None:
        """Record that the broker has confirmed the subscription."""
        now = time.monotonic()
        with self._lock:
            self.links += 1
            self._lost_since = None
            self._quiet_since = now
            if self._subscribed_at is None:
                self._subscribed_at = now
        self._changed()

    def arrived(self) -> None:
        """Record that messages arrived: until they are `settled` it is not idle, however slow disk and broker are."""
        with self._lock:
            self._quiet_since = None

    def settled(self) -> None:
        """Record that the broker has confirmed every ACK; idle time starts now, as it may have waited for them."""
        with self._lock:
            self._quiet_since = time.monotonic()

    def lost(self, reason: StompError) -> None:
        """Record that there is no session now."""
        with self._lock:
            if self._lost_since is None:
                self._lost_since = time.monotonic()
            self._reason = str(reason)
            self._quiet_since = None
        _LOG.warning("%s has no connection: %s", self._name, reason)
        self._changed()

    def fail(self, error: StompError) -> None:
        """Record that the receiver has ended with an error, and will not retry."""
        with self._lock:
            if self._error is None:
                self._error = error
            self._quiet_since = None
        _LOG.error("%s has ended: %s", self._name, error)
        self._changed()

    def end(self) -> None:
        """Record that the receiver has ended."""
        self.ended = True
        self._changed()

    @property
    def error(self) -> StompError | None:
        """The error that ended it, or `None`."""
        return self._error

    def check(self, broker_timeout: float) -> None:
        """Raise if no messages can arrive.

        Args:
            broker_timeout: seconds without a session that are tolerated.

        Raises:
            ConnectTimeoutError: there was no session for longer.
            StompError: the receiver has ended with this error.
        """
        with self._lock:
            error, since, reason = self._error, self._lost_since, self._reason
        if error is not None:
            raise error.with_traceback(None)
        if since is not None and time.monotonic() - since > broker_timeout:
            raise ConnectTimeoutError(
                f"{self._name} had no connection to a broker for more than {broker_timeout:g} s "
                f"(option brokerTimeout): {reason}"
            )

    def patience(self, broker_timeout: float) -> float:
        """Return the seconds after which `check` may raise `ConnectTimeoutError`; infinity while there is a session."""
        with self._lock:
            since = self._lost_since
        return math.inf if since is None else max(0.0, broker_timeout - (time.monotonic() - since))

    def quiet_for(self) -> float:
        """Return the seconds since the last message, or since the subscription began.

        Return 0 without a subscription, and until messages are in the spool and the broker has confirmed their ACKs.
        """
        with self._lock:
            return 0.0 if self._quiet_since is None else time.monotonic() - self._quiet_since

    def subscribed_for(self) -> float:
        """Return the seconds since the first subscription, including interruptions; 0 before it."""
        with self._lock:
            return 0.0 if self._subscribed_at is None else time.monotonic() - self._subscribed_at
