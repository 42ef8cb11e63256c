"""A queue: the messages that wait, in order, for all of its consumers and for those of one selector, and their turns.

While `Queue.dispatch` runs, no consumer leaves the queue: see the rule at the top of `router.py`.

Guarded by the router's lock.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.broker.profile import UNDECLARED, Profile
from stompy.broker.settings import QueueDepth, excess
from stompy.broker.work import TOGETHER
from stompy.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stompy.broker.message import StoredMessage
    from stompy.broker.selector import Selector
    from stompy.broker.session_state import Consumer, OutgoingMessage

IN_ORDER = Profile(prioritized=False)
"""Those of a queue for one subscriber of a topic."""
_IN_FRONT = 1 << 62
"""Subtracted from the place of a message that goes before all others; more than there are places."""
_TURNS = itertools.count(1)
"""Numbers by which consumers of several views wait for their turn."""

_VALUES = operator.methodcaller("values")


class Item:
    """A message in one queue or backlog.

    Attributes:
        queue: where it is, or was taken from.
        order: its place; the broker counts, so that it holds for a queue that was forgotten and made again.
        priority: items of a higher one go first.
        expires: see `SendRequest`.
        group: see `SendRequest`.
        deliveries: how often it was handed to a subscriber.
        nacks: how often it was refused.
        named: its message-id, from the first delivery on.
        sender: the session that sent it.
    """

    __slots__ = (
        "__weakref__",
        "deliveries",
        "expires",
        "group",
        "message",
        "nacks",
        "named",
        "order",
        "priority",
        "queue",
        "sender",
    )

    queue: Queue

    def __init__(self, message: StoredMessage, order: int, sender: str | None = None) -> None:
        options = message.shared.route.options
        self.sender = sender
        self.message = message
        self.order = order
        self.priority = options.priority
        self.expires = options.expires
        self.group = options.group
        self.deliveries = self.nacks = 0
        self.named: bytes | None = None

    def __repr__(self) -> str:
        return f"<Item {self.order} {self.message!r} deliveries={self.deliveries} nacks={self.nacks}>"


class Ready:
    """The messages that wait: higher priorities first, then in their order; each can be taken out at once."""

    __slots__ = ("_levels",)

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[int, Item]] = {}  # the highest priority first

    def __bool__(self) -> bool:
        return any(self._levels.values())

    def __contains__(self, item: Item) -> bool:
        level = self._levels.get(item.priority)
        return level is not None and item.order in level

    def __iter__(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(map(_VALUES, self._levels.values()))

    def append(self, *items: Item) -> None:
        """Add messages, each at the end of its priority."""
        for item in items:
            level = self._levels.get(item.priority)
            if level is None:
                level = self._level(item.priority)
            level[item.order] = item

    def take_out(self, deliveries: Iterable[OutgoingMessage]) -> None:
        """Take out the messages of deliveries, which are all there."""
        for delivery in deliveries:
            del self._levels[delivery.item.priority][delivery.item.order]

    def first(self) -> Item:
        """Return the next message, which stays."""
        for level in self._levels.values():
            for item in level.values():
                return item
        raise LookupError("nothing waits")

    def discard(self, item: Item) -> bool:
        """Take a message out; return whether it was there."""
        level = self._levels.get(item.priority)
        return level is not None and level.pop(item.order, None) is not None

    def put_back(self, items: list[Item]) -> None:
        """Return messages, in order, to the places that they had."""
        levels: dict[int, list[Item]] = {}
        for item in items:
            levels.setdefault(item.priority, []).append(item)
        for priority, returned in levels.items():
            level = self._level(priority)
            last = returned[-1].order
            if not level or next(reversed(level)) < returned[0].order:
                for item in returned:
                    level[item.order] = item
                continue
            # In front there may be others that came back before; only with them must the order be found.
            front = []
            for item in level.values():
                if item.order > last:
                    break
                front.append(item)
            for item in reversed(sorted([*front, *returned], key=order_of) if front else returned):
                level[item.order] = item
                level.move_to_end(item.order, last=False)

    def _level(self, priority: int) -> OrderedDict[int, Item]:
        if priority not in self._levels:
            self._levels[priority] = OrderedDict()
            if len(self._levels) > 1:  # the time to forget the empty ones
                used = [(each, level) for each, level in self._levels.items() if level or each == priority]
                self._levels = dict(sorted(used, reverse=True))
        return self._levels[priority]


@dataclass(slots=True)
class DestinationCounts:
    """What became of the messages of a queue, or of a topic, since it came to be.

    Attributes:
        enqueued: messages that came to it; those that came back are not among them.
        delivered: MESSAGE frames handed out, redeliveries included.
        acknowledged: messages that their consumers have taken, by ACK or in auto mode.
        expired: messages whose time was over.
        dead_lettered: messages that became dead letters.
        discarded: messages given up.
        removed: messages purged, moved or sent again by who manages the broker, and those that a restart has lost.
        letters: how many of those that came were dead letters.
    """

    enqueued: int = 0
    delivered: int = 0
    acknowledged: int = 0
    expired: int = 0
    dead_lettered: int = 0
    discarded: int = 0
    removed: int = 0
    letters: int = 0

    def with_copies(self, queues: Iterable[Queue]) -> DestinationCounts:
        """Return these, of a topic, with those of the queues of its subscriptions, into which none was published."""
        summed = map(sum, zip(COUNTED(self), *(COUNTED(queue.tally()) for queue in queues), strict=True))
        return DestinationCounts(self.enqueued, *list(summed)[1:])


COUNTED: Callable[[DestinationCounts], tuple[int, ...]] = operator.attrgetter(*DestinationCounts.__annotations__)
"""Returns the numbers, in their order."""


class View:
    """What the consumers with one selector see of a queue, and whose turn it is.

    Attributes:
        ready: the messages that wait and fulfil the condition.
        selector: the condition; `None` for those that see every message.
        no_local: the session whose messages they do not see.
        turns: the consumers with room, as far as is known, the next in turn first.
        owners: the consumer of each message group.
        waiting: the messages that it was not asked about yet from `looked_at` on, as it came later than they.
        unseen: those that were added since then.
    """

    __slots__ = ("looked_at", "no_local", "owners", "ready", "selector", "turns", "unseen", "waiting")

    def __init__(self, ready: Ready, selector: Selector | None, no_local: str | None, waiting: Sequence[Item]) -> None:
        self.ready = ready
        self.selector = selector
        self.no_local = no_local
        self.turns: deque[Consumer] = deque()
        self.owners: dict[str, Consumer] = {}
        self.waiting = waiting
        self.looked_at = 0
        self.unseen: deque[Item] = deque()

    def enter(self, consumer: Consumer) -> None:
        """Give a consumer its turn after all others of its priority."""
        consumer.waits_since, at = next(_TURNS), len(self.turns)
        while at and self.turns[at - 1].options.priority < consumer.options.priority:
            at -= 1
        self.turns.insert(at, consumer)

    @property
    def looks(self) -> bool:
        """Whether it was not asked about all messages yet."""
        return bool(self.waiting or self.unseen)

    def look(self, most: int) -> list[Item]:
        """Return the next messages to ask it about, so many at most."""
        items = list(self.waiting[self.looked_at : self.looked_at + most])
        self.looked_at += len(items)
        if self.looked_at >= len(self.waiting):
            self.waiting, self.looked_at = (), 0
        while self.unseen and len(items) < most:
            items.append(self.unseen.popleft())
        return items

    def sees(self, item: Item) -> bool:
        """Whether a message fulfils the condition."""
        if self.no_local is not None and item.sender == self.no_local:
            return False
        return self.selector is None or self.selector.matches(item.message.shared.lookup)


def _turn(view: View) -> tuple[int, int]:
    """Return the place of a view among those of its queue: that of its next consumer."""
    return (-view.turns[0].options.priority, view.turns[0].waits_since) if view.turns else (sys.maxsize, 0)


def order_of(item: Item) -> int:
    """Return the place of a message in the order."""
    return item.order


_COPIED = 50
"""Messages that are copied at once for a browser."""


class Waiting(list["Item"]):
    """The messages that waited in a queue at one moment, in order, for all who look at them one after the other."""

    __slots__ = ("__weakref__",)


class Queue:
    """Messages in order, handed to the consumers in turn.

    The backlog of a topic subscription is a queue with one consumer.

    Args:
        name: by which the broker keeps it.
        max_messages: ready messages that it holds at most.
        max_bytes: the same, in bytes of headers and bodies.
        rules: in which order messages go.
        owner: the session that it ends with.
    """

    # A broker may make one for each message: so there are no keywords, and what consumers need is made for the first.
    def __init__(
        self, name: str, max_messages: int, max_bytes: int, rules: Profile = IN_ORDER, owner: str | None = None
    ) -> None:
        self.name = name
        self.owner = owner
        self.permanent = owner is not None
        """Whether it is there without messages and consumers too."""
        self.deleted = False
        """Whether it is gone, with all that it held."""
        self.declared = UNDECLARED
        """As what it was made."""
        self.unused_at: float | None = None
        """When it ends unless somebody subscribes to it."""
        self.paused = False
        """Whether nothing is handed out."""
        self.returning = 0
        """How many sets of messages are coming back to their places; until they have, nothing is handed out."""
        self.counts = DestinationCounts()
        """All but `acknowledged`, which is what is left of them: see `tally`."""
        self.unacked = 0
        """Messages that were delivered and are not settled yet."""
        self.kept = excess(sys.getsizeof(name))
        """Bytes of state that it counts for where the broker keeps it by its name."""
        self._rules = rules
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.ready = 0
        """Messages that wait for a consumer."""
        self._bytes = 0
        self._waits = Ready()
        self._all: View | None = None
        """What those of its consumers see who see every message, from the first of them on."""
        self._level = 0
        """Where persistent messages go first: the priority of others. It falls when the last subscriber leaves."""
        self._waiting: weakref.ref[Waiting] | None = None
        """As long as nothing was added since, and somebody looks at them."""
        self._selecting: dict[tuple[Selector | None, str | None], View] = {}
        """By selector, and the session whose messages they leave out, what its consumers see."""
        self.consumers: dict[Consumer, View] = {}
        """The subscriptions that take part."""
        self._exclusive: dict[Consumer, None] = {}
        self._assigned: dict[Consumer, Ready] = {}
        """Messages of groups that wait for the consumer that owns their group."""

    @property
    def depth(self) -> QueueDepth:
        """Its numbers of messages and consumers, for statistics."""
        return QueueDepth(ready=self.ready, unacked=self.unacked, consumers=len(self.consumers))

    def tally(self) -> DestinationCounts:
        """Return the counters, with `acknowledged` as it is now."""
        counts = self.counts
        others = counts.expired + counts.dead_lettered + counts.discarded + counts.removed
        counts.acknowledged = counts.enqueued - self.ready - self.unacked - others
        return counts

    @property
    def removable(self) -> bool:
        """Whether nothing would be lost if the queue were made anew."""
        used = self.ready or self.consumers or self.unacked or self._selecting
        return not (used or self.paused or self.permanent or self.returning)

    @property
    def cost(self) -> int:
        """How much work a message is here: it is looked at for each selector."""
        return 1 + len(self._selecting)

    def waiting(self) -> tuple[Waiting, bool]:
        """Return the messages that wait, in order, and whether they had to be collected.

        There may be some among them that do not wait any more.
        """
        if self._waiting is not None and (known := self._waiting()) is not None:
            return known, False
        collected = Waiting(self.items())
        self._waiting = weakref.ref(collected)
        return collected, True

    def holds(self, item: Item) -> bool:
        """Whether a message waits here."""
        return item in self._waits or any(item in ready for ready in self._assigned.values())

    def items(self) -> list[Item]:
        """Return the messages that wait, in order."""
        waiting = [*self._waits, *(item for ready in self._assigned.values() for item in ready)]
        return sorted(waiting, key=lambda item: (-item.priority, item.order)) if self._assigned else waiting

    def room(self) -> tuple[int, int]:
        """Return how many more messages may be added, and of how many bytes in all."""
        return self._max_messages - self.ready, self._max_bytes - self._bytes

    def fits(self, messages: int, size: int) -> bool:
        """Whether so many more messages of so many bytes in all may be added."""
        return self.ready + messages <= self._max_messages and self._bytes + size <= self._max_bytes

    # Messages

    def first(self) -> Item:
        """Return the message that would be handed out next."""
        return self._waits.first()

    def append(self, item: Item) -> None:
        """Add a message at the end."""
        item.queue = self
        self._waiting = None
        if not self._rules.prioritized:
            item.priority = self._rank(item)
        self.ready += 1
        self.counts.enqueued += 1
        self._bytes += item.message.size
        if self._rules.delayed_first and item.message.options.due is not None:
            item.order -= _IN_FRONT
            self._show([item])
            return
        self._waits.append(item)
        if self._selecting:
            for view in self._selecting.values():
                if view.looks:
                    view.unseen.append(item)
                elif view.sees(item):
                    view.ready.append(item)

    @property
    def takes_together(self) -> bool:
        """Whether messages can be added together: no declaration bounds them, and nothing looks at each."""
        return not self._selecting and self.declared is UNDECLARED

    def extend(self, items: list[Item], size: int) -> None:
        """Add messages, of so many bytes in all, at the end of a queue that `takes_together`."""
        self._waiting, count, prioritized = None, len(items), self._rules.prioritized
        for item in items:
            item.queue = self
            if not prioritized:
                item.priority = self._rank(item)
        self.ready += count
        self.counts.enqueued += count
        self._bytes += size
        self._waits.append(*items)

    def _rank(self, item: Item) -> int:
        if self._rules.persistent_first:
            return self._level + int(not self.consumers and item.message.options.persistent is True)
        if self.declared.max_priority is None:
            return 0
        asked = item.message.shared.lookup("priority")
        return min(int(asked), self.declared.max_priority) if isinstance(asked, str) and asked.isdecimal() else 0

    def put_back(self, items: Iterable[Item]) -> None:
        """Return messages to the places they had; messages that were never taken come after them."""
        returned = sorted(items, key=order_of)
        self.ready += len(returned)
        self._bytes += sum(item.message.size for item in returned)
        self._show(returned)

    def _show(self, items: list[Item]) -> None:
        self._waiting = None
        self._waits.put_back(items)
        for view in self._selecting.values():
            if view.looks:
                view.unseen.extend(items)
            elif seen := [item for item in items if view.sees(item)]:
                view.ready.put_back(seen)

    def remove(self, item: Item) -> bool:
        """Take a message out that waits; return whether it does."""
        if not self._hide(item) and not any(ready.discard(item) for ready in self._assigned.values()):
            return False
        self._taken(item)
        return True

    def _hide(self, item: Item) -> bool:
        for view in self._selecting.values():
            view.ready.discard(item)
        return self._waits.discard(item)

    def _taken(self, item: Item) -> None:
        self.ready -= 1
        self._bytes -= item.message.size

    # Consumers

    def join(self, consumer: Consumer) -> None:
        """Let a consumer take part, after the others."""
        self.consumers[consumer] = self._view(consumer.selector, consumer.no_local)
        if consumer.options.exclusive:
            self._exclusive[consumer] = None
        if self._exclusive:
            self._restart_turns()
        else:
            self.consumers[consumer].enter(consumer)

    def _view(self, selector: Selector | None, no_local: str | None) -> View:
        if selector is None and no_local is None:
            self._all = self._all or View(self._waits, None, None, ())
            return self._all
        view = self._selecting.get((selector, no_local))
        if view is None:
            self._selecting[selector, no_local] = view = View(Ready(), selector, no_local, self.waiting()[0])
        return view

    def leave(self, consumer: Consumer) -> None:
        """Give a consumer nothing more."""
        view = self.consumers.pop(consumer)
        if not self.consumers:
            self._level -= 2
        self._exclusive.pop(consumer, None)
        if consumer in view.turns:
            view.turns.remove(consumer)
        if view.owners:
            view.owners = {group: owner for group, owner in view.owners.items() if owner is not consumer}
        assigned = self._assigned.pop(consumer, None)
        if assigned is not None:
            self._show(sorted(assigned, key=order_of))
        if view is not self._all and view not in self.consumers.values():
            del self._selecting[view.selector, view.no_local]
        if consumer.options.exclusive:
            self._restart_turns()

    def _restart_turns(self) -> None:
        """Let only the first exclusive consumer have turns, or all where there is none."""
        for view in self._views():
            view.turns.clear()
        for consumer in [*self._exclusive][:1] or self.consumers:
            self.consumers[consumer].enter(consumer)

    def _views(self) -> list[View]:
        return [*filter(None, [self._all]), *self._selecting.values()]

    def resume(self, consumer: Consumer) -> None:
        """Ask a consumer again whether it has room."""
        view = self.consumers.get(consumer)
        if view is not None and consumer not in view.turns and consumer is next(iter(self._exclusive), consumer):
            view.enter(consumer)

    # Handing out

    def dispatch(self, refuse: Callable[[Item, str], None], now: float, most: int = sys.maxsize) -> int:
        """Hand messages out while a consumer has room; return how much work that was.

        Args:
            refuse: called for a message that cannot be delivered in its consumer's version of STOMP, with the reason,
                and for one that has expired, with none.
            now: seconds since the epoch, by the broker's clock.
            most: the work after which it stops; where it was so much, there may be more to do.
        """
        if self.paused or self.returning:
            return 0
        left = most
        if self._assigned:
            for consumer in list(self._assigned):
                left -= self._hand_assigned(consumer, refuse, now, left)
        if not self._selecting:
            return most - left + (self._dispatch(self._all, refuse, now, left) if self._all else 0)
        for view in sorted(self._views(), key=_turn):
            if left <= 0:
                break
            left -= 1 + self._look_at(view, left)
            left -= self._dispatch(view, refuse, now, left)
        return most - left

    def _look_at(self, view: View, most: int) -> int:
        """Find messages for a selector that came later than they; return how many were looked at."""
        if not view.looks:
            return 0
        looked = view.look(most)
        found = [item for item in looked if item in self._waits and view.sees(item)]
        if found:
            view.ready.put_back(sorted(found, key=order_of))
        return len(looked)

    def _dispatch(self, view: View, refuse: Callable[[Item, str], None], now: float, most: int) -> int:
        ready, turns, cost, left = view.ready, view.turns, self.cost, most
        while turns and self.ready and ready and left > 0:
            consumer = turns[0]
            if len(turns) == 1 and (count := self._hand_many(consumer, view, 1 + TOGETHER * left // cost)):
                left -= 1 + count * cost // TOGETHER
                consumer.waits_since = next(_TURNS)
                continue
            left -= cost
            if not consumer.has_room():
                turns.popleft()
                consumer.wait_for_room(self)
                continue
            item = ready.first()
            if item.group is not None:
                owner = view.owners.setdefault(item.group, consumer)
                if owner is not consumer:
                    self._hide(item)
                    self._assigned.setdefault(owner, Ready()).append(item)
                    self._hand_assigned(owner, refuse, now, left)
                    continue
            if len(turns) > 1:
                view.enter(turns.popleft())
            self._hide(item)
            self._hand(item, consumer, view, refuse, now)
        return most - left

    def _hand_many(self, consumer: Consumer, view: View, most: int) -> int:
        """Hand messages, as they stand, to the one consumer that there is; return how many it took."""
        deliveries = consumer.deliver_all(view.ready, most)
        count = len(deliveries)
        if not self._selecting:
            view.ready.take_out(deliveries)
        for delivery in deliveries:
            self._bytes -= delivery.item.message.size
            if self._selecting:
                self._hide(delivery.item)
        self.ready -= count
        self.counts.delivered += count
        return count

    def _hand_assigned(self, consumer: Consumer, refuse: Callable[[Item, str], None], now: float, most: int) -> int:
        waiting, view, count = self._assigned[consumer], self.consumers[consumer], 0
        while waiting and count < most and consumer.has_room():
            count += 1
            item = waiting.first()
            waiting.discard(item)
            self._hand(item, consumer, view, refuse, now)
        if not waiting:
            del self._assigned[consumer]
        elif count < most and consumer in view.turns:
            view.turns.remove(consumer)
            consumer.wait_for_room(self)
        return 1 + count

    def _hand(
        self, item: Item, consumer: Consumer, view: View, refuse: Callable[[Item, str], None], now: float
    ) -> None:
        self._taken(item)
        if item.group is not None and item.message.options.group_ends:
            view.owners.pop(item.group, None)
        if item.expires is not None and item.expires <= now:
            refuse(item, "")
            return
        try:
            consumer.deliver(item)
            self.counts.delivered += 1
        except LocalProtocolError as error:
            refuse(item, str(error))

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} ready={self.ready} unacked={self.unacked} consumers={len(self.consumers)}>"


class Snapshot(Queue):
    """What a browser gets: messages that wait in a queue, copied as it has room for them.

    Args:
        source: the queue; `None` for one that is not there.
        name: of the queue.
        browsed: what the browser sees of its messages; those that wait no more at their turn are left out.
        unacked: messages of the queue that were delivered, which it gets too; `None` for a broker that hides these, and
            how often others were delivered.
        copied: returns a place for a message.
        end: the last message.
    """

    def __init__(
        self,
        source: Queue | None,
        *,
        name: str,
        browsed: View,
        unacked: frozenset[Item] | None = None,
        copied: Callable[[StoredMessage], Item],
        end: StoredMessage,
    ) -> None:
        super().__init__(name, sys.maxsize, sys.maxsize)
        self._source = source
        self._unacked = unacked
        self._browsed = browsed
        self._copied = copied
        self._end: StoredMessage | None = end

    def dispatch(self, refuse: Callable[[Item, str], None], now: float, most: int = sys.maxsize) -> int:
        """Hand out copies while there is room; see `Queue.dispatch`."""
        left = most
        while left > 0 and (self.ready or self._end is not None) and any(view.turns for view in self._views()):
            if not self.ready:
                left -= self._copy(min(left, _COPIED))
            left -= super().dispatch(refuse, now, max(1, left))
        return most - left

    def _copy(self, most: int) -> int:
        looked, source, unacked = self._browsed.look(most), self._source, self._unacked or ()
        for item in looked:
            if source is not None and (source.holds(item) or item in unacked) and self._browsed.sees(item):
                copy = self._copied(item.message)
                if self._unacked is not None:
                    copy.deliveries = item.deliveries - (item in unacked)
                self.append(copy)
        if not self._browsed.looks and self._end is not None:
            self.append(self._copied(self._end))
            self._end = self._source = None
        return len(looked)
