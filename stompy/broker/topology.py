"""The queues, topics and durable subscriptions of a broker.

Guarded by the router's lock.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from stompy.broker.destinations import MAX_PARTS, ONE, REMOTE, REST, Target, has_wildcards, is_topic, words_of
from stompy.broker.queues import DestinationCounts, Queue, Waiting
from stompy.broker.session_state import Consumer, Feed, SessionState
from stompy.errors import RemoteProtocolError
from stompy.protocol.rules import Fault, FaultyFrame
from stompy.world import time

if TYPE_CHECKING:
    from stompy.broker.profile import Declaration, SubscribeRequest
    from stompy.broker.selector import Lookup, Selector
    from stompy.broker.settings import MemoryBudget, Settings
    from stompy.broker.work import Steps, Work

T = TypeVar("T")

_REMEMBERED = 1_000
"""Topics for which it is remembered who gets their messages, and destinations not in use whose counters are."""
COUNTED_ON = 10.0
"""Seconds for which those are remembered: what looks at the counters each second misses none."""
_COLLECTED = 100
"""Messages that are collected in the time in which one is looked at."""
_PLACE = 8
"""Bytes of state that a message counts for in what was collected."""
_LONGEST_REMEMBERED = 1024
"""Characters of the longest name among them."""


class Patterns(Generic[T]):
    """Values by pattern, found by the names that fit, in time that does not grow with the number of patterns."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], dict[T, None]] = {}
        """By the words of their patterns."""
        self._begun: Counter[tuple[str, ...]] = Counter()
        """How many values have a pattern that begins with these words."""

    def __len__(self) -> int:
        return self._begun[()]

    def add(self, pattern: str, value: T) -> None:
        """Add a value.

        Raises:
            RemoteProtocolError: the pattern has too many words.
        """
        words = _pattern_words(pattern)
        if len(words) > MAX_PARTS:
            raise RemoteProtocolError(f"a destination with wildcards has at most {MAX_PARTS} words")
        self._values.setdefault(words, {})[value] = None
        self._begun.update(words[:end] for end in range(len(words) + 1))

    def remove(self, pattern: str, value: T) -> None:
        """Take a value out."""
        words = _pattern_words(pattern)
        del self._values[words][value]
        if not self._values[words]:
            del self._values[words]
        for end in range(len(words) + 1):
            self._begun[words[:end]] -= 1
            if not self._begun[words[:end]]:
                del self._begun[words[:end]]

    def matching(self, name: str) -> Iterator[T]:
        """Yield the values of every pattern that fits a name."""
        starts: list[tuple[str, ...]] = [()] if self else []
        for word in words_of(name):
            following = []
            for start in starts:
                yield from self._values.get((*start, REST[0]), ())
                following += [longer for key in (word, ONE) if (longer := (*start, key)) in self._begun]
            starts = following
        for start in starts:
            yield from (*self._values.get(start, ()), *self._values.get((*start, REST[0]), ()))


def _pattern_words(pattern: str) -> tuple[str, ...]:
    words = words_of(pattern)
    return (*words[:-1], REST[0] if words[-1] in REST else words[-1])


class Followers:
    """The feeds that may get the messages of a topic, found in time that does not grow with selectors of equality.

    Args:
        feeds: all of them, in their order.
        topics: the counters of topics, and of patterns of them.

    Attributes:
        counts: the counters to which a message for them counts.
    """

    __slots__ = ("_by_value", "_feeds", "_looked_at", "_set", "counts")

    def __init__(self, feeds: Iterable[Feed], topics: Mapping[str, DestinationCounts]) -> None:
        self._feeds = tuple(feeds)
        self.counts = [topics[name] for name in {feed.target.name: None for feed in self._feeds}]
        self._set: frozenset[Feed] | None = None
        self._looked_at: list[int] = []
        self._by_value: dict[str, dict[str, list[int]]] = {}
        for place, feed in enumerate(self._feeds):
            equality = None if feed.selector is None else feed.selector.equality
            if equality is None:
                self._looked_at.append(place)
            else:
                self._by_value.setdefault(equality[0], {}).setdefault(equality[1], []).append(place)

    def __len__(self) -> int:
        return len(self._feeds)

    def overlaps(self, other: Followers) -> bool:
        """Whether some are in both."""
        self._set = self._set or frozenset(self._feeds)
        return not self._set.isdisjoint(other._feeds)

    def candidates(self, lookup: Lookup) -> Iterator[Feed]:
        """Yield the feeds whose selector may be true, in their order; `lookup` returns the value of a header."""
        places = self._looked_at
        if self._by_value:
            places = sorted([*places, *(place for name in self._by_value for place in self._with(name, lookup))])
        for place in places:
            yield self._feeds[place]

    def _with(self, name: str, lookup: Lookup) -> Sequence[int]:
        value = lookup(name)
        return self._by_value[name].get(value, ()) if isinstance(value, str) else ()


