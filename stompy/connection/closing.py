"""The end of a connection: the last messages, DISCONNECT, the threads; or without a word. Any thread.

A connection's parts do not know the object that the program holds, so that it can be forgotten and finalised.
"""

from __future__ import annotations

import contextlib
import logging

from stompy.connection.config import Config
from stompy.connection.link_manager import LinkManager
from stompy.connection.listeners import Callbacks
from stompy.connection.resend_buffer import ResendBuffer
from stompy.connection.subscriptions import SubscriptionTable
from stompy.deadline import Deadline
from stompy.errors import BrokerError, ConcurrencyError, StompError
from stompy.locks import Event, Rank, make_lock
from stompy.threads import DaemonThread

_LOG = logging.getLogger("stompy.connection")
_OF_THE_PARENT = "this connection belongs to the parent process; connect anew after a fork"
_TIME_FOR_WORDS = 0.8
"""The share of the close deadline that draining and DISCONNECT may take."""


class Closing:
    """Closes one connection, once.

    Args:
        config: timeouts.
        name: of the connection.
        links: the current link and its successors.
        subscriptions: the subscriptions.
        callbacks: the dispatchers.
        unconfirmed: sends that are kept; `None` where none are.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        links: LinkManager,
        subscriptions: SubscriptionTable,
        callbacks: Callbacks,
        unconfirmed: ResendBuffer | None,
    ) -> None:
        self._config = config
        self._name = name
        self._links = links
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._unconfirmed = unconfirmed
        self._leaving = make_lock(Rank.CALL, "leaving")
        self._left = Event()
        self._orphaned = False

    @property
    def closed(self) -> bool:
        """Whether the owner closed it."""
        return self._callbacks.discarding

    def disconnect(self, *, timeout: float | None, drain: bool) -> None:
        """Say goodbye and end the threads; see `Connection.disconnect`."""
        if self._orphaned:
            return  # the socket is the parent's too: a word or a shutdown would end its session
        deadline = Deadline(self._config.close_timeout if timeout is None else timeout)
        try:
            if self._left.is_set():
                pass
            elif self._leaving.acquire(blocking=False):
                remaining = deadline.remaining()
                # A goodbye that nobody answers must leave the threads some time to end.
                words = deadline.sooner(None if remaining is None else remaining * _TIME_FOR_WORDS)
                self._leave(words, drain=drain)
            elif self._callbacks.is_current():
                return  # who says goodbye may be waiting for this very callback
            else:
                self._left.wait(deadline.remaining())
        finally:
            # A signal may have struck before the goodbye was said: then the next caller says it.
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may strike first
                self._leaving.release()
            except RuntimeError:
                pass  # it was not taken
        self._links.join(deadline)
        if not self._callbacks.join_until(deadline):
            _LOG.warning("a callback of %s still runs at the close deadline", self._name)

    def _leave(self, deadline: Deadline, *, drain: bool) -> None:
        link = self._links.link
        try:
            if drain and link.alive:
                self._drain(deadline)
            self._callbacks.discarding = True
            self._links.close()
            if link.alive:
                link.say_goodbye(deadline)
        except StompError as error:
            # An ERROR is about a frame before DISCONNECT, and may be the last that is ever heard of it.
            level = logging.WARNING if isinstance(error, BrokerError) else logging.INFO
            _LOG.log(level, "DISCONNECT of %s was not confirmed: %s", self._name, error)
        finally:
            self.abandon()
            self._left.set()

    def _drain(self, deadline: Deadline) -> None:
        """Let no more messages in, and let user code work off those that were received."""
        subscriptions = self._subscriptions.all()
        for subscription in subscriptions:
            subscription._drain()
        try:
            for subscription in subscriptions:
                if subscription.ack == "auto":
                    self._subscriptions.remove(subscription, timeout=deadline.remaining())
                subscription._wait_empty(deadline)
        except StompError as error:
            _LOG.info("draining %s ended early: %s", self._name, error)
        self._callbacks.wait_idle(deadline)

    def abandon(self) -> None:
        """Close without a word and without waiting."""
        self._callbacks.discarding = True
        self._links.close()
        self._links.link.close()

    def give_up(self) -> None:
        """End the threads of a connection that was never opened."""
        self._callbacks.discarding = True
        self._callbacks.dispatcher.stop()
        self._callbacks.dispatcher.join_until(Deadline(self._config.close_timeout))

    def forget(self) -> None:
        """Abandon from another thread, for a finaliser: the thread that it strikes may hold any of our locks."""
        self._callbacks.discarding = True
        with contextlib.suppress(RuntimeError):  # no thread can be started while the interpreter ends
            _FinalizerThread(self, name=f"stompy-{self._name}-forgetting").start()

    def orphan(self) -> None:
        """End this copy in a forked process, which has no threads; the parent's session is not touched."""
        self._orphaned = self._callbacks.discarding = True
        reason = ConcurrencyError(_OF_THE_PARENT)
        if self._unconfirmed is not None:
            self._unconfirmed.finish(reason)
        self._links.orphan(reason)


class _FinalizerThread(DaemonThread):
    """Abandons a connection that its user has forgotten."""

    def __init__(self, closing: Closing, *, name: str) -> None:
        super().__init__(name)
        self._closing = closing

    def run(self) -> None:
        """Abandon it."""
        self._closing.abandon()
