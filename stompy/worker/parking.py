"""The parking queue: retries that wait, at a broker that does not deliver with a delay.

| thread | owns | may block on | never |
|---|---|---|---|
| `stompy-<worker>-parking` | parked messages, unacknowledged | its condition, the broker | runs user code |

A parked message stays unacknowledged until it is due; then it goes back to its queue, in one transaction with its
acknowledgement. If the worker ends, the broker keeps it for the next one.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.errors import StompError
from stompy.locks import make_condition
from stompy.threads import DaemonThread
from stompy.worker.failure import DUE, PARKED_FOR, copied_headers, copy_of, make_redelivered, settle

if TYPE_CHECKING:
    from stompy.worker.engine import Engine

_LOG = logging.getLogger("stompy.worker")

_LONGEST = 600.0
"""Seconds that a message is kept unacknowledged; then it is parked again. RabbitMQ closes the session after 1800."""

_PAUSE = 1.0


class ParkingLot(DaemonThread):
    """Moves parked messages back when they are due.

    Args:
        engine: the running worker.
        queues: the parking queues.
    """

    def __init__(self, engine: Engine, queues: Sequence[str]) -> None:
        super().__init__(f"stompy-{engine.name}-parking")
        self._engine = engine
        self._queues = queues
        self._condition = make_condition("parking")
        self._heap: list[tuple[float, int, Message]] = []
        self._numbers = itertools.count()
        self._stopped = False

    def open(self, connection: Connection, *, prefetch: int | None) -> None:
        """Subscribe to the parking queues and start."""
        self.start()
        for queue in self._queues:
            connection.subscribe(queue, self._put, ack="client-individual", prefetch=prefetch)

    def stop(self) -> None:
        """End; what is parked stays at the broker."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def __len__(self) -> int:
        return len(self._heap)

    def _put(self, message: Message) -> None:
        now = time.time()
        due = _due(message)
        with self._condition:
            heapq.heappush(self._heap, (min(due, now + _LONGEST), next(self._numbers), message))
            self._condition.notify_all()

    def run(self) -> None:
        """Wait for the next message to be due, and move it, until stopped."""
        while (message := self._next()) is not None:
            try:
                self._move(message)
            except StompError as error:
                make_redelivered(message, error)
                if not message.session_ended:
                    _LOG.warning("%s: a parked message was not moved: %s", self._engine.name, error)
                    self._engine.stopping.wait(_PAUSE)

    def _next(self) -> Message | None:
        with self._condition:
            while not self._stopped:
                # The wall clock, as other processes and machines wrote the times.
                left = self._heap[0][0] - time.time() if self._heap else None
                if left is not None and left <= 0:
                    return heapq.heappop(self._heap)[2]
                self._condition.wait(left)
            return None

    def _move(self, message: Message) -> None:
        if message.session_ended:
            return
        headers = copied_headers(message, keep_expiry=True)
        target = message.destination
        if _due(message) <= time.time():
            target = message.headers.get(PARKED_FOR) or target.removesuffix(".parked")
            headers = {name: value for name, value in headers.items() if name not in (DUE, PARKED_FOR)}
        settle(self._engine.connection, message, copy_of(message, target, headers))


def _due(message: Message) -> float:
    value = message.headers.get(DUE, "")
    return int(value) / 1000 if value.isdecimal() and len(value) < 16 else 0.0
