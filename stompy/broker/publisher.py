"""How messages get into queues: new, delayed, given back, or as dead letters. Guarded by the router's lock."""

from __future__ import annotations

import functools
import itertools
import logging
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.broker.destinations import REMOTE, is_topic, targets_of
from stompy.broker.profile import TOO_LONG
from stompy.broker.queues import Item, Queue, order_of
from stompy.broker.work import PIECE, TOGETHER, Clock, Schedule, Steps, Work
from stompy.errors import ProtocolError, RemoteProtocolError
from stompy.protocol.rules import Fault, FaultyFrame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from stompy.broker.message import MessageHead, StoredMessage
    from stompy.broker.session_state import Consumer, Feed, OutgoingMessage
    from stompy.broker.settings import Counters, Settings
    from stompy.broker.topology import Followers, Topology

LETTER_HEADERS = ("original-destination", "delivery-count", "dead-letter-reason")
"""Headers of a dead letter: where it was, how often it was delivered, why it is one."""

REFUSED = "refused by its consumer"
"""Why a message that got a NACK is a dead letter."""

_FIRST_DEATH = "x-first-death-queue"
"""RabbitMQ's name for the first of them, without `/queue/`."""

_SEEN = 20_000
"""Ids of messages that are remembered to find duplicates by."""


@dataclass(eq=False, slots=True)
class FanOut:
    """A message of a topic on its way to many subscriptions.

    Attributes:
        followers: where it goes.
        steps: bring it there.
        done: whether it is there, or cannot get further.
        error: why it cannot.
    """

    followers: Followers
    steps: Steps
    done: bool = False
    error: ProtocolError | None = None


@dataclass(slots=True)
class Taken:
    """How many messages were taken out of a queue, so far."""

    count: int = 0


