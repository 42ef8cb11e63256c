"""The link manager: the current link, and its successor when it was lost.

| thread | owns | may block on | never |
|---|---|---|---|
| any caller | - | `LinkManager.live`: a link, up to a timeout; `close` never | - |
| `stompy-<connection>-reconnect`, while down | the attempt | dial, handshake, replay, closing | holds a lock there |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 1 | link manager | the current link, the next one, whether it is final, the order of connected and disconnected | no |

Closing ends everything at once for who waits, whatever the reconnect thread is at: its handshake or its replay loses
its stream, a dial ends by its own timeout and what it brings is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.connection import reconnect
from stompy.connection.connector import Connector
from stompy.connection.reconnect import Reconnect
from stompy.connection.stats import EndedLinks
from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConcurrencyError,
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    NotConnected,
    StompError,
)
from stompy.frames.learned import Row
from stompy.link.link import Link
from stompy.locks import Event, Rank, make_condition
from stompy.threads import DaemonThread

if TYPE_CHECKING:
    from stompy.connection.config import Config
    from stompy.connection.listeners import Callbacks
    from stompy.connection.resend_buffer import ResendBuffer
    from stompy.connection.subscriptions import SubscriptionTable

_LAST_ATTEMPT = 1.0
"""Seconds that the last attempt at a first link has left, at most."""

_LONG_ENOUGH = 1.0
"""Seconds after which a link has been of use, even if the broker said nothing on it."""

_ROOM_AGAIN = 0.5
"""Seconds between two tries to start a thread for which the system has no room."""

_LOG = logging.getLogger("stompy.connection")


class LinkManager:
    """Opens links, publishes them, and replaces those that are lost.

    Args:
        config: addresses, timeouts, the policy.
        name: of the connection.
        messages: takes the messages of each read; on the reader.
        subscriptions: makes the subscriptions on each new link.
        callbacks: told of every change.
        unconfirmed: sends again what a link has not confirmed; `None` where nothing is.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        messages: Callable[[Link, Sequence[Row]], None],
        subscriptions: SubscriptionTable,
        callbacks: Callbacks,
        unconfirmed: ResendBuffer | None,
    ) -> None:
        self._config = config
        self._name = name
        # What a link tells (`reader.LinkOwner`), with `ended` below.
        self.messages, self.receipts, self.call_soon = messages, callbacks.receipts, callbacks.call_soon
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._unconfirmed = unconfirmed
        subscriptions.links = self
        self._changed = make_condition("link manager", Rank.LINK_MANAGER)
        self._closing = Event()
        self._connector = Connector(config)
        self.ready: Link | None = None
        """The link to use now, if there is one; it may have died a moment ago."""
        self._orphaned: ConcurrencyError | None = None
        self._link: Link | None = None
        self._next: Link | None = None
        self._told: Link | None = None
        """The link whose beginning was told of, and not its end."""
        self._final = False
        self._down = False
        self._failure: StompError | None = None
        self._thread: _ReconnectThread | None = None
        self._generation = 0
        self._failures = 0
        self._published = 0.0
        self._heard = 0
        self._past = EndedLinks()
        self.reconnects = 0
        """How often a lost link was replaced."""

    # The current link.

    @property
    def link(self) -> Link:
        """The newest published link, alive or not."""
        if self._link is None:
            raise NotConnected("the connection was never opened")
        return self._link

    def counted(self) -> tuple[Link, EndedLinks]:
        """Return the newest link, and what those before it have counted."""
        with self._changed:
            return self.link, self._past

    def check_process(self) -> None:
        """Refuse to go on in a forked child.

        Raises:
            ConcurrencyError: the connection belongs to the parent process.
        """
        if self._orphaned is not None:
            raise self._orphaned.with_traceback(None)

    def live(self, timeout: float | None = None) -> Link:
        """Return a link to use now; while the link is down, wait for the next one.

        Args:
            timeout: seconds to wait for it; `None` takes the send timeout.

        Raises:
            ConcurrencyError: the connection belongs to the parent process.
            NotConnected: the connection was closed; from `disconnect` on, though the link lives until the broker has
                answered.
            ConnectionLost: the link is over and there is no other, or none in time; nothing was sent.
        """
        self.check_process()
        if self._closing.is_set():
            raise NotConnected("the connection is closed")
        link = self.link
        if link.alive:
            return link
        if self._config.reconnect is None:
            link.check_open()
        deadline = Deadline(self._config.send_timeout if timeout is None else timeout)
        with self._changed:
            self._changed.wait_for(
                lambda: self._final or self._closing.is_set() or self.link.alive, deadline.remaining()
            )
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
        """Open the first link, in the caller's thread: one pass over the addresses, or as many as the settings allow.

        Raises:
            ConnectError: there is none, or it was over as soon as it began.
        """
        seconds = self._config.startup_timeout
        if seconds is None:
            self._open(Deadline(None))
            return
        deadline, policy = Deadline(seconds), self._config.reconnect or Reconnect()
        last = seconds - min(_LAST_ATTEMPT, seconds / 10)
        reconnect.keep_trying(
            lambda: self._open(deadline),
            replace(policy, attempts=None, total=last),
            closing=self._closing,
            tell=self.reconnecting,
        )

    def _open(self, deadline: Deadline) -> None:
        try:
            self.attempt(deadline)
        except BrokerError as error:
            raise ConnectRefused(f"right behind CONNECTED, {error}", frame=error.frame) from error
        except ConnectionLost as lost:
            raise ConnectError(f"right behind CONNECTED, {lost}") from lost

    def attempt(self, deadline: Deadline) -> None:
        """Make one pass over the addresses and publish the link it gives.

        Args:
            deadline: for connecting, beside the timeout of each address.

        Raises:
            ConnectError: there is none.
            StompError: the broker did not take the subscriptions.
        """
        opened = self._connector.open(deadline)
        self._generation += 1
        name = self._name if self._generation == 1 else f"{self._name}.{self._generation}"
        settings = self._config.for_address(self._config.addresses[0])
        link = Link(opened, settings, self, name=name, dialect=self._config.dialect_for(opened.protocol.server))
        decided = Event()
        try:
            # Reported before its reader starts, so that listeners hear of the session before any of its frames.
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
        """Let `close` know of a link that is not in use yet, and listeners of its session."""
        with self._changed:
            self._next = link
            self._check_wanted()
            self._told = link
            self._callbacks.connected(link.connected, decided)

    def _drop(self, link: Link, error: BaseException) -> None:
        """End a link that did not come into use; who heard of it hears of its end, after its frames."""
        reason = None
        if isinstance(error, StompError) and not self._closing.is_set():
            reason = (
                error if isinstance(error, ConnectionLost) else ConnectionLost(f"the session was given up: {error}")
            )
            link.fail(reason)
        link.discard()
        link.join(Deadline(self._config.close_timeout))
        with self._changed:
            self._next = self._link
            self._over(link, reason)  # its reader says so, if it was ever started

    def _over(self, link: Link, reason: StompError | None) -> None:
        if link is self._told:
            self._told = None
            self._subscriptions.lost(reason)
            self._callbacks.lost(reason)

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
            self._link, self._down, self.ready = link, False, link
            self._published, self._heard = time.monotonic(), link.frames_in
            self._changed.notify_all()

    def _check_fresh(self, link: Link) -> None:
        try:
            link.check_open()
        except BrokerError as error:
            if self._link is None:
                raise
            # The subscriptions were taken, so it is about a message sent again: no reason to give up.
            raise ConnectionLost(f"the link died at once: {error}") from error

    # The end of a link.

    def ended(self, link: Link, reason: StompError | None) -> None:
        """Replace a lost link, if it was the current one and there is a policy; on its reader thread."""
        with self._changed:
            self._over(link, reason)
            if link is not self._link:
                return
            self._down, self.ready = True, None
            if self._config.reconnect is None or self._closing.is_set():
                thread = None
            else:
                self._failures = 0 if self._was_of_use(link, reason) else self._failures + 1
                seconds = reconnect.first_wait(self._config.reconnect, self._failures)
                name = f"stompy-{self._name}-reconnect"
                thread = self._thread = _ReconnectThread(self, self._config.reconnect, seconds, name=name)
        if thread is None:
            self.finish(reason)
        else:
            self._reopen(thread)

    def _reopen(self, thread: _ReconnectThread) -> None:
        """Start the thread, however long the system has no room for one."""
        while not self._closing.is_set():
            try:
                thread.start()
            except ConnectError as error:
                _LOG.warning("reconnecting has to wait: %s", error)
                self._closing.wait(_ROOM_AGAIN)
            else:
                return
        self.finish(None)

    def _was_of_use(self, link: Link, reason: StompError | None) -> bool:
        """Whether anything came of a link; a broker that ends each at once must not be asked without a pause."""
        heard = link.frames_in - self._heard - isinstance(reason, BrokerError)
        return heard > 0 or time.monotonic() - self._published >= _LONG_ENOUGH

    def finish(self, reason: StompError | None, *, failed: bool = False) -> None:
        """Note that there will be no other link."""
        with self._changed:
            if self._final:
                return
            self._final = True
            self._failure = reason if failed else None
            self._changed.notify_all()
        if self._unconfirmed is not None:
            self._unconfirmed.finish(reason)
        self._subscriptions.finish(reason)
        self._callbacks.finish(reason)

    def reconnecting(self, attempt: int, delay: float) -> None:
        """Pass on that an attempt is to come, which is not so once the connection is being closed."""
        with self._changed:
            if not self._closing.is_set():
                self._callbacks.tell("on_reconnecting", attempt, delay)

    # Closing.

    def orphan(self, reason: ConcurrencyError) -> None:
        """End the links' copies in a forked child."""
        self._orphaned, self.ready = reason, None
        for link in (self._link, self._next):
            if link is not None:
                link.orphan(reason)

    @property
    def closing(self) -> Event:
        """Set when the owner closes the connection; ends a wait between attempts at once."""
        return self._closing

    def close(self) -> None:
        """Let no new link come, and free who waits for one; the current one is the caller's to end."""
        self._closing.set()
        self._connector.cancel()
        with self._changed:
            self.ready = None
            coming = None if self._next is self._link else self._next
            # Not `link.ended`, which its reader sets a moment after it has said so here.
            over = self._link is None or self._down
            self._changed.notify_all()
        if coming is not None:
            coming.close()
        # The end of one that is to come must be heard first, so that who makes it finishes.
        if over and coming is None:
            self.finish(None)

    def join(self, deadline: Deadline) -> bool:
        """Wait until the threads are gone; return whether they are."""
        link_gone = self._link is None or self._link.join(deadline)
        return (self._thread is None or self._thread.join_until(deadline)) and link_gone


class _ReconnectThread(DaemonThread):
    """Tries to replace a lost link until it works, the policy gives up, or the connection is closed."""

    def __init__(self, links: LinkManager, policy: Reconnect, first_wait: float, *, name: str) -> None:
        super().__init__(name)
        self._links = links
        self._policy = policy
        self._first_wait = first_wait

    def run(self) -> None:
        """Reopen the link, or say why there will be none."""
        try:
            self._retry()
        except StompError as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(ConnectionLost(f"reconnecting failed: {error!r}"))
            raise

    def _retry(self) -> None:
        closing = self._links.closing
        self._links.reconnecting(1, self._first_wait)
        closing.wait(self._first_wait)
        reconnect.keep_trying(self._attempt, self._policy, closing=closing, tell=self._links.reconnecting)

    def _give_up(self, error: StompError) -> None:
        closed = self._links.closing.is_set()
        if not closed:
            _LOG.warning("gave up reconnecting: %s", error)
        self._links.finish(None if closed else error, failed=not closed)

    def _attempt(self) -> None:
        if self._links.closing.is_set():
            raise NotConnected("the connection was closed")
        self._links.attempt(Deadline(None))
