"""Routing: from the messages of one read to the subscriptions, and on a dispatcher to handlers and listeners.

| thread | calls | lock |
|---|---|---|
| reader | `Router.messages` | an inbox or a dispatcher queue (leaves) |
| dispatchers | `Router._deliver`, user code | none |
| any | `Dispatcher.put` (never blocks; flow control bounds the queue) | its queue (leaf) |

| thread | owns | may block on | never |
|---|---|---|---|
| `stompy-<connection>-dispatcher` | the order of callbacks | its queue, user code | holds a lock in user code |
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stompy.connection.message import Acker, Delivery, Message, delivery_of, log_fields, received
from stompy.connection.subscriptions import ActiveSubscription, MessageListener, SubscriptionTable, UserCode
from stompy.deadline import Deadline
from stompy.forks import ChildEnds, Owner
from stompy.frames.frame import Headers, headers_from_head
from stompy.frames.heads import Row
from stompy.link.link import Link
from stompy.locks import SafeEvent, make_condition
from stompy.threads import DaemonThread, must_propagate

_LOG = logging.getLogger("stompy.connection")
_COUNT_BATCH = 16
"""Messages after which flow control is updated, as each update takes a lock."""
_MAX_KEYS = 10_000
"""Cached values of `subscription`; a broker may encode one value in several ways."""
_MAX_KEY_BYTES = 255
"""Longer values are not cached; those of 1.0 may be padded."""


class _DeliveryCache:
    """The deliveries of a link by the raw value of `subscription`, until the subscriptions change."""

    __slots__ = ("by_key", "changes", "link", "unrouted")

    def __init__(self, link: Link, changes: int, acker: Acker) -> None:
        self.link = link
        self.changes = changes
        self.by_key: dict[bytes, Delivery] = {}
        self.unrouted: Delivery = Delivery(link, acker, None)


class Router:
    """Routes the MESSAGE frames of a connection.

    Args:
        subscriptions: of the connection.
        user_code: listeners and dispatchers.
        acker: for the messages.
    """

    def __init__(self, subscriptions: SubscriptionTable, user_code: UserCode, acker: Acker) -> None:
        self._subscriptions = subscriptions
        self._user_code = user_code
        self._acker = acker
        self.unrouted = 0
        """Number of messages for no known subscription."""
        self._warn_unrouted_at = 1
        self._cache: _DeliveryCache | None = None
        self._running: dict[Dispatcher | None, Delivery] = {}
        """What each dispatcher delivers now; `None` is the connection's."""
        self._owner = Owner("connection")

    def messages(self, link: Link, rows: Sequence[Row]) -> None:
        """Route the messages of one read; on the reader."""
        cache, changes = self._cache, self._subscriptions.changes
        # The reader of the previous link may still run: each works on the cache that it has got.
        if cache is None or cache.link is not link or cache.changes != changes:
            cache = self._cache = _DeliveryCache(link, changes, self._acker)
        listeners = self._user_code.message_listeners
        messages: list[Message] = []
        separate: defaultdict[Delivery, list[Message]] = defaultdict(list)
        previous: bytes | None = None
        for headers, key, body in rows:
            if key != previous or not key:
                previous, delivery = key, cache.by_key.get(key) or self._find(cache, headers, key)
                direct = delivery.source is not None and delivery.source.direct
                batch = None if direct else separate[delivery]
            message = received(delivery, headers, body)
            if batch is not None:
                batch.append(message)
            if direct or listeners:
                messages.append(message)
        excluded = {
            message
            for delivery, batch in separate.items()
            for message in self._route_separately(delivery, batch, listeners)
        }
        if listeners and excluded:
            messages = [message for message in messages if message not in excluded]
        self._hand_over(link, messages, listeners, None)

    def _find(self, cache: _DeliveryCache, headers: bytes | Headers, key: bytes) -> Delivery:
        """Return the delivery that a message belongs to."""
        if isinstance(headers, bytes):
            headers = headers_from_head(headers, cache.link.protocol.grammar, "MESSAGE")
        identity = headers.get("subscription")
        destination = headers.get("destination") if identity is None else None
        subscription = self._subscriptions.find(identity, destination)
        if subscription is None:
            return cache.unrouted
        delivery = subscription.delivery_on(cache.link, self._acker)
        if 0 < len(key) <= _MAX_KEY_BYTES and len(cache.by_key) < _MAX_KEYS:
            cache.by_key[key] = delivery
        return delivery

    def _route_separately(
        self, delivery: Delivery, messages: list[Message], listeners: list[MessageListener]
    ) -> list[Message]:
        """Route messages that have no handler on the dispatcher; return the messages that listeners must not get."""
        subscription = delivery.source
        if subscription is None:
            self._count_unrouted(messages)
            return []
        if subscription.draining:
            return messages
        marker = messages[-1:] if subscription.is_end_marker(messages[-1]) else []
        queued = messages[:-1] if marker else messages
        if subscription.dispatcher is not None:
            self._hand_over(delivery.link, queued, [], subscription.dispatcher)
        elif queued and (not listeners or subscription.has_reader or subscription.inbox):
            delivery.link.flow.queued(queued)
            subscription.offer(queued)
            if self._user_code.message_listeners:
                self.pass_on(subscription)
            if not subscription.has_reader:
                return messages  # for listeners by `pass_on` only, not a second time
        if marker:
            subscription.end(None)
        return marker

    # A listener may be added when messages wait in an inbox already. Nothing is lost, left there or overtaken, as
    #
    # - whoever adds one does so first, and then calls `listener_added`; the reader first puts messages into an inbox,
    #   and then looks whether there is a listener. So one of them at least calls `pass_on`.
    # - the reader gives messages to listeners directly only if the inbox is empty. What was in it was taken by a job on
    #   the dispatcher, where the job for these messages follows.

    def listener_added(self) -> None:
        """Let the listeners have the messages in inboxes from which no thread has received yet."""
        for subscription in self._subscriptions.all():
            self.pass_on(subscription)

    def pass_on(self, subscription: ActiveSubscription) -> None:
        """Queue a call of the listeners with the messages of an inbox without a reader."""
        if subscription.handler is None and not subscription.has_reader:
            self._user_code.call_soon(partial(self._pass_on, subscription))

    def _pass_on(self, subscription: ActiveSubscription) -> None:
        listeners = self._user_code.message_listeners
        for message in subscription.take_unread() if listeners else ():
            link = delivery_of(message).link
            # One by one, so that reading stays paused while too many wait.
            link.flow.taken(message)
            link.flow.added(1, message.size)
            self._deliver(link, [message], listeners, None)

    def _count_unrouted(self, messages: list[Message]) -> None:
        # Logged when the count has doubled, so that a broker cannot fill a disk with log lines.
        if self.unrouted + len(messages) >= self._warn_unrouted_at:
            _LOG.warning(
                "%d message(s) for no known subscription so far, the latest: %r",
                self.unrouted + len(messages),
                messages[0].frame,
            )
            self._warn_unrouted_at = 2 * (self.unrouted + len(messages))
        self.unrouted += len(messages)

    def _hand_over(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[MessageListener],
        own: Dispatcher | None,
    ) -> None:
        """Queue messages for user code as one job; if the dispatcher has ended, run it here."""
        if not messages:
            return
        link.flow.added(len(messages), sum([message.size for message in messages]))
        job = partial(self._deliver, link, messages, listeners, own)
        if not (own or self._user_code.dispatcher).put(job):
            run_logged(job)

    def stalled(self, link: Link, seconds: float) -> None:
        """Warn that reading has been paused for `seconds`, and say whose messages wait; on the reader."""
        inboxes = [each for each in self._subscriptions.all() if each.inbox]
        waiting, _ = link.flow.waiting()
        if 2 * sum(len(each.inbox) for each in inboxes) >= waiting:
            reason = f"nobody has received from {_names(inboxes)}: iterate over it, give it a handler, or unsubscribe"
        else:
            running = {each.source for each in self._running.copy().values() if each.source is not None}
            busy = f"the handler or listener for {_names(running)}" if running else "a listener or callback"
            reason = f"{busy} is busy: let it return sooner, or set prefetch"
        _LOG.warning(
            "reading from %s has been paused for %g s, as %d received messages wait; %s",
            link.address,
            seconds,
            waiting,
            reason,
            extra={"stompy_address": link.address},
        )

    def _deliver(
        self,
        link: Link,
        messages: list[Message],
        listeners: list[MessageListener],
        own: Dispatcher | None,
    ) -> None:
        """Call user code with messages; on a dispatcher."""
        user_code, flow, running = self._user_code, link.flow, self._running
        done = size = 0
        previous: Delivery | None = None
        try:
            for message in messages:
                delivery = delivery_of(message)
                if delivery is not previous:  # then what all messages of a subscription share is known already
                    running[own] = previous = delivery
                    source, ack_mode = delivery.source, delivery.ack_mode
                    handler = None if source is None else source.handler
                    consumed = source is None or (handler is not None and source.dispatcher is not own)
                try:
                    # Not if the broker will redeliver it.
                    if not user_code.discarding and (
                        ack_mode == "auto"
                        or (
                            link.alive
                            and (source is None or not source.unsubscribing or link.dialect.ack_after_unsubscribe)
                        )
                    ):
                        failure: BaseException | None = None
                        for listener in listeners:
                            failure = run_logged(partial(listener.on_message, message)) or failure
                        if consumed:
                            continue
                        if handler is not None:
                            handler(message)
                        elif failure is not None:  # of the listeners, which are the consumer
                            self._failed(message, failure)
                            continue
                        if ack_mode == "handled":
                            delivery.acker.handled(message)
                except BaseException as error:
                    if must_propagate(error) or self._owner.forked:
                        raise
                    _LOG.exception(
                        "the handler of %.200r raised for message %.200r",
                        message.destination,
                        message.message_id,
                        extra=log_fields(message),
                    )
                    self._failed(message, error)
                finally:
                    done += 1
                    size += message.size
                # In batches, but immediately while reading is paused.
                if done == _COUNT_BATCH or flow.paused:
                    flow.removed(done, size)
                    done = size = 0
        finally:
            running.pop(own, None)
            flow.removed(done, size)

    def _failed(self, message: Message, error: BaseException) -> None:
        """Called when the consumer of a message raised."""
        delivery = delivery_of(message)
        delivery.acker.raised(message, nack=delivery.source is not None and delivery.source.on_exception == "nack")
        self._user_code.handler_failed(message, error)


