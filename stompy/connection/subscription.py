"""`Subscription`, which users hold: receiving, loops, and how they end."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from stompy.arguments import check_value
from stompy.connection.message import AckMode, Message
from stompy.connection.subscriptions import ActiveSubscription, Hand, OnException
from stompy.deadline import Deadline, check_seconds
from stompy.default import DEFAULT, Default, given
from stompy.errors import NotConnectedError, ReceiveTimeoutError, StompError
from stompy.world import threading

_LOG = logging.getLogger("stompy.connection")

_NO_DEADLINE = Deadline(None)

_MAIN_THREAD_INTERVAL = 1.0
"""Seconds between checks of a loop whether the main thread has ended."""


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

    def __init__(self, active: ActiveSubscription) -> None:
        self.id = active.id
        self.destination = active.destination
        self.ack: AckMode = active.ack
        self.on_exception: OnException = active.on_exception
        self._active = active
        self._warned = False

    @property
    def closed(self) -> bool:
        """Whether the subscription has ended, so that no more messages arrive."""
        return self._active.closed

    @property
    def queued(self) -> int:
        """Number of messages that wait to be received."""
        return len(self._active.inbox)

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
        active = self._active
        seconds = given(timeout, active.table.receive_timeout)
        active.receiver = threading.get_ident()
        handled = self.ack == "handled"
        if handled:
            active.acknowledge_held()
        message = active.take(Deadline(seconds))
        if message is None:
            raise NotConnectedError(f"subscription {self.id!r} is closed")
        if handled:
            active.hold(message)
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the subscription or the connection is closed.

        Raises:
            ConnectionLostError: the connection was lost.
        """
        active, loop = self._active, object()
        handled = self.ack == "handled"
        message: Message | None = None
        hand: Hand | None = None
        try:
            active.loops[loop] = threading.get_ident()
            while True:
                if handled:
                    active.acknowledge_held()
                message = active.take(_NO_DEADLINE) if active.inbox else self._next_of_loop()
                if message is None:
                    return
                if handled:
                    hand = active.hold(message)
                yield message
        except GeneratorExit as closing:
            # The hand is that of the thread of the loop, which the garbage collector may not run this in.
            if hand is not None and hand.message is message and _left_by_exception(closing):
                hand.message = None
            raise
        finally:
            # Without the lock, as the garbage collector may run this in a thread that holds it.
            active.loops.pop(loop, None)

    def _next_of_loop(self) -> Message | None:
        """Return the next message; warn once if this thread alone keeps the program running."""
        thread = threading.current_thread()
        while not (self._warned or thread.daemon or thread is threading.main_thread()):
            with contextlib.suppress(ReceiveTimeoutError):
                return self._active.take(Deadline(_MAIN_THREAD_INTERVAL))
            if not threading.main_thread().is_alive():
                self._warned = True
                _LOG.warning(
                    "the main thread has ended, but the loop over %.200r in thread %s keeps the program running: close "
                    "the connection, or make the thread a daemon",
                    self.destination,
                    thread.name,
                )
        return self._active.take(_NO_DEADLINE)

    def close(self, *, timeout: float | Default | None = DEFAULT, drain: bool = False) -> None:
        """End the subscription; messages that were received before can still be read. Idempotent.

        Except in mode `auto`, brokers then redeliver unacknowledged messages, and reject an ACK for them: the handler
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
        self._active.table.close(self._active, timeout=timeout, drain=drain)

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
        self._active.table.remove(self._active, timeout=timeout, delete=delete)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._active.acknowledge_held()
            self.close(drain=kind is None)
        except StompError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        return repr(self._active)


def call_on_arrival(subscription: Subscription, function: Callable[[], object]) -> None:
    """Call a function, which must not block, after messages were added to an inbox and at its end; on the reader."""
    subscription._active.on_arrival = function


def take_queued(subscription: Subscription, most: int, room: int, overhead: int) -> list[Message]:
    """Return several waiting messages at once; see `ActiveSubscription.take_queued`."""
    return subscription._active.take_queued(most, room, overhead)


# Whether a loop over a generator was left by `break` or by an exception.
#
# The interpreter closes the generator in both cases, at once, and does not say which it was: `sys.exc_info` does not
# have the exception yet. But the exception has noted the frame of the loop in its traceback before it leaves it. So the
# frame has a reference more than after `break`, `return` or `next(iter(...))`.
#
# Other references to the frame, such as those of a debugger or of a saved traceback, look like an exception too. That
# is the safe error: the message of the loop is then redelivered, not lost.


def _left_by_exception(closing: GeneratorExit) -> bool:
    """Return whether an exception leaves the loop; called by a generator with its `GeneratorExit`."""
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
