"""The effects of sessions on the broker's state: subscriptions, ACKs, transactions, and the ends of sessions.

| rank in `stompy.locks` | lock | guards | held over I/O? |
|---|---|---|---|
| 7 | `BrokerRouter._entrance` | whose turn is next: held while waiting for the next one | no |
| 8 | `BrokerRouter._lock` | destinations, sessions, protocol objects | no; nothing is logged under it either |
| 9 | `WriteQueue._lock` | the frames for one client | no |

Any session's reader and writer takes the router's lock, through `turn`; all other methods expect it to be held. It is
held for a piece of work at a time (`work.py`), then given to the others in turn.

**Dispatch.** `flush` hands messages out, at the end of a turn and before an UNSUBSCRIBE. While a queue hands out, the
queue, the session of a consumer and the followers of a topic may be in the middle of a loop, so nothing is taken out of
them there. A session or subscription that ends during dispatch is marked, and left for a step after it:

- a session has `ended` set by `detach`, and a subscription has `over` set by `end_subscription`; from then on
  `Consumer.has_room` and `Consumer.deliver_all` give it nothing more;
- the consumer leaves its queues and topics in `end_subscription`, which is a step: it runs after the turn's dispatch.

A topic may overrun a subscription while another queue of its session is dispatched, as a dead letter may go to a topic;
so may a COMMIT of the subscriber itself. Both end the session through `detach`, and so by this rule.
"""

from __future__ import annotations

import itertools
import logging
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from stompy.broker.message import MessageHead, StoredMessage, route_to
from stompy.broker.profile import Declaration, SubscribeRequest
from stompy.broker.publisher import REFUSED, BrokerPublisher
from stompy.broker.queues import Item, Queue, Ready, Snapshot, View, order_of
from stompy.broker.refusals import RefusedError, refusal_frames
from stompy.broker.session_state import Consumer, Feed, OutgoingMessage, SessionState, SessionTransaction
from stompy.broker.settings import BrokerStats, Counters, MemoryBudget, Settings
from stompy.broker.topology import Topology
from stompy.broker.work import PIECE, TOGETHER, Clock, Steps, Timer, Turn, Work
from stompy.broker.write_queue import WriteQueue
from stompy.errors import RemoteProtocolError
from stompy.forks import Owner
from stompy.locks import Rank, make_lock
from stompy.printable import printable

if TYPE_CHECKING:
    from stompy.broker.destinations import Target
    from stompy.frames.frame import Frame
    from stompy.protocol.ack import Entry

_LOG = logging.getLogger("stompy.broker")


