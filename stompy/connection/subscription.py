"""A subscription: the id the broker knows, the handler or the inbox, and its end.

| who | does | lock |
|---|---|---|
| reader | `offer`, `end` | inbox (leaf) |
| iterating callers | `receive` | inbox (leaf), waits on its condition |
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from stompy.connection.dispatcher import Dispatcher
from stompy.connection.message import Delivery, Message
from stompy.deadline import Deadline, check_seconds
from stompy.dialects.options import SubscribeOptions
from stompy.errors import ConfigurationError, LocalProtocolError, NotConnected, ReceiveTimeout, StompError
from stompy.link.link import Link
from stompy.locks import make_condition

if TYPE_CHECKING:
    from stompy.connection.acking import Acker
    from stompy.connection.subscriptions import SubscriptionTable

AckMode = Literal["auto", "client", "client-individual"]
Handler = Callable[[Message], object]
OnError = Literal["nack", "leave"]

_NO_OPTIONS = SubscribeOptions()

_FOR_EVER = Deadline(None)

_LOG = logging.getLogger("stompy.connection")

_LOOK_AT_MAIN = 1.0
"""Seconds between two looks of a loop whether the main thread has ended."""

_LOOK = 0.02
"""Seconds between two looks whether a loop has ended."""


class Subscription:
    """One subscription of a connection; made by `Connection.subscribe`.

    Without a handler it is iterated: `for message in subscription`, which waits for messages and ends when the
    subscription or the connection is closed by its owner. Several threads may receive from one subscription.

    Attributes:
        id: the `id` header.
        destination: as it was asked for.
        ack: the mode.
        headers: further headers of the SUBSCRIBE frame.
        dispatcher: runs the handler; `None` for the connection's.
        options: what was asked for beyond the specification.
        acks_all: whether an ACK settles messages of the connection's other subscriptions too.
        on_error: what becomes of a message whose handler raised.
    """

    def __init__(
        self,
        subscriptions: SubscriptionTable,
        *,
        id: str,
        destination: str,
        ack: AckMode,
        handler: Handler | None,
        headers: dict[str, str],
        dispatcher: Dispatcher | None = None,
        options: SubscribeOptions = _NO_OPTIONS,
        acks_all: bool = False,
        on_error: OnError = "nack",
    ) -> None:
        self.id = id
        self.destination = destination
        self.ack: AckMode = ack
        self._headers = headers
        self._handler = handler
        self._dispatcher = dispatcher
        self._options = options
        self._acks_all = acks_all
        self.on_error: OnError = on_error
        self._subscriptions = subscriptions
        self._condition = make_condition("inbox")
        self._inbox: deque[Message] = deque()
        self._loops: dict[object, int] = {}
        self._closed = False
        self._counted = True
        self._announced = True
        """Whether the broker was told of it: some reply queues it makes, and ends, by itself."""
        self._leaving = False
        """Whether somebody is telling the broker that it ends; guarded by the subscriptions's lock."""
        self._draining = False
        """Whether what still comes is not wanted, and goes back to the broker when the link ends."""
        self._direct = handler is not None and dispatcher is None
        """Whether what comes goes to the connection's dispatcher alone."""
        self._on_arrival: Callable[[], object] | None = None
        """Called when messages were put into the inbox, and at the end; must not block. For stompy's own use."""
        self._warned = False
        self._reason: StompError | None = None
        self._delivery: Delivery | None = None

    # The reader's side.

    def _is_end(self, message: Message) -> bool:
        """Whether a message is the mark behind the last one, and none itself."""
        return False

    def _delivery_on(self, link: Link, acker: Acker) -> Delivery:
        """Return what its messages have in common that come by `link`, the newest one; on the reader."""
        delivery = self._delivery
        if delivery is None or delivery.link is not link:
            delivery = self._delivery = Delivery(link, acker, self)
        return delivery

    def _offer(self, messages: Sequence[Message]) -> None:
        """Put messages into the inbox."""
        with self._condition:
            self._inbox.extend(messages)
            self._condition.notify(len(messages))
            counted = self._counted
        if not counted:
            _release(messages)
        self._tell_of_arrival()

    def _lost(self, reason: StompError) -> bool:
        """Drop what the broker will send again, as the link is gone; return whether the subscription ends with it."""
        self._drop_unacknowledged()
        return False

    def _end(self, reason: StompError | None) -> None:
        """Let no more messages come; what waits can still be received, unless the broker will send it again."""
        with self._condition:
            if not self._closed:
                self._closed, self._reason = True, reason
            # What an ended subscription leaves in its inbox is nobody's duty to take, so it must not shut the gate.
            left = list(self._inbox) if reason is None else []
            self._counted = self._counted and reason is not None
            self._condition.notify_all()
        _release(left)
        if reason is not None:
            self._drop_unacknowledged()

        if self._dispatcher is not None:
            self._dispatcher.stop()
        self._tell_of_arrival()

    def _tell_of_arrival(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival()

    def _drain(self) -> None:
        """Take no more messages, where each waits for its ACK.

        The broker is not told: it would take back what it sent, and no ACK for it any more.
        """
        if self.ack != "auto":
            self._draining, self._direct = True, False
            self._end(None)

    def _drop_unacknowledged(self) -> None:
        if self.ack == "auto":
            return
        with self._condition:
            dropped = list(self._inbox)
            self._inbox.clear()
        _release(dropped)

    def _subscribe_headers(self) -> dict[str, str]:
        """Return the headers of the SUBSCRIBE frame, the same on each link."""
        return {**self._headers, "id": self.id, "destination": self.destination, "ack": self.ack}

    def _wait_empty(self, deadline: Deadline) -> bool:
        """Wait until everything was received, and loops of other threads have ended; return whether it came about."""
        mine = threading.get_ident()
        with self._condition:
            while self._inbox or any(loop != mine for loop in list(self._loops.values())):
                if deadline.expired:
                    return False
                # A loop that was left behind is noticed when its generator goes, which tells nobody.
                self._condition.wait(deadline.sooner(_LOOK).remaining())
            return True

    # The user's side.

    @property
    def closed(self) -> bool:
        """Whether no more messages can come."""
        return self._closed

    @property
    def queued(self) -> int:
        """Messages that wait to be received."""
        return len(self._inbox)

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message.

        Args:
            timeout: seconds; `None` takes the connection's receipt timeout, `0` only looks.

        Raises:
            ReceiveTimeout: none came in time.
            NotConnected: the subscription or the connection was closed by its owner.
            ConnectionLost: the link died.
            LocalProtocolError: the subscription has a handler.
        """
        seconds = self._subscriptions.receive_timeout if timeout is None else timeout
        message = self._next(Deadline(seconds))
        if message is None:
            raise NotConnected(f"subscription {self.id!r} is closed")
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the subscription or the connection is closed.

        Raises:
            ConnectionLost: the link died.
        """
        loop = object()
        try:
            self._loops[loop] = threading.get_ident()
            while (message := self._next(_FOR_EVER) if self._inbox else self._next_of_loop()) is not None:
                yield message
        finally:
            # Without the lock: this may be the garbage collector's moment, in a thread that holds it.
            self._loops.pop(loop, None)

    def _next_of_loop(self) -> Message | None:
        """Return the next message, whenever it comes; warn once where this thread alone keeps the program running."""
        thread = threading.current_thread()
        while not (self._warned or thread.daemon or thread is threading.main_thread()):
            with contextlib.suppress(ReceiveTimeout):
                return self._next(Deadline(_LOOK_AT_MAIN))
            if not threading.main_thread().is_alive():
                self._warned = True
                _LOG.warning(
                    "the main thread has ended, and the program runs on for the loop over %r in thread %s: disconnect "
                    "before the end, or make the thread a daemon",
                    self.destination,
                    thread.name,
                )
        return self._next(Deadline(None))

    def _next(self, deadline: Deadline) -> Message | None:
        if self._handler is not None:
            raise LocalProtocolError("a subscription with a handler cannot be received from")
        self._subscriptions.links.check_process()
        taken: Message | None = None
        try:
            with self._condition:
                if not self._inbox and not self._await_message(deadline):
                    return None
                taken = self._inbox[0]
                try:
                    self._inbox.popleft()
                    if not self._inbox:
                        self._condition.notify_all()
                except BaseException:
                    self._restore(taken)
                    taken = None
                    raise
            taken._link.flow.taken(taken)
            return taken
        except BaseException:
            if taken is not None:
                self._put_back(taken)
            raise

    def _await_message(self, deadline: Deadline) -> bool:
        """Wait for a message, with the lock; return `False` if the subscription was ended by its owner."""
        while not self._inbox:
            if self._closed:
                if self._reason is not None:
                    raise self._reason.with_traceback(None)
                return False
            if not self._condition.wait(deadline.remaining()) and not self._inbox and deadline.expired:
                raise ReceiveTimeout(f"no message from {self.destination!r} in time")
        return True

    def _restore(self, message: Message) -> None:
        if not self._inbox or self._inbox[0] is not message:
            self._inbox.appendleft(message)
            self._condition.notify_all()

    def _put_back(self, message: Message) -> None:
        """Leave a message for the next caller, as a signal struck before this one had it."""
        if self._counted and not message._counted:
            message._link.flow.added(1, message.size)
            message._counted = True
        with self._condition:
            self._restore(message)

    def unsubscribe(self, *, delete: bool = False, timeout: float | None = None) -> None:
        """End the subscription at the broker; what was received before can still be taken. Idempotent.

        In the client modes most brokers take no ACK for it any more; `disconnect(drain=True)` waits for that.

        Args:
            delete: give up a durable subscription for good, with the messages that wait for it; otherwise it goes on
                collecting while nobody is subscribed.
            timeout: seconds for the broker's confirmation; `None` takes the receipt timeout.

        Raises:
            ConfigurationError: there is nothing durable to delete, or the timeout is no duration.
        """
        check_seconds(timeout)
        self._subscriptions.remove(self, timeout=timeout, delete=delete)

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Subscription {self.destination!r} id={self.id} {self.ack} queued={self.queued}{state}>"


class QueueBrowser(Subscription):
    """The messages that lie in a queue; iteration ends after the last of them. Made by `subscribe(browse=True)`."""

    def _is_end(self, message: Message) -> bool:
        """Whether it is ActiveMQ's mark behind the last message, which is no message itself."""
        return message.headers.peek("browser") == "end"

    def _lost(self, reason: StompError) -> bool:
        """End for good: on another link it would begin anew."""
        self._end(reason)
        return True

    def _next(self, deadline: Deadline) -> Message | None:
        message = super()._next(deadline)
        if message is None:
            # The reader, which met the mark, never writes; to the broker the subscription is still there.
            with contextlib.suppress(StompError):
                self.unsubscribe(timeout=deadline.remaining())
        return message


def _release(messages: Sequence[Message]) -> None:
    """Tell the gate of each message that it does not wait for user code any more."""
    for message in messages:
        message._link.flow.taken(message)


def check_ack_mode(ack: str, on_error: str) -> None:
    """Refuse an unknown ack mode, or an unknown way with a handler that raises.

    Raises:
        ConfigurationError: not `auto`, `client` or `client-individual`; not `nack` or `leave`.
    """
    if ack not in ("auto", "client", "client-individual"):
        raise ConfigurationError(f"ack must be 'auto', 'client' or 'client-individual', not {ack!r}")
    if on_error not in ("nack", "leave"):
        raise ConfigurationError(f"on_error must be 'nack' or 'leave', not {on_error!r}")
