"""The inside of a connection: what threads and messages hold on to, so that the user's handle can be forgotten.

| thread | does here | lock |
|---|---|---|
| any caller | `subscribe`, `disconnect`; `sender` sends | subscriptions (2), then the link's |
| reader | `messages`, `receipt`, `ended` | inboxes and dispatcher queues (leaves) |
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

from stompy.connection.acking import Acker
from stompy.connection.composing import Composer
from stompy.connection.config import Config
from stompy.connection.dialects.dialect import Dialect
from stompy.connection.dispatcher import Dispatcher, run_reported
from stompy.connection.listener import ConnectionListener
from stompy.connection.message import Message
from stompy.connection.registry import Registry
from stompy.connection.requests import Replies
from stompy.connection.routing import Router
from stompy.connection.sending import Sender
from stompy.connection.stats import ConnectionStats
from stompy.connection.subscription import Subscription
from stompy.connection.supervisor import Supervisor
from stompy.connection.unconfirmed import Unconfirmed
from stompy.deadline import Deadline
from stompy.errors import (
    BrokerError,
    ConcurrencyError,
    HeartBeatTimeout,
    NotConnected,
    StompError,
)
from stompy.frames.frame import Frame
from stompy.frames.version import Version
from stompy.link.link import Link
from stompy.link.locks import Event, Rank, make_lock
from stompy.link.thread import HouseThread

_LOG = logging.getLogger("stompy.connection")
_NUMBERS = itertools.count(1)
_OF_THE_PARENT = "this connection belongs to the parent process; connect anew after a fork"
_TIME_FOR_WORDS = 0.8
"""The share of the close deadline that draining and DISCONNECT may take."""


class Core:
    """Links, subscriptions, listeners and the dispatcher of one connection.

    Args:
        config: what `connect` was told.
        listeners: heard from the first session on.
    """

    def __init__(self, config: Config, listeners: Sequence[ConnectionListener] = ()) -> None:
        self.config = config
        self.name = f"{config.name}-{next(_NUMBERS)}"
        self.listeners = list(listeners)
        self.dispatcher = Dispatcher(f"stompy-{self.name}-dispatcher")
        self._acker = Acker(lambda link: config.dialect_for(link.protocol.server))
        self.composer = Composer(self)
        self.registry = Registry()
        self.router = Router(self)
        self.messages = self.router.messages
        self.replies = Replies(self)
        self.unconfirmed: Unconfirmed | None = None
        """Sends that go to the next link again, where that was asked for."""
        if config.resend is not None:
            self.unconfirmed = Unconfirmed(config.resend, config.dialect_for, name=self.name)
        self.sender = Sender(self, self.unconfirmed)
        self._dispatchers = [self.dispatcher]
        self._extra_dispatchers = itertools.count(2)
        self._dispatchers_lock = make_lock(Rank.LEAF, "dispatchers")
        self._transactions = itertools.count(1)
        self.supervisor = Supervisor(config, self, name=self.name)
        self._closed = False
        self._leaving = make_lock(Rank.CALL, "leaving")
        self._left = Event()
        self._orphaned = False

    def open(self) -> None:
        """Open the first link; in the caller's thread."""
        self.dispatcher.start()
        try:
            self.supervisor.open()
        except BaseException:
            self.dispatcher.stop()
            # Nobody will hold this connection, so nobody else can wait for its thread.
            self.dispatcher.join_until(Deadline(self.config.close_timeout))
            raise

    # State.

    @property
    def link(self) -> Link:
        """The newest link."""
        return self.supervisor.link

    def orphan(self) -> None:
        """End this copy in a forked process, which has no threads; the parent's session is not touched."""
        self._orphaned = self._closed = True
        reason = ConcurrencyError(_OF_THE_PARENT)
        if self.unconfirmed is not None:
            self.unconfirmed.finish(reason)
        self.supervisor.orphan(reason)

    def check_process(self) -> None:
        """Refuse to go on in a forked child.

        Raises:
            ConcurrencyError: the connection belongs to the parent process.
        """
        if self._orphaned:
            raise ConcurrencyError(_OF_THE_PARENT)

    def live_link(self, timeout: float | None = None) -> Link:
        """Return the link to use now; waits and raises as `check_process` and `Supervisor.live` do.

        From the moment of `disconnect` on there is none, though the link lives until the broker has answered.
        """
        self.check_process()
        if self._closed:
            raise NotConnected("the connection is closed")
        return self.supervisor.live(timeout)

    @property
    def acker(self) -> Acker:
        """Acknowledges messages."""
        return self._acker

    @property
    def closed(self) -> bool:
        """Whether the owner closed it."""
        return self._closed

    @property
    def discarding(self) -> bool:
        """Whether what is queued is not wanted any more."""
        return self._closed

    @property
    def dialect(self) -> Dialect:
        """The broker's ways."""
        return self.config.dialect_for(self.link.protocol.server)

    @property
    def version(self) -> Version:
        """The version spoken."""
        version = self.link.protocol.version
        assert version is not None
        return version

    @property
    def client_id(self) -> str | None:
        """Who the broker was told that we are."""
        return self.config.client

    @property
    def receive_timeout(self) -> float:
        """The default wait for a message."""
        return self.config.receipt_timeout

    @property
    def default_content_length(self) -> bool:
        """Whether SEND carries `content-length`."""
        return self.config.content_length

    def new_transaction_id(self) -> str:
        """Return an id that no other transaction of the connection has."""
        return f"{self.name}-tx{next(self._transactions)}"

    def new_subscription_id(self) -> str:
        """Return an id that no subscription of this connection has."""
        return self.registry.new_id()

    def new_dispatcher(self) -> Dispatcher:
        """Return a started dispatcher of its own for a subscription."""
        with self._dispatchers_lock:
            dispatcher = Dispatcher(f"stompy-{self.name}-dispatcher-{next(self._extra_dispatchers)}")
            self._dispatchers = [*(one for one in self._dispatchers if not one.ended), dispatcher]
        dispatcher.start()
        return dispatcher

    def stats(self) -> ConnectionStats:
        """Return counters of all links, and gauges of the moment."""
        self.check_process()
        link, past = self.supervisor.counted()
        kept = {} if self.unconfirmed is None else dict.fromkeys(self.unconfirmed.receipts())
        gates = [link.gate, *(one.gate for one in past.lingering)]
        return ConnectionStats(
            frames_sent=past.frames_sent + link.counters.frames_out,
            octets_sent=past.octets_sent + link.counters.octets_out,
            frames_received=past.frames_received + link.counters.frames_in,
            octets_received=past.octets_received + link.counters.octets_in,
            receipts_pending=len({**kept, **dict.fromkeys(link.receipts.outstanding())}),
            unconfirmed=len(kept),
            unconfirmed_octets=0 if self.unconfirmed is None else self.unconfirmed.octets,
            queued_messages=sum(gate.waiting_messages for gate in gates),
            queued_octets=sum(gate.waiting_octets for gate in gates),
            subscriptions=len(self.subscriptions()),
            unrouted=self.router.unrouted,
            late_replies=self.replies.late,
            links=self.supervisor.reconnects + 1,
            reconnects=self.supervisor.reconnects,
            gate_shut=link.gate.shut,
            times_shut=past.times_shut + link.gate.times_shut,
            silent_for=max(0.0, time.monotonic() - link.pulse.last_heard),
        )

    # Subscribing.

    def subscriptions(self) -> list[Subscription]:
        """Return the live subscriptions."""
        return self.registry.all()

    def subscribe(self, subscription: Subscription, *, timeout: float | None, tell: bool = True) -> None:
        """Make a subscription; see `Registry.add`."""
        seconds = self.config.receipt_timeout if timeout is None else timeout
        self.registry.add(subscription, self.live_link, timeout=seconds, tell=tell)

    def unsubscribe(self, subscription: Subscription, *, timeout: float | None, delete: bool = False) -> None:
        """End a subscription; see `Registry.remove`."""
        farewell = self.composer.unsubscribe(subscription, delete=delete)
        self.registry.remove(subscription, self.link, farewell, timeout=timeout)

    # What the link tells (`link.LinkOwner`): on the reader thread.

    def receipt(self, link: Link, frame: Frame) -> None:
        """Tell listeners of a RECEIPT."""
        if self.listeners:
            # Counted like a message: a flood of receipts must not pile up in front of a slow listener.
            link.gate.added(1, frame.headers.size)
            self._tell("on_receipt", frame)
            self.call_soon(partial(link.gate.removed, 1, frame.headers.size))

    def handler_failed(self, message: Message, error: BaseException) -> None:
        """Tell listeners what a handler raised, before its next message where they share a dispatcher."""
        for job in self._heard_by("on_handler_error", message, error):
            if self.dispatcher.is_current():
                run_reported(job)
            else:
                self.dispatcher.put(job)

    # What the supervisor tells; with its lock held, but for `replay` and `finished`.

    def replay(self, link: Link) -> None:
        """Make the subscriptions on a new link, and send again what was not confirmed, before anybody else uses it."""
        self.registry.replay(link)
        if self.unconfirmed is not None:
            self.unconfirmed.replay(link)

    def connected(self, frame: Frame, decided: Event) -> None:
        """Tell listeners of a new session, before any frame of it, and when it is decided whether it is used."""

        def wait() -> None:
            decided.wait()

        if self.listeners:
            self.call_soon(wait)
            self._tell("on_connected", frame)

    def lost(self, reason: StompError | None) -> None:
        """Tell everybody that the session is over."""
        for subscription in self.subscriptions():
            if reason is not None and subscription.lost(reason):
                self.registry.forget(subscription)
        if isinstance(reason, BrokerError):
            self._tell("on_error", reason.frame)
        elif isinstance(reason, HeartBeatTimeout):
            self._tell("on_heartbeat_timeout")
        self._tell("on_disconnected", reason)

    def reconnecting(self, attempt: int, delay: float) -> None:
        """Tell listeners that an attempt is to come."""
        self._tell("on_reconnecting", attempt, delay)

    def finished(self, reason: StompError | None) -> None:
        """End what waits for messages and receipts: there will be no other session."""
        if self.unconfirmed is not None:
            self.unconfirmed.finish(reason)
        for subscription in self.subscriptions():
            subscription.end(reason)
        for dispatcher in self._dispatchers:
            dispatcher.stop(self._heard_by("on_closed", reason) if dispatcher is self.dispatcher else ())

    def call_soon(self, function: Callable[[], None], dispatcher: Dispatcher | None = None) -> None:
        """Run a callback on a dispatcher; where that has ended, here and now."""
        if not (dispatcher or self.dispatcher).put(function):
            run_reported(function)

    def _tell(self, event: str, *arguments: object) -> None:
        for job in self._heard_by(event, *arguments):
            self.call_soon(job)

    def _heard_by(self, event: str, *arguments: object) -> list[Callable[[], None]]:
        """Return the calls that tell each listener of an event."""
        methods = (getattr(listener, event, None) for listener in self.listeners)
        return [partial(method, *arguments) for method in methods if method is not None]

    # Closing.

    def disconnect(self, *, timeout: float | None, drain: bool) -> None:
        """Say goodbye and end the threads; see `Connection.disconnect`."""
        if self._orphaned:
            return  # the socket is the parent's too: a word or a shutdown would end its session
        deadline = Deadline(self.config.close_timeout if timeout is None else timeout)
        try:
            if self._left.is_set():
                pass
            elif self._leaving.acquire(blocking=False):
                remaining = deadline.remaining()
                # A goodbye that nobody answers must leave the threads some time to end.
                words = deadline.sooner(None if remaining is None else remaining * _TIME_FOR_WORDS)
                self._leave(words, drain=drain)
            elif any(dispatcher.is_current() for dispatcher in self._dispatchers):
                return  # who says goodbye may be waiting for this very callback
            else:
                self._left.wait(deadline.remaining())
        finally:
            # A signal may have struck before the goodbye was said: then the next caller says it.
            try:  # noqa: SIM105 - `suppress` is Python code, where a signal may strike first
                self._leaving.release()
            except RuntimeError:
                pass  # it was not taken
        self.supervisor.join(deadline)
        ended = [dispatcher.join_until(deadline) for dispatcher in self._dispatchers]
        if not all(ended):
            _LOG.warning("a callback of %s still runs at the close deadline", self.name)

    def _leave(self, deadline: Deadline, *, drain: bool) -> None:
        link = self.link
        try:
            if drain and link.alive:
                self._drain(deadline)
            self._closed = True
            self.supervisor.close()
            if link.alive:
                link.say_goodbye(deadline)
        except StompError as error:
            # An ERROR is about a frame before DISCONNECT, and may be the last that is ever heard of it.
            level = logging.WARNING if isinstance(error, BrokerError) else logging.INFO
            _LOG.log(level, "DISCONNECT of %s was not confirmed: %s", self.name, error)
        finally:
            self.abandon()
            self._left.set()

    def _drain(self, deadline: Deadline) -> None:
        """Let no more messages in, and let user code work off those that were received."""
        subscriptions = self.subscriptions()
        for subscription in subscriptions:
            subscription.wind_up()
        try:
            for subscription in subscriptions:
                if subscription.ack == "auto":
                    self.unsubscribe(subscription, timeout=deadline.remaining())
                subscription.wait_empty(deadline)
        except StompError as error:
            _LOG.info("draining %s ended early: %s", self.name, error)
        for dispatcher in self._dispatchers:
            dispatcher.wait_idle(deadline)

    def abandon(self) -> None:
        """Close without a word and without waiting."""
        self._closed = True
        self.supervisor.close()
        self.link.close()

    def forget(self) -> None:
        """Abandon from another thread, for a finaliser: the thread that it strikes may hold any of our locks."""
        self._closed = True
        with contextlib.suppress(RuntimeError):  # no thread can be started while the interpreter ends
            _Forgetting(self).start()


class _Forgetting(HouseThread):
    """Abandons a connection that its user has forgotten."""

    def __init__(self, core: Core) -> None:
        super().__init__(f"stompy-{core.name}-forgetting")
        self._core = core

    def run(self) -> None:
        """Abandon it."""
        self._core.abandon()
