"""Closing a connection, with or without DISCONNECT. Any thread.

The parts of a connection do not refer to the `Connection` object, so that it can be garbage-collected and then closed.
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
from stompy.default import Default, given
from stompy.errors import BrokerError, ConcurrencyError, StompError
from stompy.forks import Owner, when_forked
from stompy.locks import Event, Rank, make_lock
from stompy.threads import DaemonThread

_LOG = logging.getLogger("stompy.connection")
_DISCONNECT_SHARE = 0.8
"""Share of the close timeout for draining and DISCONNECT; the rest is for the threads to end."""


class Closing:
    """Closes one connection, once.

    Args:
        config: timeouts.
        name: of the connection.
        links: current and later links.
        subscriptions: to drain.
        callbacks: to end.
        unconfirmed: resend buffer, or `None`.
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
        self._close_lock = make_lock(Rank.CALL, "closing")
        self._done = Event()
        self._owner = Owner("connection", "open a new one after a fork")
        when_forked(self)

    @property
    def closed(self) -> bool:
        """Whether the connection was closed by us."""
        return self._callbacks.discarding

    def wait(self, deadline: Deadline) -> bool:
        """Wait until the connection has ended and all callbacks with it; see `Connection.wait_closed`."""
        if self._callbacks.is_current():
            raise ConcurrencyError("a callback cannot wait for the end of its own connection: the end waits for it")
        self._links.check_process()
        # `on_closed` is the last callback: what arrived before a loss is handled before the loss is raised.
        if not (self._links.wait_final(deadline) and self._callbacks.join_until(deadline)):
            return False
        self._links.raise_end()
        return True

    def close(self, *, timeout: float | Default | None, drain: bool) -> None:
        """Send DISCONNECT and end the threads; see `Connection.close`."""
        if self._owner.forked:
            return  # the socket is shared with the parent: a frame or a shutdown would end its session
        deadline = Deadline(given(timeout, self._config.close_timeout))
        try:
            if self._done.is_set():
                pass
            elif self._close_lock.acquire(blocking=False):
                remaining = deadline.remaining()
                # If the broker does not answer DISCONNECT, the threads still need time to end.
                disconnecting = deadline.sooner(None if remaining is None else remaining * _DISCONNECT_SHARE)
                self._close(disconnecting, drain=drain)
            elif self._callbacks.is_current():
                return  # the closing thread may be waiting for this very callback
            else:
                self._done.wait(deadline.remaining())
        finally:
            # A signal may have interrupted the close: then the next caller repeats it.
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may arrive first
                self._close_lock.release()
            except RuntimeError:
                pass  # it was not acquired
        self._links.join(deadline)
        if not self._callbacks.join_until(deadline):
            _LOG.warning("a callback of %s still runs at the close deadline", self._name)

    def _close(self, deadline: Deadline, *, drain: bool) -> None:
        link = self._links.link
        try:
            if drain:
                self._drain(deadline)
            self._callbacks.discarding = True
            self._links.close()
            if link.alive:
                link.disconnect(deadline)
        except StompError as error:
            # An ERROR is about an earlier frame, and this may be the only report of it.
            level = logging.WARNING if isinstance(error, BrokerError) else logging.INFO
            _LOG.log(level, "DISCONNECT of %s was not confirmed: %s", self._name, error)
        finally:
            self.abandon()
            self._done.set()

    def _drain(self, deadline: Deadline) -> None:
        """Accept no more messages, and wait until user code has handled those that were received."""
        subscriptions = self._subscriptions.all()
        for subscription in subscriptions:
            subscription._drain()
        try:
            for subscription in subscriptions:
                if subscription.ack == "auto":
                    self._subscriptions.remove(subscription, timeout=deadline.remaining())
        except StompError as error:
            _LOG.info("draining %s ended early: %s", self._name, error)
        handled = [subscription._wait_read(deadline) for subscription in subscriptions]
        if not (self._callbacks.wait_idle(deadline) and all(handled)):
            _LOG.warning(
                "%s is closed before all received messages were handled: %d wait at the deadline; allow more by"
                " Timeouts.close, or by the timeout of close",
                self._name,
                self._links.link.flow.waiting_messages,
            )

    def abandon(self) -> None:
        """Close without DISCONNECT and without waiting."""
        self._callbacks.discarding = True
        self._links.close()
        self._links.link.close()

    def give_up(self) -> None:
        """End the threads of a connection that failed to open."""
        self._callbacks.discarding = True
        self._callbacks.dispatcher.stop()
        self._callbacks.dispatcher.join_until(Deadline(self._config.close_timeout))

    def close_from_finalizer(self) -> None:
        """Abandon from a new thread: the thread that runs a finalizer may hold any of our locks."""
        self._callbacks.discarding = True
        with contextlib.suppress(RuntimeError):  # no thread can be started during interpreter shutdown
            _FinalizerThread(self, name=f"stompy-{self._name}-finalizer").start()

    def after_fork(self) -> None:
        """End this copy in a forked child, without touching the parent's session."""
        self._callbacks.discarding = True
        reason = self._owner.error()
        if self._unconfirmed is not None:
            self._unconfirmed.finish(reason)
        self._links.after_fork(reason)


class _FinalizerThread(DaemonThread):
    """Abandons a connection that was garbage-collected without being closed."""

    def __init__(self, closing: Closing, *, name: str) -> None:
        super().__init__(name)
        self._closing = closing

    def run(self) -> None:
        """Abandon the connection."""
        self._closing.abandon()
