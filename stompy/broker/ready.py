"""The messages of a queue that wait, for all of its consumers and for those of one selector."""

from __future__ import annotations

import itertools
import operator
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stompy.broker.consumer import Consumer
    from stompy.broker.message import Item
    from stompy.broker.selector import Selector


_VALUES = operator.methodcaller("values")


class Ready:
    """The messages that wait: higher priorities first, then in their order; each can be taken out at once."""

    __slots__ = ("_levels", "_spare")

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[int, Item]] = {}  # the highest priority first; none is empty
        self._spare: OrderedDict[int, Item] | None = None  # one that became empty

    def __bool__(self) -> bool:
        return bool(self._levels)

    def __contains__(self, item: Item) -> bool:
        level = self._levels.get(item.priority)
        return level is not None and item.order in level

    def __iter__(self) -> Iterator[Item]:
        return itertools.chain.from_iterable(map(_VALUES, self._levels.values()))

    def append(self, item: Item) -> None:
        """Add a message at the end of its priority."""
        level = self._levels.get(item.priority)
        if level is None:
            level = self._level(item.priority)
        level[item.order] = item

    def extend(self, items: Iterable[Item]) -> None:
        """Add messages, each at the end of its priority."""
        for item in items:
            level = self._levels.get(item.priority)
            if level is None:
                level = self._level(item.priority)
            level[item.order] = item

    def drop_first(self, count: int) -> None:
        """Take so many messages out, the first ones."""
        while count:
            priority, level = next(iter(self._levels.items()))
            if count < len(level):
                for _ in range(count):
                    level.popitem(last=False)
                return
            count -= len(level)
            level.clear()
            self._spare = self._levels.pop(priority)

    def first(self) -> Item:
        """Return the next message, which stays."""
        for level in self._levels.values():
            for item in level.values():
                return item
        raise LookupError("nothing waits")

    def discard(self, item: Item) -> bool:
        """Take a message out; return whether it was there."""
        level = self._levels.get(item.priority)
        if level is None or level.pop(item.order, None) is None:
            return False
        if not level:
            self._spare = self._levels.pop(item.priority)
        return True

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
            level, self._spare = self._spare, None
            self._levels[priority] = OrderedDict() if level is None else level
            if len(self._levels) > 1:
                self._levels = dict(sorted(self._levels.items(), reverse=True))
        return self._levels[priority]


class View:
    """What the consumers with one selector see of a queue, and whose turn it is.

    Attributes:
        selector: the condition; `None` for those that see every message.
        ready: the messages that wait and fulfil it.
        turns: the consumers with room, as far as is known, the next in turn first.
        owners: the consumer of each message group.
        waiting: the messages that it was not asked about yet from `looked_at` on, as it came later than they.
        unseen: those that were added since then.
    """

    __slots__ = ("looked_at", "owners", "ready", "selector", "turns", "unseen", "waiting")

    def __init__(self, selector: Selector | None) -> None:
        self.selector = selector
        self.ready = Ready()
        self.turns: deque[Consumer] = deque()
        self.owners: dict[str, Consumer] = {}
        self.waiting: Sequence[Item] = ()
        self.looked_at = 0
        self.unseen: deque[Item] = deque()

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
        return self.selector is None or self.selector.matches(item.message.shared.lookup)


def order_of(item: Item) -> int:
    """Return the place of a message in the order."""
    return item.order
