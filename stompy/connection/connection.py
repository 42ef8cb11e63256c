"""The connection that users hold."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from stompy.connection.acking import Acker
from stompy.connection.buffer import Batch
from stompy.connection.closing import Closing
from stompy.connection.codec import Body
from stompy.connection.config import Config
from stompy.connection.encoding import headers_of_subscribe
from stompy.connection.link_manager import LinkManager
from stompy.connection.listeners import Callbacks, ConnectionListener
from stompy.connection.message import Message
from stompy.connection.requests import RequestReply
from stompy.connection.resend_buffer import ResendBuffer
from stompy.connection.routing import Router
from stompy.connection.sending import Sender
from stompy.connection.stats import ConnectionStats, measure
from stompy.connection.subscription import AckMode, Handler, OnError, QueueBrowser, Subscription, check_ack_mode
from stompy.connection.subscriptions import SubscriptionTable
from stompy.connection.transaction import Transaction
from stompy.deadline import Deadline, check_seconds
from stompy.dialects.options import NOTHING_ASKED, SendOptions, SubscribeOptions
from stompy.errors import ConfigurationError, NotConnected
from stompy.link.receipts import Receipt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from stompy.connection.sending import SendArguments


_NUMBERS = itertools.count(1)
_UNSAFE = re.compile(r"[^\w.-]", re.ASCII)
"""What would have to be escaped in the ids that begin with the name, or cannot be in them at all."""


class Connection:
    """A connection to a broker; made by `stompy.connect`. Every method may be called from any thread and any callback.

    Use it as a context manager, or call `disconnect`.
    """

    def __init__(self, config: Config, listeners: Sequence[ConnectionListener] = ()) -> None:
        name = f"{_UNSAFE.sub('_', config.name)}-{next(_NUMBERS)}"
        self._config = config
        self._acker = Acker()
        self._unconfirmed = None if config.resend is None else ResendBuffer(config.resend, name=name)
        self._callbacks = Callbacks(name, listeners)
        self._subscriptions = SubscriptionTable(config)
        self._router = Router(self._subscriptions, self._callbacks, self._acker)
        self._links = LinkManager(
            config, name, self._router.messages, self._subscriptions, self._callbacks, self._unconfirmed
        )
        self._sender = Sender(config, name, self._links, self._unconfirmed)
        self._replies = RequestReply(self._subscriptions, self._sender)
        self._closing = Closing(config, name, self._links, self._subscriptions, self._callbacks, self._unconfirmed)

    def _open(self) -> None:
        """Open the first link; for `connect`, which says what it raises."""
        try:
            self._callbacks.dispatcher.start()
            self._links.open()
        except BaseException:
            self._closing.give_up()
            raise

    # What it is.

    @property
    def connected(self) -> bool:
        """Whether there is a session now."""
        return not self._closing.closed and self._links.link.alive

    @property
    def version(self) -> str:
        """The version spoken, such as `"1.2"`."""
        return str(self._links.link.version)

    @property
    def server(self) -> str | None:
        """What the broker calls itself in CONNECTED, or `None`."""
        return self._links.link.protocol.server

    @property
    def dialect(self) -> str:
        """The name of the dialect spoken; see `connect`."""
        return self._links.link.dialect.name

    @property
    def session(self) -> str | None:
        """The broker's id of the session, or `None`."""
        return self._links.link.protocol.session

    @property
    def heartbeat(self) -> tuple[float, float]:
        """The agreed intervals in seconds: ours, the broker's; 0 for none."""
        agreed = self._links.link.protocol.heartbeats
        return agreed.send or 0.0, agreed.receive or 0.0

    @property
    def address(self) -> str:
        """The broker's address, without credentials."""
        return self._links.link.address

    def stats(self) -> ConnectionStats:
        """Return counters and gauges."""
        return measure(self._links, self._subscriptions, self._router, self._replies, self._unconfirmed)

    # Sending.

    @overload
    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        receipt: Literal[True],
        confirm: bool = False,
        **arguments: Unpack[SendArguments],
    ) -> Receipt: ...
    @overload
    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        receipt: bool = False,
        confirm: Literal[True],
        **arguments: Unpack[SendArguments],
    ) -> Receipt: ...
    @overload
    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        receipt: bool = False,
        confirm: bool = False,
        **arguments: Unpack[SendArguments],
    ) -> Receipt | None: ...
    def send(
        self,
        destination: str,
        body: Body = b"",
        *,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        receipt: bool = False,
        confirm: bool = False,
        content_length: bool | None = None,
        persistent: bool | None = None,
        priority: int | None = None,
        expires: float | None = None,
        delay: float | None = None,
        group: str | None = None,
        dedupe_id: str | None = None,
        timeout: float | None = None,
    ) -> Receipt | None:
        """Send a message; when it returns, the operating system has every byte (STOMP 1.2, SEND).

        Args:
            destination: opaque text; the broker gives it its meaning.
            body: `str` (sent as `text/plain;charset=utf-8`), bytes (sent as they are), or a value to write as JSON.
            content_type: a MIME type; its charset decides how text is encoded.
            headers: further headers; values are `str`, `int` (decimal) or `bool` (`true`, `false`).
            receipt: ask the broker to confirm, and return the `Receipt`.
            confirm: the same, and wait for it.
            content_length: write that header or not; `None` takes the connection's setting.
            persistent: whether the message survives a restart of the broker; `None` leaves it to the broker.
            priority: 0 to 9.
            expires: seconds to live.
            delay: seconds until the broker delivers it.
            group: messages of one group go to one consumer, in order.
            dedupe_id: the broker drops a message whose id it has seen.
            timeout: seconds for the frame to leave and, with `confirm`, for the receipt; `None` takes the defaults.

        Raises:
            LocalProtocolError: the frame cannot be written; nothing was sent.
            ConfigurationError: the broker has no way to do what was asked; nothing was sent.
            NotConnected: the connection was closed.
            ConnectionLost: the link died; `outcome` says whether the broker may have the message.
            ReceiptTimeout: with `confirm`, the broker did not answer in time.
            UnconfirmedFull: with `connect(resend_unconfirmed=...)`, too much waits for confirmation; nothing was sent.
        """
        if timeout is not None:
            check_seconds(timeout)
        asked = (persistent, priority, expires, delay, group, dedupe_id)
        options = None if asked == NOTHING_ASKED else SendOptions(*asked)
        handle = self._sender.send(
            destination, body, content_type, headers, receipt or confirm, content_length, timeout, options
        )
        if confirm and handle is not None:
            self._sender.flush_batch(timeout=timeout)
            handle.wait(timeout)
        return handle

    def batch(self) -> Batch:
        """Return a batch to be used in a `with` block: this thread's sends in it share writes.

        What was accepted leaves when enough has come together, at the latest at the end of the block, also of one that
        raises. Other threads are not affected.

        Raises:
            NotConnected: the connection was closed.
            ConnectionLost: the link died.
        """
        return Batch(self._sender)

    def flush(self, *, timeout: float | None = None) -> None:
        """Write out this thread's batch, and wait until every receipt under way has come.

        What was sent without a receipt is not confirmed by this.

        Args:
            timeout: seconds for all of it; `None` takes the receipt timeout.

        Raises:
            ReceiptTimeout: one did not come in time.
            BrokerError, ConnectionLost: one of them will not come.
        """
        deadline = Deadline(self._config.receipt_timeout if timeout is None else timeout)
        self._sender.flush_batch(timeout=deadline.remaining())
        for receipt in self._sender.outstanding(deadline.remaining()):
            receipt.wait(deadline.remaining())

    def request(
        self,
        destination: str,
        body: Body = b"",
        *,
        content_type: str | None = None,
        headers: Mapping[str, object] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Send a request and return its reply.

        The reply comes to a temporary queue of this connection, which all its requests share; it is matched by the
        `correlation-id` header, which the responder must copy into a message to the destination in `reply-to`.

        Args:
            destination: where the responder listens.
            body: as in `send`.
            content_type: as in `send`.
            headers: as in `send`; not `reply-to` or `correlation-id`.
            timeout: seconds; `None` takes the receipt timeout. A reply that comes later is dropped and counted.

        Raises:
            ReceiveTimeout: no reply in time.
            ConnectionLost: the link died first.
        """
        seconds = self._config.receipt_timeout if timeout is None else timeout
        return self._replies.request(destination, body, content_type=content_type, headers=headers, timeout=seconds)

    def transaction(self) -> Transaction:
        """Return a transaction to be used in a `with` block: the end commits, an exception aborts.

        Raises:
            NotConnected: the connection was closed.
            ConnectionLost: the link died.
        """
        return Transaction(self._sender, self._acker, content_length=self._config.content_length)

    # Receiving.

    def subscribe(
        self,
        destination: str,
        handler: Handler | None = None,
        *,
        ack: AckMode = "auto",
        prefetch: int | None = None,
        selector: str | None = None,
        durable: str | None = None,
        browse: bool = False,
        exclusive: bool = False,
        id: str | None = None,
        headers: Mapping[str, object] | None = None,
        own_thread: bool = False,
        on_error: OnError = "nack",
        timeout: float | None = None,
    ) -> Subscription:
        """Subscribe, and return when the broker has confirmed it (STOMP 1.2, SUBSCRIBE).

        Args:
            destination: opaque text.
            handler: called with each message on the dispatcher thread; without one, iterate over the subscription or
                call its `receive`.
            ack: `"auto"` (the broker takes a message as consumed when it has sent it), `"client"` (an ACK covers all
                earlier messages too) or `"client-individual"`.
            prefetch: how many unacknowledged messages the broker may send ahead.
            selector: deliver only messages whose headers fulfil this condition, such as `"colour = 'red'"`.
            durable: the name under which the broker goes on collecting the messages of a topic while nobody is
                subscribed. It stays the same from run to run, as must the `client_id` of `connect`;
                `unsubscribe(delete=True)` ends it.
            browse: look at the messages of a queue without taking them: iteration ends behind the last.
            exclusive: of several such consumers of a queue only one gets messages, until it is gone.
            id: the subscription's id; `None` makes one.
            headers: further headers.
            own_thread: run the handler on a thread of this subscription instead of the connection's dispatcher.
            on_error: in the client modes, what becomes of a message that is not settled when its handler raises.
                `"nack"`: it is refused where the connected broker is known to deliver it again or to make a dead letter
                of it, and else left. `"leave"`: it stays unacknowledged, and holds a place in the prefetch.
            timeout: seconds for the broker's confirmation; `None` takes the receipt timeout.

        Raises:
            ConfigurationError: an unknown `ack` or `on_error`, or the broker has no way to do what was asked; nothing
                was sent.
            LocalProtocolError: the id is taken, or a header cannot be written.
            BrokerError: the broker refused.
            ConnectionLost: the link died.
            ReceiptTimeout: the broker did not answer in time.
        """
        check_ack_mode(ack, on_error)
        check_seconds(timeout)
        if browse and handler is not None:
            raise ConfigurationError("what is browsed comes to an end, so it is iterated: without a handler")
        options = SubscribeOptions(prefetch, selector, durable, browse, exclusive)
        link = self._links.link
        extra = headers_of_subscribe(
            link, destination, ack, options=options, headers=headers, client_id=self._config.client
        )
        dispatcher = self._callbacks.new_dispatcher() if own_thread and handler is not None else None
        subscription = (QueueBrowser if browse else Subscription)(
            self._subscriptions,
            id=id if id is not None else self._subscriptions.new_id(),
            destination=destination,
            ack=ack,
            handler=handler,
            headers=extra,
            dispatcher=dispatcher,
            options=options,
            acks_all=ack == "client" and link.dialect.ack_reaches == "connection",
            on_error=on_error,
        )
        try:
            self._subscriptions.add(subscription, timeout=timeout)
        except BaseException:
            self._subscriptions.withdraw(subscription)  # also ends the thread that was made for it
            raise
        return subscription

    def add_listener(self, listener: ConnectionListener) -> None:
        """Add a listener behind those that are there; it hears what happens from now on."""
        self._callbacks.add_listener(listener)

    def remove_listener(self, listener: ConnectionListener) -> None:
        """Remove a listener; unknown ones are passed over."""
        self._callbacks.remove_listener(listener)

    # Closing.

    def disconnect(self, *, timeout: float | None = None, drain: bool = False) -> None:
        """Close the connection: DISCONNECT, the broker's receipt, then the socket. Idempotent.

        Whatever the broker and the network do, it does not raise. It returns when the deadline has passed at the
        latest, whether or not the broker answered. It may be called from a callback. Unacknowledged messages go back to
        the broker. If a signal handler raises in the middle, call it again.

        Args:
            timeout: seconds for all of it; `None` takes the close timeout.
            drain: first let no more messages in and work off what was already received; loops over subscriptions in
                other threads come to their end.

        Raises:
            ConfigurationError: the timeout is no duration; nothing was done.
        """
        check_seconds(timeout)
        self._closing.disconnect(timeout=timeout, drain=drain)

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disconnect()

    def __del__(self) -> None:
        closing: Closing | None = getattr(self, "_closing", None)
        if closing is not None and not closing.closed:
            warnings.warn(f"a connection was not closed: {self!r}", ResourceWarning, source=self, stacklevel=2)
            closing.forget()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Connection cannot be pickled; pickle what you would give to connect()")

    def __repr__(self) -> str:
        try:
            link = self._links.link
        except NotConnected:
            return "<Connection not open>"
        state = "connected" if self.connected else "closed" if self._closing.closed else "lost"
        return f"<Connection {link.address} STOMP {self.version} {state}>"
