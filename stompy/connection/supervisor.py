"""The supervisor: the current link, and its successor when it was lost.

| thread | owns | may block on | never |
|---|---|---|---|
| any caller | - | `Supervisor.live`: a link, up to a timeout; `close` never | - |
| `stompy-<connection>-supervisor`, while down | the attempt | dial, handshake, replay, closing | holds a lock there |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 1 | supervisor | the current link, the next one, whether it is final, the order of connected and disconnected | no |

Closing ends everything at once for who waits, whatever the supervisor thread is at: its handshake or its replay loses
its stream, a dial ends by its own timeout and what it brings is dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from stompy.connection.opening import Opener
from stompy.connection.reconnect import Reconnect
from stompy.connection.stats import Past
from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConnectError, ConnectionLost, ConnectRefused, NotConnected, StompError
from stompy.frames.frame import Frame
from stompy.link.link import Link
from stompy.link.locks import Rank, make_lock
from stompy.link.thread import HouseThread

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from stompy.connection.config import Config

_LONG_ENOUGH = 1.0
"""Seconds after which a link has been of use, even if the broker said nothing on it."""

_LOG = logging.getLogger("stompy.connection")


class Supervised(Protocol):
    """The connection's core, as its supervisor sees it; called with the supervisor's lock held where it says so."""

    def messages(self, link: Link, frames: Sequence[Frame]) -> None:
        """Take messages."""
        ...

    def receipt(self, link: Link, frame: Frame) -> None:
        """Hear of a RECEIPT."""
        ...

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback where user code runs."""
        ...

    def replay(self, link: Link) -> None:
        """Make every subscription on a new link that nobody else uses yet."""
        ...

    def connected(self, frame: Frame) -> None:
        """Hear that a link is now the current one. With the lock: must not block."""
        ...

    def lost(self, reason: StompError | None) -> None:
        """Hear that the current link is over. With the lock: must not block."""
        ...

    def reconnecting(self, attempt: int, delay: float) -> None:
        """Hear that an attempt will be made after `delay` seconds. With the lock: must not block."""
        ...

    def finished(self, reason: StompError | None) -> None:
        """Hear that there will be no other link."""
        ...


class Supervisor:
    """Opens links, publishes them, and replaces those that are lost.

    Args:
        config: addresses, timeouts, the policy.
        core: told of every change.
        name: of the connection.
    """

    def __init__(self, config: Config, core: Supervised, *, name: str) -> None:
        self._config = config
        self._core = core
        self._name = name
        self._lock = make_lock(Rank.SUPERVISOR, "supervisor")
        self._changed = threading.Condition(self._lock)
        self._closing = threading.Event()
        self._opener = Opener(config)
        self._link: Link | None = None
        self._next: Link | None = None
        self._final = False
        self._failure: StompError | None = None
        self._thread: _Reopening | None = None
        self._generation = 0
        self._in_vain = 0
        self._published = 0.0
        self._heard = 0
        self._past = Past()
        self.reconnects = 0
        """How often a lost link was replaced."""

    # The current link.

    @property
    def link(self) -> Link:
        """The newest published link, alive or not."""
        if self._link is None:
            raise NotConnected("the connection was never opened")
        return self._link

    def counted(self) -> tuple[Link, Past]:
        """Return the newest link, and what those before it have counted."""
        with self._changed:
            return self.link, self._past

    def live(self, timeout: float | None = None) -> Link:
        """Return a link to use now; while the link is down, wait for the next one.

        Args:
            timeout: seconds to wait for it; `None` takes the send timeout.

        Raises:
            NotConnected: the connection was closed.
            ConnectionLost: the link is over and there is no other, or none in time; nothing was sent.
        """
        link = self.link
        if link.alive:
            return link
        if self._config.reconnect is None or self._closing.is_set():
            link.check_open()
        deadline = Deadline(self._config.send_timeout if timeout is None else timeout)
        with self._changed:
            self._changed.wait_for(lambda: self._final or self.link.alive, deadline.remaining())
        if self._closing.is_set():
            raise NotConnected("the connection is closed")
        if self._failure is not None:
            raise ConnectionLost(f"the connection is lost for good: {self._failure}", outcome="not-sent")
        if not self.link.alive and not self._final:
            raise ConnectionLost("there was no connection to a broker in time", outcome="not-sent")
        self.link.check_open()
        return self.link

    # Opening.

    def open(self) -> None:
        """Open the first link, in the caller's thread; one pass over the addresses.

        Raises:
            ConnectError: there is none, or it was over as soon as it began.
        """
        try:
            self.attempt()
        except BrokerError as error:
            raise ConnectRefused(f"right behind CONNECTED, {error}", frame=error.frame) from error
        except ConnectionLost as lost:
            raise ConnectError(f"right behind CONNECTED, {lost}") from lost

    def attempt(self) -> None:
        """Make one pass over the addresses and publish the link it gives.

        Raises:
            ConnectError: there is none.
            StompError: the broker did not take the subscriptions.
        """
        opened = self._opener.open()
        self._generation += 1
        name = self._name if self._generation == 1 else f"{self._name}.{self._generation}"
        link = Link(opened, self._config.link_settings(self._config.addresses[0]), self, name=name)
        link.start()
        try:
            self._announce(link)
            self._core.replay(link)
            self._publish(link)
        except BaseException:
            link.close()
            link.join(Deadline(self._config.close_timeout))
            raise

    def _announce(self, link: Link) -> None:
        """Let `close` know of a link that is not in use yet."""
        with self._changed:
            self._check_wanted()
            self._next = link

    def _check_wanted(self) -> None:
        if self._closing.is_set():
            raise NotConnected("the connection was closed")

    def _publish(self, link: Link) -> None:
        with self._changed:
            self._check_wanted()
            # One that died meanwhile was nobody's, so nobody must hear of its end.
            self._check_fresh(link)
            if self._link is not None:
                self.reconnects += 1
                self._past = self._past.with_link(self._link)
            self._link = link
            self._published, self._heard = time.monotonic(), link.counters.frames_in
            self._core.connected(link.connected)
            self._changed.notify_all()

    def _check_fresh(self, link: Link) -> None:
        try:
            link.check_open()
        except BrokerError as error:
            if self._link is None:
                raise
            # The subscriptions were taken, so it is about a message sent again: no reason to give up.
            raise ConnectionLost(f"the link died at once: {error}") from error

    # What a link tells (`link.LinkOwner`).

    def messages(self, link: Link, frames: Sequence[Frame]) -> None:
        """Pass messages on."""
        self._core.messages(link, frames)

    def receipt(self, link: Link, frame: Frame) -> None:
        """Pass a RECEIPT on."""
        self._core.receipt(link, frame)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Pass a callback on."""
        self._core.call_soon(function)

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Replace a lost link, if it was the current one and there is a policy; on its reader thread."""
        with self._changed:
            if link is not self._link:
                return
            self._core.lost(reason)
            if self._config.reconnect is not None and not self._closing.is_set():
                self._in_vain = 0 if self._was_of_use(link, reason) else self._in_vain + 1
                first_wait = self._config.reconnect.first_wait(self._in_vain)
                name = f"stompy-{self._name}-supervisor"
                self._thread = _Reopening(self, self._config.reconnect, first_wait, name=name)
                self._thread.start()
                return
        self.finish(reason)

    def _was_of_use(self, link: Link, reason: StompError | None) -> bool:
        """Whether anything came of a link; a broker that ends each at once must not be asked without a pause."""
        heard = link.counters.frames_in - self._heard - isinstance(reason, BrokerError)
        return heard > 0 or time.monotonic() - self._published >= _LONG_ENOUGH

    def finish(self, reason: StompError | None, *, failed: bool = False) -> None:
        """Note that there will be no other link."""
        with self._changed:
            if self._final:
                return
            self._final = True
            self._failure = reason if failed else None
            self._changed.notify_all()
        self._core.finished(reason)

    def reconnecting(self, attempt: int, delay: float) -> None:
        """Pass on that an attempt is to come, which is not so once the connection is being closed."""
        with self._changed:
            if not self._closing.is_set():
                self._core.reconnecting(attempt, delay)

    # Closing.

    @property
    def closing(self) -> threading.Event:
        """Set when the owner closes the connection; ends a wait between attempts at once."""
        return self._closing

    def close(self) -> None:
        """Let no new link come, and free who waits for one; the current one is the caller's to end."""
        self._closing.set()
        self._opener.cancel()
        with self._changed:
            coming = None if self._next is self._link else self._next
            over = self._link is None or self._link.ended.is_set()
            self._changed.notify_all()
        if coming is not None:
            coming.close()
        if over:
            self.finish(None)

    def join(self, deadline: Deadline) -> bool:
        """Wait until the threads are gone; return whether they are."""
        link_gone = self._link is None or self._link.join(deadline)
        return (self._thread is None or self._thread.join_until(deadline)) and link_gone