class DestinationRow(NamedTuple):
    """The numbers of a destination at one moment; see `QueueDepth` and `DestinationCounts`."""

    name: str
    ready: int
    unacked: int
    consumers: int
    paused: bool
    counts: DestinationCounts


class Topology:
    """Finds destinations by their names, and makes and forgets them.

    Args:
        settings: limits.
        budget: counts the names.
        work: counts the work of the turn.
    """

    def __init__(self, settings: Settings, budget: MemoryBudget, work: Work) -> None:
        self._settings = settings
        self._budget = budget
        self._work = work
        self.dirty: OrderedDict[Queue, None] = OrderedDict()
        """Queues from which there may be something to hand out, or which may be forgotten."""
        self.queues: dict[str, Queue] = {}
        self.durables: dict[tuple[str, str], Feed] = {}
        """Durable subscriptions by client id and name."""
        self._bound: dict[Queue, dict[str, Feed]] = {}
        """Queues that get the messages of topics, by these."""
        self._feeds: dict[str, dict[Feed, None]] = {}
        self._topics: dict[str, DestinationCounts] = {}
        """What was published to topics, and to patterns of them, that have feeds."""
        self._gone: OrderedDict[str, tuple[float, DestinationCounts]] = OrderedDict()
        """The counters of destinations that are not in use any more, each with the time of its end."""
        self._topic_patterns: Patterns[Feed] = Patterns()
        self._queue_patterns: Patterns[Consumer] = Patterns()
        self._wild: Patterns[Queue] = Patterns()
        """The queues that are named like a pattern, where a SEND makes such, by their names."""
        self._remembered: dict[str, Followers] = {}

    # Queues

    def queue(self, name: str, *, owner: str | None = None, forced: bool = False) -> Queue:
        """Return a queue, which is made where there is none.

        Raises:
            LimitExceededError: there are too many; not where it is `forced`.
        """
        if name in self.queues:
            return self.queues[name]
        if not forced:
            self.check_room((name,))
        queue = self._made(name, owner)
        self._keep(queue, forced=forced)
        return queue

    def _made(self, name: str, owner: str | None = None) -> Queue:
        settings = self._settings
        return Queue(name, settings.max_queue_messages, settings.max_queue_bytes, settings.profile, owner)

    def declare(self, name: str, declares: Declaration, session: SessionState) -> Queue:
        """Return a queue as a SUBSCRIBE wants it, which is made where there is none.

        Raises:
            RemoteProtocolError: it is there and not so, or is another session's.
            LimitExceededError: there are too many.
        """
        known = self.queues.get(name)
        if known is not None and name in session.declared:
            return known
        owner, shown = session.name if declares.exclusive else None, name.removeprefix("/queue/")
        if known is not None and known.owner != owner:
            message = (
                f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{shown}' in vhost '/'. It could be "
                "originally declared on another connection or the exclusive property value does not match that of the "
                "original declaration."
            )
            raise FaultyFrame(Fault.LOCKED, message)
        arguments = self._settings.profile.queue_arguments
        difference = None if known is None else known.declared.contradicts(declares, arguments)
        if difference is not None:
            message = f"PRECONDITION_FAILED - inequivalent arg '{difference % shown}"
            raise FaultyFrame(Fault.DECLARED_OTHERWISE, message)
        queue = known or self.queue(name, owner=owner)
        if known is None:
            queue.declared, queue.permanent = declares, True
        if owner is not None:
            session.owned[name] = queue
        session.declared.add(name)
        return queue

    def bind(self, queue: Queue, target: Target, selector: Selector | None = None) -> Feed:
        """Let a queue get the messages of a topic from now on, whether it has consumers or not."""
        bound = self._bound.setdefault(queue, {})
        if target.name not in bound:
            queue.permanent = True
            bound[target.name] = feed = Feed(target, queue, selector)
            self.add(feed)
        return bound[target.name]

    def delete(self, queue: Queue) -> None:
        """Forget a queue, with its messages and their deliveries."""
        for feed in self._bound.pop(queue, {}).values():
            self.remove(feed)
        if self.queues.get(queue.name) is queue:
            self.forget(queue)
        queue.deleted = True
        self._work.trash.append(queue)

    def _keep(self, queue: Queue, *, forced: bool) -> None:
        if queue.kept:
            self._budget.take(0, queue.kept, force=forced)
        if self._gone:
            queue.counts = self._recall(queue.name, queue.counts)
        self.queues[queue.name] = queue
        self.dirty[queue] = None  # so that it is forgotten again at the end of the turn, if nothing comes into it
        topic = self._settings.profile.virtual_topic(queue.name)
        if topic is not None:
            self.bind(queue, Target("topic", topic, topic))
        if self._is_wild(queue.name):
            self._wild.add(queue.name, queue)
        if self._queue_patterns:
            for consumer in self._queue_patterns.matching(queue.name):
                self._work.left -= 1
                self.join(consumer, queue)

    def _is_wild(self, name: str) -> bool:
        rules = self._settings.profile
        return rules.sends_to_patterns and rules.pattern_queues and has_wildcards(name, rules.rest_words)

    def exists(self, target: Target) -> bool:
        """Whether a destination needs not be made first: a topic, a pattern, a temporary one, or a queue in use."""
        return target.kind == "topic" or target.pattern or target.owner is not None or target.name in self.queues

    def check_room(self, names: Collection[str]) -> None:
        """Refuse queues that would be too many.

        Raises:
            LimitExceededError: they would.
        """
        limit, held = self._settings.max_queues, len(self.queues) + len(self.durables)
        new = 0 if held + len(names) <= limit else sum(name not in self.queues for name in names)
        if new and held + new > limit:
            self._work.left -= len(self.queues) // 4
            useless = sum(queue.removable for queue in self.queues.values())
            if held - useless + new > limit:
                raise self._settings.exceeded("max_queues", "too many queues")

    def home(self, queue: Queue) -> Queue | None:
        """Return where messages of a queue go back to; `None` where it was deleted with all it held."""
        if queue.deleted:
            return None
        if queue.permanent:
            return queue
        known = self.queues.get(queue.name)
        if known is None:  # an empty one may have been forgotten since
            self._keep(queue, forced=True)
        return known or queue

    def forget(self, queue: Queue) -> None:
        """Forget a queue, with all it holds."""
        if not queue.name.startswith(REMOTE):  # none of such a name comes again
            self._remember(queue.name, queue.tally())
        del self.queues[queue.name]
        if self._is_wild(queue.name):
            self._wild.remove(queue.name, queue)
        if queue.kept:
            self._budget.give_back(0, queue.kept)

    def join_queue(self, consumer: Consumer, name: str) -> None:
        """Let a consumer take part in a queue, and in those that are named like a pattern that fits."""
        self.join(consumer, self.queue(name))
        for queue in list(self._wild.matching(name)):
            self.join(consumer, queue)

    def join(self, consumer: Consumer, queue: Queue) -> None:
        """Let a consumer take part in a queue."""
        if queue not in consumer.queues:
            if consumer.options.exclusive:
                self._work.left -= 1 + len(queue.consumers) // 16
            every = consumer.selector is None and consumer.no_local is None
            waiting = None if every else self.collect(consumer, queue)
            queue.join(consumer)
            consumer.queues[queue] = None
            del waiting  # by now whoever looks at it has it
        self.dirty[queue] = None

    def collect(self, consumer: Consumer, queue: Queue) -> Waiting:
        """Return the messages that wait in a queue, for a consumer that is to look at them and counts for it.

        Raises:
            LimitExceededError: the session keeps too much.
        """
        waiting, collected = queue.waiting()
        if collected:
            self._work.left -= queue.ready // _COLLECTED
            size = _PLACE * queue.ready
            consumer.session.budget.take(size)
            consumer.kept += size
        return waiting

    def join_all(self, consumer: Consumer, pattern: str) -> Steps:
        """Let a consumer take part in all queues that fit a pattern, also in later ones; it gets nothing before."""
        consumer.starting = True
        if consumer.over or consumer.session.ended:
            return
        self._queue_patterns.add(pattern, consumer)
        consumer.pattern = pattern
        fitting: Patterns[bool] = Patterns()
        fitting.add(pattern, True)
        for queue in list(self.queues.values()):
            if consumer.pattern != pattern:
                return  # it has left meanwhile
            if queue.owner is None and any(fitting.matching(queue.name)) and self.queues.get(queue.name) is queue:
                self.join(consumer, queue)
            yield
        consumer.starting = False
        yield from self.resuming(consumer)

    def resuming(self, consumer: Consumer) -> Steps:
        """Go on with a subscription that may have room again, where it waits for that."""
        consumer.session.parked.pop(consumer, None)
        for queue in list(consumer.waits_at):
            if consumer.waits_at.pop(queue, self) is None:
                queue.resume(consumer)
                self.dirty[queue] = None
            yield

    # Topics

    def followers(self, name: str) -> Followers:
        """Return the feeds that may get the messages of a topic."""
        found = self._remembered.get(name)
        if found is None:
            self._work.left -= len(self._feeds.get(name, ())) // 16
            feeds = dict.fromkeys((*self._feeds.get(name, ()), *self._topic_patterns.matching(name)))
            found = Followers(feeds, self._topics)
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            if len(name) <= _LONGEST_REMEMBERED:
                self._remembered[name] = found
        return found

    def backlog(self, name: str) -> Queue:
        """Return a queue for the messages of one subscriber."""
        limits = self._settings
        return Queue(name, limits.max_backlog_messages, limits.max_backlog_bytes)

    def add(self, feed: Feed) -> None:
        """Let a subscription get the messages of its topic from now on."""
        name = feed.target.name
        if feed.target.pattern:
            self._topic_patterns.add(name, feed)
        if name not in self._feeds:
            self._feeds[name], self._topics[name] = {}, self._recall(name, DestinationCounts())
        self._feeds[name][feed] = None
        self._remembered.clear()

    def remove(self, feed: Feed) -> None:
        """Let a subscription get nothing more of its topic."""
        name = feed.target.name
        if feed.target.pattern:
            self._topic_patterns.remove(name, feed)
        followers = self._feeds[name]
        del followers[feed]
        self._topics[name] = self._topics[name].with_copies([feed.queue])
        if not followers:
            del self._feeds[name]
            self._remember(name, self._topics.pop(name))
        self._remembered.clear()

    # Counters

    def _remember(self, name: str, counts: DestinationCounts) -> None:
        if counts.enqueued and len(name) <= _LONGEST_REMEMBERED:
            self._gone[name] = time.monotonic(), counts
            if len(self._gone) > _REMEMBERED:
                self._gone.popitem(last=False)

    def _recall(self, name: str, counts: DestinationCounts) -> DestinationCounts:
        """Return the counters with which a destination goes on; `counts` where none of it are remembered."""
        self._drop_old_counters()
        return self._gone.pop(name, (0.0, counts))[1]

    def _drop_old_counters(self) -> None:
        while self._gone and next(iter(self._gone.values()))[0] < time.monotonic() - COUNTED_ON:
            self._gone.popitem(last=False)

    def queue_rows(self) -> list[DestinationRow]:
        """Return the numbers of queues, and of those that were in use a while ago."""
        return [*map(_row_of, self.queues.values()), *self._rows_of_gone(topics=False)]

    def durable_rows(self) -> list[DestinationRow]:
        """Return the numbers of durable subscriptions."""
        return [_row_of(feed.queue) for feed in self.durables.values()]

    def topic_rows(self) -> list[DestinationRow]:
        """Return the numbers of topics, and of patterns, that have subscriptions or had some a while ago."""
        rows = []
        for name, feeds in self._feeds.items():
            queues = [feed.queue for feed in feeds]
            live = [queue for queue in queues if queue.consumers]
            ready, unacked = sum(queue.ready for queue in live), sum(queue.unacked for queue in live)
            counts = self._topics[name].with_copies(queues)
            rows.append(DestinationRow(name, ready, unacked, len(live), paused=False, counts=counts))
        return [*rows, *self._rows_of_gone(topics=True)]

    def _rows_of_gone(self, *, topics: bool) -> Iterator[DestinationRow]:
        self._drop_old_counters()
        for name, (_, counts) in self._gone.items():
            if is_topic(name) == topics:
                yield DestinationRow(name, 0, 0, 0, paused=False, counts=counts)

    # Durable subscriptions

    def durable(self, client: str | None, target: Target, options: SubscribeRequest, session: str) -> Feed:
        """Return an idle durable subscription; one to another topic, or with another selector, is new.

        Raises:
            RemoteProtocolError: the session has no client id, it is in use, or is none of a topic.
            LimitExceededError: there are too many queues.
        """
        name = options.durable or ""
        if client is None:
            raise RemoteProtocolError("a durable subscription needs a client-id header in CONNECT")
        if target.kind == "queue" or target.owner is not None:
            raise FaultyFrame(Fault.DURABLE_QUEUE, "a durable subscription is one to a topic")
        feed = self.durables.get((client, name))
        if feed is not None and (feed.queue.consumers or (feed.target, feed.selector) != (target, options.selector)):
            self.delete_durable(client, name)  # which is refused while it is in use
            feed = None
        if feed is None:
            shown = f"{client}/{name}"
            self.check_room((shown,))
            queue = self._made(shown)
            queue.kept += sys.getsizeof(client) + sys.getsizeof(name)
            self._budget.take(0, queue.kept)
            self.durables[client, name] = feed = self.bind(queue, target, options.selector)
        feed.no_local = session if options.no_local else None
        return feed

    def delete_durable(self, client: str | None, name: str) -> None:
        """Delete a durable subscription, with all that waits for it.

        Raises:
            RemoteProtocolError: there is none of that name, or it is in use.
        """
        feed = self.durables.get((client or "", name))
        if feed is None:
            message = f"No durable subscription exists for clientID: {client} and subscriptionName: {name[:80]}"
            raise FaultyFrame(Fault.UNKNOWN_DURABLE, message)
        if feed.queue.consumers:
            raise FaultyFrame(Fault.DURABLE_IN_USE, f"the durable subscription {name[:80]!r} is in use")
        del self.durables[client or "", name]
        self.delete(feed.queue)
        self._budget.give_back(0, feed.queue.kept)

    def leaving(self, consumer: Consumer) -> Steps:
        """Take a consumer, which gets nothing more, out of all queues and topics."""
        if consumer.pattern is not None:
            self._queue_patterns.remove(consumer.pattern, consumer)
            consumer.pattern = None
        for feed in consumer.feeds:
            self.remove(feed)
        self._work.left -= len(consumer.feeds)
        consumer.feeds.clear()
        for queue in list(consumer.queues):
            self._work.left -= len(queue.consumers) // 16
            yield
            del consumer.queues[queue]
            queue.leave(consumer)
            self.dirty[queue] = None
            if queue.declared.auto_delete and not queue.consumers:
                self.delete(queue)
        if consumer.backlog is not None:
            self._work.trash.append(consumer.backlog)
        consumer.session.parked.pop(consumer, None)
        consumer.waits_at.clear()


def _row_of(queue: Queue) -> DestinationRow:
    return DestinationRow(
        queue.name, queue.ready, queue.unacked, len(queue.consumers), paused=queue.paused, counts=queue.tally()
    )
