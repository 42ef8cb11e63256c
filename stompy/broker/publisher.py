"""How messages get into queues: new, delayed, given back, or as dead letters. Guarded by the router's lock."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, is_topic, targets_of
from stompy.broker.message import Item
from stompy.broker.profile import TOO_LONG
from stompy.broker.queues import Queue
from stompy.errors import LimitExceeded, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from stompy.broker.consumer import Consumer
    from stompy.broker.message import Delivery, Message
    from stompy.broker.schedule import Clock, Schedule
    from stompy.broker.settings import Settings
    from stompy.broker.stats import Counters
    from stompy.broker.topology import Feed, Topology

LETTER_HEADERS = ("original-destination", "delivery-count", "dead-letter-reason")
"""Headers of a dead letter: where it was, how often it was delivered, why it is one."""

_FIRST_DEATH = "x-first-death-queue"
"""RabbitMQ's name for the first of them, without `/queue/`."""

_SEEN = 20_000
"""Ids of messages that are remembered to find duplicates by."""


class Publisher:
    """Puts messages where they belong.

    Args:
        settings: limits and names.
        topology: finds the queues.
        schedule: keeps what is to be delivered later.
        clock: the broker's.
        counters: counts.
        dirty: takes queues that have something to hand out.
        overrun: ends the session of a subscriber whose backlog is full, with the name and the value of the limit.
        warn: logs a warning at the end of the turn.
    """

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        schedule: Schedule[Message],
        *,
        clock: Clock,
        counters: Counters,
        dirty: dict[Queue, None],
        overrun: Callable[[Consumer, str, int], None],
        warn: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._schedule = schedule
        self._clock = clock
        self._counters = counters
        self._dirty = dirty
        self._overrun = overrun
        self._warn = warn
        self._orders = itertools.count(1)
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def new_item(self, message: Message) -> Item:
        """Return a place for a message, after all that there are."""
        return Item(message, next(self._orders))

    def mark(self) -> int:
        """Return a place in the order between all messages that there are and those to come."""
        return next(self._orders)

    # Into queues

    def publish(self, message: Message, sender: str | None = None, *, committed: bool = False) -> None:
        """Put a message into its queue, or into the backlog of every subscription to its topic, or keep it for later.

        Args:
            message: the message.
            sender: the name of the session that sends it.
            committed: it comes from a transaction, which was asked for duplicates before.

        Raises:
            LimitExceeded: a queue is full, or there are too many queues.
        """
        options = message.options
        self._counters.messages_in += 1
        if options.dedupe_id is not None:
            if not committed and self.has_seen(message.target, options.dedupe_id):
                self._counters.duplicates += 1
                return
            self._remember(message.target, options.dedupe_id)
        if options.due is None:
            self._deliver(message, sender, committed=committed)
            return
        self._check_delayed(1)
        self._schedule.add(options.due, message)

    def has_seen(self, target: str, identity: str) -> bool:
        """Whether a message with such an id was sent to a destination before."""
        return (target, identity) in self._seen

    def _remember(self, target: str, identity: str) -> None:
        self._seen[target, identity] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)

    def check_owner(self, name: str) -> None:
        """Check that a temporary queue still has an owner, where the broker refuses messages to others.

        Raises:
            RemoteProtocolError: it has none.
        """
        if name.startswith(REMOTE) and name not in self._topology.queues and self._settings.profile.ends_late_replies:
            raise RemoteProtocolError(f"temp-queue://ID:{name[:80]} does not exist")

    def check_commit(self, messages: Iterable[Message], sender: str) -> None:
        """Check that the messages of a transaction can be published, but for those to queues.

        Raises:
            LimitExceeded: there are too many delayed messages, or a durable subscription without a subscriber is full.
        """
        delayed = 0
        needed: dict[Feed, tuple[int, int]] = {}
        for message in messages:
            if message.options.due is not None:
                delayed += 1
            elif is_topic(message.target):
                for feed in self._topology.followers(message.target).matching(message.shared.lookup):
                    if feed.consumer is None and (feed.no_local is None or feed.no_local != sender):
                        count, size = needed.get(feed, (0, 0))
                        needed[feed] = count + 1, size + message.size
        if delayed:
            self._check_delayed(delayed)
        for feed, (count, size) in needed.items():
            if not feed.queue.fits(count, size):
                self.hand_out(feed.queue)
            if not feed.queue.fits(count, size):
                self._refuse_full(feed.queue, count)

    def _check_delayed(self, messages: int) -> None:
        limit = self._settings.max_queue_messages
        if self._schedule.waiting + messages > limit:
            raise LimitExceeded("too many delayed messages", limit_name="max_queue_messages", limit=limit)

    def _deliver(self, message: Message, sender: str | None, *, forced: bool = False, committed: bool = False) -> None:
        name = message.target
        if is_topic(name):
            for feed in self._topology.followers(name).matching(message.shared.lookup):
                if feed.no_local is None or feed.no_local != sender:
                    self._feed(feed, message, forced=forced)
            return
        if name.startswith(REMOTE) and name not in self._topology.queues:
            if not forced and not committed:
                self.check_owner(name)
            return  # its owner is gone: a reply that nobody waits for
        queue = self._topology.queue(name, forced=forced)
        if not forced and not queue.fits(1, message.size):
            queue = self.must_fit(name, 1, message.size)
        self._append(queue, message)

    def append_all(self, queue: Queue, messages: Iterable[Message]) -> None:
        """Put messages that do not expire into a queue in which there is room for them."""
        orders = self._orders
        items = [Item(message, next(orders)) for message in messages]
        queue.extend(items)
        self._counters.messages_in += len(items)
        self._dirty[queue] = None

    def _append(self, queue: Queue, message: Message) -> None:
        item, declared = self.new_item(message), queue.declared
        if declared.lifetime is not None:
            latest = self._clock.now() + declared.lifetime
            item.expires = latest if item.expires is None else min(item.expires, latest)
        queue.append(item)
        self._dirty[queue] = None
        if item.expires is not None:
            self._schedule.expire(item, item.expires)
        if declared.max_length is not None:
            self._shorten(queue, declared.max_length)

    def _shorten(self, queue: Queue, most: int) -> None:
        if queue.ready > most:
            self.hand_out(queue)
        while queue.ready > most:
            item = queue.first()
            queue.remove(item)
            self.dead_letter(item, TOO_LONG)

    def _feed(self, feed: Feed, message: Message, *, forced: bool) -> None:
        queue = feed.queue
        if not queue.fits(1, message.size):
            self.hand_out(queue)
        if forced or queue.fits(1, message.size):
            self._append(queue, message)
        elif feed.consumer is None:
            self._refuse_full(queue, 1)
        else:
            # A topic waits for nobody, and no message is dropped silently: the subscriber gets an ERROR.
            name, limit = "max_backlog_messages", self._settings.max_backlog_messages
            if queue.ready < limit:
                name, limit = "max_backlog_bytes", self._settings.max_backlog_bytes
            self._overrun(feed.consumer, name, limit)

    def must_fit(self, name: str, messages: int, size: int) -> Queue:
        """Return a queue that can take so many messages, of so many bytes, once it has handed out what it can.

        Raises:
            LimitExceeded: it is full all the same.
        """
        queue = self._topology.queue(name)
        if not queue.fits(messages, size):
            self.hand_out(queue)
        if not queue.fits(messages, size):
            self._refuse_full(queue, messages)
        return queue

    def _refuse_full(self, queue: Queue, messages: int) -> None:
        settings, what = self._settings, f"queue {queue.name[:80]!r} is full"
        if queue.ready + messages > settings.max_queue_messages:
            raise LimitExceeded(what, limit_name="max_queue_messages", limit=settings.max_queue_messages)
        raise LimitExceeded(what, limit_name="max_queue_bytes", limit=settings.max_queue_bytes)

    # Out of them

    def hand_out(self, queue: Queue, now: float | None = None) -> None:
        """Give consumers what a queue has for them; `now` is the time of the clock, where it was looked at already."""
        before = queue.delivered
        queue.dispatch(self._undeliverable, self._clock.now() if now is None else now)
        self._counters.messages_out += queue.delivered - before

    def _undeliverable(self, item: Item, reason: str) -> None:
        if reason:
            self.dead_letter(item, reason)
        else:
            self._expired(item)

    def give_back(self, deliveries: Iterable[Delivery]) -> None:
        """Return messages to their queues, to be delivered again."""
        returned: dict[Queue, list[Item]] = {}
        most = self._settings.profile.max_deliveries
        for delivery in deliveries:
            if most is not None and delivery.item.deliveries >= most:
                self.dead_letter(delivery.item, "delivered too often")
                continue
            returned.setdefault(delivery.item.queue, []).append(delivery.item)
        for taken_from, items in returned.items():
            queue = self._topology.home(taken_from)
            if queue is not None:
                for item in items:
                    item.queue = queue
                queue.put_back(items)
                self._dirty[queue] = None
                if queue.declared.max_length is not None:
                    self._shorten(queue, queue.declared.max_length)
                self._counters.redelivered += len(items)

    def dead_letter(self, item: Item, reason: str) -> None:
        """Move a message, which is in no queue, to the dead-letter queue, where the broker keeps such ones."""
        kept = self._settings.profile.keeps_letter(item.message.options)
        name = item.queue.declared.letters or (self._settings.dead_letters if kept else None)
        if name is not None and self._move(item, name, reason):
            self._counters.dead_lettered += 1
        else:
            self._counters.discarded += 1

    def _expired(self, item: Item) -> None:
        self._counters.expired += 1
        kept = self._settings.profile.keeps_letter(item.message.options) and not self._is_backlog(item)
        name = item.queue.declared.letters or (self._settings.expired_letters if kept else None)
        if name is not None:
            self._move(item, name, "expired")

    def _is_backlog(self, item: Item) -> bool:
        queue = item.queue
        return not queue.permanent and self._topology.queues.get(queue.name) is not queue

    def _move(self, item: Item, name: str, reason: str) -> bool:
        pairs = tuple(zip(LETTER_HEADERS, (item.message.destination, str(item.deliveries), reason), strict=True))
        source = item.queue.name
        message = item.message.moved(name, self._settings.profile.letter(pairs, item.message.options, source))
        if is_topic(name):
            self._deliver(message, None, forced=True)
            return True
        queue = self._topology.queue(name, forced=True)
        if source == name or not queue.fits(1, message.size):
            self._warn(f"a message from {source!r} is discarded, {name!r} cannot take it: {reason}")
            return False
        self._append(queue, message)
        return True

    def take_out(self, name: str, numbers: Collection[int] | None = None) -> list[Item]:
        """Take out the messages that wait in a queue, or those of them with these places, and return them."""
        queue = self._topology.queues.get(name)
        if queue is None:
            return []
        self._dirty[queue] = None
        items = [item for item in queue.items() if numbers is None or item.order in numbers]
        for item in items:
            queue.remove(item)
        return items

    def move_all(self, name: str, target: str, numbers: Collection[int] | None = None) -> int:
        """Move the messages that wait in a queue, or those with these places, to another; return how many."""
        items = self.take_out(name, numbers)
        queue = self._topology.queue(target, forced=True)
        for item in items:
            self._append(queue, item.message.moved(target, ()))
        return len(items)

    def retry_all(self, name: str, numbers: Collection[int] | None = None) -> int:
        """Send dead letters of a queue, or those with these places, to where they came from; return how many."""
        queue = self._topology.queues.get(name)
        origins = {item.order: origin_of(item.message.headers) for item in queue.items()} if queue is not None else {}
        found = [order for order, origin in origins.items() if origin not in (None, name)]
        items = self.take_out(name, set(found) if numbers is None else set(found).intersection(numbers))
        for item in items:
            message = item.message.moved(origins[item.order] or "", (), without=LETTER_HEADERS)
            self._deliver(message, None, forced=True)
        return len(items)

    # At their time

    def run_due(self) -> None:
        """Deliver what was kept for now, and take away what has expired."""
        now = self._clock.now()
        for message in self._schedule.due(now):
            self._deliver(message, None, forced=True)
        for found in self._schedule.expired(now):
            if isinstance(found, Queue):
                if found.unused_at is not None and found.unused_at <= now:
                    self._topology.delete(found)
            elif found.queue.remove(found):
                self._expired(found)
                self._dirty[found.queue] = None

    def watch(self, queue: Queue, now: float) -> None:
        """Note whether a queue that ends when it is not used is used."""
        unused = queue.declared.unused
        if queue.consumers or unused is None:
            queue.unused_at = None
        elif queue.unused_at is None:
            queue.unused_at = now + unused
            self._schedule.expire(queue, queue.unused_at)

    def drop_transient(self) -> None:
        """Forget the messages that are not to outlive a restart."""
        queues = [*self._topology.queues.values(), *(feed.queue for feed in self._topology.durables.values())]
        for queue in queues:
            for item in queue.items():
                if not self._survives(item.message):
                    queue.remove(item)
                elif self._settings.profile.restored_as_redelivered:
                    item.deliveries = max(1, item.deliveries)
            self._dirty[queue] = None
        self._schedule.keep(self._survives)

    def _survives(self, message: Message) -> bool:
        persistent = message.options.persistent
        return self._settings.profile.keeps_by_default if persistent is None else persistent


def origin_of(headers: Mapping[str, str]) -> str | None:
    """Return the name of the destination that a dead letter came from; `None` if it does not say, or not of one."""
    shown = headers.get(LETTER_HEADERS[0]) or "/queue/" + headers.get(_FIRST_DEATH, "")
    try:
        target, *others = targets_of(shown, "")
    except RemoteProtocolError:
        return None
    return None if others or target.pattern or shown == "/queue/" else target.name
