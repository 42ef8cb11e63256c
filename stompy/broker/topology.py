"""The queues, topics and durable subscriptions of a broker, and how sessions subscribe to them.

Guarded by the router's lock.
"""

from __future__ import annotations

import itertools
import sys
from typing import TYPE_CHECKING

from stompy.broker.destinations import Patterns, Target
from stompy.broker.message import StoredMessage
from stompy.broker.profile import SubscribeRequest
from stompy.broker.queues import Queue, Snapshot, Waiting
from stompy.broker.session_state import Consumer
from stompy.errors import LimitExceededError, RemoteProtocolError
from stompy.protocol.rules import Fault, FaultyFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stompy.broker.profile import Declaration, Profile
    from stompy.broker.publisher import BrokerPublisher
    from stompy.broker.selector import Lookup, Selector
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import MemoryBudget, Settings
    from stompy.broker.work import Steps, Work

_REMEMBERED = 1_000
"""Topics for which it is remembered who gets their messages."""
_COLLECTED = 100
"""Messages that are collected in the time in which one is looked at."""
_PLACE = 8
"""Bytes of state that a message counts for in what was collected."""
_LONGEST_REMEMBERED = 1024
"""Characters of the longest name among them."""


class Feed:
    """What a subscription to a topic gets, and where that waits.

    Attributes:
        target: the topic, or a pattern of topics.
        queue: where it waits.
        selector: what it gets of it.
        consumer: whose it is; `None` where it is a durable subscription, which outlives its consumers.
        no_local: the session whose messages it does not get.
    """

    __slots__ = ("consumer", "no_local", "queue", "selector", "target")

    def __init__(
        self,
        target: Target,
        queue: Queue,
        *,
        selector: Selector | None,
        consumer: Consumer | None = None,
        no_local: str | None = None,
    ) -> None:
        self.target = target
        self.queue = queue
        self.selector = selector
        self.consumer = consumer
        self.no_local = no_local

    def wants(self, lookup: Lookup, sender: str | None) -> bool:
        """Whether it gets a message of that session; `lookup` returns the value of a header."""
        selected = self.selector is None or self.selector.matches(lookup)
        return selected and (self.no_local is None or self.no_local != sender)


class Followers:
    """Those that may get the messages of a topic, found in time that does not grow with selectors of equality.

    Args:
        feeds: all of them, in their order.
    """

    __slots__ = ("_by_value", "_feeds", "_looked_at", "_set")

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = tuple(feeds)
        self._set: frozenset[Feed] | None = None
        self._looked_at: list[int] = []
        self._by_value: dict[str, dict[str, list[int]]] = {}
        for place, feed in enumerate(self._feeds):
            equality = None if feed.selector is None else feed.selector.equality
            if equality is None:
                self._looked_at.append(place)
            else:
                name, value = equality
                self._by_value.setdefault(name, {}).setdefault(value, []).append(place)

    def __len__(self) -> int:
        return len(self._feeds)

    def overlaps(self, other: Followers) -> bool:
        """Whether some are in both."""
        if self._set is None:
            self._set = frozenset(self._feeds)
        return not self._set.isdisjoint(other._feeds)

    def candidates(self, lookup: Lookup) -> Iterator[Feed]:
        """Yield those whose selector may be true, in their order; `lookup` returns the value of a header."""
        places = self._looked_at
        if self._by_value:
            places = sorted([*places, *(place for name in self._by_value for place in self._with(name, lookup))])
        for place in places:
            yield self._feeds[place]

    def _with(self, name: str, lookup: Lookup) -> Sequence[int]:
        value = lookup(name)
        return self._by_value[name].get(value, ()) if isinstance(value, str) else ()


