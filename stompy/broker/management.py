"""Control of a running broker, for tests and demos: look into queues, empty, move and pause them, end connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompy.arguments import check_arguments
from stompy.broker.destinations import Target, targets_of
from stompy.errors import ConfigurationError, StompError
from stompy.world import time

if TYPE_CHECKING:
    from stompy.broker.queues import Item
    from stompy.broker.router import BrokerRouter
    from stompy.broker.session_state import SessionState
    from stompy.broker.settings import BrokerStats

_LOG = logging.getLogger("stompy.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedMessage:
    """A message that waits in a queue.

    Attributes:
        headers: by name, as a subscriber would get them, without the headers that the broker adds to each delivery.
        body: its bytes.
        deliveries: how often it was delivered before.
        number: names it in `browse`, `purge`, `move` and `retry`; no other message of the broker has it.
    """

    headers: Mapping[str, str]
    body: bytes
    deliveries: int
    number: int

    @property
    def text(self) -> str:
        """The body as text, from UTF-8."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """A client that is connected.

    Attributes:
        session: its id, as in CONNECTED.
        peer: its address.
        login: the user's name; `None` where the broker has no users.
        client_id: the header of CONNECT.
        version: of STOMP.
        subscriptions: the destinations that it is subscribed to.
        unacked: deliveries that wait for its ACK.
        heartbeat: the agreed intervals in seconds, the client's and the broker's; 0 for none.
        idle: seconds since it last sent anything, heartbeats included.
        last_frame: the command of the last frame that it sent, and the seconds since then.
    """

    session: str
    peer: str
    login: str | None
    client_id: str | None
    version: str
    subscriptions: tuple[str, ...]
    unacked: int
    heartbeat: tuple[float, float]
    idle: float
    last_frame: tuple[str, float]


class Management:
    """The methods of a broker that look at it and change it. Any thread.

    Args:
        router: the broker's state.
    """

    def __init__(self, router: BrokerRouter) -> None:
        self._router = router

    def stats(self) -> BrokerStats:
        """Return counters and depths of this moment."""
        return self._router.snapshot()

    def depth(self, queue: str) -> int:
        """Return how many messages of a queue wait for a consumer; 0 for an unused queue."""
        with self._router.turn():
            found = self._router.topology.queues.get(_queue(queue).name)
            return found.ready if found is not None else 0

    def browse(
        self, queue: str, *, start: int = 0, limit: int | None = None, numbers: Collection[int] | None = None
    ) -> list[QueuedMessage]:
        """Return the messages that wait in a queue, in order; they stay there.

        Args:
            queue: its name.
            start: how many to leave out.
            limit: how many to return at most.
            numbers: return only these, see `QueuedMessage.number`.
        """
        check_arguments(Management.browse, {"start": start, "limit": limit, "numbers": numbers})
        with self._router.turn():
            found = self._router.topology.queues.get(_queue(queue).name)
            items = found.items() if found is not None else []
        if numbers is not None:
            items = [item for item in items if item.order in numbers]
        wanted = items[start : None if limit is None else start + limit]
        return [
            QueuedMessage(
                headers=item.message.headers, body=item.message.body, deliveries=item.deliveries, number=item.order
            )
            for item in wanted
        ]

    def purge(self, queue: str, *, numbers: Collection[int] | None = None) -> int:
        """Drop the messages that wait in a queue; return how many.

        Args:
            queue: its name.
            numbers: drop only these, see `QueuedMessage.number`.
        """
        with self._router.turn():
            taken = self._router.publisher.take_out(_queue(queue).name, _named(numbers))
        return taken.count

    def move(self, queue: str, target: str, *, numbers: Collection[int] | None = None) -> int:
        """Move the messages that wait in a queue to another, in order; return how many.

        Args:
            queue: where they are.
            target: where they go.
            numbers: move only these, see `QueuedMessage.number`.

        Raises:
            ConfigurationError: one of them is not a queue, or they are the same.
        """
        source, destination = _queue(queue), _queue(target)
        if source.name == destination.name:
            raise ConfigurationError("messages are moved to another queue")
        with self._router.turn():
            moved = self._router.publisher.move_all(source.name, destination.name, _named(numbers))
        return moved.count

    def retry(self, queue: str, *, numbers: Collection[int] | None = None) -> int:
        """Send dead letters to the destinations that they came from, in order; return how many.

        Messages that do not say where they came from stay.

        Args:
            queue: where they are, such as `"/queue/DLQ"`.
            numbers: send only these, see `QueuedMessage.number`.
        """
        with self._router.turn():
            sent = self._router.publisher.retry_all(_queue(queue).name, _named(numbers))
        return sent.count

    def pause(self, queue: str) -> None:
        """Deliver nothing from a queue until `resume`; it still takes messages."""
        with self._router.turn():
            self._router.topology.queue(_queue(queue).name, forced=True).paused = True

    def resume(self, queue: str) -> None:
        """Deliver again from a queue that is paused; nothing happens if it is not."""
        with self._router.turn():
            topology, name = self._router.topology, _queue(queue).name
            if name in topology.queues:
                topology.queues[name].paused = False
                topology.dirty[topology.queues[name]] = None

    def connections(self) -> list[ClientConnection]:
        """Return the clients that are connected, oldest first."""
        with self._router.turn():
            return [_connection(state) for state in self._router.connected]

    def kill(self, connection: ClientConnection | str) -> bool:
        """End a connection at once, as if the network had cut it; return whether it was there.

        Args:
            connection: one of `connections`, or its session id.
        """
        name = connection if isinstance(connection, str) else connection.session
        with self._router.turn():
            found = next((state for state in self._router.connected if state.name == name), None)
            if found is not None:
                self._router.hang_up(found)
        if found is not None:
            found.abort()
        return found is not None


def _named(numbers: Collection[int] | None) -> Callable[[Item], bool]:
    check_arguments(Management.purge, {"numbers": numbers})
    return lambda item: numbers is None or item.order in numbers


def _queue(destination: str) -> Target:
    try:
        target, *others = targets_of(destination, "")
    except StompError as error:
        raise ConfigurationError(str(error)) from error
    if not destination or others or target.kind != "queue" or target.pattern:
        raise ConfigurationError(f"{destination!r} is not one queue")
    return target


def _connection(state: SessionState) -> ClientConnection:
    heartbeats, now = state.protocol.heartbeats, time.monotonic()
    command, moment = state.last_frame
    return ClientConnection(
        session=state.name,
        peer=state.peer,
        login=state.login,
        client_id=state.client_id,
        version=str(state.protocol.version),
        subscriptions=tuple(consumer.destination for consumer in state.consumers.values()),
        unacked=len(state.ledger),
        heartbeat=(heartbeats.receive or 0.0, heartbeats.send or 0.0),
        idle=max(0.0, now - state.pulse.last_heard) if state.pulse is not None else 0.0,
        last_frame=(command, max(0.0, now - moment)),
    )
