"""A queue: ordered, with competing consumers. Guarded by the router's lock."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING

from stompy.broker.budget import excess
from stompy.broker.stats import QueueDepth
from stompy.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stompy.broker.consumer import Consumer
    from stompy.broker.message import Item


class Queue:
    """Messages in order, handed to the consumers in turn.

    The backlog of a topic subscription is a queue with one consumer.

    Args:
        name: the destination.
        max_messages: ready messages that it holds at most.
        max_bytes: the same, in octets of headers and bodies.
    """

    def __init__(self, name: str, *, max_messages: int, max_bytes: int) -> None:
        self.name = name
        self.delivered = 0
        """Messages handed out so far."""
        self.unacked = 0
        """Messages that were delivered and are not settled yet."""
        self.kept = excess(sys.getsizeof(name))
        """Octets of state that it counts for where the broker keeps it by its name."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._ready: deque[Item] = deque()
        self._bytes = 0
        self._consumers: set[Consumer] = set()
        # Those with room, as far as is known, the next in turn first.
        self._turns: deque[Consumer] = deque()

    @property
    def ready(self) -> int:
        """Messages that wait for a consumer."""
        return len(self._ready)

    @property
    def consumers(self) -> int:
        """Subscriptions that take part."""
        return len(self._consumers)

    @property
    def depth(self) -> QueueDepth:
        """What it tells about itself."""
        return QueueDepth(ready=self.ready, unacked=self.unacked, consumers=self.consumers)

    @property
    def forgettable(self) -> bool:
        """Whether nothing would be lost if the queue were made anew."""
        return not (self._ready or self._consumers or self.unacked)

    def fits(self, messages: int, size: int) -> bool:
        """Whether so many more messages of so many octets in all may be added."""
        return len(self._ready) + messages <= self._max_messages and self._bytes + size <= self._max_bytes

    def append(self, item: Item) -> None:
        """Add a message at the end."""
        self._ready.append(item)
        self._bytes += item.message.size

    def put_back(self, items: Iterable[Item]) -> None:
        """Return messages to the places they had; those that were never taken stand behind them."""
        returned = sorted(items, key=_order)
        if not returned:
            return
        last = returned[-1].order
        # In front there may be others that came back before; only with them must the order be found.
        front = []
        while self._ready and self._ready[0].order < last:
            front.append(self._ready.popleft())
        self._ready.extendleft(reversed(sorted([*front, *returned], key=_order) if front else returned))
        self._bytes += sum(item.message.size for item in returned)

    def join(self, consumer: Consumer) -> None:
        """Let a consumer take part, behind the others."""
        self._consumers.add(consumer)
        self._turns.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Give a consumer nothing more."""
        self._consumers.discard(consumer)
        if consumer.parked:
            consumer.session.parked.pop(consumer, None)
        else:
            self._turns.remove(consumer)

    def unpark(self, consumer: Consumer) -> None:
        """Ask a consumer again whether it has room."""
        if consumer.parked and consumer in self._consumers:
            consumer.parked = False
            consumer.session.parked.pop(consumer, None)
            self._turns.append(consumer)

    def dispatch(self) -> list[tuple[Item, str]]:
        """Hand messages out while there are any and somebody has room.

        Returns:
            the messages that their consumer cannot be told of in its version of the protocol, with the reason.
        """
        refused: list[tuple[Item, str]] = []
        ready, turns = self._ready, self._turns
        while ready and turns:
            consumer = turns[0]
            if not consumer.has_room():
                turns.popleft()
                consumer.parked = True
                consumer.session.parked[consumer] = None
                continue
            if len(turns) > 1:
                turns.rotate(-1)
            item = ready.popleft()
            self._bytes -= item.message.size
            try:
                consumer.deliver(item)
                self.delivered += 1
            except LocalProtocolError as error:
                refused.append((item, str(error)))
        return refused

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} ready={len(self._ready)} unacked={self.unacked} consumers={len(self._consumers)}>"


def _order(item: Item) -> int:
    return item.order