class Topology:
    """Finds destinations by their names, and makes and forgets them.

    Args:
        settings: limits.
        budget: counts the names.
        dirty: takes queues that the router has to look at.
        work: counts what is done.
        trash: takes what is to be dropped without the lock.
    """

    def __init__(
        self,
        settings: Settings,
        budget: MemoryBudget,
        dirty: dict[Queue, None],
        *,
        work: Work,
        trash: list[object],
    ) -> None:
        self._settings = settings
        self._budget = budget
        self._dirty = dirty
        self._work = work
        self._trash = trash
        self.queues: dict[str, Queue] = {}
        self.durables: dict[tuple[str, str], Feed] = {}
        """Durable subscriptions by client id and name."""
        self._bound: dict[Queue, dict[str, Feed]] = {}
        """Queues that get the messages of topics, by these."""
        self._feeds: dict[str, dict[Feed, None]] = {}
        self._topic_patterns: Patterns[Feed] = Patterns()
        self._queue_patterns: Patterns[Consumer] = Patterns()
        self._remembered: dict[str, Followers] = {}

    # Queues

    def queue(self, name: str, *, owner: str | None = None, forced: bool = False) -> Queue:
        """Return a queue, which is made where there is none.

        Raises:
            LimitExceededError: there are too many; not where it is `forced`.
        """
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        settings = self._settings
        if not forced:
            self.check_room((name,))
        queue = Queue(
            name,
            max_messages=settings.max_queue_messages,
            max_bytes=settings.max_queue_bytes,
            owner=owner,
            kept=owner is not None,
            prioritized=settings.profile.prioritized,
        )
        self._keep(queue, forced=forced)
        return queue

    def declare(self, name: str, declares: Declaration, session: SessionState) -> Queue:
        """Return a queue as a SUBSCRIBE wants it, which is made where there is none.

        Raises:
            RemoteProtocolError: it is there and not so, or is another session's.
            LimitExceededError: there are too many.
        """
        known = self.queues.get(name)
        if known is not None and known.declared != declares:
            message = f"PRECONDITION_FAILED - inequivalent arg for queue {name[:80]!r}"
            raise FaultyFrame(Fault.DECLARED_OTHERWISE, message)
        if known is not None and declares.exclusive and any(one.session is not session for one in known.consumers):
            raise FaultyFrame(Fault.DECLARED_OTHERWISE, f"RESOURCE_LOCKED - cannot obtain access to {name[:80]!r}")
        queue = known or self.queue(name)
        queue.declare(declares)
        return queue

    def bind(self, queue: Queue, target: Target) -> None:
        """Let a queue get the messages of a topic from now on, whether it has consumers or not."""
        bound = self._bound.setdefault(queue, {})
        if target.name not in bound:
            queue.permanent = True
            bound[target.name] = feed = Feed(target, queue, selector=None)
            self.add(feed)

    def delete(self, queue: Queue) -> None:
        """Forget a queue, with all it holds and what was given of it."""
        for feed in self._bound.pop(queue, {}).values():
            self.remove(feed)
        if self.queues.get(queue.name) is queue:
            self.forget(queue)
        queue.deleted = True
        self._trash.append(queue)

    def _keep(self, queue: Queue, *, forced: bool) -> None:
        self._budget.take(0, queue.kept, force=forced)
        self.queues[queue.name] = queue
        self._dirty[queue] = None  # so that it is forgotten again at the end of the turn, if nothing comes into it
        for consumer in self._queue_patterns.matching(queue.name):
            self._work.left -= 1
            self.join(consumer, queue)

    def check_room(self, names: Iterable[str]) -> None:
        """Refuse queues that would be too many.

        Raises:
            LimitExceededError: they would.
        """
        new, limit = sum(name not in self.queues for name in names), self._settings.max_queues
        held = len(self.queues) + len(self.durables)
        if new and held + new > limit:
            self._work.left -= len(self.queues) // 4
            useless = sum(queue.removable for queue in self.queues.values())
            if held - useless + new > limit:
                raise LimitExceededError("too many queues", limit_name="max_queues", limit=limit)

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

    def forget_if_useless(self, queue: Queue) -> None:
        """Forget a queue of which nothing would be lost."""
        if queue.removable and self.queues.get(queue.name) is queue:
            self.forget(queue)

    def forget(self, queue: Queue) -> None:
        """Forget a queue, with all it holds."""
        queue.deleted = queue.owner is not None
        if queue.deleted:
            self._trash.append(queue)
        del self.queues[queue.name]
        self._budget.give_back(0, queue.kept)

    def join(self, consumer: Consumer, queue: Queue) -> None:
        """Let a consumer take part in a queue."""
        if queue not in consumer.queues:
            if consumer.exclusive:
                self._work.left -= 1 + queue.members // 16
            waiting = None if consumer.selector is None else self.collect(consumer, queue)
            queue.join(consumer)
            consumer.queues[queue] = None
            del waiting  # by now whoever looks at it has it
        self._dirty[queue] = None

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
        """Let a consumer take part in all queues that fit a pattern, also those to come; it gets nothing before."""
        consumer.starting = True
        if consumer.session.ended:
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
            self._work.left -= 1
            if self._work.left <= 0:
                yield
        consumer.starting = False
        yield from self.resuming(consumer)

    def resuming(self, consumer: Consumer) -> Steps:
        """Go on with a subscription that may have room again, where it waits for that."""
        consumer.session.parked.pop(consumer, None)
        for queue in list(consumer.waits_at):
            if consumer.waits_at.pop(queue, self) is None:
                queue.resume(consumer)
                self._dirty[queue] = None
            self._work.left -= 1
            if self._work.left <= 0:
                yield

    # Topics

    def followers(self, name: str) -> Followers:
        """Return those that may get the messages of a topic."""
        found = self._remembered.get(name)
        if found is None:
            self._work.left -= len(self._feeds.get(name, ())) // 16
            found = Followers((*self._feeds.get(name, ()), *self._topic_patterns.matching(name)))
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            if len(name) <= _LONGEST_REMEMBERED:
                self._remembered[name] = found
        return found

    def backlog(self, name: str) -> Queue:
        """Return a place for what waits for one subscriber."""
        settings = self._settings
        return Queue(
            name,
            max_messages=settings.max_backlog_messages,
            max_bytes=settings.max_backlog_bytes,
            prioritized=False,
        )

    def add(self, feed: Feed) -> None:
        """Let a subscription get the messages of its topic from now on."""
        if feed.target.pattern:
            self._topic_patterns.add(feed.target.name, feed)
        self._feeds.setdefault(feed.target.name, {})[feed] = None
        self._remembered.clear()

    def remove(self, feed: Feed) -> None:
        """End what `add` began."""
        if feed.target.pattern:
            self._topic_patterns.remove(feed.target.name, feed)
        followers = self._feeds[feed.target.name]
        del followers[feed]
        if not followers:
            del self._feeds[feed.target.name]
        self._remembered.clear()

    def topics(self) -> dict[str, int]:
        """Return how many live subscriptions each topic, or pattern, has."""
        return {name: count for name, count, _, _ in self.topic_rows()}

    def topic_rows(self) -> list[tuple[str, int, int, int]]:
        """Return of each topic, or pattern, its name, its live subscriptions, what waits for them and what they got."""
        rows = []
        for name, feeds in self._feeds.items():
            queues = [feed.queue for feed in feeds if feed.queue.consumers]
            if queues:
                waiting, delivered = sum(queue.ready for queue in queues), sum(queue.delivered for queue in queues)
                rows.append((name, len(queues), waiting, delivered))
        return rows

    # Durable subscriptions

    def durable(self, client: str | None, target: Target, options: SubscribeRequest, session: str) -> Feed:
        """Return a durable subscription that nobody serves; one to another topic, or with another selector, is new.

        Raises:
            RemoteProtocolError: the session has no client id, it is in use, or is none of a topic.
            LimitExceededError: there are too many queues.
        """
        name = options.durable or ""
        if client is None:
            raise RemoteProtocolError("a durable subscription needs a client-id header in CONNECT")
        if target.kind == "queue" or target.owner is not None:
            raise RemoteProtocolError("a durable subscription is one to a topic")
        known = self.durables.get((client, name))
        if known is not None:
            if known.queue.consumers:
                raise RemoteProtocolError(f"the durable subscription {name[:80]!r} is in use")
            if (known.target, known.selector) == (target, options.selector):
                known.no_local = session if options.no_local else None
                return known
            self.delete_durable(client, name)
        shown = f"{client}/{name}"
        self.check_room((shown,))
        settings = self._settings
        queue = Queue(
            shown,
            max_messages=settings.max_queue_messages,
            max_bytes=settings.max_queue_bytes,
            kept=True,
            prioritized=settings.profile.prioritized,
        )
        queue.kept += sys.getsizeof(client) + sys.getsizeof(name)
        self._budget.take(0, queue.kept)
        no_local = session if options.no_local else None
        feed = Feed(target, queue, selector=options.selector, no_local=no_local)
        self.durables[client, name] = feed
        self.add(feed)
        return feed

    def delete_durable(self, client: str | None, name: str) -> None:
        """Delete a durable subscription, with all that waits for it.

        Raises:
            RemoteProtocolError: there is none of that name, or it is in use.
        """
        feed = self.durables.get((client or "", name))
        if feed is None:
            raise RemoteProtocolError(f"there is no durable subscription {name[:80]!r}")
        if feed.queue.consumers:
            raise RemoteProtocolError(f"the durable subscription {name[:80]!r} is in use")
        del self.durables[client or "", name]
        self._trash.append(feed.queue)
        self.remove(feed)
        feed.queue.deleted = True
        self._budget.give_back(0, feed.queue.kept)

    # Subscriptions

    def leaving(self, consumer: Consumer) -> Steps:
        """Give a consumer nothing more."""
        if consumer.pattern is not None:
            self._queue_patterns.remove(consumer.pattern, consumer)
            consumer.pattern = None
        for feed in consumer.feeds:
            self.remove(feed)
        self._work.left -= len(consumer.feeds)
        consumer.feeds.clear()
        for queue in list(consumer.queues):
            self._work.left -= 1 + queue.members // 16
            if self._work.left <= 0:
                yield
            del consumer.queues[queue]
            queue.leave(consumer)
            self._dirty[queue] = None
            if (queue.declared.auto_delete or queue.declared.exclusive) and not queue.members:
                self.delete(queue)
        if consumer.backlog is not None:
            self._trash.append(consumer.backlog)
        consumer.session.parked.pop(consumer, None)
        consumer.waits_at.clear()


