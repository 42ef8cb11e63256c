"""The link manager: opens links, with one of several addresses, and replaces lost ones.

| thread | owns | may block on | never |
|---|---|---|---|
| any caller | - | `LinkManager.live`: until there is a link, up to a timeout; `close` never | - |
| the caller of `connect` | the first attempt | dial, handshake, closing | holds a lock there |
| `stompy-<connection>-reconnect`, while down | the attempt | dial, handshake, replay, closing | holds a lock there |

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 1 | link manager | the current and the next link, whether it is the last, the order of listener events | no |
| 5 | connector (leaf) | the transport of the handshake, whether it was cancelled | no |

Closing wakes all waiting callers at once and shuts down the stream of a handshake or a replay; a dial ends by its own
timeout, and its result is dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stompy.connection.config import Config
from stompy.connection.encoding import SendEncoder
from stompy.connection.reconnect import Order, Outage, Reconnect, first_wait, retry
from stompy.deadline import Deadline
from stompy.default import DEFAULT, Default, given
from stompy.dialects.brokers import RABBITMQ, is_client_id_in_use, is_unknown_virtual_host
from stompy.errors import (
    AllBrokersFailedError,
    BrokerError,
    ClientIdInUseError,
    ConcurrencyError,
    ConnectError,
    ConnectionLostError,
    ConnectRefusedError,
    NotConnectedError,
    SessionError,
    StompError,
)
from stompy.link.handshake import OpenedSession, open_session
from stompy.link.link import Link, error_of
from stompy.link.settings import Credentials, LinkSettings
from stompy.locks import Rank, SafeEvent, make_condition, make_lock
from stompy.protocol.rules import subprotocols
from stompy.threads import DaemonThread, must_propagate
from stompy.transport.address import UNIX, WS, WSS, Address
from stompy.transport.base import Dialer, Transport
from stompy.transport.tcp import TcpDialer
from stompy.values import replace
from stompy.world import random, time

if TYPE_CHECKING:
    from stompy.connection.resend_buffer import ResendBuffer
    from stompy.connection.routing import Router
    from stompy.connection.subscriptions import SubscriptionTable
    from stompy.frames.frame import Frame
    from stompy.frames.heads import Run
    from stompy.transport.proxy import ProxyDialer

_LOG = logging.getLogger("stompy.connection")

_LAST_ATTEMPT = 1.0
"""Seconds kept for the last attempt to open the first link, at most."""

_USEFUL_AFTER = 1.0
"""Seconds after which a link counts as useful."""

_THREAD_RETRY = 0.5
"""Seconds between attempts to start a thread when the system has no resources for one."""


class SessionEvents(Protocol):
    """The listeners of a connection, as the link manager calls them: each method only queues calls."""

    def receipts(self, link: Link, frames: Frame | Run) -> None:
        """Called with RECEIPT frames."""

    def call_soon(self, function: Callable[[], None]) -> None:
        """Run a callback on the dispatcher."""

    def connected(self, frame: Frame, decided: SafeEvent) -> None:
        """Called with CONNECTED, before any frame of the session; the calls wait for `decided`."""

    def disconnected(self, reason: StompError | None) -> None:
        """Called when a session has ended."""

    def reconnecting(self, attempt: int, delay: float, reason: StompError | None) -> None:
        """Called before a further attempt to open a session."""

    def finish(self, reason: StompError | None) -> None:
        """Called when there will be no further session."""


class LinkManager:
    """Opens links, publishes them, and replaces lost links.

    Args:
        config: addresses, timeouts, policy.
        name: of the connection.
        router: called with the messages of each read, on the reader.
        subscriptions: restored on each new link.
        callbacks: called with every change.
        unconfirmed: resend buffer; empty without a policy to resend.
    """

    def __init__(
        self,
        config: Config,
        name: str,
        router: Router,
        subscriptions: SubscriptionTable,
        callbacks: SessionEvents,
        unconfirmed: ResendBuffer,
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
        self._closing = SafeEvent()
        """Set when the connection is being closed; ends the wait between attempts."""
        self._connector = Connector(config)
        self.ready: SendEncoder | None = None
        """That of the link to use now, or `None`; the link may have ended a moment ago."""
        self.forked = False
        """Whether this is the copy in a forked child."""
        self._fork_error: ConcurrencyError | None = None
        self._link: Link | None = None
        self._next: Link | None = None
        self._announced: Link | None = None
        """The link whose `on_connected` was queued, but not yet its `on_disconnected`."""
        self.final = False
        """Whether there will be no other link, and this one has ended."""
        self._down = False
        self._failure: StompError | None = None
        self._outage: Outage | None = None
        self._address = ""
        """Of the last session that was opened."""
        self.end_reason: StompError | None = None
        """The error that ended the connection, unless it was closed."""
        self._thread: DaemonThread | None = None
        self._leaving: list[Link] = []
        self._generation = 0
        self._failures = 0
        self._published = 0.0
        self._frames_before = 0
        self._ended_links = Counter[str]()
        self._lingering: list[Link] = []
        """Replaced links with messages that still wait for user code."""
        self.reconnects = 0
        """Number of lost links that were replaced."""

    # The current link.

    @property
    def link(self) -> Link:
        """The newest published link, alive or not."""
        if self._link is None:
            raise NotConnectedError("the connection was never opened")
        return self._link

    def encoder(self, link: Link) -> SendEncoder:
        """Return the encoder for a link."""
        ready = self.ready
        if ready is not None and ready.link is link:
            return ready
        return SendEncoder(link, content_length=self._config.content_length)

    def counted(self) -> tuple[list[Link], Counter[str]]:
        """Return the links with messages that may wait for user code, the newest last, and the counters of all."""
        with self._changed:
            return [*self._lingering, self.link], self._ended_links + _counters(self.link)

    @property
    def outage(self) -> str | None:
        """Why there is no session, and when the next attempt is made; `None` if there is one, or it was closed."""
        outage = self._outage
        return None if outage is None or self._closing.is_set() else str(outage)

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
                lambda: self.final or self._closing.is_set() or self.link.alive, deadline.remaining()
            )
        if self._closing.is_set():
            raise NotConnectedError("the connection is closed")
        if self._failure is not None:
            text = f"the connection is lost for good: {self._failure}"
            raise ConnectionLostError(text, outcome="not-sent") from self._failure
        if not self.link.alive and not self.final:
            outage = self._outage
            reason = self.link.end_reason if outage is None else outage.reason
            text = f"there was no session within {round(seconds or 0, 2):g} s: {outage or reason}"
            raise ConnectionLostError(text, outcome="not-sent") from reason
        self.link.check_open()
        return self.link

    def wait_final(self, deadline: Deadline) -> bool:
        """Wait until there will be no other link; return `False` at the deadline."""
        with self._changed:
            return self._changed.wait_for(lambda: self.final, deadline.remaining())

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
        retry(
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
        decided = SafeEvent()
        try:
            # Before the reader starts, so that `on_connected` comes before any frame.
            self._announce(link, decided)
            link.start()
            self._subscriptions.replay(link)
            # Before what is sent again: whoever gets its receipt finds the session counted and logged.
            self._report_session(link)
            self._unconfirmed.replay(link)
            self._publish(link)
        except BaseException as error:
            self._drop(link, error)
            raise
        finally:
            # The dispatcher waits for this before `on_connected`, whose listeners may use the connection: until now the
            # new link is not published, and their calls would find the lost one.
            decided.set()

    def _announce(self, link: Link, decided: SafeEvent) -> None:
        """Make a new link known to `close`, and its session to listeners."""
        with self._changed:
            # `close` sets the flag before it takes this lock. If it was first, the check raises; if it comes later, it
            # finds `_next` and ends the link.
            self._next, self._address = link, link.address
            self._check_not_closing()
            # An event for the end follows only for a link that has had its event for the start.
            self._announced = link
            self._callbacks.connected(link.connected, decided)

    def _drop(self, link: Link, error: BaseException) -> None:
        """End a link that was not published; listeners are called after its frames."""
        # Without a reason if `close` ended it, or a signal: then the caller of `connect` gets the error itself.
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
            # Its reader calls `ended`, which reports too, unless it was never started. The first report counts.
            self._report_end(link, reason)

    def _report_end(self, link: Link, reason: StompError | None) -> None:
        if link is self._announced:
            self._announced = None
            self._subscriptions.link_lost(reason)
            self._callbacks.disconnected(reason)

    def _check_not_closing(self) -> None:
        if self._closing.is_set():
            raise NotConnectedError("the connection was closed")

    def _report_session(self, link: Link) -> None:
        with self._changed:
            self._check_not_closing()
            first, outage = self._link is None, self._outage
            self.reconnects += not first
        if outage is not None:
            text = "connected to %s, after %.1f s" if first else "connected again to %s, after %.1f s"
            self._warn(text, link.address, time.monotonic() - outage.since)

    def _publish(self, link: Link) -> None:
        with self._changed:
            # Not after `close`, which has decided by now which link is the last one.
            self._check_not_closing()
            # Its reader may have ended it meanwhile. `ended`, which takes this lock, then ignored it, as it was not the
            # current link, so nobody else would replace it. From here on `ended` does.
            self._check_fresh(link)
            self._outage = None
            if self._link is not None:
                self._ended_links += _counters(self._link)
                self._lingering = [each for each in (*self._lingering, self._link) if each.flow.waiting()[0]]
                # Their readers may be on their way out, and whoever closes the connection waits for all threads.
                self._leaving = [each for each in (*self._leaving, self._link) if not each.join(Deadline(0))]
            self._link, self._down, self.ready = link, False, self.encoder(link)
            self._published, self._frames_before = time.monotonic(), link.frames_in
            self._changed.notify_all()

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
            # One that is not published belongs to the thread that opens it, which finds the end in `_publish`.
            if link is not self._link:
                return
            self._down, self.ready = True, None
            # Decided under the lock: `close` either finds `_down` and finishes, or has set its flag before, and the
            # reader finishes here.
            if self._config.reconnect is None or self._closing.is_set():
                thread = None
                self._outage = None if reason is None else self._outage_after(reason)
            else:
                lost = reason or ConnectionLostError(f"{link.address} closed the connection")
                self._failures = self._failures_with(link, reason)
                replacing = partial(self._replace, self._config.reconnect, lost)
                thread = self._thread = DaemonThread(f"stompy-{self._name}-reconnect", replacing)
        # Without the lock, as both call code that takes others, and starting a thread may fail for some time.
        if thread is None:
            self._finish(reason)
        else:
            self._reopen(thread)

    def _reopen(self, thread: DaemonThread) -> None:
        """Start the thread, retrying while the system has no resources for one."""
        while not self._closing.is_set():
            try:
                thread.start()
            except ConnectError as error:
                self._warn("reconnecting is delayed: %s", error)
                self._closing.wait(_THREAD_RETRY)
            else:
                return
        self._finish(None)

    def _replace(self, policy: Reconnect, lost: StompError) -> None:
        """Open the next link, or report why there will be none; on the reconnect thread."""
        seconds = first_wait(policy, self._failures)
        try:
            self.reconnecting(1, seconds, lost)
            self._closing.wait(seconds)
            retry(lambda: self.attempt(Deadline(None)), policy, closing=self._closing, report=self.reconnecting)
        except StompError as error:
            self._give_up(error)
        except BaseException as error:
            self._give_up(ConnectionLostError(f"reconnecting failed: {error!r}"))
            raise

    def _give_up(self, error: StompError) -> None:
        closed = self._closing.is_set()
        if not closed:
            self._warn("gave up reconnecting: %s", error)
        self._finish(None if closed else error, failed=not closed)

    def _failures_with(self, link: Link, reason: StompError | None) -> int:
        """Return the links in a row that were of no use, with this one; the next attempts are delayed by them."""
        if reason is not None and isinstance(reason.__cause__, MemoryError):
            return self._failures + 1  # however much it received: the broker sends the same again
        if time.monotonic() - self._published >= _USEFUL_AFTER:
            return 0
        received = link.frames_in - self._frames_before - (error_of(reason) is not None)
        # Each session may end at the same message: without a delay the attempts would be a busy loop.
        return min(self._failures + 1, 2) if received > 0 else self._failures + 1

    def _finish(self, reason: StompError | None, *, failed: bool = False) -> None:
        """Record that there will be no other link."""
        with self._changed:
            # `close` and the end of the link may both come here; the events of the first one are the only ones.
            if self.final:
                return
            self.final = True
            self._failure = reason if failed else None
            self.end_reason = reason
            if self._failure is not None:
                self._outage = self._outage_after(self._failure)
            self._changed.notify_all()
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
        self._warn("%s", str(outage))

    def _warn(self, text: str, *arguments: object) -> None:
        """Log; an exception of a handler of logging does not keep a session from being replaced."""
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
        self._fork_error, self.forked, self.ready = reason, True, None
        self._closing.set()
        self._unconfirmed.finish(reason)
        for link in (self._link, self._next):
            if link is not None:
                link.after_fork(reason)

    def close(self) -> None:
        """Open no more links and wake waiting callers; the caller ends the current link."""
        # First of all, so that whoever takes the lock after this call finds the flag, and no attempt begins.
        self._closing.set()
        self._connector.cancel()
        with self._changed:
            self.ready = None
            opening = None if self._next is self._link else self._next
            # Not `link.ended`, which its reader sets a moment later.
            ended = self._link is None or self._down
            self._changed.notify_all()
        # Being restored: its thread waits for receipts, which its end resolves.
        if opening is not None:
            opening.close()
        # Otherwise the thread that opens the next link calls it, after that link's end was reported.
        if ended and opening is None:
            self._finish(None)

    def join(self, deadline: Deadline) -> bool:
        """Wait for the threads to end; return whether they have."""
        links_ended = [link.join(deadline) for link in (*self._leaving, self._link) if link is not None]
        return (self._thread is None or self._thread.join_until(deadline)) and all(links_ended)


def _counters(link: Link) -> Counter[str]:
    return Counter(
        frames_sent=link.writer.frames,
        bytes_sent=link.writer.bytes,
        frames_received=link.frames_in,
        bytes_received=link.bytes_in,
        times_paused=link.flow.times_paused,
    )


def dialer_of(address: Address, config: Config) -> Dialer:
    """Return the dialer for `address`."""
    # Imported late, as `ssl` is slow to import, and as few connections need a Unix socket, a proxy or WebSocket.
    if address.scheme == UNIX:
        from stompy.transport.unix import UnixDialer

        return UnixDialer(address.path or "")
    tcp: TcpDialer | ProxyDialer = TcpDialer(address.host, address.port, options=config.tcp)
    if config.proxy is not None:
        from stompy.transport.proxy import ProxyDialer

        tcp = ProxyDialer(config.proxy, address.host, address.port, options=config.tcp)
    stream: TcpDialer | ProxyDialer | TlsDialer = tcp
    if address.secure:
        from stompy.transport.tls.options import Tls
        from stompy.transport.tls.transport import TlsDialer

        stream = TlsDialer(tcp, Tls() if config.tls is None else config.tls)
    if address.scheme not in (WS, WSS):
        return stream
    from stompy.transport.websocket.endpoints import WebSocketDialer

    return WebSocketDialer(
        stream,
        host=address.authority,
        target=address.target,
        subprotocols=subprotocols(config.versions),
        options=config.websocket,
    )


class Connector:
    """Opens sessions for one connection, one at a time.

    Args:
        config: addresses, their order, timeouts.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = make_lock(Rank.LEAF, "connector")
        self._transport: Transport | None = None
        self._cancelled = False

    def open(self, deadline: Deadline) -> OpenedSession:
        """Try the addresses in order, each with its own connect timeout, and return the first session.

        Args:
            deadline: for all addresses together.

        Raises:
            ConnectError: the only address failed, or one failed with an error that will not pass.
            AllBrokersFailedError: all of several addresses failed; has the error of each.
            NotConnectedError: cancelled.
        """
        attempts: list[ConnectError] = []
        for address in in_order(self._config.addresses, self._config.order):
            self._check()
            try:
                return self._open(address, deadline)
            except ConnectError as error:
                if not error.safe_to_retry or len(self._config.addresses) == 1:
                    raise
                attempts.append(error)
        raise AllBrokersFailedError(attempts) from attempts[-1]

    def cancel(self) -> None:
        """End the current handshake and start no other. Any thread; never blocks."""
        with self._lock:
            self._cancelled = True
            transport = self._transport
        if transport is not None:
            transport.shutdown()

    def _open(self, address: Address, until: Deadline) -> OpenedSession:
        """Open a session with one address."""
        config = self._config
        dialer = dialer_of(address, config)
        settings, credentials = config.for_address(address), config.credentials(address)
        deadline = until.sooner(config.timeouts.connect)
        try:
            return self._session(dialer, settings, credentials, deadline)
        except ConnectRefusedError as refused:
            if is_client_id_in_use(refused.frame):
                raise ClientIdInUseError(_message(refused), frame=refused.frame, address=refused.address) from refused
            if settings.vhost is not None or config.dialect is not None or not is_unknown_virtual_host(refused.frame):
                raise
        # No virtual host was configured, and RabbitMQ has none of the default name, the host name.
        _LOG.info("%s is RabbitMQ: trying virtual host %r", dialer.address, RABBITMQ.host)
        return self._session(dialer, replace(settings, vhost=RABBITMQ.host), credentials, deadline)

    def _session(
        self, dialer: Dialer, settings: LinkSettings, credentials: Credentials, deadline: Deadline
    ) -> OpenedSession:
        try:
            return open_session(dialer, settings, deadline, credentials, dialled=self._watch)
        finally:
            with self._lock:
                self._transport = None

    def _check(self) -> None:
        with self._lock:
            if self._cancelled:
                raise NotConnectedError("the connection was closed")

    def _watch(self, transport: Transport) -> None:
        """Remember the transport of a handshake, so that `cancel` can end it."""
        with self._lock:
            self._transport = transport
            cancelled = self._cancelled
        if cancelled:
            transport.shutdown()  # the handshake then fails at the end of the stream


def in_order(addresses: Sequence[Address], order: Order) -> Sequence[Address]:
    """Return the addresses in the order of one pass."""
    if order == "given":
        return addresses
    fixed = 1 if order == "priority" else 0
    return [*addresses[:fixed], *random.sample(addresses[fixed:], len(addresses) - fixed)]


def _message(error: ConnectRefusedError) -> str:
    return str(error).removeprefix(f"{error.address}: ")