def _names(subscriptions: Iterable[ActiveSubscription]) -> str:
    return ", ".join(sorted(f"{each.destination!r} (subscription {each.id})" for each in subscriptions))


class Dispatcher(DaemonThread):
    """Runs jobs in order; exceptions are logged.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._condition = make_condition("dispatcher")
        self._jobs: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._busy = False

    def put(self, job: Callable[[], None]) -> bool:
        """Queue a job; return `False` after `stop`."""
        with self._condition:
            if self._stopping:
                return False
            self._jobs.append(job)
            self._condition.notify()
            return True

    def stop(self, last: Sequence[Callable[[], None]] = ()) -> None:
        """End after the jobs that are queued now and the jobs in `last`; accept no more."""
        with self._condition:
            if not self._stopping:
                self._jobs.extend(last)
            self._stopping = True
            self._condition.notify_all()

    def wait_idle(self, deadline: Deadline) -> bool:
        """Wait until nothing is queued or running; return `False` at the deadline.

        Called on the dispatcher itself, it returns immediately.
        """
        if self.is_current():
            return True
        with self._condition:
            return self._condition.wait_for(lambda: not self._jobs and not self._busy, deadline.remaining())

    def wait_passed(self, deadline: Deadline) -> bool:
        """Wait until the jobs that are queued now have run; return `False` at the deadline.

        Called on the dispatcher itself, it returns immediately.
        """
        passed = SafeEvent()
        if self.is_current():
            return True
        return passed.wait(deadline.remaining()) if self.put(passed.set) else self.wait_idle(deadline)

    def run(self) -> None:
        """Run jobs until stopped and empty."""
        while True:
            with self._condition:
                self._busy = False
                if not self._jobs:
                    self._condition.notify_all()
                    self._condition.wait_for(lambda: self._jobs or self._stopping)
                    if not self._jobs:
                        return
                job = self._jobs.popleft()
                self._busy = True
            run_logged(job)
            del job  # it may hold the last reference to the connection


def run_logged(job: Callable[[], object]) -> BaseException | None:
    """Run user code; log and return its exception, also `SystemExit`; `must_propagate` has the exceptions that pass."""
    try:
        with ChildEnds():
            job()
        return None
    except BaseException as error:
        if must_propagate(error):
            raise
        with contextlib.suppress(BaseException):  # of a handler of logging, which may be why the callback raised
            _LOG.exception("a callback raised")
        return error