class Subscriptions:
    """Makes and ends subscriptions.

    Args:
        topology: finds destinations.
        publisher: takes back what was not acknowledged.
        profile: how it is done.
        instance: the first part of every key.
        flush: hands out what is there.
        soon: does work at once, or piece by piece where it is much.
    """

    def __init__(
        self,
        topology: Topology,
        publisher: BrokerPublisher,
        *,
        profile: Profile,
        instance: str,
        flush: Callable[[], None],
        soon: Callable[[Steps, int], None],
    ) -> None:
        self._topology = topology
        self._publisher = publisher
        self._profile = profile
        self._instance = instance
        self._flush = flush
        self._soon = soon
        self._keys = itertools.count(1)

    def subscribe(
        self,
        session: SessionState,
        key: str,
        *,
        targets: tuple[Target, ...],
        destination: str,
        identity: str | None,
        options: SubscribeRequest,
    ) -> None:
        """Make a subscription.

        Args:
            session: whose.
            key: its key in the protocol object.
            targets: what it is to.
            destination: the header of that name.
            identity: the `id` header.
            options: what it asks for.

        Raises:
            ProtocolError: it cannot be had.
        """
        durable, declares = None, options.declares
        if options.durable is not None:
            durable = self._topology.durable(session.client_id, targets[0], options, session.name)
        number = f"{self._instance}-{next(self._keys)}"
        consumer = Consumer(
            session,
            identity=identity,
            destination=destination,
            options=options,
            key=number,
            profile=self._profile,
        )
        session.budget.take(consumer.kept)
        session.consumers[key] = consumer
        if durable is not None:
            consumer.durable = durable
            self._topology.join(consumer, durable.queue)
        elif options.browse:
            self._browse(consumer, targets)
        elif declares is not None and declares.name is not None:
            queue = self._topology.declare("/queue/" + declares.name, declares, session)
            self._topology.bind(queue, targets[0])
            self._topology.join(consumer, queue)
        else:
            for target in targets:
                self._follow(consumer, target, declares)

    def _follow(self, consumer: Consumer, target: Target, declares: Declaration | None) -> None:
        if target.kind == "topic":
            consumer.session.follows_topics = True
            if consumer.backlog is None:
                consumer.backlog = self._topology.backlog(target.name)
                self._topology.join(consumer, consumer.backlog)
            no_local = consumer.session.name if consumer.no_local else None
            feed = Feed(target, consumer.backlog, selector=consumer.selector, consumer=consumer, no_local=no_local)
            consumer.feeds.append(feed)
            self._topology.add(feed)
        elif target.pattern:
            self._soon(self._topology.join_all(consumer, target.name), len(self._topology.queues))
        elif declares is None:
            self._topology.join(consumer, self._topology.queue(target.name))
        else:
            self._topology.join(consumer, self._topology.declare(target.name, declares, consumer.session))

    def _browse(self, consumer: Consumer, targets: tuple[Target, ...]) -> None:
        queue = self._topology.queues.get(targets[0].name)
        consumer.backlog = Snapshot(
            queue,
            () if queue is None else self._topology.collect(consumer, queue),
            name=targets[0].name,
            selector=consumer.selector,
            copied=self._publisher.new_item,
            end=StoredMessage([("browser", "end")], destination=targets[0].shown, body=b"", grammar=consumer.grammar),
        )
        consumer.selector = None
        self._topology.join(consumer, consumer.backlog)

    def unsubscribe(self, session: SessionState, key: str, *, delete: bool = False) -> None:
        """End a subscription; what was not acknowledged goes back to its queue, at once or with the session.

        Args:
            session: whose.
            key: its key in the protocol object.
            delete: a queue of its own that is bound to a topic is deleted with all that it holds.
        """
        self._flush()
        consumer = session.consumers.pop(key)
        self._soon(
            self._leave(session, consumer, delete=delete), len(consumer.queues) + session.ledger.count(consumer.key)
        )

    def _leave(self, session: SessionState, consumer: Consumer, *, delete: bool) -> Steps:
        bound = [queue for queue in consumer.queues if queue.declared.name is not None] if delete else []
        yield from self._topology.leaving(consumer)
        for queue in bound:
            self._topology.delete(queue)
        if self._profile.unsubscribe_returns:
            mine = session.ledger.take_subscription(consumer.key)
            for entry in mine:
                entry.item.item.queue.unacked -= 1
                if self._profile.returns_as_new:
                    entry.item.item.deliveries -= 1
            yield from self._publisher.give_back([entry.item for entry in mine if not entry.item.transient])
        consumer.over = True
        consumer.give_back()

    def own(self, session: SessionState, target: Target) -> None:
        """Make a temporary queue of a session, where it is one and not there."""
        if target.owner != session.name or target.kind != "queue" or target.name in session.temporary:
            return
        self._topology.queue(target.name, owner=session.name)
        session.temporary[target.name] = None
        if self._profile.names.temporary == "in reply-to":
            name, options = target.shown, SubscribeRequest()
            self.subscribe(session, f"#{name}", targets=(target,), destination=name, identity=name, options=options)
