"""`Connection`, the main class of the public API, and how a connection is closed.

The parts of a connection do not refer to the `Connection` object, so that it can be garbage-collected and then closed.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stompy.arguments import check_arguments, check_value
from stompy.connection.config import Config
from stompy.connection.encoding import Body, headers_of_subscribe
from stompy.connection.link_manager import LinkManager
from stompy.connection.listeners import Callbacks, Listener, handler_of
from stompy.connection.message import Acker, AckMode, Message
from stompy.connection.reconnect import ResendLimits
from stompy.connection.resend_buffer import ResendBuffer
from stompy.connection.routing import Router
from stompy.connection.sending import Batch, RequestReply, Sender
from stompy.connection.subscription import Subscription
from stompy.connection.subscriptions import (
    ActiveSubscription,
    Handler,
    MessageListener,
    OnException,
    QueueBrowser,
    SubscriptionTable,
)
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.dialects.options import OtherSendOptions, SendOptions, SubscribeOptions
from stompy.errors import BrokerError, ConcurrencyError, ConfigurationError, NotConnectedError, StompError
from stompy.forks import Owner, when_forked
from stompy.link.receipts import Receipt
from stompy.locks import Rank, SafeEvent, make_lock
from stompy.threads import DaemonThread
from stompy.values import Value
from stompy.world import time

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.transaction import Transaction
    from stompy.dialects.options import show_send_options

_LOG = logging.getLogger("stompy.connection")

_NUMBERS = itertools.count(1)
_UNSAFE = re.compile(r"[^\w.-]", re.ASCII)
"""Characters that ids, which begin with the name, cannot have or would have to escape."""


_SAID_OTHERWISE = {
    "disconnect": "it is ended by close()",
    "stop": "it is ended by close()",
    "connect": "stompy.connect returns one that is connected",
    "start": "stompy.connect returns one that is connected",
    "is_connected": "it is the property 'connected'",
    "set_listener": "it is add_listener(listener)",
    "unsubscribe": "subscribe returns a Subscription, which close() ends",
    "ack": "messages are acknowledged by message.ack()",
    "nack": "messages are refused by message.nack()",
    "begin": "use it as 'with connection.transaction()'",
    "commit": "use it as 'with connection.transaction()'",
    "abort": "use it as 'with connection.transaction()'",
    "receive": "subscribe returns a Subscription, which has receive() and can be iterated",
    "publish": "it is send(destination, body)",
}
"""Names that other libraries have for something, and what it is here."""


class Connection:
    """A connection to a broker, returned by `stompy.connect`. Thread-safe; methods may also be called from callbacks.

    Use it as a context manager, or call `close`. The end of the `with` block drains, as `close(drain=True)` does,
    unless the block raises.
    """

    def __init__(
        self, config: Config | None = None, listeners: Sequence[Listener] = (), acker: Acker | None = None
    ) -> None:
        if not isinstance(config, Config):
            raise ConfigurationError("connections are made by stompy.connect('stomp://localhost:61613')")
        name = f"{_UNSAFE.sub('_', config.name)}-{next(_NUMBERS)}"
        self._config = config
        self._acker = acker or Acker()
        self._new_subscription: Callable[..., ActiveSubscription] = ActiveSubscription
        self._unconfirmed = ResendBuffer(config.resend or ResendLimits(), name=name)
        self._callbacks = Callbacks(name, listeners)
        self._callbacks.connection = self._acker.connection = weakref.ref(self)
        self._subscriptions = SubscriptionTable(config, self._callbacks)
        self._router = Router(self._subscriptions, self._callbacks, self._acker)
        self._links = LinkManager(config, name, self._router, self._subscriptions, self._callbacks, self._unconfirmed)
        self._sender = Sender(config, name, self._links, self._unconfirmed, self._acker.failed)
        self._replies = RequestReply(self._subscriptions, self._sender)
        self._closing = Closing(config, name, self._links, self._subscriptions, self._callbacks)

    def _open(self) -> None:
        """Open the first link; raises as `connect` does."""
        try:
            self._callbacks.dispatcher.start()
            self._links.open()
        except BaseException:
            self._closing.give_up()
            raise

    @property
    def connected(self) -> bool:
        """Whether a session is open now."""
        return not self._closing.closed and self._links.link.alive

    @property
    def version(self) -> str:
        """The negotiated STOMP version, such as `"1.2"`."""
        return str(self._links.link.version)

    @property
    def server(self) -> str | None:
        """The `server` header of CONNECTED, or `None`."""
        return self._links.link.protocol.server

    @property
    def dialect(self) -> str:
        """The name of the broker's dialect; see `connect`."""
        return self._links.link.dialect.name

    @property
    def session(self) -> str | None:
        """The `session` header of CONNECTED, or `None`."""
        return self._links.link.protocol.session

    @property
    def heartbeat(self) -> tuple[float, float]:
        """The negotiated heartbeat intervals in seconds: ours, the broker's; 0 for none."""
        agreed = self._links.link.protocol.heartbeats
        return agreed.send or 0.0, agreed.receive or 0.0

    @property
    def address(self) -> str:
        """The broker's address, without credentials."""
        return self._links.link.address

    def stats(self) -> ConnectionStats:
        """Return counters and gauges of the connection."""
        self._links.check_process()
        waiting, total = self._links.counted()
        link, queued = waiting[-1], [each.flow.waiting() for each in waiting]
        pending = dict.fromkeys(self._unconfirmed.receipts())
        return ConnectionStats(
            frames_sent=total["frames_sent"],
            bytes_sent=total["bytes_sent"],
            frames_received=total["frames_received"],
            bytes_received=total["bytes_received"],
            receipts_pending=len({**pending, **dict.fromkeys(link.receipts.outstanding())}),
            unconfirmed=len(pending),
            unconfirmed_bytes=self._unconfirmed.size,
            queued_messages=sum(messages for messages, _ in queued),
            queued_bytes=sum(size for _, size in queued),
            subscriptions=len(self._subscriptions.all()),
            unrouted=self._router.unrouted,
            late_replies=self._replies.late,
            links=self._links.reconnects + 1,
            reconnects=self._links.reconnects,
            reading_paused=link.flow.paused,
            times_paused=total["times_paused"],
            silent_for=max(0.0, time.monotonic() - link.timer.last_heard),
            outage=self._links.outage,
        )

    # Sending.

    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        confirm: bool = False,
        timeout: float | Default | None = DEFAULT,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        **options: Unpack[OtherSendOptions],
    ) -> None:
        """Send a message; on return, the operating system has every byte (STOMP 1.2, SEND).

        Args:
            destination: interpreted by the broker.
            body: `str` (sent as `text/plain;charset=utf-8`), bytes (sent unchanged), or a value to encode as JSON.
            confirm: wait until the broker has confirmed the message by a receipt.
            timeout: seconds for the write and, with `confirm`, for the receipt; by default those of the connection.
            content_type: a MIME type; text is encoded with its charset. By default that of the body.
            headers: additional headers; values are `str`, `int` (decimal) or `bool` (`true`, `false`).
            content_length: whether to add that header; by default the connection's setting.
            persistent: whether the message survives a restart of the broker; by default the broker's choice.
            priority: 0 to 9.
            expires: seconds to live.
            delay: seconds until the broker delivers it.
            group: messages of a group go to one consumer, in order.
            dedupe_id: the broker drops messages with an id it has seen.

        Raises:
            LocalProtocolError: the frame cannot be encoded; nothing was sent.
            ConfigurationError: an option is wrong, given twice, or not supported by the broker; nothing was sent.
            NotConnectedError: the connection was closed.
            ConnectionLostError: the connection was lost; `outcome` says whether the broker may have the message.
            ReceiptTimeoutError: with `confirm`, the broker did not confirm in time.
            UnconfirmedFullError: with `Reconnect(resend_unconfirmed=...)`, the resend buffer is full; nothing was sent.
        """
        if timeout is not DEFAULT:
            check_seconds(timeout)
        if confirm:
            if TYPE_CHECKING:
                show_send_options(**options)
            check_value("confirm", confirm, bool)
            receipt = self._sender.send(destination, body, content_type, headers, options, True, timeout)
            self._sender.flush_batch(timeout=timeout)
            assert receipt is not None
            receipt.result(timeout)
        else:
            self._sender.send(destination, body, content_type, headers, options, False, timeout)

    def send_async(
        self,
        destination: str,
        body: Body = b"",
        *,
        timeout: float | Default | None = DEFAULT,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        **options: Unpack[OtherSendOptions],
    ) -> Receipt:
        """Send a message as `send` does, and return the receipt by which the broker will confirm it.

        Args:
            destination: as in `send`.
            body: as in `send`.
            timeout: seconds for the write; by default the send timeout.
            content_type: a MIME type; text is encoded with its charset. By default that of the body.
            headers: additional headers; values are `str`, `int` (decimal) or `bool` (`true`, `false`).
            options: the others of `Connection.send`.

        Raises:
            StompError: as `send`; the receipt has the errors of later events.
        """
        if timeout is not DEFAULT:
            check_seconds(timeout)
            if TYPE_CHECKING:
                show_send_options(**options)
        receipt = self._sender.send(destination, body, content_type, headers, options, True, timeout)
        assert receipt is not None
        return receipt

    def batch(self) -> Batch:
        """Return a context manager that collects this thread's sends and writes them together.

        Frames are written whenever 64 KiB are collected, and when the block ends, even if it raises.

        Raises:
            NotConnectedError: the connection was closed.
            ConnectionLostError: the connection was lost. At the end of the block its `outcome` is about all frames of
                the block: `"not-sent"` if none of them was written.
        """
        return Batch(self._sender)

    def flush(self, *, timeout: float | Default | None = DEFAULT) -> None:
        """Write this thread's batch and wait for all pending receipts.

        Messages sent without a receipt are not confirmed. Also raises the error of a frame that failed earlier, on this
        session or a lost one, unless its receipt or another flush of this thread has raised it.

        Args:
            timeout: seconds in total; by default the receipt timeout.

        Raises:
            SendTimeoutError: another thread was writing for too long. The batch is kept and written later, so its
                outcome is unknown.
            ReceiptTimeoutError: a receipt did not arrive in time.
            BrokerError: the broker rejected a frame.
            ConnectionLostError: the connection was lost before a receipt arrived.
        """
        check_seconds(given(timeout, None))
        self._sender.flush(given(timeout, self._config.timeouts.receipt))

    def request(
        self,
        destination: str,
        body: Body = b"",
        *,
        timeout: float | Default | None = DEFAULT,
        **options: Unpack[SendOptions],
    ) -> Message:
        """Send a request and return its reply.

        The responder must send the reply to the destination in `reply-to`, with the same `correlation-id`. All requests
        of a connection share one temporary queue for replies.

        Args:
            destination: where the responder is subscribed.
            body: as in `send`.
            timeout: seconds in total; by default the receipt timeout. Later replies are dropped and counted.
            options: those of `Connection.send`; headers without `reply-to` and `correlation-id`.

        Raises:
            ReceiveTimeoutError: no reply in time.
            ConfigurationError: as `send`, or the headers have one of these two; nothing was sent.
            ConnectionLostError: the session was lost first, and its reply queue with it: a request is never sent on
                the next one. `SendTimeoutError` if it was not written in time.
        """
        if TYPE_CHECKING:
            show_send_options(**options)
        check_seconds(given(timeout, None))
        seconds = given(timeout, self._config.timeouts.receipt)
        return self._replies.request(destination, body, options, timeout=seconds)

    def transaction(self) -> Transaction:
        """Return a transaction, a context manager that commits at the end of the block and aborts on an exception.

        Raises:
            NotConnectedError: the connection was closed.
            ConnectionLostError: the connection was lost.
        """
        from stompy.connection.transaction import Transaction  # late, as few programs have transactions

        return Transaction(self._sender, self._acker)

    # Receiving.

    def subscribe(
        self,
        destination: str,
        handler: Handler | MessageListener | None = None,
        *,
        ack: AckMode = "handled",
        prefetch: int | Default = DEFAULT,
        selector: str | None = None,
        durable: str | None = None,
        exclusive: bool = False,
        id: str | None = None,
        headers: Mapping[str, object] | None = None,
        own_thread: bool = False,
        on_exception: OnException = "nack",
        timeout: float | Default | None = DEFAULT,
    ) -> Subscription:
        """Subscribe; return when the broker has confirmed (STOMP 1.2, SUBSCRIBE).

        Args:
            destination: interpreted by the broker.
            handler: a function, or an object with `on_message`, called with each message on the dispatcher thread.
                Without one, the listeners of the connection that define `on_message` consume the messages; if there is
                none, iterate over the subscription or call its `receive`.
            ack: `"handled"` acknowledges each message after it was handled: when the handler or listener has returned;
                or, for a thread that iterates or calls `receive`, when it asks for the next message, or its `with`
                block of the subscription or connection ends without an exception. Until then it may call `ack` or
                `nack` instead. An unacknowledged message is redelivered after the session. STOMP's own
                modes are `"auto"` (no acknowledgement: a message is consumed when the broker has sent it, and lost if
                the program ends before it was handled), `"client"` (an ACK is cumulative) and `"client-individual"`;
                in the latter two the program calls `ack`.
            prefetch: number of unacknowledged messages that the broker may send ahead; by default the broker's.
            selector: deliver only messages whose headers match this condition, such as `"colour = 'red'"`.
            durable: name of a durable topic subscription, for which the broker stores messages while there
                is no subscriber. It requires a `client_id`, and both must be the same in every run;
                `Subscription.unsubscribe(delete=True)` deletes it.
            exclusive: only one of several exclusive consumers of a queue gets messages, until it ends.
            id: of the subscription; `None` generates one.
            headers: additional headers.
            own_thread: run the handler, which it requires, on a thread of its own instead of the connection's
                dispatcher.
            on_exception: what to do with an unacknowledged message when its handler or listener raises, except in mode
                `"auto"`. `"nack"` sends NACK if the broker is known to redeliver or dead-letter the message, else
                leaves it. `"leave"` leaves it unacknowledged; it still counts towards the prefetch.
            timeout: seconds for the broker's confirmation; by default the receipt timeout.

        Raises:
            ConfigurationError: an unknown `ack` or `on_exception`, a handler that cannot be called or is a listener of
                the connection already, or an option is given twice or not supported by the broker; nothing was sent.
            LocalProtocolError: the id is in use, or a header cannot be encoded.
            BrokerError: the broker rejected the subscription.
            ConnectionLostError: the connection was lost.
            ReceiptTimeoutError: the broker did not confirm in time.
        """
        check_arguments(Connection.subscribe, locals(), skip=("handler", "destination", "timeout"))
        check_seconds(given(timeout, None))
        function = self._function_of(handler)
        if own_thread and function is None:
            raise ConfigurationError("own_thread=True runs a handler: subscribe with one")
        options = SubscribeOptions(
            prefetch=given(prefetch, None), selector=selector, durable=durable, exclusive=exclusive
        )
        link = self._links.link
        extra = headers_of_subscribe(
            link, destination, ack, options=options, headers=headers, client_id=self._config.client
        )
        dispatcher = self._callbacks.new_dispatcher() if own_thread else None
        subscription = self._new_subscription(
            self._subscriptions,
            id=id if id is not None else self._subscriptions.new_id(),
            destination=destination,
            ack=ack,
            handler=function,
            headers=extra,
            dispatcher=dispatcher,
            options=options,
            acks_all=ack == "client" and link.dialect.ack_reaches == "connection",
            on_exception=on_exception,
        )
        held = Subscription(subscription)  # before, as a signal may end any call that follows
        try:
            self._subscriptions.add(subscription, timeout=timeout)
        except BaseException:
            self._subscriptions.withdraw(subscription)  # also ends its thread
            raise
        return held

    def browse(
        self,
        queue: str,
        *,
        selector: str | None = None,
        headers: Mapping[str, object] | None = None,
        timeout: float | Default | None = DEFAULT,
    ) -> Iterator[Message]:
        """Return an iterator over the messages in a queue, which stay there; it ends after the last one.

        The broker is asked when the first message is.

        Args:
            queue: to read.
            selector: as in `subscribe`.
            headers: additional headers.
            timeout: seconds for each message; by default the receipt timeout.

        Raises:
            ConfigurationError: the broker cannot browse, or does not mark the end; nothing was sent.
            BrokerError: the broker refused; this and the following are raised by the iterator.
            ReceiveTimeoutError: no message in time.
            ConnectionLostError: the connection was lost.
        """
        seconds = given(timeout, self._config.timeouts.receipt)
        check_seconds(seconds)
        check_arguments(Connection.browse, {"selector": selector, "headers": headers})
        options = SubscribeOptions(selector=selector, browse=True)
        link, client = self._links.link, self._config.client
        extra = headers_of_subscribe(link, queue, "auto", options=options, headers=headers, client_id=client)
        identity = self._subscriptions.new_id()
        browser = QueueBrowser(self._subscriptions, id=identity, destination=queue, headers=extra, options=options)
        return browser.messages(seconds)

    def _function_of(self, handler: Handler | MessageListener | None) -> Handler | None:
        """Return the function to call with messages; raises as `subscribe` does."""
        if not callable(handler) and any(handler is each for each in self._callbacks.message_listeners):
            raise ConfigurationError("this listener gets all messages of the connection: subscribe without a handler")
        return handler_of(handler)

    def add_listener(self, listener: Listener) -> None:
        """Add a listener after the existing ones; it is called from the next event on.

        If it defines `on_message`, it also gets the messages that wait in subscriptions without a reader.
        """
        self._callbacks.add_listener(listener)
        self._router.listener_added()

    def remove_listener(self, listener: Listener) -> None:
        """Remove a listener; unknown ones are ignored."""
        self._callbacks.remove_listener(listener)

    # Closing.

    def close(self, *, timeout: float | Default | None = DEFAULT, drain: bool = False) -> None:
        """Send DISCONNECT, wait for its receipt, then close the connection. Idempotent.

        Errors of the broker or the network are logged, not raised. Unacknowledged messages go back to the broker. May
        be called from a callback. If a signal handler raises during the call, call it again.

        Args:
            timeout: seconds in total; by default the close timeout.
            drain: first stop accepting messages and wait until handlers, listeners and other threads have handled those
                received, for at most 80 % of the timeout; the rest is logged as a warning. Loops over subscriptions
                in other threads end.

        Raises:
            ConfigurationError: the timeout is invalid; nothing was done.
        """
        check_seconds(given(timeout, None))
        check_value("drain", drain, bool)
        self._closing.close(timeout=timeout, drain=drain)

    @property
    def closed(self) -> bool:
        """Whether there will be no further session: `close` was called, or the connection was lost for good."""
        return self._closing.closed or self._links.final

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Wait until the connection is closed and its last callback has run; return `False` if it is not in time.

        A program of handlers waits here. A signal's handler runs meanwhile, and its exception, such as
        `KeyboardInterrupt`, ends the wait.

        Args:
            timeout: seconds; `None` for no limit.

        Raises:
            StompError: the error by which the connection was lost for good: of the session or, with `reconnect`, of the
                last attempt.
            ConcurrencyError: called in a callback of this connection, or in a forked child.
            ConfigurationError: the timeout is invalid.
        """
        return self._closing.wait(Deadline(timeout))

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What was received is lost in mode `auto` unless it is handled now; after an error, the program ends at once.
        if kind is None:
            for subscription in self._subscriptions.all():
                subscription.acknowledge_held()
        self.close(drain=kind is None)

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in _SAID_OTHERWISE]

    def __del__(self) -> None:
        closing: Closing | None = getattr(self, "_closing", None)
        if closing is None:
            return
        if not self._callbacks.dispatcher.ended:
            self._callbacks.connection = lambda: self  # for its last events, which name it; then it is collected
        if not closing.closed:
            try:
                warnings.warn(f"a connection was not closed: {self!r}", ResourceWarning, source=self, stacklevel=2)
            finally:  # a filter may turn the warning into an error
                closing.close_from_finalizer()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Connection cannot be pickled; pickle the arguments of connect() instead")

    def __repr__(self) -> str:
        try:
            link = self._links.link
        except NotConnectedError:
            return "<Connection not open>"
        state = "connected" if self.connected else "closed" if self._closing.closed else "lost"
        return f"<Connection {link.address} STOMP {self.version} {state}>"


class _SaidOtherwise:
    """An attribute that is not there, and says so: `__getattr__` would make each call of a method slower."""

    def __init__(self, error: str) -> None:
        self._error = error

    def __get__(self, connection: object, owner: type) -> object:
        raise AttributeError(self._error)


for _name, _hint in _SAID_OTHERWISE.items():
    setattr(Connection, _name, _SaidOtherwise(f"a Connection has no {_name!r}; {_hint}"))


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
    """

    def __init__(
        self,
        config: Config,
        name: str,
        links: LinkManager,
        subscriptions: SubscriptionTable,
        callbacks: Callbacks,
    ) -> None:
        self._config = config
        self._name = name
        self._links = links
        self._subscriptions = subscriptions
        self._callbacks = callbacks
        self._close_lock = make_lock(Rank.CALL, "closing")
        self._done = SafeEvent()
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
        if self._links.end_reason is not None:
            raise self._links.end_reason.with_traceback(None)
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
        """Accept no more messages, and wait until user code has handled the received messages."""
        subscriptions = self._subscriptions.all()
        for subscription in subscriptions:
            subscription.drain()
        try:
            for subscription in subscriptions:
                if subscription.ack == "auto":
                    self._subscriptions.remove(subscription, timeout=deadline.remaining())
        except StompError as error:
            _LOG.info("draining %s ended early: %s", self._name, error)
        handled = [subscription.wait_read(deadline) for subscription in subscriptions]
        if not (self._callbacks.wait_idle(deadline) and all(handled)):
            _LOG.warning(
                "%s is closed before all received messages were handled: %d wait at the deadline; allow more by"
                " Timeouts.close, or by the timeout of close",
                self._name,
                self._links.link.flow.waiting()[0],
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
            DaemonThread(f"stompy-{self._name}-finalizer", self.abandon).start()

    def after_fork(self) -> None:
        """End this copy in a forked child, without touching the parent's session."""
        self._callbacks.discarding = True
        self._links.after_fork(self._owner.error())


class ConnectionStats(Value):
    """Counters and gauges of a connection.

    Counters are totals over all sessions; gauges are those of the latest session, even if it has ended.

    Attributes:
        frames_sent: frames written, without heartbeats.
        bytes_sent: bytes written.
        frames_received: frames received.
        bytes_received: bytes received.
        receipts_pending: receipts that have no outcome yet.
        unconfirmed: messages in the resend buffer of `Reconnect(resend_unconfirmed=...)`.
        unconfirmed_bytes: bytes of their bodies and headers.
        queued_messages: messages that wait for user code, and receipts that wait for listeners.
        queued_bytes: bytes of their bodies and, approximately, headers.
        subscriptions: active subscriptions.
        unrouted: messages for no known subscription.
        late_replies: replies to requests that had timed out.
        links: sessions, including the latest; failed attempts are not counted.
        reconnects: lost sessions that were replaced.
        reading_paused: whether reading from the broker is paused because user code is slow.
        times_paused: how often reading was paused.
        silent_for: seconds since the last received byte.
        outage: why there is no session and when the next attempt is made, such as
            `localhost:61613: connection refused; attempt 7 in 3.2 s`; `None` if there is a session, or it was closed.
    """

    frames_sent: int
    bytes_sent: int
    frames_received: int
    bytes_received: int
    receipts_pending: int
    unconfirmed: int
    unconfirmed_bytes: int
    queued_messages: int
    queued_bytes: int
    subscriptions: int
    unrouted: int
    late_replies: int
    links: int
    reconnects: int
    reading_paused: bool
    times_paused: int
    silent_for: float
    outage: str | None