class _Reopening(HouseThread):
    """Tries to replace a lost link until it works, the policy gives up, or the connection is closed."""

    def __init__(self, supervisor: Supervisor, policy: Reconnect, first_wait: float, *, name: str) -> None:
        super().__init__(name)
        self._supervisor = supervisor
        self._policy = policy
        self._first_wait = first_wait

    def run(self) -> None:
        """Reopen the link, or say why there will be none."""
        try:
            self._retry()
        except StompError as error:
            self._give_up(error)
        except Exception as error:
            self._give_up(ConnectionLost(f"reconnecting failed: {error!r}"))
            raise

    def _retry(self) -> None:
        # Imported where a link was lost: most programs never need it, and it costs a good part of an import of stompy.
        import tenacity

        closing, policy = self._supervisor.closing, self._policy
        stop = tenacity.stop_any(
            tenacity.stop_when_event_set(closing),
            tenacity.stop_never if policy.attempts is None else tenacity.stop_after_attempt(policy.attempts),
            tenacity.stop_never if policy.total is None else tenacity.stop_after_delay(policy.total),
        )
        retrying = tenacity.Retrying(
            sleep=tenacity.sleep_using_event(closing),
            stop=stop,
            wait=tenacity.wait_random_exponential(multiplier=policy.first_delay, max=policy.max_delay),
            retry=tenacity.retry_if_exception(_worth_another),
            before_sleep=self._tell,
            reraise=True,
        )
        self._supervisor.reconnecting(1, self._first_wait)
        closing.wait(self._first_wait)
        retrying(self._attempt)

    def _give_up(self, error: StompError) -> None:
        closed = self._supervisor.closing.is_set()
        if not closed:
            _LOG.warning("gave up reconnecting: %s", error)
        self._supervisor.finish(None if closed else error, failed=not closed)

    def _attempt(self) -> None:
        if self._supervisor.closing.is_set():
            raise NotConnected("the connection was closed")
        self._supervisor.attempt()

    def _tell(self, state: RetryCallState) -> None:
        action = state.next_action
        self._supervisor.reconnecting(state.attempt_number + 1, action.sleep if action is not None else 0.0)


def _worth_another(error: BaseException) -> bool:
    """Whether a later attempt may do better, unlike after a refused login, version or subscription."""
    return isinstance(error, StompError) and error.retryable
