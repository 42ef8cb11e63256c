"""A subscription: the id the broker knows, the handler or the inbox, and its end.

| who | does | lock |
|---|---|---|
| reader | `offer`, `end` | inbox (leaf) |
| iterating callers | `receive` | inbox (leaf), waits on its condition |
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

from stompy.connection.dialects.options import SubscribeOptions
from stompy.connection.dispatcher import Dispatcher
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import ConfigurationError, LocalProtocolError, NotConnected, ReceiveTimeout, StompError
from stompy.frames.frame import Frame
from stompy.link.locks import make_condition

AckMode = Literal["auto", "client", "client-individual"]
Handler = Callable[[Message], object]

_NO_OPTIONS = SubscribeOptions()

_LOOK = 0.02
"""Seconds between two looks whether a loop has ended."""


class Subscriptions(Protocol):
    """The connection's core, as a subscription sees it."""

    @property
    def receive_timeout(self) -> float:
        """The default of `receive` in seconds."""
        ...

    def check_process(self) -> None:
        """Refuse to go on in a forked child."""
        ...

    def unsubscribe(self, subscription: Subscription, *, timeout: float | None, delete: bool = False) -> None:
        """Send UNSUBSCRIBE."""
        ...


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
    """

    def __init__(
        self,
        core: Subscriptions,
        *,
        id: str,
        destination: str,
        ack: AckMode,
        handler: Handler | None,
        headers: dict[str, str],
        dispatcher: Dispatcher | None = None,
        options: SubscribeOptions = _NO_OPTIONS,
        acks_all: bool = False,
    ) -> None:
        self.id = id
        self.destination = destination
        self.ack: AckMode = ack
        self.headers = headers
        self.handler = handler
        self.dispatcher = dispatcher
        self.options = options
        self.acks_all = acks_all
        self._core = core
        self._condition = make_condition("inbox")
        self._inbox: deque[Message] = deque()
        self._loops: list[int] = []
        self._closed = False
        self._counted = True
        self.told = True
        """Whether the broker was told of it: some reply queues it makes, and ends, by itself."""
        self.leaving = False
        """Whether somebody is telling the broker that it ends; guarded by the core's lock."""
        self.winding_up = False
        """Whether what still comes is not wanted, and goes back to the broker when the link ends."""
        self._reason: StompError | None = None
        self._delivered = 0
        self._covered = 0
        self._covered_by: str | None = None

    # The reader's side.

    def is_end(self, frame: Frame) -> bool:
        """Whether a MESSAGE frame is the mark behind the last message, and none itself."""
        return False

    def number(self) -> int:
        """Return the place of the next message among those delivered to this subscription."""
        self._delivered += 1
        return self._delivered

    def offer(self, messages: Sequence[Message]) -> None:
        """Put messages into the inbox."""
        with self._condition:
            self._inbox.extend(messages)
            self._condition.notify(len(messages))
            counted = self._counted
        if not counted:
            _release(messages)

    def lost(self, reason: StompError) -> bool:
        """Drop what the broker will send again, as the link is gone; return whether the subscription ends with it."""
        self._drop_unacknowledged()
        return False

    def end(self, reason: StompError | None) -> None:
        """Let no more messages come; what waits can still be received, unless the broker will send it again."""
        with self._condition:
            if not self._closed:
                self._closed, self._reason = True, reason
            # What an ended subscription leaves in its inbox is nobody's duty to take, so it must not shut the gate.
            left = list(self._inbox) if self._counted and reason is None else []
            self._counted = self._counted and reason is not None
            self._condition.notify_all()
        _release(left)
        if reason is not None:
            self._drop_unacknowledged()

        if self.dispatcher is not None:
            self.dispatcher.stop()

    def wind_up(self) -> None:
        """Take no more messages, where each waits for its ACK.

        The broker is not told: it would take back what it sent, and no ACK for it any more.
        """
        if self.ack != "auto":
            self.winding_up = True
            self.end(None)

    def _drop_unacknowledged(self) -> None:
        if self.ack == "auto":
            return
        with self._condition:
            dropped = list(self._inbox)
            self._inbox.clear()
            counted = self._counted
        if counted:
            _release(dropped)

    def subscribe_headers(self) -> dict[str, str]:
        """Return the headers of the SUBSCRIBE frame, the same on each link."""
        return {**self.headers, "id": self.id, "destination": self.destination, "ack": self.ack}

    def wait_empty(self, deadline: Deadline) -> bool:
        """Wait until everything was received, and loops of other threads have ended; return whether it came about."""
        mine = threading.get_ident()
        with self._condition:
            while self._inbox or any(loop != mine for loop in self._loops):
                if deadline.expired:
                    return False
                # A loop that was left behind is noticed when its generator goes, which tells nobody.
                self._condition.wait(deadline.sooner(_LOOK).remaining())
            return True

    # Which messages a cumulative ACK has covered.

    def covered(self, order: int) -> str | None:
        """Return the command of a cumulative ACK or NACK that named this message or a later one."""
        return self._covered_by if order <= self._covered else None

    def cover(self, order: int, command: str) -> None:
        """Note a cumulative ACK or NACK."""
        if order > self._covered:
            self._covered, self._covered_by = order, command

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
        seconds = self._core.receive_timeout if timeout is None else timeout
        message = self._next(Deadline(seconds))
        if message is None:
            raise NotConnected(f"subscription {self.id!r} is closed")
        return message

    def __iter__(self) -> Iterator[Message]:
        """Yield messages until the subscription or the connection is closed.

        Raises:
            ConnectionLost: the link died.
        """
        mine = threading.get_ident()
        self._loops.append(mine)
        try:
            while (message := self._next(Deadline(None))) is not None:
                yield message
        finally:
            # Without the lock: this may be the garbage collector's moment, in a thread that holds it.
            self._loops.remove(mine)

    def _next(self, deadline: Deadline) -> Message | None:
        if self.handler is not None:
            raise LocalProtocolError("a subscription with a handler cannot be received from")
        self._core.check_process()
        with self._condition:
            while not self._inbox:
                if self._closed:
                    if self._reason is not None:
                        raise self._reason.with_traceback(None)
                    return None
                if not self._condition.wait(deadline.remaining()) and not self._inbox and deadline.expired:
                    raise ReceiveTimeout(f"no message from {self.destination!r} in time")
            message = self._inbox.popleft()
            if not self._inbox:
                self._condition.notify_all()
            counted = self._counted
        if counted:
            _release((message,))
        return message

    def unsubscribe(self, *, delete: bool = False, timeout: float | None = None) -> None:
        """End the subscription at the broker; what was received before can still be taken. Idempotent.

        In the client modes most brokers take no ACK for it any more; `disconnect(drain=True)` waits for that.

        Args:
            delete: give up a durable subscription for good, with the messages that wait for it; otherwise it goes on
                collecting while nobody is subscribed.
            timeout: seconds for the broker's confirmation; `None` takes the receipt timeout.

        Raises:
            ConfigurationError: there is nothing durable to delete.
        """
        self._core.unsubscribe(self, timeout=timeout, delete=delete)

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<Subscription {self.destination!r} id={self.id} {self.ack} queued={self.queued}{state}>"


def _release(messages: Sequence[Message]) -> None:
    """Tell the gate of each message that it does not wait for user code any more."""
    for message in messages:
        message.link.gate.removed(1, message.size)


def check_ack_mode(ack: str) -> None:
    """Refuse an unknown ack mode.

    Raises:
        ConfigurationError: not `auto`, `client` or `client-individual`.
    """
    if ack not in ("auto", "client", "client-individual"):
        raise ConfigurationError(f"ack must be 'auto', 'client' or 'client-individual', not {ack!r}")
