"""Where messages go: destinations, subscriptions, and what happens to a message that is refused.

| rank | lock | guards | held over I/O? |
|---|---|---|---|
| 0 | `BrokerRouter._entrance` | whose turn is next: held while waiting for the next one | no |
| 1 | `BrokerRouter._lock` | destinations, sessions, protocol objects | no; nothing is logged under it either |
| 2 | `WriteQueue._lock` | the frames for one client | no |

Any session's reader and writer takes the router's lock, through `turn`; all other methods expect it to be held. It is
held for a piece of work at a time (`work.py`), then given to the others in turn.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from stompy.broker.message import StoredMessage
from stompy.broker.profile import Refusal, refusal_frames
from stompy.broker.publisher import BrokerPublisher
from stompy.broker.settings import BrokerStats, Counters, MemoryBudget, Settings
from stompy.broker.topology import Subscriptions, Topology
from stompy.broker.work import PIECE, Clock, Schedule, Steps, Timer, Turn, Unfinished, Work
from stompy.broker.write_queue import WriteQueue
from stompy.errors import RemoteProtocolError
from stompy.forks import Owner
from stompy.printable import printable
from stompy.world import threading

if TYPE_CHECKING:
    from stompy.broker.destinations import Target
    from stompy.broker.message import Item, OutgoingMessage
    from stompy.broker.queues import Queue
    from stompy.broker.session_state import Consumer, SessionState, SessionTransaction
    from stompy.frames.frame import Frame
    from stompy.protocol.ack import Entry

_LOG = logging.getLogger("stompy.broker")


class BrokerRouter:
    """The in-memory state of a broker.

    Args:
        settings: limits and names.
        instance: a name of this broker, part of every message-id, so that those of two brokers differ.
    """

    def __init__(self, settings: Settings, *, instance: str) -> None:
        self._settings = settings
        self._entrance = threading.Lock()
        self._lock = threading.Lock()
        self.owner: Owner | None = None
        """The process in which the broker runs, if it does; no other may take a turn."""
        self.work = Work()
        """What was done in the current turn."""
        self.trash: list[object] = []
        """What is dropped after the turn, as that takes time."""
        self._unfinished = Unfinished()  # of the current turn
        self._handing_out: Unfinished | Timer | None = None  # whose thread does so until nothing is left
        self._visits = 0  # queues from which it still does
        self._sessions: dict[SessionState, None] = {}
        self._dirty: OrderedDict[Queue, None] = OrderedDict()
        self._touched: list[WriteQueue] = []
        self._notices: list[tuple[int, str]] = []
        self.counters = Counters()
        self.budget = MemoryBudget(settings.max_store_bytes, settings.state_bytes)
        """Counts all messages and what else clients make the broker keep; has a lock of its own."""
        self.clock = Clock()
        self.clock.turned = self.tick
        self._schedule: Schedule[StoredMessage, Item | Queue] = Schedule()
        self.timer = Timer(self._look)
        self.topology = Topology(settings, self.budget, self._dirty, work=self.work, trash=self.trash)
        self.publisher = BrokerPublisher(
            settings,
            self.topology,
            self._schedule,
            clock=self.clock,
            counters=self.counters,
            dirty=self._dirty,
            overrun=self._overrun,
            warn=self.warn,
            work=self.work,
            soon=self.soon,
            trash=self.trash,
        )
        self.subscriptions = Subscriptions(
            self.topology, self.publisher, profile=settings.profile, instance=instance, flush=self.flush, soon=self.soon
        )
        self._next: float | None = None

    # Turns

    def turn(self) -> Turn:
        """Hold the lock; then do what is due, and in further turns what was left to be done `later`.

        At the end of each turn messages are handed out; after it, without the lock, writers are woken.
        """
        self._check_owner()
        return Turn(self._take_lock, self._end_turn)

    def _take_lock(self, unfinished: Unfinished) -> None:
        # Whoever has released the lock must not have it again while others wait: the first of them stands at the
        # entrance, until it has the lock.
        with self._entrance:
            self._lock.acquire()
        self._unfinished = unfinished
        self.work.begin()

    def _end_turn(self, unfinished: Unfinished) -> bool:
        """Do a piece of what is to be done, and release the lock; return whether nothing is left for this thread."""
        touched: list[WriteQueue] = []
        notices: list[tuple[int, str]] = []
        trash: list[object] = []
        done = True
        try:
            try:
                self.work.go_on()
                if unfinished.steps:
                    unfinished.go_on(self.work)
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
                self._schedule_timer()
                touched += self._touched
                notices += self._notices
                trash += self.trash
                self._touched.clear()
                self._notices.clear()
                self.trash.clear()
                for write_queue in touched:
                    write_queue.clear_announcement()
        finally:
            self.work.end()
            self._lock.release()
            for level, notice in notices:
                _LOG.log(level, "%.1000s", printable(notice))
            for write_queue in touched:
                write_queue.wake()
        return done

    def later(self, steps: Steps) -> None:
        """Do something piece by piece: from the end of this turn on, by this thread, which does nothing else before."""
        self._unfinished.steps.append(steps)

    def soon(self, steps: Steps, size: int) -> None:
        """Do something of about that size: at once if it is small, else as `later`."""
        if size < PIECE and not self._unfinished.steps:
            for _ in steps:
                pass
        else:
            self.later(steps)

    @property
    def unfinished(self) -> Unfinished | None:
        """What the current turn has left to be done `later`; `None` if there is nothing."""
        return self._unfinished if self._unfinished.steps else None

    @property
    def piece_done(self) -> bool:
        """Whether the others are to have their turn."""
        return self.work.left <= 0 or bool(self._unfinished.steps)

    def _is_due(self) -> bool:
        moment = self._schedule.next()
        return moment is not None and moment <= self.clock.now()

    def _check_owner(self) -> None:
        if self.owner is not None:
            self.owner.check()

    def _schedule_timer(self) -> None:
        moment = self._schedule.next()
        if moment is not None and (self._next is None or moment < self._next):
            self._next = moment
            self.timer.notify()

    def flush(self) -> None:
        """Hand out what was published or has come back, or a piece of that.

        Not done at once for each frame: the RECEIPT of a SUBSCRIBE shall stand before its first MESSAGE.
        """
        now = self.clock.now() if self._dirty else None
        while self._dirty and self.work.left > 0:
            queue, _ = self._dirty.popitem(last=False)
            self._visits -= 1
            if self.publisher.hand_out(queue, now, most=self.work.left):
                self._dirty[queue] = None
            if queue.declared.unused is not None:
                self.publisher.watch(queue, self.clock.now())
            if queue.removable:
                self.topology.forget_if_useless(queue)

    def tick(self) -> None:
        """Do what is due by the clock; takes the lock."""
        due = True
        while due:
            with self.turn():
                pass  # its end does
            with self._held():
                due = self._is_due()

    def _look(self) -> float | None:
        """Do what is due, and what was left to be handed out; return the seconds until something is due."""
        with self.turn():
            pass
        with self._held():
            if self._handing_out is self.timer and self._dirty:
                return 0.0
            self._next = self._schedule.next()
            return None if self._next is None else self._next - self.clock.now()

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock to look at something."""
        self._check_owner()
        with self._entrance:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

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

    def fail(self, session: SessionState, error: Exception, offender: Frame | None = None) -> None:
        """Refuse what a client does as the profile says: by default, write an ERROR and end the session."""
        if session.ended:
            return
        refuse = self._settings.profile.refuse
        if refuse is None:
            self._end_by(session, str(error), (session.protocol.fail(str(error), offender=offender),))
        else:
            self.refuse(session, refuse(error, offender, session.protocol.version), offender)

    def refuse(self, session: SessionState, refusal: Refusal, offender: Frame | None = None) -> None:
        """Refuse a frame in the words of a profile."""
        if session.ended or refusal.ignored:
            return
        if refusal.silent:
            self._notices.append((logging.INFO, f"{session.peer}: ended: {refusal.message}"))
            self.hang_up(session)
            return
        frames = refusal_frames(refusal, offender, session.protocol.grammar)
        if refusal.closes:
            self._end_by(session, refusal.message, frames)
        else:
            session.refused = refusal.last
            self.counters.errors += 1
            session.write_queue.answer(*frames)

    def _end_by(self, session: SessionState, message: str, frames: tuple[bytes, ...]) -> None:
        """Write an ERROR and end the session; what it had goes back."""
        self.detach(session)
        self.counters.errors += 1
        self._notices.append((logging.INFO, f"{session.peer}: ended with ERROR: {message}"))
        session.write_queue.answer(*frames)
        session.write_queue.finish()

    def detach(self, session: SessionState) -> None:
        """End a session: abort its transactions, give back what it has not settled or was never written to it."""
        if session.ended:
            return
        session.ended = True
        self.later(self._leave(session))

    def _leave(self, session: SessionState) -> Steps:
        work = self.work
        unwritten = session.write_queue.withdraw(lambda delivery: not delivery.transient)
        for delivery in unwritten:
            delivery.item.deliveries -= 1
        lost = [delivery for delivery in unwritten if delivery.consumer.ledger is None]
        for transaction in session.transactions.values():
            self.abort(session, transaction)
            self.trash.append(transaction)
        session.transactions.clear()
        entries = session.ledger.take_all()
        for consumer in list(session.consumers.values()):
            yield from self.topology.leaving(consumer)
        session.consumers.clear()
        returning: set[Consumer] = set()
        for entry in entries:
            delivery = entry.item
            delivery.item.queue.unacked -= 1
            if self._settings.profile.first_as_redelivered and delivery.consumer in returning:
                delivery.item.deliveries -= 1
            returning.add(delivery.consumer)
            lost.append(delivery)
            work.left -= 1
            if work.left <= 0:
                yield
        yield from self.publisher.give_back([delivery for delivery in lost if not delivery.transient])
        for name in session.temporary:
            self.topology.forget(self.topology.queues[name])
            work.left -= 1
            if work.left <= 0:
                yield
        session.temporary.clear()
        self._sessions.pop(session, None)
        self.trash += (entries, lost)

    def hang_up(self, session: SessionState) -> None:
        """End a session without an ERROR: the client finds the end of the stream."""
        self.detach(session)
        session.write_queue.finish()

    def refill(self, session: SessionState) -> None:
        """Go on with the subscriptions of a session that waited for room."""
        self.soon(self._refill(session), len(session.parked))

    def _refill(self, session: SessionState) -> Steps:
        for consumer in list(session.parked):
            self.freed(consumer)
            if self.work.left <= 0:
                yield

    def freed(self, consumer: Consumer) -> None:
        """Go on with a subscription that may have room again."""
        if consumer.waits_at:
            self.soon(self.topology.resuming(consumer), len(consumer.waits_at))

    # Messages

    def _overrun(self, consumer: Consumer, name: str, limit: int) -> None:
        session = consumer.session
        session.write_queue.withdraw(lambda delivery: delivery.transient)
        what = f"the backlog of the subscription to {consumer.destination!r} is full (limit {name}={limit})"
        self.fail(session, RemoteProtocolError(f"too slow: {what}"))

    def settle(self, entries: list[Entry[OutgoingMessage]], *, refused: bool, requeue: bool = True) -> None:
        """Let an ACK or NACK of deliveries of one subscription take effect.

        Args:
            entries: what it took out of the ledger.
            refused: whether it was a NACK.
            requeue: whether the NACK lets it be delivered again.
        """
        if len(entries) < PIECE and not refused:
            self._settled(entries)
        else:
            self.soon(self._settle(entries, refused=refused, requeue=requeue), len(entries))

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
            if not requeue and item.queue.declared.letters is not None:
                self.publisher.dead_letter(item, "refused by its consumer")
            elif nack == "discarded" or not requeue:
                self.counters.discarded += 1
            elif nack == "requeued" and not delivery.transient:
                again.append(delivery)
            elif nack == "dead letter" or delivery.transient or item.nacks >= most:
                self.publisher.dead_letter(item, "refused by its consumer")
            else:
                again.append(delivery)
            self.work.left -= 1
            if self.work.left <= 0:
                yield
        yield from self.publisher.give_back(again)

    # Transactions

    def commit(self, session: SessionState, name: str) -> None:
        """Let everything in a transaction of a session take effect, in one turn.

        Raises:
            LimitExceededError: a queue cannot take what is meant for it; nothing took effect.
            RemoteProtocolError: a message in it was sent before, or one was refused; it was aborted.
        """
        transaction = session.transactions[name]
        if transaction.has_duplicate:
            self.abort(session, session.transactions.pop(name))
            raise RemoteProtocolError("a message of the transaction is a duplicate: it has the id of an earlier one")
        if transaction.rollback_only:
            self.abort(session, session.transactions.pop(name))
            raise RemoteProtocolError("COMMIT FAILED: Transaction marked rollback only xaErrorCode:100")
        needed = transaction.needed()
        self.topology.check_room(needed)
        self.publisher.check_delayed(transaction.delayed)
        for name_, (count, size) in needed.items():
            self.publisher.must_fit(name_, count, size)
        self.publisher.check_topics(transaction.to_topics, session.name)
        # No longer open, before anything takes effect: publishing may end this very session, as too slow for a topic.
        del session.transactions[name]
        session.failure = transaction.failure
        if session.failure is None:
            session.late_receipts += transaction.receipts
        session.budget.take(-transaction.kept)
        self.soon(self._commit(session, transaction), transaction.frames)

    def _commit(self, session: SessionState, transaction: SessionTransaction) -> Steps:
        for message in transaction.messages:
            self.publisher.publish(message, session.name, committed=True)
            if self.work.left <= 0:
                yield
        for entries, refused in transaction.settled:
            if refused:
                yield from self._settle(entries, refused=True, requeue=True)
            else:
                self.settle(entries, refused=False)
            if self.work.left <= 0:
                yield
        session.ledger.restore(itertools.chain.from_iterable(transaction.lost))
        self.trash.append(transaction)

    def abort(self, session: SessionState, transaction: SessionTransaction) -> None:
        """Forget what a transaction holds; its messages wait for their ACK again."""
        session.budget.take(-transaction.kept)
        held = [*(entries for entries, _ in transaction.settled), *transaction.lost]
        session.ledger.restore(itertools.chain.from_iterable(held))

    # What is seen from outside

    def exists(self, target: Target) -> bool:
        """Whether a destination needs not be made first: a topic, a pattern, a temporary one, or a queue in use."""
        return (
            target.kind == "topic" or target.pattern or target.owner is not None or target.name in self.topology.queues
        )

    def resume(self, name: str) -> None:
        """Let a queue that is paused hand out messages again."""
        queue = self.topology.queues.get(name)
        if queue is not None:
            queue.paused = False
            self._dirty[queue] = None

    @property
    def connected(self) -> tuple[SessionState, ...]:
        """The sessions that are connected, oldest first."""
        return tuple(self._sessions)

    @property
    def sessions(self) -> int:
        """How many sessions are connected; needs no lock."""
        return len(self._sessions)

    def depth(self, name: str) -> int:
        """Return how many messages of a queue wait for a consumer."""
        with self._held():
            queue = self.topology.queues.get(name)
            return queue.ready if queue else 0

    def snapshot(self) -> BrokerStats:
        """Return the state of this moment; with many queues, of their depths a moment later."""
        with self._held():
            counters, longest = replace(self.counters), self.work.longest
            sessions, queues = list(self._sessions), list(self.topology.queues.items())
            durables, topics = list(self.topology.durables.values()), self.topology.topics()
        return BrokerStats(
            sessions=len(sessions),
            sessions_total=counters.sessions,
            queues={name: queue.depth for name, queue in queues},
            topics=topics,
            durables={feed.queue.name: feed.queue.depth for feed in durables},
            scheduled=self._schedule.waiting,
            subscriptions=sum(len(session.consumers) for session in sessions),
            transactions=sum(len(session.transactions) for session in sessions),
            messages_in=counters.messages_in,
            messages_out=counters.messages_out,
            redelivered=counters.redelivered,
            dead_lettered=counters.dead_lettered,
            expired=counters.expired,
            duplicates=counters.duplicates,
            discarded=counters.discarded,
            errors=counters.errors,
            longest_turn=longest,
        )
