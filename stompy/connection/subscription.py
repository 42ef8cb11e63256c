"""Subscriptions: their handler or inbox, and how they end.

| who | calls | lock |
|---|---|---|
| reader | `_offer`, `_end` | inbox (leaf) |
| iterating callers | `receive` | inbox (leaf), waits on its condition |
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakSet

from stompy.arguments import check_value
from stompy.connection.listeners import Dispatcher, check_function, hears_messages
from stompy.connection.message import Delivery, Message
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.dialects.options import SubscribeOptions
from stompy.errors import ConfigurationError, LocalProtocolError, NotConnectedError, ReceiveTimeoutError, StompError
from stompy.link.link import Link
from stompy.locks import make_condition
from stompy.threads import DaemonThread
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.connection.message import Acker
    from stompy.connection.subscriptions import SubscriptionTable

_LOG = logging.getLogger("stompy.connection")

AckMode = Literal["handled", "auto", "client", "client-individual"]
Handler = Callable[[Message], object]


class MessageListener(Protocol):
    """An object that can be given to `Connection.subscribe` in place of a function."""

    def on_message(self, message: Message, /) -> object:
        """Called with each message of the subscription."""
        ...


OnException = Literal["nack", "leave"]

_NO_OPTIONS = SubscribeOptions()

_FEW = 10
"""Messages; a subscription with a larger prefetch does not keep the last ones."""

_NO_DEADLINE = Deadline(None)


_MAIN_THREAD_INTERVAL = 1.0
"""Seconds between checks of a loop whether the main thread has ended."""

_LOOP_INTERVAL = 0.02
"""Seconds between checks whether a loop has ended."""


class _Hand:
    """What a thread has received last from a subscription in mode `handled`, if it is not yet acknowledged."""

    __slots__ = ("__weakref__", "message")

    def __init__(self) -> None:
        self.message: Message | None = None


class Subscription:
    """A subscription, returned by `Connection.subscribe`. Thread-safe.

    It has one consumer: its handler; without one the listeners of the connection that define `on_message`; else
    whoever iterates over it with `for message in subscription` or calls `receive`. The iteration waits for messages,
    and ends after `close`, of the subscription or the connection. Several threads may receive from one subscription.

    Attributes:
        id: the `id` header.
        destination: as given.
        ack: the acknowledgement mode.
        on_exception: what to do with a message whose handler raised; see `Connection.subscribe`.
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
        on_exception: OnException = "nack",
    ) -> None:
        self.id = id
        self.destination = destination
        self.ack: AckMode = ack
        self._headers = headers
        self._handler = handler
        self._dispatcher = dispatcher
        self._options = options
        self._acks_all = acks_all
        self.on_exception: OnException = on_exception
        self._subscriptions = subscriptions
        self._condition = make_condition("inbox")
        self._inbox: deque[Message] = deque()
        self._loops: dict[object, int] = {}
        self._own = threading.local()
        """The hand of the current thread. It ends with the thread, whose identifier may be used again."""
        self._hands: WeakSet[_Hand] = WeakSet()
        """Those of all threads; guarded by the inbox's lock."""
        self._receiver: int | None = None
        """The thread that called `receive` last."""
        self._closed = False
        self._counted = True
        self._announced = True
        """Whether SUBSCRIBE was sent: some brokers create reply queues by themselves."""
        self._unsubscribing = False
        """Whether `remove` was called; guarded by the lock of the subscriptions."""
        self._draining = False
        """Whether new messages are dropped, so that the broker redelivers them after the link ended."""
        self._direct = handler is not None and dispatcher is None
        """Whether all messages go to the connection's dispatcher."""
        self._has_reader = False
        """Whether somebody has begun to receive; from then on messages go to the inbox, whoever else listens."""
        self._on_arrival: Callable[[], object] | None = None
        """Called after messages were added to the inbox, and at the end; see `notify_arrivals`."""
        self._warned = False
        self._reason: StompError | None = None
        self._delivery: Delivery | None = None
        few = options.prefetch is not None and options.prefetch <= _FEW and ack != "auto"
        self._recent: deque[Message] | None = deque(maxlen=options.prefetch) if few else None
        """As many of the last messages as the broker sends before an ACK, to explain why no other comes."""

    # For the reader and the connection.

    def _is_end_marker(self, message: Message) -> bool:
        """Return whether a message is an end marker, not a message."""
        return False

    def _delivery_on(self, link: Link, acker: Acker) -> Delivery:
        """Return the delivery for `link`, the newest; on the reader."""
        delivery = self._delivery
        if delivery is None or delivery.link is not link:
            delivery = self._delivery = Delivery(link, acker, self)
        return delivery

    def _offer(self, messages: Sequence[Message]) -> None:
        """Add messages to the inbox."""
        with self._condition:
            self._inbox.extend(messages)
            self._condition.notify(len(messages))
            counted = self._counted
        if not counted:
            _release(messages)
        self._notify_arrival()

    def _is_unread(self) -> bool:
        """Whether nobody receives, and nothing waits in the inbox that would have to come first."""
        return not (self._has_reader or self._inbox)

    def _take_unread(self) -> list[Message]:
        """Remove and return what is in the inbox, unless somebody receives from it."""
        with self._condition:
            if self._has_reader:
                return []
            taken = list(self._inbox)
            self._inbox.clear()
            self._condition.notify_all()
            return taken

    def _link_lost(self, reason: StompError) -> bool:
        """Drop what the broker will redeliver after the link was lost; return whether the subscription has ended."""
        self._drop_unacknowledged()
        return False

    def _end(self, reason: StompError | None) -> None:
        """Accept no more messages; what is queued can still be received, unless the broker will redeliver it."""
        with self._condition:
            if not self._closed:
                self._closed, self._reason = True, reason
            # What is left in the inbox may never be received, so it must not pause reading.
            uncounted = list(self._inbox) if reason is None else []
            self._counted = self._counted and reason is not None
            self._condition.notify_all()
        _release(uncounted)
        if reason is not None:
            self._drop_unacknowledged()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        self._notify_arrival()

    def _notify_arrival(self) -> None:
        if self._on_arrival is not None:
            self._on_arrival()

    def _drain(self) -> None:
        """Accept no more messages if they need ACK.

        The subscription stays open at the broker, which would otherwise reject those ACKs.
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
        """Return the headers of the SUBSCRIBE frame."""
        # Brokers know this mode in STOMP 1.0 too, which does not define it.
        ack = "client-individual" if self.ack == "handled" else self.ack
        return {**self._headers, "id": self.id, "destination": self.destination, "ack": ack}

    def _wait_read(self, deadline: Deadline) -> bool:
        """Wait until other threads have handled what was received and their loops have ended; `False` at the deadline.

        What nobody else takes is not waited for: what this thread receives itself, or nobody ever did.
        """
        own = threading.get_ident()
        with self._condition:
            while (
                any(loop != own for loop in list(self._loops.values()))
                or (self._inbox and self._read_elsewhere(own))
                or self._held_elsewhere()
            ):
                if deadline.expired:
                    return False
                # Polled, as the end of an abandoned generator or of a thread notifies no condition.
                self._condition.wait(deadline.sooner(_LOOP_INTERVAL).remaining())
            return True

    def _read_elsewhere(self, own: int) -> bool:
        """Whether the last thread that called `receive` is another one, and still runs."""
        return self._receiver not in (None, own) and any(
            thread.ident == self._receiver for thread in threading.enumerate()
        )

    def _held_elsewhere(self) -> bool:
        """Whether another thread, which still runs, has received a message and not asked for the next one."""
        own = getattr(self._own, "hand", None)
        held = [hand.message for hand in self._hands if hand is not own]
        return any(message is not None and message.settled is None and message._link.alive for message in held)

    # Mode `handled`, for what is received. Each thread has its own message in hand. It is acknowledged when the thread
    # asks for the next one, or when the block of the connection ends without an exception.
    #
    # A loop that is left by an exception has not handled its last message, even if the exception is caught outside the
    # loop and the thread goes on: that message is redelivered after the session.

    def _hold(self, message: Message) -> _Hand:
        """Note what this thread has received."""
        hand: _Hand | None = getattr(self._own, "hand", None)
        if hand is None:
            hand = self._own.hand = _Hand()
            with self._condition:
                self._hands.add(hand)
        hand.message = message
        return hand

    def _acknowledge_held(self) -> None:
        """Acknowledge what this thread has received, as it asks for the next message, or ends the block."""
        hand: _Hand | None = getattr(self._own, "hand", None)
        if hand is not None and hand.message is not None:
            hand.message._handled()
            # Last, as a signal may interrupt: a message that is settled is not acknowledged again.
            hand.message = None

    # For users.

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended, so that no more messages arrive."""
        return self._closed

    @property
    def queued(self) -> int:
        """Number of messages that wait to be received."""
        return len(self._inbox)

    def receive(self, *, timeout: float | Default | None = DEFAULT) -> Message:
        """Return the next message.

        Args:
            timeout: seconds; by default the connection's receipt timeout; `0` does not wait.

        Raises:
            ReceiveTimeoutError: no message in time.
            NotConnectedError: after `close`.
            ConnectionLostError: the connection was lost.
            LocalProtocolError: the subscription has a handler, or the listeners of the connection get its messages.
        """
        seconds = given(timeout, self._subscriptions.receive_timeout)
        self._receiver = threading.get_ident()
        handled = self.ack == "handled"
        if handled:
            self._acknowledge_held()
        message = self._next(Deadline(seconds))
        if message is None:
            raise NotConnectedError(f"subscription {self.id!r} is closed")
        if handled:
            self._hold(message)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the subscription or the connection is closed.

        Raises:
            ConnectionLostError: the connection was lost.
        """
        loop = object()
        handled = self.ack == "handled"
        message: Message | None = None
        hand: _Hand | None = None
        try:
            self._loops[loop] = threading.get_ident()
            while True:
                if handled:
                    self._acknowledge_held()
                message = self._next(_NO_DEADLINE) if self._inbox else self._next_of_loop()
                if message is None:
                    return
                if handled:
                    hand = self._hold(message)
                yield message
        except GeneratorExit as closing:
            # The hand is that of the thread of the loop, which the garbage collector may not run this in.
            if hand is not None and hand.message is message and _left_by_exception(closing):
                hand.message = None
            raise
        finally:
            # Without the lock, as the garbage collector may run this in a thread that holds it.
            self._loops.pop(loop, None)

    def _next_of_loop(self) -> Message | None:
        """Return the next message; warn once if this thread alone keeps the program running."""
        thread = threading.current_thread()
        while not (self._warned or thread.daemon or thread is threading.main_thread()):
            with contextlib.suppress(ReceiveTimeoutError):
                return self._next(Deadline(_MAIN_THREAD_INTERVAL))
            if not threading.main_thread().is_alive():
                self._warned = True
                _LOG.warning(
                    "the main thread has ended, but the loop over %.200r in thread %s keeps the program running: close "
                    "the connection, or make the thread a daemon",
                    self.destination,
                    thread.name,
                )
        return self._next(Deadline(None))

    def _next(self, deadline: Deadline) -> Message | None:
        if not self._has_reader:
            self._become_reader()
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
            if self._recent is not None:
                self._recent.append(taken)
            return taken
        except BaseException:
            if taken is not None:
                self._put_back(taken)
            raise

    def _become_reader(self) -> None:
        """Let whoever receives be the consumer, unless there is another one."""
        if self._handler is not None:
            raise LocalProtocolError("cannot receive from a subscription that has a handler: subscribe without one")
        with self._condition:
            if self._subscriptions.listened_to():
                raise LocalProtocolError(
                    f"cannot receive from {self.destination!r}: a listener of the connection defines on_message and"
                    " gets its messages; receive on a connection without such a listener"
                )
            self._has_reader = True

    def _await_message(self, deadline: Deadline) -> bool:
        """Wait for a message, with the lock held; return `False` if the subscription was closed by us."""
        if not self._condition.wait_for(lambda: self._inbox or self._closed, deadline.remaining()):
            raise ReceiveTimeoutError(f"no message from {self.destination!r} in time" + self._why_none())
        if not self._inbox and self._reason is not None:
            raise self._reason.with_traceback(None)
        return bool(self._inbox)

    def _why_none(self) -> str:
        """Return what keeps the broker from sending more, if that is known."""
        recent, most = self._recent or (), self._options.prefetch
        unsettled = sum(message.settled is None and not message.session_ended for message in recent)
        if not unsettled or unsettled != most:
            return ""
        return f": {unsettled} unacknowledged, prefetch={most}; acknowledge them to get more"

    def _restore(self, message: Message) -> None:
        if not self._inbox or self._inbox[0] is not message:
            self._inbox.appendleft(message)
            self._condition.notify_all()

    def _put_back(self, message: Message) -> None:
        """Put a message back for the next caller, after a signal interrupted this one."""
        if self._counted and not message._counted:
            message._link.flow.added(1, message.size)
            message._counted = True
        with self._condition:
            self._restore(message)

    def close(self, *, timeout: float | Default | None = DEFAULT, drain: bool = False) -> None:
        """End the subscription; messages that were received before can still be read. Idempotent.

        Except in mode `auto`, brokers then redeliver what was not acknowledged, and reject an ACK for it: the handler
        gets no more messages, also if it calls this itself. `drain=True` waits for them first. A durable subscription
        is kept by the broker; `unsubscribe` deletes it.

        Args:
            timeout: seconds in total; by default the receipt timeout.
            drain: first stop accepting messages, and wait until the handler, listeners or other threads have handled
                those received; a handler that calls it is not waited for. Loops over the subscription end.

        Raises:
            ConfigurationError: the timeout is invalid; nothing was done.
            ReceiptTimeoutError: the broker did not confirm in time.
        """
        check_seconds(given(timeout, None))
        check_value("drain", drain, bool)
        self._subscriptions.close(self, timeout=timeout, drain=drain)

    def unsubscribe(self, *, delete: bool, timeout: float | Default | None = DEFAULT) -> None:
        """End the subscription as `close` does, and delete it at the broker if it is durable.

        Args:
            delete: whether to delete a durable subscription with its stored messages.
            timeout: seconds in total; by default the receipt timeout.

        Raises:
            ConfigurationError: the subscription is not durable, or the timeout is invalid.
        """
        check_seconds(given(timeout, None))
        check_value("delete", delete, bool)
        self._subscriptions.remove(self, timeout=timeout, delete=delete)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._acknowledge_held()
            self.close(drain=kind is None)
        except StompError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Subscription {self.destination!r} id={self.id} {self.ack} queued={self.queued}{state}>"


class QueueBrowser(Subscription):
    """A subscription that reads a queue without consuming it; made by `Connection.browse`."""

    def __init__(self, subscriptions: SubscriptionTable, **arguments: Any) -> None:
        super().__init__(subscriptions, **arguments)
        self._has_reader = True

    def messages(self, timeout: float | None) -> Iterator[Message]:
        """Subscribe, and yield the messages; raises as `Connection.browse` does.

        Args:
            timeout: seconds for each message.
        """
        try:
            self._subscriptions.add(self, timeout=DEFAULT)
        except BaseException:
            self._subscriptions.withdraw(self)
            raise
        try:
            while (message := self._next(Deadline(timeout))) is not None:
                yield message
        finally:
            if not self._closed:
                # From a new thread, as the garbage collector may run this in one that holds any of our locks.
                with contextlib.suppress(StompError):  # no thread can be started
                    DaemonThread(f"stompy-browser-{self.id}", self._close_quietly).start()

    def _is_end_marker(self, message: Message) -> bool:
        """Return whether it is ActiveMQ's end marker, which is not a message."""
        return message.headers.get("browser") == "end"

    def _link_lost(self, reason: StompError) -> bool:
        """End: on the next link it would start over."""
        self._end(reason)
        return True

    def _next(self, deadline: Deadline) -> Message | None:
        message = super()._next(deadline)
        if message is None:
            # The reader, which found the end marker, never writes, so the broker still has the subscription.
            with contextlib.suppress(StompError):
                self.close(timeout=deadline.remaining())
        return message

    def _close_quietly(self) -> None:
        with contextlib.suppress(StompError):
            self.close()


