"""How sessions subscribe and unsubscribe. Guarded by the router's lock."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from stompy.broker.consumer import Consumer
from stompy.broker.message import StoredMessage
from stompy.broker.profile import SubscribeRequest
from stompy.broker.queues import Snapshot
from stompy.broker.topology import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompy.broker.destinations import Target
    from stompy.broker.profile import Declaration, Profile
    from stompy.broker.publisher import BrokerPublisher
    from stompy.broker.session_state import SessionState
    from stompy.broker.topology import Topology
    from stompy.broker.work import Steps


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
