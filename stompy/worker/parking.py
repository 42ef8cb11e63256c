"""The parking queues: retries that wait, at a broker that does not deliver with a delay.

| thread | owns | may block on | never |
|---|---|---|---|
| `stompy-<worker>-parking` | parked messages, unacknowledged | its condition, the broker | runs user code |

A parked message stays unacknowledged until it is due; then it goes back to its queue, in one transaction with its
acknowledgement. If the worker ends, the broker keeps it for the next one.

A broker sends the head of a queue only, up to the prefetch limit, so a message that is due soon must not wait behind
those that are due late. Therefore there are several parking queues, for delays of at least 0, 1, 4, 16, ... seconds.
While a queue has sent as many messages as the limit allows, those of them that have waited its number of seconds move
on: to the tail of this queue or of a shorter one, for the time that is left. So no message waits for another one
beyond its time. Let it be parked in the queue of S seconds at the time t: it is due at t + S or later. Each message
before it was parked at t or earlier, so moves on at t + S or earlier. The queue for 0 seconds may keep a message for
one second too long, as all before it are due within a second.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.default import DEFAULT
from stompy.errors import StompError
from stompy.locks import make_condition
from stompy.threads import DaemonThread
from stompy.worker.failure import (
    DUE,
    PARKED_FOR,
    PARKED_UNTIL,
    PARKING_SECONDS,
    Copy,
    copied_headers,
    copy_of,
    make_redelivered,
    parked,
    parking_queue_for,
    settle,
    text_of,
)

if TYPE_CHECKING:
    from stompy.worker.engine import Engine

_PREFETCH = 200
"""Unacknowledged messages of each parking queue."""

_MOST = 100
"""Messages that are moved together."""

_LONGEST = 600.0
"""Seconds that a message is kept unacknowledged; then it is parked again. RabbitMQ closes the session after 1800."""

_PAUSE = 1.0
"""Seconds before the next attempt to move a message, after the broker refused it."""


class _Lane:
    """The messages of one parking queue that this process has.

    Attributes:
        parking: the parking queue of the task, without the seconds.
        limit: messages that the broker sends at most.
    """

    def __init__(self, parking: str, limit: float) -> None:
        self.parking = parking
        self.limit = limit
        self._newest: Message | None = None
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, float, Message]] = []
        """When to move each message; a number for the order; when to move it if the lane is full; the message."""

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, message: Message, now: float, pause: float) -> bool:
        """Add a message, for not before `pause` seconds; return whether the lane has something to take sooner now."""
        if self._newest is not None and self._newest.session_ended:
            # The broker sends again what an ended session had.
            self._heap = [entry for entry in self._heap if not entry[-1].session_ended]
            heapq.heapify(self._heap)
        self._newest = message
        at = min(max(_time(message, DUE), now + pause), now + _LONGEST)
        until = max(_time(message, PARKED_UNTIL), now + pause)
        heapq.heappush(self._heap, (at, next(self._numbers), until, message))
        return self._heap[0][-1] is message or self._full

    @property
    def _full(self) -> bool:
        return len(self._heap) >= self.limit

    def take(self, now: float, most: int) -> list[Message]:
        """Take out what is to be moved now: what is due, and of a full lane what has waited its seconds."""
        taken: list[Message] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            taken.append(heapq.heappop(self._heap)[-1])
        if self._full:
            passed = {number for _, number, until, _ in self._heap if until <= now}
            passed = set(sorted(passed)[: most - len(taken)])
            taken += [message for _, number, _, message in self._heap if number in passed]
            self._heap = [entry for entry in self._heap if entry[1] not in passed]
            heapq.heapify(self._heap)
        return taken

    def next(self) -> float:
        """Return when there is something to take."""
        soonest = self._heap[0][0] if self._heap else math.inf
        return min(soonest, min(until for _, _, until, _ in self._heap)) if self._full else soonest

    def overdue(self, now: float) -> int:
        """Return the number of messages that are due."""
        return sum(at <= now for at, _, _, _ in self._heap)


class ParkingLot(DaemonThread):
    """Moves parked messages back when they are due.

    Args:
        engine: the running worker.
        queues: the parking queues of the tasks.
    """

    def __init__(self, engine: Engine, queues: Sequence[str]) -> None:
        super().__init__(f"stompy-{engine.name}-parking")
        self._engine = engine
        self._queues = queues
        self._condition = make_condition("parking")
        self._lanes: list[_Lane] = []
        self._most = _MOST
        self._moving = 0
        self._stopped = False

    def open(self, connection: Connection, *, limited: bool) -> None:
        """Subscribe to the parking queues and start.

        Args:
            connection: of the worker.
            limited: whether the broker observes a prefetch limit.
        """
        self.start()
        for seconds in PARKING_SECONDS:  # the shortest first, also when several have something to move
            for parking in self._queues:
                lane = _Lane(parking, _PREFETCH if limited else math.inf)
                with self._condition:
                    self._lanes.append(lane)
                connection.subscribe(
                    parking_queue_for(parking, seconds),
                    partial(self._put, lane),
                    ack="client-individual",
                    prefetch=_PREFETCH if limited else DEFAULT,
                )

    def stop(self) -> None:
        """End; what is parked stays at the broker."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def __len__(self) -> int:
        with self._condition:
            return self._moving + sum(map(len, self._lanes))

    @property
    def overdue(self) -> int:
        """Number of messages that are due and not moved yet."""
        now = self._engine.now()
        with self._condition:
            return self._moving + sum(lane.overdue(now) for lane in self._lanes)

    def _put(self, lane: _Lane, message: Message, pause: float = 0.0) -> None:
        with self._condition:
            if lane.put(message, self._engine.now(), pause):
                self._condition.notify_all()

    def run(self) -> None:
        """Wait for messages to be due, and move them, until stopped."""
        while taken := self._take():
            try:
                self._move(taken)
                self._most = min(2 * self._most, _MOST)
            except BaseException as error:
                # Then one by one, as the broker may have refused one of them.
                self._most = 1
                if isinstance(error, StompError):
                    make_redelivered(taken[0][1], error)
                left = [(lane, message) for lane, message in taken if not message.session_ended]
                if left:
                    self._engine.log(
                        logging.WARNING, "%s: %d parked message(s) were not moved: %s", self._engine.name, len(left),
                        text_of(error),
                    )  # fmt: skip
                for lane, message in left:
                    self._put(lane, message, _PAUSE if len(taken) == 1 else 0.0)

    def _take(self) -> list[tuple[_Lane, Message]]:
        """Wait until messages are to be moved, and return them; nothing when stopped."""
        with self._condition:
            self._moving = 0
            while not self._stopped:
                # The wall clock, as other processes and machines wrote the times.
                now = self._engine.now()
                taken: list[tuple[_Lane, Message]] = []
                for lane in self._lanes:
                    found = lane.take(now, self._most - len(taken))
                    taken += [(lane, message) for message in found if not message.session_ended]
                if taken:
                    self._moving = len(taken)
                    return taken
                soonest = self._soonest()
                left = None if soonest == math.inf else max(0.0, soonest - self._engine.now())
                self._condition.wait_for(partial(self._changed, soonest), self._engine.at_most(left))
            return []

    def _changed(self, soonest: float) -> bool:
        return self._stopped or self._soonest() < soonest

    def _soonest(self) -> float:
        return min((lane.next() for lane in self._lanes), default=math.inf)

    def _move(self, taken: Sequence[tuple[_Lane, Message]]) -> None:
        now = self._engine.now()
        settle(self._engine.connection, *((message, _moved(lane, message, now)) for lane, message in taken))


def _moved(lane: _Lane, message: Message, now: float) -> Copy:
    """Return the copy of a message that goes back to its queue or, if it is not due, is parked again."""
    headers = copied_headers(message, keep_expiry=True)
    target = headers.pop(PARKED_FOR, None) or lane.parking.removesuffix(".parked")
    for name in (DUE, PARKED_UNTIL):
        headers.pop(name, None)
    left = _time(message, DUE) - now
    copy = copy_of(message, target, headers, delay=max(0.0, left))
    return copy if left <= 0 else parked(copy, lane.parking, now)


def _time(message: Message, header: str) -> float:
    value = message.headers.get(header, "")
    return int(value) / 1000 if value.isdecimal() and len(value) < 16 else 0.0
