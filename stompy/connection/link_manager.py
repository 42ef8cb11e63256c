"""The link manager: opens links and replaces lost ones.

| thread | owns | may block on | never |
|---|---|---|---|
| any caller | - | `LinkManager.live`: until there is a link, up to a timeout; `close` never | - |
| `stompy-<connection>-reconnect`, while down | the attempt | dial, handshake, replay, closing | holds a lock there |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 1 | link manager | the current and the next link, whether it is the last, the order of listener events | no |

Closing wakes all waiting callers at once and shuts down the stream of a handshake or a replay; a dial ends by its own
timeout, and its result is dropped.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.connection import reconnect
from stompy.connection.connector import Connector
from stompy.connection.reconnect import Outage, Reconnect, ReconnectThread
from stompy.connection.stats import EndedLinks
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, given
from stompy.errors import (
    BrokerError,
    ConcurrencyError,
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    NotConnectedError,
    SessionError,
    StompError,
)
from stompy.link.link import Link
from stompy.locks import Event, Rank, make_condition
from stompy.threads import must_propagate
from stompy.world import time

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.listeners import Callbacks
    from stompy.connection.resend_buffer import ResendBuffer
    from stompy.connection.subscriptions import Router, SubscriptionTable

_LAST_ATTEMPT = 1.0
"""Seconds kept for the last attempt to open the first link, at most."""

_USEFUL_AFTER = 1.0
"""Seconds after which a link counts as useful, even if the broker sent nothing."""

_THREAD_RETRY = 0.5
"""Seconds between attempts to start a thread when the system has no resources for one."""

_LOG = logging.getLogger("stompy.connection")


class LinkManager:
    """Opens links, publishes them, and replaces those that are lost.

    Args:
        config: addresses, timeouts, policy.
        name: of the connection.
        router: called with the messages of each read, on the reader.
        subscriptions: restored on each new link.
        callbacks: called with every change.
        unconfirmed: resend buffer, or `None`.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        router: Router,
        subscriptions: SubscriptionTable,
        callbacks: Callbacks,
        unconfirmed: ResendBuffer | None,
    ) -> None:
        self._config = config
        self._name = name
        # Together with `ended`, these are `reader.LinkOwner`.
        self.messages, self.stalled = router.messages, router.stalled
        self.receipts, self.call_soon = callbacks.receipts, callbacks.call_soon
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._unconfirmed = unconfirmed
        subscriptions.links = self
        self._changed = make_condition("link manager", Rank.LINK_MANAGER)
        self._closing = Event()
        self._connector = Connector(config)
        self.ready: Link | None = None
        """The link to use now, or `None`; it may have ended a moment ago."""
        self._fork_error: ConcurrencyError | None = None
        self._link: Link | None = None
        self._next: Link | None = None
        self._announced: Link | None = None
        """The link whose `on_connected` was queued, but not yet its `on_disconnected`."""
        self._final = False
        self._down = False
        self._failure: StompError | None = None
        self._outage: Outage | None = None
        self._address = ""
        """Of the last session that was opened."""
        self._end_reason: StompError | None = None
        self._thread: ReconnectThread | None = None
        self._leaving: list[Link] = []
        self._generation = 0
        self._failures = 0
        self._published = 0.0
        self._frames_before = 0
        self._ended_links = EndedLinks()
        self.reconnects = 0
        """Number of lost links that were replaced."""

    # The current link.

    @property
    def link(self) -> Link:
        """The newest published link, alive or not."""
        if self._link is None:
            raise NotConnectedError("the connection was never opened")
        return self._link

    def links_for_stats(self) -> tuple[Link, EndedLinks]:
        """Return the newest link, and the counters of the earlier ones."""
        with self._changed:
            return self.link, self._ended_links

    @property
    def outage(self) -> str | None:
        """Why there is no session, and when the next attempt is made; `None` if there is one, or it was closed."""
        outage = self._outage
        return None if outage is None or self._closing.is_set() else str(outage)

    @property
    def forked(self) -> bool:
        """Whether this is the copy in a forked child."""
        return self._fork_error is not None

    def check_process(self) -> None:
        """Check that this is not a forked child.

        Raises:
            ConcurrencyError: it is; the connection belongs to the parent process.
        """
        if self._fork_error is not None:
            raise self._fork_error.with_traceback(None)

    def live(self, timeout: float | Default | None = DEFAULT) -> Link:
        """Return the link to use now; if it has ended, wait for the next one.

        Args:
            timeout: seconds; by default the send timeout.

        Raises:
            ConcurrencyError: the connection belongs to the parent process.
            NotConnectedError: `close` was called.
            ConnectionLostError: the link was lost and there is no other, or none in time; nothing was sent.
        """
        self.check_process()
        if self._closing.is_set():
            raise NotConnectedError("the connection is closed")
        link = self.link
        if link.alive:
            return link
        if self._config.reconnect is None:
            link.check_open()
        seconds = given(timeout, self._config.timeouts.send)
        deadline = Deadline(seconds)
        with self._changed:
            self._changed.wait_for(
                lambda: self._final or self._closing.is_set() or self.link.alive, deadline.remaining()
            )
        if self._closing.is_set():
            raise NotConnectedError("the connection is closed")
        if self._failure is not None:
            text = f"the connection is lost for good: {self._failure}"
            raise ConnectionLostError(text, outcome="not-sent") from self._failure
        if not self.link.alive and not self._final:
            outage = self._outage
            reason = self.link.end_reason if outage is None else outage.reason
            text = f"there was no session within {round(seconds or 0, 2):g} s: {outage or reason}"
            raise ConnectionLostError(text, outcome="not-sent") from reason
        self.link.check_open()
        return self.link

    @property
    def final(self) -> bool:
        """Whether there will be no other link, and this one has ended."""
        return self._final

    def wait_final(self, deadline: Deadline) -> bool:
        """Wait until there will be no other link; return `False` at the deadline."""
        with self._changed:
            return self._changed.wait_for(lambda: self._final, deadline.remaining())

    def raise_end(self) -> None:
        """Raise the error that ended the connection, unless it was closed."""
        if self._end_reason is not None:
            raise self._end_reason.with_traceback(None)

    # Opening.

    def open(self) -> None:
        """Open the first link, in the caller's thread, with one attempt or as `Timeouts.start` allows.

        Raises:
            ConnectError: no link could be opened, or it ended immediately.
        """
        seconds = self._config.start_timeout
        if seconds == 0:
            self._open(Deadline(None))
            return
        deadline, policy = Deadline(seconds), self._config.reconnect or Reconnect()
        last = None if seconds is None else seconds - min(_LAST_ATTEMPT, seconds / 10)
        reconnect.retry(
            lambda: self._open(deadline),
            replace(policy, attempts=None, total=last),
            closing=self._closing,
            report=self.reconnecting,
        )

    def _open(self, deadline: Deadline) -> None:
        try:
            self.attempt(deadline)
        except BrokerError as error:
            text = f"right after CONNECTED: {error}"
            raise ConnectRefusedError(text, frame=error.frame, address=self._address) from error
        except ConnectionLostError as lost:
            raise ConnectError(f"right after CONNECTED: {lost}", address=self._address) from lost

    def attempt(self, deadline: Deadline) -> None:
        """Try all addresses once and publish the new link.

        Args:
            deadline: for connecting, in addition to the timeout of each address.

        Raises:
            ConnectError: no session could be opened.
            StompError: subscriptions could not be restored.
        """
        opened = self._connector.open(deadline)
        self._generation += 1
        name = self._name if self._generation == 1 else f"{self._name}.{self._generation}"
        settings = self._config.for_address(self._config.addresses[0])
        link = Link(opened, settings, self, name=name, dialect=self._config.dialect_for(opened.protocol.server))
        decided = Event()
        try:
            # Before the reader starts, so that `on_connected` comes before any frame.
            self._announce(link, decided)
            link.start()
            self._subscriptions.replay(link)
            if self._unconfirmed is not None:
                self._unconfirmed.replay(link)
            self._publish(link)
        except BaseException as error:
            self._drop(link, error)
            raise
        finally:
            decided.set()

    def _announce(self, link: Link, decided: Event) -> None:
        """Make a new link known to `close`, and its session to listeners."""
        with self._changed:
            self._next, self._address = link, link.address
            self._check_not_closing()
            self._announced = link
            self._callbacks.connected(link.connected, decided)

    def _drop(self, link: Link, error: BaseException) -> None:
        """End a link that was not published; listeners are called after its frames."""
        reason = None
        if isinstance(error, StompError) and not self._closing.is_set():
            reason = (
                error if isinstance(error, SessionError) else ConnectionLostError(f"the session was given up: {error}")
            )
            link.fail(reason)
        link.discard()
        link.join(Deadline(self._config.close_timeout))
        with self._changed:
            self._next = self._link
            self._report_end(link, reason)  # unless its reader did

    def _report_end(self, link: Link, reason: StompError | None) -> None:
        if link is self._announced:
            self._announced = None
            self._subscriptions.link_lost(reason)
            self._callbacks.disconnected(reason)

    def _check_not_closing(self) -> None:
        if self._closing.is_set():
            raise NotConnectedError("the connection was closed")

    def _publish(self, link: Link) -> None:
        with self._changed:
            self._check_not_closing()
            # One that ended meanwhile was never in use.
            self._check_fresh(link)
            first, outage, self._outage = self._link is None, self._outage, None
            if self._link is not None:
                self.reconnects += 1
                self._ended_links = self._ended_links.with_link(self._link)
                # Their readers may be on their way out, and whoever closes the connection waits for all threads.
                self._leaving = [each for each in (*self._leaving, self._link) if not each.join(Deadline(0))]
            self._link, self._down, self.ready = link, False, link
            self._published, self._frames_before = time.monotonic(), link.frames_in
            self._changed.notify_all()
        if outage is not None:
            text = "connected to %s, after %.1f s" if first else "connected again to %s, after %.1f s"
            self.warn(text, link.address, self._published - outage.since)

    def _check_fresh(self, link: Link) -> None:
        try:
            link.check_open()
        except BrokerError as error:
            if self._link is None:
                raise
            # The broker confirmed the subscriptions, so it rejected a resent message: no reason to give up.
            raise ConnectionLostError(f"the session ended immediately: {error}") from error

    # After a link ended.

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Replace the link if it was the current one and there is a policy; on its reader thread."""
        with self._changed:
            self._report_end(link, reason)
            if link is not self._link:
                return
            self._down, self.ready = True, None
            if self._config.reconnect is None or self._closing.is_set():
                thread = None
                self._outage = None if reason is None else self._outage_after(reason)
            else:
                lost = reason or ConnectionLostError(f"{link.address} closed the connection")
                self._failures = 0 if self._was_useful(link, reason) else self._failures + 1
                seconds = reconnect.first_wait(self._config.reconnect, self._failures)
                name = f"stompy-{self._name}-reconnect"
                thread = self._thread = ReconnectThread(self, self._config.reconnect, seconds, lost, name=name)
        if thread is None:
            self.finish(reason)
        else:
            self._reopen(thread)

    def _reopen(self, thread: ReconnectThread) -> None:
        """Start the thread, retrying while the system has no resources for one."""
        while not self._closing.is_set():
            try:
                thread.start()
            except ConnectError as error:
                self.warn("reconnecting is delayed: %s", error)
                self._closing.wait(_THREAD_RETRY)
            else:
                return
        self.finish(None)

    def _was_useful(self, link: Link, reason: StompError | None) -> bool:
        """Return whether a link was of any use; if not, the next attempts are delayed."""
        if reason is not None and isinstance(reason.__cause__, MemoryError):
            return False  # however much it received: the broker sends the same again
        received = link.frames_in - self._frames_before - isinstance(reason, BrokerError)
        return received > 0 or time.monotonic() - self._published >= _USEFUL_AFTER

    def finish(self, reason: StompError | None, *, failed: bool = False) -> None:
        """Record that there will be no other link."""
        with self._changed:
            if self._final:
                return
            self._final = True
            self._failure = reason if failed else None
            self._end_reason = reason
            if self._failure is not None:
                self._outage = self._outage_after(self._failure)
            self._changed.notify_all()
        if self._unconfirmed is not None:
            self._unconfirmed.finish(reason)
        self._subscriptions.finish(reason)
        self._callbacks.finish(reason)

    def reconnecting(self, attempt: int, delay: float, reason: StompError) -> None:
        """Report a failure and the next attempt, to the log and to listeners, unless the connection is being closed."""
        with self._changed:
            if self._closing.is_set():
                return
            self._outage = outage = self._outage_after(reason, attempt, delay)
            self._callbacks.reconnecting(attempt, delay, reason)
        # As text now: a handler of logging may format it after the attempt has begun.
        self.warn("%s", str(outage))

    def warn(self, text: str, *arguments: object) -> None:
        """Log; what a handler of logging raises does not keep a session from being replaced."""
        try:
            _LOG.warning(text, *arguments, extra={"stompy_address": self._address})
        except BaseException as error:
            if must_propagate(error):
                raise

    def _outage_after(self, reason: StompError, attempt: int = 0, delay: float = 0.0) -> Outage:
        text = str(reason)
        if not isinstance(reason, ConnectError) and self._address not in text:
            text = f"{self._address}: {text}"
        return Outage.after(self._outage, reason, attempt, delay, text=text)

    # Closing.

    def after_fork(self, reason: ConcurrencyError) -> None:
        """End the copies of the links in a forked child."""
        self._fork_error, self.ready = reason, None
        self._closing.set()
        for link in (self._link, self._next):
            if link is not None:
                link.after_fork(reason)

    @property
    def closing(self) -> Event:
        """Set when the connection is being closed; ends the wait between attempts."""
        return self._closing

    def close(self) -> None:
        """Open no more links and wake waiting callers; the caller ends the current link."""
        self._closing.set()
        self._connector.cancel()
        with self._changed:
            self.ready = None
            opening = None if self._next is self._link else self._next
            # Not `link.ended`, which its reader sets a moment later.
            ended = self._link is None or self._down
            self._changed.notify_all()
        if opening is not None:
            opening.close()
        # Otherwise the thread that opens the next link calls it, after that link's end was reported.
        if ended and opening is None:
            self.finish(None)

    def join(self, deadline: Deadline) -> bool:
        """Wait for the threads to end; return whether they have."""
        threads = [*self._leaving] if self._link is None else [*self._leaving, self._link]
        links_ended = [link.join(deadline) for link in threads]
        return (self._thread is None or self._thread.join_until(deadline)) and all(links_ended)
