"""Where messages go: destinations, subscriptions, and what happens to a message that is refused.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 1 | `Router._lock` | destinations, sessions, protocol objects | no; nothing is logged under it either |
| 2 | `WriteQueue._lock` | the frames for one client | no |

Any session's reader and writer takes the router's lock, through `turn`; all other methods expect it to be held.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stompy.broker.budget import MemoryBudget
from stompy.broker.consumer import Consumer
from stompy.broker.message import Item
from stompy.broker.queues import Queue
from stompy.broker.settings import Settings, is_topic
from stompy.broker.stats import BrokerStats, Counters
from stompy.broker.write_queue import WriteQueue
from stompy.errors import LimitExceeded
from stompy.printable import printable

if TYPE_CHECKING:
    from stompy.broker.message import Delivery, Message
    from stompy.broker.session_state import SessionState
    from stompy.broker.transactions import Transaction
    from stompy.frames.frame import Frame
    from stompy.protocol.ack import Entry

_LOG = logging.getLogger("stompy.broker")


class Router:
    """The in-memory state of a broker.

    Args:
        settings: limits and names.
        instance: a name of this broker, part of every message-id, so that those of two brokers differ.
    """

    def __init__(self, settings: Settings, *, instance: str) -> None:
        self._settings = settings
        self._instance = instance
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, dict[Consumer, None]] = {}
        self._sessions: dict[SessionState, None] = {}
        self._dirty: dict[Queue, None] = {}
        self._touched: list[WriteQueue] = []
        self._notices: list[tuple[int, str]] = []
        self._orders = itertools.count(1)
        self._keys = itertools.count(1)
        self.counters = Counters()
        self.budget = MemoryBudget(settings.max_store_bytes, settings.state_bytes)
        """Counts all messages and what else clients make the broker keep; has a lock of its own."""

    # Turns

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock; at the end hand messages out, release the lock, and only then log and wake writers."""
        touched: list[WriteQueue] = []
        notices: list[tuple[int, str]] = []
        try:
            with self._lock:
                try:
                    yield
                finally:
                    self.flush()
                    touched += self._touched
                    notices += self._notices
                    self._touched.clear()
                    self._notices.clear()
                    for write_queue in touched:
                        write_queue.clear_announcement()
        finally:
            for level, notice in notices:
                _LOG.log(level, "%s", printable(notice))
            for write_queue in touched:
                write_queue.wake()

    def flush(self) -> None:
        """Hand out what was published or has come back.

        Not done at once for each frame: the RECEIPT of a SUBSCRIBE shall stand before its first MESSAGE.
        """
        while self._dirty:
            queue = next(iter(self._dirty))
            del self._dirty[queue]
            self._dispatch(queue)
            if queue.forgettable and self._queues.get(queue.name) is queue:
                del self._queues[queue.name]
                self.budget.give_back(0, queue.kept)

    def _dispatch(self, queue: Queue) -> None:
        before = queue.delivered
        refused = queue.dispatch()
        self.counters.messages_out += queue.delivered - before
        for item, reason in refused:
            self._dead_letter(item, queue.name, reason)

    def warn(self, text: str) -> None:
        """Log a warning at the end of the turn."""
        self._notices.append((logging.WARNING, text))

    # Sessions

    def write_queue(self) -> WriteQueue:
        """Return a new write queue whose writer is woken at the end of a turn; needs no lock."""
        settings = self._settings
        return WriteQueue(
            max_bytes=settings.max_outbox_bytes, max_frames=settings.max_outbox_frames, touched=self._touched
        )

    def attach(self, session: SessionState) -> None:
        """Count a session that is now connected."""
        self._sessions[session] = None
        self.counters.sessions += 1

    def fail(self, session: SessionState, message: str, offender: Frame | None = None) -> None:
        """Write an ERROR and end the session; what it had goes back."""
        if session.ended:
            return
        self.detach(session)
        data = session.protocol.fail(message, offender=offender)
        self.counters.errors += 1
        self._notices.append((logging.INFO, f"{session.peer}: ended with ERROR: {message}"))
        session.write_queue.answer(data)
        session.write_queue.finish()

    def detach(self, session: SessionState) -> None:
        """End a session: abort its transactions, give back what it has not settled or was never written to it."""
        if session.ended:
            return
        session.ended = True
        for transaction in session.transactions.values():
            self.abort(session, transaction)
        session.transactions.clear()
        unwritten = session.write_queue.withdraw(lambda delivery: not _from_topic(delivery))
        for delivery in unwritten:
            delivery.item.deliveries -= 1
        lost = [delivery for delivery in unwritten if delivery.consumer.ledger is None]
        for entry in session.ledger.take_all():
            entry.item.consumer.source.unacked -= 1
            lost.append(entry.item)
        for consumer in session.consumers.values():
            self._leave(consumer)
        session.consumers.clear()
        self._give_back(delivery for delivery in lost if not delivery.consumer.of_topic)
        self._sessions.pop(session, None)

    def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        items: dict[str, list[Item]] = {}
        for delivery in deliveries:
            items.setdefault(delivery.consumer.source.name, []).append(delivery.item)
        for name, returned in items.items():
            queue = self._queue(name, forced=True)  # by name: an empty one may have been forgotten since
            queue.put_back(returned)
            self._dirty[queue] = None
            self.counters.redelivered += len(returned)

    def hang_up(self, session: SessionState) -> None:
        """End a session without a word: the client finds the end of the stream."""
        self.detach(session)
        session.write_queue.finish()

    def refill(self, session: SessionState) -> None:
        """Go on with the subscriptions of a session that waited for room."""
        for consumer in list(session.parked):
            self.freed(consumer)

    def freed(self, consumer: Consumer) -> None:
        """Go on with a subscription that may have room again."""
        consumer.source.unpark(consumer)
        self._dirty[consumer.source] = None

    # Subscriptions

    def subscribe(
        self, session: SessionState, key: str, *, destination: str, identity: str | None, mode: str, prefetch: int
    ) -> None:
        """Make a subscription.

        Args:
            session: whose.
            key: its key in the protocol object.
            destination: a queue or a topic.
            identity: the `id` header.
            mode: the `ack` header.
            prefetch: how many messages may wait for their ACK.
        """
        topic = is_topic(destination)
        consumer = Consumer(
            session,
            self._backlog(destination) if topic else self._queue(destination),
            identity=identity,
            mode=mode,
            prefetch=prefetch,
            key=f"{self._instance}-{next(self._keys)}",
            of_topic=topic,
        )
        session.budget.take(consumer.kept)
        consumer.source.join(consumer)
        session.consumers[key] = consumer
        if topic:
            session.follows_topics = True
            self._topics.setdefault(destination, {})[consumer] = None
        else:
            self._dirty[consumer.source] = None

    def unsubscribe(self, session: SessionState, key: str) -> None:
        """End a subscription; what it was given stays to be acknowledged until the session ends (A-30)."""
        self.flush()
        consumer = session.consumers.pop(key)
        self._leave(consumer)
        consumer.over = True
        consumer.give_back()

    def _leave(self, consumer: Consumer) -> None:
        source = consumer.source
        source.leave(consumer)
        if not consumer.of_topic:
            self._dirty[source] = None
            return
        followers = self._topics[source.name]
        del followers[consumer]
        if not followers:
            del self._topics[source.name]

    def _queue(self, name: str, *, forced: bool = False) -> Queue:
        queue = self._queues.get(name)
        if queue is None:
            settings = self._settings
            if not forced:
                self._check_queues((name,))
            queue = Queue(name, max_messages=settings.max_queue_messages, max_bytes=settings.max_queue_bytes)
            self.budget.take(0, queue.kept, force=forced)
            self._queues[name] = queue
            self._dirty[queue] = None  # so that it is forgotten again at the end of the turn, if nothing comes into it
        return queue

    def _check_queues(self, names: Iterable[str]) -> None:
        """Refuse queues that would be too many."""
        new, limit = sum(name not in self._queues for name in names), self._settings.max_queues
        if new and len(self._queues) + new > limit:
            self.flush()  # some may be of no use any more
            if len(self._queues) + new > limit:
                raise LimitExceeded("too many queues", limit_name="max_queues", limit=limit)

    def _backlog(self, name: str) -> Queue:
        settings = self._settings
        return Queue(name, max_messages=settings.max_backlog_messages, max_bytes=settings.max_backlog_bytes)

    # Messages

    def publish(self, message: Message) -> None:
        """Put a message into its queue, or into the backlog of every subscription to its topic.

        Raises:
            LimitExceeded: the queue is full, or there are too many queues.
        """
        if is_topic(message.destination):
            for consumer in list(self._topics.get(message.destination, ())):
                self._publish_to(consumer, message)
        else:
            queue = self._queue(message.destination)
            if not queue.fits(1, message.size):
                queue = self._must_fit(message.destination, 1, message.size)
            self._append(queue, message)
        self.counters.messages_in += 1

    def _append(self, queue: Queue, message: Message) -> None:
        queue.append(Item(message, next(self._orders)))
        self._dirty[queue] = None

    def _publish_to(self, consumer: Consumer, message: Message) -> None:
        backlog = consumer.source
        if not backlog.fits(1, message.size):
            self._dispatch(backlog)
        if backlog.fits(1, message.size):
            self._append(backlog, message)
            return
        # A topic waits for nobody, and a message left out in silence would be a lie: the subscriber is told and let go.
        session = consumer.session
        session.write_queue.withdraw(_from_topic)
        name, limit = "max_backlog_messages", self._settings.max_backlog_messages
        if backlog.ready < limit:
            name, limit = "max_backlog_bytes", self._settings.max_backlog_bytes
        what = f"too slow: the backlog of the subscription to {backlog.name!r} is full (limit {name}={limit})"
        self.fail(session, what)

    def _must_fit(self, name: str, messages: int, size: int) -> Queue:
        self.flush()  # some of it may be handed out
        queue = self._queue(name)
        if queue.fits(messages, size):
            return queue
        settings, what = self._settings, f"queue {name[:80]!r} is full"
        if queue.ready + messages > settings.max_queue_messages:
            raise LimitExceeded(what, limit_name="max_queue_messages", limit=settings.max_queue_messages)
        raise LimitExceeded(what, limit_name="max_queue_bytes", limit=settings.max_queue_bytes)

    def settle(self, entries: list[Entry[Delivery]], *, refused: bool) -> None:
        """Let an ACK or NACK of deliveries of one subscription take effect.

        Args:
            entries: what it took out of the ledger.
            refused: whether it was a NACK.
        """
        consumer = entries[0].item.consumer
        consumer.source.unacked -= len(entries)
        if refused:
            self._refused([entry.item for entry in entries])
        self.freed(consumer)
        session = consumer.session
        if session.parked and len(session.ledger) + len(entries) >= session.max_unacked:
            self.refill(session)  # the others have waited for it too
        if consumer.over:
            consumer.give_back()

    def _refused(self, deliveries: list[Delivery]) -> None:
        again = []
        for delivery in deliveries:
            item = delivery.item
            item.nacks += 1
            if delivery.consumer.of_topic or item.nacks > self._settings.max_redeliveries:
                self._dead_letter(item, delivery.consumer.source.name, "refused by its consumer")
            else:
                again.append(delivery)
        self._give_back(again)

    def _dead_letter(self, item: Item, source: str, reason: str) -> None:
        name = self._settings.dead_letter
        extra = (("original-destination", item.message.destination), ("delivery-count", str(item.deliveries)))
        message = item.message.moved(name, extra)
        queue = self._queue(name, forced=True)
        if source == name or not queue.fits(1, message.size):
            text = f"a message from {source!r} is discarded, {name!r} cannot take it: {reason}"
            self.warn(text)
            self.counters.discarded += 1
            return
        self._append(queue, message)
        self.counters.dead_lettered += 1

    # Transactions

    def commit(self, session: SessionState, name: str) -> None:
        """Let everything in a transaction of a session take effect, in one turn.

        Raises:
            LimitExceeded: a queue cannot take what is meant for it; nothing took effect.
        """
        transaction = session.transactions[name]
        needed = transaction.needed()
        self._check_queues(needed)
        for destination, (count, size) in needed.items():
            if not self._queue(destination).fits(count, size):
                self._must_fit(destination, count, size)
        # No longer open, before anything takes effect: publishing may end this very session, as too slow for a topic.
        del session.transactions[name]
        session.budget.take(-transaction.kept)
        for message in transaction.messages:
            self.publish(message)
        for entries, refused in transaction.settled:
            self.settle(entries, refused=refused)

    def abort(self, session: SessionState, transaction: Transaction) -> None:
        """Forget what a transaction holds; its messages wait for their ACK again."""
        session.budget.take(-transaction.kept)
        for entries, _ in transaction.settled:
            session.ledger.restore(entries)

    # What is seen from outside

    def knows(self, destination: str) -> bool:
        """Whether a destination needs not be made first: a topic, or a queue in use."""
        return is_topic(destination) or destination in self._queues

    @property
    def sessions(self) -> int:
        """How many sessions are connected; needs no lock."""
        return len(self._sessions)

    def depth(self, name: str) -> int:
        """Return how many messages of a queue wait for a consumer."""
        with self._lock:
            queue = self._queues.get(name)
            return queue.ready if queue else 0

    def snapshot(self) -> BrokerStats:
        """Return the state of this moment."""
        with self._lock:
            counters = self.counters
            return BrokerStats(
                sessions=len(self._sessions),
                sessions_total=counters.sessions,
                queues={name: queue.depth for name, queue in self._queues.items()},
                topics={name: len(followers) for name, followers in self._topics.items()},
                subscriptions=sum(len(session.consumers) for session in self._sessions),
                transactions=sum(len(session.transactions) for session in self._sessions),
                messages_in=counters.messages_in,
                messages_out=counters.messages_out,
                redelivered=counters.redelivered,
                dead_lettered=counters.dead_lettered,
                discarded=counters.discarded,
                errors=counters.errors,
            )


def _from_topic(delivery: Delivery) -> bool:
    return delivery.consumer.of_topic