class BrokerRouter:
    """The in-memory state of a broker.

    Args:
        settings: limits and names.
        instance: a name of this broker, part of every message-id, so that two brokers have different ones.
    """

    def __init__(self, settings: Settings, *, instance: str) -> None:
        self._settings = settings
        self._instance = instance
        self._entrance = make_lock(Rank.BROKER_ENTRANCE, "entrance")
        self._lock = make_lock(Rank.BROKER_ROUTER, "router")
        self.owner: Owner | None = None
        """The process in which the broker runs, if it does; no other may take a turn."""
        self.work = Work()
        self._handing_out: Turn | Timer | None = None  # whose thread does so until nothing is left
        self._visits = 0  # queues from which it still does
        self._sessions: dict[SessionState, None] = {}
        self._touched: dict[WriteQueue[OutgoingMessage], None] = {}
        self._keys = itertools.count(1)
        self.counters = Counters()
        self.budget = MemoryBudget(settings.max_store_bytes, settings.state_bytes)
        """Counts all messages and what else clients make the broker keep; has a lock of its own."""
        self.work.unfinished = Turn(self._take_lock, self._end_turn)
        self.clock = Clock()
        self.clock.turned = self.tick
        self.timer = Timer(self._look)
        self.topology = Topology(settings, self.budget, self.work)
        self._dirty = self.topology.dirty
        self.publisher = BrokerPublisher(
            settings, self.topology, self.work, clock=self.clock, counters=self.counters, overrun=self._overrun
        )
        self._schedule = self.publisher.schedule
        self._next: float | None = None

    # Turns

    def turn(self) -> Turn:
        """Hold the lock; then do the work that is due, and in further turns the work left for `later`.

        At the end of each turn messages are handed out; after it, without the lock, writers are woken.
        """
        self._check_owner()
        return Turn(self._take_lock, self._end_turn)

    def _take_lock(self, unfinished: Turn) -> None:
        # Whoever has released the lock must not have it again while others wait: the first of them stands at the
        # entrance, until it has the lock.
        with self._entrance:
            self._lock.acquire()
        self.work.begin(unfinished)

    def _end_turn(self, unfinished: Turn) -> bool:
        """Do a piece of the work left, and release the lock; return whether this thread has none left."""
        work, done = self.work, True
        touched: list[WriteQueue[OutgoingMessage]] = []
        notices: list[tuple[int, str]] = []
        _trash: list[object] = []  # what is in it ends with this call, without the lock
        try:
            try:
                work.go_on()
                if self._is_due():
                    self.publisher.run_due()
                if self._dirty:
                    self.flush()
            finally:
                # What a thread leaves to be handed out it hands out before it does anything else: who publishes faster
                # than that has to wait. It looks once at each queue; where there is still more then, as consumers take
                # what they get, the timer goes on. Threads that come meanwhile find the place taken.
                if not self._dirty:
                    self._handing_out = None
                elif self._handing_out is None:
                    self._handing_out, self._visits = unfinished, len(self._dirty)
                elif self._handing_out is unfinished and self._visits <= 0:
                    self._handing_out = self.timer
                    self.timer.notify()
                done = not unfinished.steps and self._handing_out is not unfinished
                moment = self._schedule.next()
                if moment is not None and (self._next is None or moment < self._next):
                    self._next = moment
                    self.timer.notify()
                notices, _trash, work.notices, work.trash = work.notices, work.trash, [], []
                touched = [*self._touched]
                self._touched.clear()
        finally:
            work.end()
            self._lock.release()
            for level, notice in notices:
                _LOG.log(level, "%.1000s", printable(notice))
            for write_queue in touched:
                write_queue.wake()
        return done

    def _is_due(self) -> bool:
        moment = self._schedule.next()
        return moment is not None and moment <= self.clock.now()

    def _check_owner(self) -> None:
        if self.owner is not None:
            self.owner.check()

    def flush(self) -> None:
        """Hand out the messages of dirty queues, or a piece of them.

        Not done at once for each frame: the RECEIPT of a SUBSCRIBE shall stand before its first MESSAGE.
        """
        now = self.clock.now() if self._dirty else None
        while self._dirty and self.work.left > 0:
            queue, _ = self._dirty.popitem(last=False)
            self._visits -= 1
            if not queue.consumers:
                self.work.left -= 1
            elif self.publisher.hand_out(queue, now, most=self.work.left):
                self._dirty[queue] = None
            if queue.declared.unused is not None:
                self.publisher.watch(queue, self.clock.now())
            if queue.removable and self.topology.queues.get(queue.name) is queue:
                self.topology.forget(queue)

    def tick(self) -> None:
        """Do the work due by the clock; takes the lock."""
        due = True
        while due:
            with self.turn():  # its end does
                due = self._is_due()

    def _look(self) -> float | None:
        """Do the work due, and hand out the rest; return the seconds until more is due."""
        with self.turn():
            pass  # its end does
        with self.turn():
            if self._handing_out is self.timer and self._dirty:
                return 0.0
            self._next = self._schedule.next()
            return None if self._next is None else self._next - self.clock.now()

    # Sessions

    def write_queue(self) -> WriteQueue[OutgoingMessage]:
        """Return a new write queue whose writer is woken at the end of a turn; needs no lock."""
        settings = self._settings
        return WriteQueue(
            max_bytes=settings.max_outbox_bytes,
            max_frames=settings.max_outbox_frames,
            touched=self._touched,
            ending=settings.profile.endings[0],
        )

    def peer_of(self, client: str) -> str | None:
        """Return the address of the connected session with a client id, if there is one."""
        return next((session.peer for session in self._sessions if session.client_id == client), None)

    def attach(self, session: SessionState) -> None:
        """Count a session that is now connected."""
        self._sessions[session] = None
        self.counters.sessions_total += 1

    def fail(self, session: SessionState, error: Exception, offender: Frame | None = None) -> None:
        """Refuse a client's frame as the profile says: by default, write an ERROR and end the session."""
        if session.ended:
            return
        profile = self._settings.profile
        if isinstance(error, RefusedError):
            refusal = error.refusal
        elif profile.refuse is not None:
            refusal = profile.refuse(profile, error, offender, session.protocol.version)
        else:
            self._end_by(session, str(error), (session.protocol.fail(str(error), offender=offender),))
            return
        if refusal.ignored:
            session.ignored = True
            return
        if refusal.silent:
            self.work.note(logging.INFO, f"{session.peer}: ended: {refusal.message}")
            self.hang_up(session)
            return
        frames = refusal_frames(refusal, offender, session.protocol.grammar, profile.arrange)
        if refusal.closes:
            self._end_by(session, refusal.message, frames)
        else:
            session.refused = refusal.last
            self.counters.errors += 1
            session.write_queue.answer(*frames)

    def _end_by(self, session: SessionState, message: str, frames: tuple[bytes, ...]) -> None:
        """Write an ERROR and end the session; its unsettled messages go back."""
        self.detach(session)
        self.counters.errors += 1
        self.work.note(logging.INFO, f"{session.peer}: ended with ERROR: {message}")
        session.write_queue.answer(*frames)
        session.write_queue.finish()

    def hang_up(self, session: SessionState) -> None:
        """End a session without an ERROR: the client finds the end of the stream, or has left without DISCONNECT."""
        session.lost = session.lost or not session.ended
        self.detach(session)
        session.write_queue.finish()

    def detach(self, session: SessionState) -> None:
        """End a session: abort its transactions, give back its unsettled and unwritten messages."""
        if not session.ended:
            session.ended = True
            self.work.later(self._leave(session))

    def _leave(self, session: SessionState) -> Steps:
        unwritten = session.write_queue.withdraw(lambda delivery: not delivery.transient)
        for delivery in unwritten:
            delivery.item.deliveries -= 1
        lost = [delivery for delivery in unwritten if delivery.consumer.ledger is None]
        self.work.trash += session.transactions.values()
        for name in list(session.transactions):
            self.abort(session, name)
        entries = session.ledger.take_all()
        for consumer in list(session.consumers.values()):
            yield from self.end_subscription(consumer)
        returning: set[Consumer] = set()
        first_alone = self._settings.profile.returns_as_new and not session.lost
        for entry in entries:
            delivery = entry.item
            delivery.item.queue.unacked -= 1
            if first_alone and delivery.consumer in returning:
                delivery.item.deliveries -= 1
            returning.add(delivery.consumer)
            lost.append(delivery)
            yield
        yield from self.publisher.give_back([delivery for delivery in lost if not delivery.transient])
        for queue in session.owned.values():
            self.topology.delete(queue)
            yield
        session.owned.clear()
        self._sessions.pop(session, None)
        self.work.trash += (entries, lost)

    def _overrun(self, consumer: Consumer, name: str) -> None:
        """End the session of a subscription of a topic that is too slow, as no message is dropped silently."""
        session = consumer.session
        session.write_queue.withdraw(lambda delivery: delivery.transient)
        what = f"too slow: the backlog of the subscription to {consumer.destination!r} is full"
        self.fail(session, self._settings.exceeded(name, what))

    # Subscriptions

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
            targets: the destinations.
            destination: the header of that name.
            identity: the `id` header.
            options: the requests of its SUBSCRIBE.

        Raises:
            ProtocolError: it cannot be had.
        """
        durable, declares, topology = None, options.declares, self.topology
        if options.durable is not None:
            durable = topology.durable(session.client_id, targets[0], options, session.name)
        consumer = Consumer(
            session=session,
            name=key,
            identity=identity,
            destination=destination,
            options=options,
            key=f"{self._instance}-{next(self._keys)}",
            rules=self._settings.profile,
        )
        session.budget.take(consumer.kept)
        if (before := session.consumers.get(key)) is not None:  # where the profile takes that, it goes on
            before.name = before.key
            session.consumers[before.name] = before
        session.consumers[key] = consumer
        if durable is not None:
            topology.join(consumer, durable.queue)
        elif options.browse:
            self._browse(consumer, targets[0])
        elif declares is not None and declares.name is not None:
            queue = topology.declare("/queue/" + declares.name, declares, session)
            topology.bind(queue, targets[0])
            topology.join(consumer, queue)
        else:
            for target in targets:
                self._follow(consumer, target, declares)

    def _follow(self, consumer: Consumer, target: Target, declares: Declaration | None) -> None:
        topology = self.topology
        if target.kind == "topic":
            consumer.session.follows_topics = True
            if consumer.backlog is None:
                consumer.backlog = topology.backlog(target.name)
                topology.join(consumer, consumer.backlog)
            no_local = consumer.session.name if consumer.options.no_local else None
            feed = Feed(target, consumer.backlog, selector=consumer.selector, consumer=consumer, no_local=no_local)
            consumer.feeds.append(feed)
            topology.add(feed)
        elif target.pattern:
            self.work.soon(topology.join_all(consumer, target.name), len(topology.queues))
        elif declares is None:
            if consumer.options.no_local:
                consumer.no_local = consumer.session.name
            topology.join_queue(consumer, target.name)
        else:
            topology.join(consumer, topology.declare(target.name, declares, consumer.session))

    def _browse(self, consumer: Consumer, target: Target) -> None:
        queue, shown = self.topology.queues.get(target.name), target.shown
        end = MessageHead(route_to(shown, consumer.grammar, first=[("browser", "end")]), b"", 0)
        waiting: list[Item] = [] if queue is None else self.topology.collect(consumer, queue)
        unacked = self._unacked(queue) if self._settings.profile.browses_unacked else None
        waiting = sorted([*waiting, *unacked], key=order_of) if unacked else waiting
        own = consumer.session.name if consumer.options.no_local else None
        browsed = View(Ready(), consumer.selector, own, waiting)
        copied, last = self.publisher.new_item, StoredMessage(end, b"")
        consumer.backlog = Snapshot(queue, name=target.name, browsed=browsed, unacked=unacked, copied=copied, end=last)
        consumer.selector = None
        self.topology.join(consumer, consumer.backlog)

    def _unacked(self, queue: Queue | None) -> frozenset[Item]:
        """Return the messages of a queue that wait for their ACK."""
        deliveries = [entry.item for session in self._sessions for entry in session.ledger]
        self.work.left -= len(deliveries) // TOGETHER
        return frozenset(delivery.item for delivery in deliveries if delivery.item.queue is queue)

    def own(self, session: SessionState, target: Target) -> None:
        """Make a temporary queue of a session, where it is one and not there."""
        if target.owner != session.name or target.kind != "queue" or target.name in session.owned:
            return
        session.owned[target.name] = self.topology.queue(target.name, owner=session.name)
        if self._settings.profile.temporary == "in reply-to":
            name, options = target.shown, SubscribeRequest()
            self.subscribe(session, f"#{name}", targets=(target,), destination=name, identity=name, options=options)

    def unsubscribe(self, consumer: Consumer, *, delete: bool = False) -> None:
        """End a subscription, after it got the messages that are ready for it.

        Args:
            consumer: which.
            delete: a queue of its own that is bound to a topic is deleted with all that it holds.
        """
        self.flush()  # which may end its session; then the first of the two steps ends the subscription
        size = len(consumer.queues) + consumer.session.ledger.count(consumer.key)
        self.work.soon(self.end_subscription(consumer, delete=delete), size)

    def end_subscription(self, consumer: Consumer, *, delete: bool = False) -> Steps:
        """End a subscription for any reason: its UNSUBSCRIBE, the end or overrun of its session, or the broker.

        Unacknowledged messages go back to their queues, unless the profile keeps it until the session ends, or the
        session has taken it out of its ledger before. To be run as a step, see the rule at the top of this module.
        Nothing happens the second time.

        Args:
            consumer: which.
            delete: as for `unsubscribe`.
        """
        session, rules = consumer.session, self._settings.profile
        if consumer.over:
            return
        consumer.over = True
        del session.consumers[consumer.name]
        bound = [queue for queue in consumer.queues if queue.declared.name is not None] if delete else []
        yield from self.topology.leaving(consumer)
        for queue in bound:
            self.topology.delete(queue)
        if rules.unsubscribe_returns:
            entries = session.ledger.take_subscription(consumer.key)
            for entry in entries:
                entry.item.item.queue.unacked -= 1
                if rules.returns_as_new:
                    entry.item.item.deliveries -= 1
            yield from self.publisher.give_back([entry.item for entry in entries if not entry.item.transient])
        consumer.give_back()

    def refill(self, session: SessionState) -> None:
        """Go on with the subscriptions of a session that waited for room."""
        self.work.soon(self._refill(session), len(session.parked))

    def _refill(self, session: SessionState) -> Steps:
        for consumer in list(session.parked):
            self.freed(consumer)
            yield

    def freed(self, consumer: Consumer) -> None:
        """Go on with a subscription that may have room again."""
        if consumer.waits_at:
            self.work.soon(self.topology.resuming(consumer), len(consumer.waits_at))

    # Acknowledgements

    def settle(self, entries: list[Entry[OutgoingMessage]], *, refused: bool, requeue: bool = True) -> None:
        """Let an ACK or NACK of deliveries of one session take effect.

        Args:
            entries: the deliveries that it took out of the ledger.
            refused: whether it was a NACK.
            requeue: whether the NACK lets it be delivered again.
        """
        if len(entries) < PIECE and not refused:
            self._settled(entries)
        else:
            self.work.soon(self._settle(entries, refused=refused, requeue=requeue), len(entries))

    def _settled(self, entries: list[Entry[OutgoingMessage]]) -> None:
        consumers: dict[Consumer, None] = {}
        for entry in entries:
            queue = entry.item.item.queue
            queue.unacked -= 1
            self._dirty[queue] = None
            consumers[entry.item.consumer] = None
        self.work.left -= len(entries)
        session = entries[0].item.consumer.session
        for consumer in consumers:
            self.freed(consumer)
            if consumer.over:
                consumer.give_back()
        if session.parked and len(session.ledger) + len(entries) >= session.max_unacked:
            self.refill(session)  # the others have waited for it too

    def _settle(self, entries: list[Entry[OutgoingMessage]], *, refused: bool, requeue: bool) -> Steps:
        if refused:
            yield from self._refused([entry.item for entry in entries], requeue=requeue)
        for start in range(0, len(entries), PIECE):
            self._settled(entries[start : start + PIECE])
            yield

    def _refused(self, deliveries: list[OutgoingMessage], *, requeue: bool) -> Steps:
        nack = self._settings.profile.nack
        most = math.inf if self._settings.attempts is None else self._settings.attempts
        again = []
        for delivery in deliveries:
            item = delivery.item
            item.nacks += 1
            lettered = nack == "dead letter" or delivery.transient or item.nacks >= most
            discarded = nack == "discarded" if requeue else item.queue.declared.letters is None
            if discarded:
                self.publisher.discard(item)
            elif requeue and (nack == "requeued" or not lettered):
                again.append(delivery)
            else:
                self.publisher.dead_letter(item, REFUSED)
            yield
        yield from self.publisher.give_back(again)

    # Transactions

    def commit(self, session: SessionState, name: str) -> None:
        """Let everything in a transaction of a session take effect, in one turn.

        Raises:
            LimitExceededError: a queue has no room for its messages; nothing took effect.
            RemoteProtocolError: a message in it was sent before, or one was refused; it was aborted.
        """
        transaction = session.transactions[name]
        if transaction.spoiled:
            self.abort(session, name)
            raise RemoteProtocolError(transaction.spoiled)
        needed = transaction.needed
        self.topology.check_room(needed)
        self.publisher.check_delayed(transaction.delayed)
        for queue, (count, size) in needed.items():
            self.publisher.must_fit(self.topology.queue(queue), count, size)
        self.publisher.check_topics(transaction.to_topics, session.name)
        # No longer open, before anything takes effect: publishing may end this very session, as too slow for a topic.
        del session.transactions[name]
        session.failure = transaction.failure
        if session.failure is None:
            session.late_receipts += transaction.receipts
        session.budget.take(-transaction.kept)
        self.work.soon(self._commit(session, transaction), transaction.frames)

    def _commit(self, session: SessionState, transaction: SessionTransaction) -> Steps:
        for message in transaction.messages:
            self.publisher.publish(message, session.name, committed=True)
            yield
        for entries, refused in transaction.settled:
            if refused:
                yield from self._settle(entries, refused=True, requeue=True)
            else:
                self.settle(entries, refused=False)
            yield
        session.ledger.restore(itertools.chain.from_iterable(transaction.lost))
        self.work.trash.append(transaction)

    def abort(self, session: SessionState, name: str) -> None:
        """Drop the messages of a transaction; the deliveries that it settled wait for their ACK again."""
        transaction = session.transactions.pop(name)
        session.budget.take(-transaction.kept)
        held = [*(entries for entries, _ in transaction.settled), *transaction.lost]
        session.ledger.restore(itertools.chain.from_iterable(held))

    # What is seen from outside

    @property
    def connected(self) -> tuple[SessionState, ...]:
        """The sessions that are connected, oldest first."""
        return tuple(self._sessions)

    @property
    def sessions(self) -> int:
        """How many sessions are connected; needs no lock."""
        return len(self._sessions)

    def snapshot(self) -> BrokerStats:
        """Return the state of this moment; with many queues, of their depths a moment later."""
        with self.turn():  # its end may take what is due out of the schedule, and make queues
            scheduled = self._schedule.waiting
            counters, longest = asdict(self.counters), self.work.longest
            sessions, queues = list(self._sessions), list(self.topology.queues.items())
            durables, topics = list(self.topology.durables.values()), self.topology.topic_rows()
        return BrokerStats(
            **counters,
            sessions=len(sessions),
            queues={name: queue.depth for name, queue in queues},
            topics={row.name: row.consumers for row in topics if row.consumers},
            durables={feed.queue.name: feed.queue.depth for feed in durables},
            scheduled=scheduled,
            subscriptions=sum(len(session.consumers) for session in sessions),
            transactions=sum(len(session.transactions) for session in sessions),
            longest_turn=longest,
        )