class BrokerPublisher:
    """Puts messages where they belong.

    Args:
        settings: limits and names.
        topology: finds the queues.
        work: counts the work of the turn, and keeps the rest for later.
        clock: the broker's.
        counters: counts.
        overrun: ends the session of a subscriber whose backlog is full, with the name of the limit.
    """

    def __init__(
        self,
        settings: Settings,
        topology: Topology,
        work: Work,
        *,
        clock: Clock,
        counters: Counters,
        overrun: Callable[[Consumer, str], None],
    ) -> None:
        self._settings = settings
        self._topology = topology
        self._work = work
        self._clock = clock
        self._counters = counters
        self._overrun = overrun
        self._dirty = topology.dirty
        self.schedule: Schedule[StoredMessage, Item | Queue] = Schedule()
        """What is to be delivered later, and what expires."""
        self.taps: tuple[Callable[[str, StoredMessage], None], ...] = ()
        """Called with the name of a queue or topic and each message that comes to it, for those who watch."""
        self._fan_outs: deque[FanOut] = deque()
        self._orders = itertools.count(1)
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def new_item(self, message: StoredMessage) -> Item:
        """Return a place for a message, after all that there are."""
        return Item(message, next(self._orders))

    # Into queues

    def publish(self, message: StoredMessage, sender: str | None = None, *, committed: bool = False) -> None:
        """Put a message into its queue, or into the backlog of every subscription to its topic, or keep it for later.

        Args:
            message: the message.
            sender: the name of the session that sends it.
            committed: it comes from a transaction, which was asked for duplicates and for room before.

        Raises:
            LimitExceededError: a queue is full, or there are too many queues.
        """
        self._counters.messages_in += 1
        options = message.options
        identity = options.dedupe_id
        if identity is not None and not committed and self.has_seen(message.target, identity):
            self._counters.duplicates += 1
            return
        if options.due is None:
            self._deliver_soon(message, sender, committed=committed)
        else:
            if not committed:
                self.check_delayed(1 + options.repeats)
            for round_ in range(1 + options.repeats):
                self.schedule.add(options.due + round_ * options.period, message)
        if identity is not None:  # not of a message that was refused: its copy is the first to be taken
            self._remember(message.target, identity)

    def check_delayed(self, messages: int) -> None:
        """Refuse messages that are to be delivered later, and would be too many.

        Raises:
            LimitExceededError: they would.
        """
        if messages and self.schedule.waiting + messages > self._settings.max_queue_messages:
            raise self._settings.exceeded("max_queue_messages", "too many delayed messages")

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
        refuses = self._settings.profile.refuses_late_replies
        if refuses and name.startswith(REMOTE[0]) and name not in self._topology.queues:
            raise FaultyFrame(Fault.NO_OWNER, f"temp-queue://{name.split('/', 2)[2][:80]}")

    def check_topics(self, messages: Iterable[StoredMessage], sender: str) -> None:
        """Check that the messages of a transaction to topics can be published.

        Raises:
            LimitExceededError: a durable subscription without a subscriber is full.
        """
        needed: dict[Feed, tuple[int, int]] = {}
        for message in messages:
            lookup = message.shared.lookup
            for feed in self._topology.followers(message.target).candidates(lookup):
                self._work.left -= 1
                if feed.consumer is None and feed.wants(lookup, sender):
                    count, size = needed.get(feed, (0, 0))
                    needed[feed] = count + 1, size + message.size
        for feed, (count, size) in needed.items():
            self.must_fit(feed.queue, count, size)

    def _deliver_soon(
        self, message: StoredMessage, sender: str | None, *, forced: bool = False, committed: bool = False
    ) -> None:
        fan_out = self._deliver(message, sender, forced=forced, committed=committed)
        if fan_out is not None:
            self._work.soon(self._finish(fan_out), PIECE)

    def _deliver(
        self, message: StoredMessage, sender: str | None, *, forced: bool = False, committed: bool = False
    ) -> FanOut | None:
        """Put a message where it belongs; of a topic with many subscriptions, return what is to be finished."""
        name = message.target
        queue = self._topology.queues.get(name)
        self._work.left -= 1
        if queue is None:
            if is_topic(name):
                return self._fan_out(name, message, sender, forced=forced)
            if name.startswith(REMOTE):
                if not forced and not committed:
                    self.check_owner(name)
                return None  # its owner is gone: a reply that nobody waits for
            queue = self._topology.queue(name, forced=forced or committed)
        if not (forced or committed) and not queue.fits(1, message.size):
            self.must_fit(queue, 1, message.size)
        self._append(queue, message, sender)
        return None

    def _fan_out(self, name: str, message: StoredMessage, sender: str | None, *, forced: bool) -> FanOut | None:
        for tap in self.taps:
            tap(name, message)
        followers = self._topology.followers(name)
        for counts in followers.counts:
            counts.enqueued += 1
        steps = self._feed_each(followers, message, sender, forced=forced)
        # Each subscription gets messages in the order of their publishing, whichever thread brings them there.
        if len(followers) >= PIECE or any(ahead.followers.overlaps(followers) for ahead in self._fan_outs):
            self._fan_outs.append(FanOut(followers, steps))
            return self._fan_outs[-1]
        self._work.run(steps)
        return None

    def _feed_each(self, followers: Followers, message: StoredMessage, sender: str | None, *, forced: bool) -> Steps:
        lookup = message.shared.lookup
        virtual, origin = self._settings.profile.virtual_topic, (("original-destination", message.destination),)
        for feed in followers.candidates(lookup):
            if feed.wants(lookup, sender):
                copy = message
                if virtual(feed.queue.name) is not None:
                    copy = message.with_head(message.shared.moved(feed.queue.name, origin, keeps=True))
                self._feed(feed, copy, forced=forced)
            yield

    def _finish(self, fan_out: FanOut) -> Steps:
        """Bring a message to its subscriptions, after those that were published before it and are not there yet.

        Raises:
            ProtocolError: it cannot get further.
        """
        while not fan_out.done:
            first = self._fan_outs[0]
            try:
                next(first.steps)
            except StopIteration:
                first.done = True
            except ProtocolError as error:  # for the thread that waits for it
                first.done, first.error = True, error
            except BaseException:
                first.done = True
                raise
            finally:
                if first.done:
                    self._fan_outs.popleft()
            yield
        if fan_out.error is not None:
            raise fan_out.error

    def append_all(self, queue: Queue, messages: Iterable[StoredMessage], size: int, sender: str | None) -> None:
        """Put messages, of so many bytes, that do not expire into a queue that `takes_together` and has room."""
        orders = self._orders
        items = [Item(message, next(orders), sender) for message in messages]
        for tap in self.taps:
            for item in items:
                tap(queue.name, item.message)
        queue.extend(items, size)
        self._work.left -= 1 + len(items) // TOGETHER
        self._counters.messages_in += len(items)
        self._dirty[queue] = None

    def _append(
        self, queue: Queue, message: StoredMessage, sender: str | None = None, named: bytes | None = None
    ) -> None:
        item, declared = Item(message, next(self._orders), sender), queue.declared
        item.named = named
        if self.taps and self._topology.queues.get(queue.name) is queue:  # no backlog of a topic
            for tap in self.taps:
                tap(queue.name, message)
        if declared.lifetime is not None:
            latest = self._clock.now() + declared.lifetime
            item.expires = latest if item.expires is None else min(item.expires, latest)
        queue.append(item)
        if declared.lifetime == 0:
            self.hand_out(queue, 0.0)  # to a consumer that waits for it, or to nobody
        self._work.left -= queue.cost - 1
        self._dirty[queue] = None
        if item.expires is not None:
            self.schedule.expire(item, item.expires)
        if declared.max_length is not None:
            self._shorten(queue, declared.max_length)

    def _shorten(self, queue: Queue, most: int) -> None:
        if queue.ready > most:
            self.hand_out(queue)
        while queue.ready > most:
            item = queue.first()
            queue.remove(item)
            self._work.left -= 1
            self.dead_letter(item, TOO_LONG)

    def _feed(self, feed: Feed, message: StoredMessage, *, forced: bool) -> None:
        queue = feed.queue
        if not queue.fits(1, message.size):
            self.hand_out(queue)
        if forced or queue.fits(1, message.size):
            self._append(queue, message)
        elif feed.consumer is None:
            self._refuse_full(queue, 1)
        else:
            # A topic waits for nobody, and no message is dropped silently: the subscriber gets an ERROR.
            crowded = queue.ready >= self._settings.max_backlog_messages
            self._overrun(feed.consumer, "max_backlog_messages" if crowded else "max_backlog_bytes")

    def must_fit(self, queue: Queue, messages: int, size: int) -> None:
        """Check that a queue can take so many messages, of so many bytes, after it has handed out.

        Raises:
            LimitExceededError: it is full all the same.
        """
        if not queue.fits(messages, size):
            self.hand_out(queue, most=max(PIECE, messages))
        if not queue.fits(messages, size):
            self._refuse_full(queue, messages)

    def _refuse_full(self, queue: Queue, messages: int) -> None:
        crowded = queue.ready + messages > self._settings.max_queue_messages
        limit = "max_queue_messages" if crowded else "max_queue_bytes"
        raise self._settings.exceeded(limit, f"queue {queue.name[:80]!r} is full")

    # Out of them

    def hand_out(self, queue: Queue, now: float | None = None, *, most: int = PIECE) -> bool:
        """Give consumers the messages of a queue, or a piece of them; return whether there may be more.

        Args:
            queue: which.
            now: the time of the clock, where it was looked at already.
            most: the work that it may be.
        """
        before = queue.counts.delivered
        work = queue.dispatch(self._undeliverable, self._clock.now() if now is None else now, most)
        self._counters.messages_out += queue.counts.delivered - before
        self._work.left -= 1 + work
        return work >= most

    def _undeliverable(self, item: Item, reason: str) -> None:
        if reason:
            self.dead_letter(item, reason)
        else:
            self._expired(item)

    def give_back(self, deliveries: Sequence[OutgoingMessage]) -> Steps:
        """Return messages to their queues, to be delivered again."""
        returned: dict[Queue, list[Item]] = {}
        most = self._settings.profile.max_deliveries
        for delivery in deliveries:
            if most is not None and delivery.item.deliveries >= most:
                self.dead_letter(delivery.item, "delivered too often")
            else:
                returned.setdefault(delivery.item.queue, []).append(delivery.item)
            yield
        for taken_from, items in returned.items():
            queue = self._topology.home(taken_from)
            if queue is not None:
                yield from self._put_back(queue, sorted(items, key=order_of))

    def _put_back(self, queue: Queue, items: list[Item]) -> Steps:
        """Return messages, which are in order, to their places; nothing is handed out before the first one is there."""
        work, end = self._work, len(items)
        queue.returning += 1
        while end and not queue.deleted:
            start = max(0, end - PIECE)  # the last ones first, so that the others come in front of them
            piece = items[start:end]
            for item in piece:
                item.queue = queue
            queue.put_back(piece)
            self._counters.redelivered += len(piece)
            work.left -= len(piece) * queue.cost
            end = start
            yield
        queue.returning -= 1
        self._dirty[queue] = None
        if queue.declared.max_length is not None:
            self._shorten(queue, queue.declared.max_length)

    def dead_letter(self, item: Item, reason: str) -> None:
        """Move a message, which is in no queue, to the dead-letter queue, where the broker keeps such ones."""
        kept = self._settings.profile.keeps_letter(item.message.options)
        name = item.queue.declared.letters or (self._settings.dead_letters if kept else None)
        if name is not None and self._move(item, name, reason):
            self._counters.dead_lettered += 1
            item.queue.counts.dead_lettered += 1
        else:
            self.discard(item)

    def discard(self, item: Item) -> None:
        """Give up a message that is in no queue."""
        self._counters.discarded += 1
        item.queue.counts.discarded += 1

    def _expired(self, item: Item) -> None:
        queue = item.queue
        self._counters.expired += 1
        queue.counts.expired += 1
        kept = queue.permanent or self._topology.queues.get(queue.name) is queue  # not in the backlog of a topic
        kept = kept and self._settings.profile.keeps_letter(item.message.options)
        name = queue.declared.letters or (self._settings.expired_letters if kept else None)
        if name is not None:
            self._move(item, name, "expired")

    def _move(self, item: Item, name: str, reason: str) -> bool:
        pairs = tuple(zip(LETTER_HEADERS, (item.message.destination, str(item.deliveries), reason), strict=True))
        source, rules = item.queue.name, self._settings.profile
        headers = rules.letter_headers(pairs, item.message.options, source)
        message = item.message.with_head(item.message.shared.moved(name, headers, without=rules.letter_without))
        self._work.left -= 1
        if is_topic(name):
            self._deliver_soon(message, None, forced=True)
            return True
        if source == name:
            self._work.note(logging.WARNING, f"a dead letter in {name!r} is discarded: {reason}")
            return False
        # Its limits are for senders, as at ActiveMQ and Artemis: the broker has no other place, and has the memory.
        queue = self._topology.queue(name, forced=True)
        self._append(queue, message, named=item.named if rules.letter_keeps_id else None)
        queue.counts.letters += 1
        return True

    def take_out(
        self,
        name: str,
        wanted: Callable[[Item], bool],
        then: Callable[[Item], FanOut | None] = lambda item: None,
    ) -> Taken:
        """Take out messages that wait in a queue now, piece by piece.

        Args:
            name: of the queue.
            wanted: whether a message is taken.
            then: called with each; its fan-out is finished before the next one is taken.
        """
        taken, queue = Taken(), self._topology.queues.get(name)
        if queue is not None:
            self._work.soon(self._take_each(queue, wanted, then, taken), queue.ready)
        return taken

    def _take_each(
        self, queue: Queue, wanted: Callable[[Item], bool], then: Callable[[Item], FanOut | None], taken: Taken
    ) -> Steps:
        waiting = queue.items()
        waiting.reverse()
        while waiting:
            # Each one ends before the next is made, so that the garbage collector sees no growth, and does not run.
            item = waiting.pop()
            if wanted(item) and queue.remove(item):
                taken.count += 1
                queue.counts.removed += 1
                if (fan_out := then(item)) is not None:
                    yield from self._finish(fan_out)
            self._work.left -= queue.cost - 1
            self._dirty[queue] = None
            yield

    def move_all(self, name: str, target: str, wanted: Callable[[Item], bool]) -> Taken:
        """Move messages that wait in a queue to another."""

        @functools.lru_cache(maxsize=16)
        def moved(head: MessageHead) -> MessageHead:
            return head.moved(target, ())

        def move(item: Item) -> None:
            message = item.message
            self._append(self._topology.queue(target, forced=True), message.with_head(moved(message.shared)))

        return self.take_out(name, wanted, move)

    def retry_all(self, name: str, wanted: Callable[[Item], bool]) -> Taken:
        """Send dead letters of a queue to where they came from."""

        def origin(item: Item) -> str | None:
            return origin_of(item.message.headers)

        def retry(item: Item) -> FanOut | None:
            head = item.message.shared.moved(origin(item) or "", (), without=LETTER_HEADERS)
            return self._deliver(item.message.with_head(head), None, forced=True)

        return self.take_out(name, lambda item: wanted(item) and origin(item) not in (None, name), retry)

    # At their time

    def run_due(self) -> None:
        """Deliver the messages that are due, and take away expired ones; or a piece of that."""
        now, work = self._clock.now(), self._work
        for message in self.schedule.due(now):
            self._deliver_soon(message, None, forced=True)
            if work.left <= 0:
                return
        for found in self.schedule.expired(now):
            work.left -= 1
            if isinstance(found, Queue):
                if found.unused_at is not None and found.unused_at <= now:
                    self._topology.delete(found)
            elif found.queue.remove(found):
                self._expired(found)
                self._dirty[found.queue] = None
            if work.left <= 0:
                return

    def watch(self, queue: Queue, now: float) -> None:
        """Begin or end the time without use of a queue that ends after it."""
        unused = queue.declared.unused
        if queue.consumers or unused is None:
            queue.unused_at = None
        elif queue.unused_at is None:
            queue.unused_at = now + unused
            self.schedule.expire(queue, queue.unused_at)

    def drop_transient(self) -> None:
        """Forget the messages that are not to outlive a restart."""
        queues = [*self._topology.queues.values(), *(feed.queue for feed in self._topology.durables.values())]
        for queue in queues:
            for item in queue.items():
                if not self._survives(item.message):
                    queue.counts.removed += queue.remove(item)
                elif self._settings.profile.restored_as_redelivered:
                    item.deliveries = max(1, item.deliveries)
            self._dirty[queue] = None
        self.schedule.keep(self._survives)

    def _survives(self, message: StoredMessage) -> bool:
        persistent = message.options.persistent
        return self._settings.profile.keeps_by_default if persistent is None else persistent


def origin_of(headers: Mapping[str, str]) -> str | None:
    """Return the name of the destination that a dead letter came from; `None` if it does not say, or not of one."""
    queue = headers.get(_FIRST_DEATH) or headers.get("_AMQ_ORIG_ADDRESS", "")
    shown = headers.get(LETTER_HEADERS[0]) or "/queue/" + queue
    try:
        target, *others = targets_of(shown, "")
    except RemoteProtocolError:
        return None
    return None if others or target.pattern or shown == "/queue/" else target.name