def notify_arrivals(subscription: Subscription, notify: Callable[[], object]) -> None:
    """Call `notify` after messages were added to the inbox of a subscription, and at its end; it must not block."""
    subscription._on_arrival = notify


def _release(messages: Sequence[Message]) -> None:
    """Update flow control: the messages no longer wait for user code."""
    for message in messages:
        message._link.flow.taken(message)


def handler_of(consumer: Handler | MessageListener | None) -> Handler | None:
    """Return the function to call with messages: the argument, or its `on_message`.

    Raises:
        ConfigurationError: it is neither a function nor an object that defines `on_message`, or is `async def`.
    """
    if consumer is None:
        return None
    is_class = isinstance(consumer, type) and hasattr(consumer, "on_message")
    if is_class or not (callable(consumer) or hears_messages(consumer)):
        raise ConfigurationError(f"the handler must be a function or an object with on_message, not {consumer!r}")
    function: Handler = consumer if callable(consumer) else consumer.on_message
    check_function(function, "the handler")
    return function


# Whether a loop over a generator was left by `break` or by an exception.
#
# The interpreter closes the generator in both cases, at once, and does not say which it was: `sys.exc_info` does not
# have the exception yet. But the exception has noted the frame of the loop in its traceback before it leaves it. So the
# frame has a reference more than after `break`, `return` or `next(iter(...))`.
#
# Other references to the frame, such as those of a debugger or of a saved traceback, look like an exception too. That
# is the safe error: the message of the loop is then redelivered, not lost.


def _left_by_exception(closing: GeneratorExit) -> bool:
    """Return whether an exception leaves the loop; called by a generator with what closes it."""
    # A context means that `close` was called while an exception was handled, such as by `contextlib.closing`.
    return closing.__context__ is not None or _references() > _AFTER_BREAK


def _references() -> int:
    """Return how many references there are to the frame of the loop: behind this one, its caller and the generator."""
    try:
        return sys.getrefcount(sys._getframe(3))
    except ValueError:  # the interpreter is about to end
        return sys.maxsize


def _after_break() -> int:
    found: list[int] = []

    def close(closing: GeneratorExit) -> None:
        found.append(_references())

    def numbers() -> Iterator[int]:
        try:
            yield 1
        except GeneratorExit as closing:
            close(closing)
            raise

    for _ in numbers():
        break
    return found[0]


_AFTER_BREAK = _after_break()
