"""The parking queues: retries that wait, at a broker that does not deliver with a delay.

| thread | owns | may block on | never |
|---|---|---|---|
| `stompy-<worker>-parking` | parked messages, unacknowledged | its condition, the broker | runs user code |

A parked message stays unacknowledged until it is due; then it goes back to its queue, in one transaction with its
acknowledgement. If the worker ends, the broker keeps it for the next one.

A broker sends the head of a queue only, up to the prefetch limit, so a message that is due soon must not wait behind
messages that are due late. Therefore there are several parking queues, for delays of at least 0, 1, 4, 16, ... seconds.
While a queue has sent as many messages as the limit allows, the messages that have waited its number of seconds move
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
from dataclasses import replace
from functools import partial

from stompy.connection.connection import Connection
from stompy.connection.message import Message
from stompy.default import DEFAULT
from stompy.errors import ConfigurationError, SendTimeoutError, StompTimeoutError
from stompy.locks import make_condition
from stompy.threads import DaemonThread
from stompy.worker.failure import Copy, copied_headers, copy_of, end_session, queue_named, settle, text_of
from stompy.worker.run import WorkerRun
from stompy.worker.task import WILDCARDS, Task

DUE = "stompy-due"
"""Header of a parked message: when it is to go back, in milliseconds since the epoch."""
PARKED_FOR = "stompy-parked-for"
"""Header of a parked message: the queue that it goes back to."""
PARKED_UNTIL = "stompy-parked-until"
"""Header of a parked message: when it has waited the seconds of its parking queue, in milliseconds since the epoch."""

PARKING_SECONDS = (0, 1, 4, 16, 64, 256, 1_024, 4_096)
"""A message is parked in the queue for the largest of these that its delay is not below; see above."""

_PREFETCH = 200
"""Unacknowledged messages of each parking queue."""

_MOST = 100
"""Messages that are moved together."""

_LONGEST = 600.0
"""Seconds that a message is kept unacknowledged; then it is parked again. RabbitMQ closes the session after 1800."""

_PAUSE = 1.0
"""Seconds before the next attempt to move a message, after the broker refused it."""


def parking_queue(task: Task) -> str:
    """Return where messages wait for their retry, at a broker that does not deliver with a delay.

    This is the queue for delays of less than a second; the names of the others end with `.SECONDS`.

    Raises:
        ConfigurationError: the task's own subscription would take the messages from there.
    """
    name = queue_named(task.destinations[0])
    for destination in task.destinations:
        first = destination.removeprefix("/queue/").partition(".")[0]
        if destination.startswith("/queue/") and set(first) & set(WILDCARDS):
            raise ConfigurationError(f"task {task.name!r}: {destination!r} would take the retries that wait too")
    if set(task.destinations[0]) & set(WILDCARDS):
        return f"/queue/parked.{name.removeprefix('/queue/')}"  # which the task's own wildcard does not match
    return f"{name}.parked"


def parking_queue_for(parking: str, seconds: int) -> str:
    """Return one of the queues of a parking queue, for one of `PARKING_SECONDS`."""
    return f"{parking}.{seconds}" if seconds else parking


def parked(copy: Copy, parking: str, now: float) -> Copy:
    """Return a copy that waits in a parking queue instead of being delivered with a delay.

    Args:
        copy: with the delay.
        parking: the task's parking queue.
        now: seconds since the epoch.
    """
    seconds = max(each for each in PARKING_SECONDS if each <= copy.delay)
    due = _milliseconds(now + copy.delay)
    until = _milliseconds(now + seconds) if seconds else due
    headers = {**copy.headers, DUE: due, PARKED_UNTIL: until, PARKED_FOR: copy.destination}
    return replace(copy, destination=parking_queue_for(parking, seconds), headers=headers, delay=0.0)


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


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
        """Add a message, for not before `pause` seconds; return whether one is to be taken sooner now."""
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
        """Take out the messages that are due, and of a full lane the messages that have waited its seconds."""
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
        """Return when a message is to be taken."""
        soonest = self._heap[0][0] if self._heap else math.inf
        return min(soonest, min(until for _, _, until, _ in self._heap)) if self._full else soonest

    def overdue(self, now: float) -> int:
        """Return the number of messages that are due."""
        return sum(at <= now for at, _, _, _ in self._heap)


class ParkingLot(DaemonThread):
    """Moves parked messages back when they are due.

    Args:
        run: of the worker.
        queues: the parking queues of the tasks.
    """

    def __init__(self, run: WorkerRun, queues: Sequence[str]) -> None:
        super().__init__(f"stompy-{run.name}-parking")
        self._run = run
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
        """End; parked messages stay at the broker."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def __len__(self) -> int:
        with self._condition:
            return self._moving + sum(map(len, self._lanes))

    @property
    def overdue(self) -> int:
        """Number of messages that are due and not moved yet."""
        now = self._run.now()
        with self._condition:
            return self._moving + sum(lane.overdue(now) for lane in self._lanes)

    def _put(self, lane: _Lane, message: Message, pause: float = 0.0) -> None:
        with self._condition:
            if lane.put(message, self._run.now(), pause):
                self._condition.notify_all()

    def run(self) -> None:
        """Wait for messages to be due, and move them, until stopped."""
        while taken := self._take():
            try:
                now = self._run.now()
                settle(self._run.connection, *((message, _moved(lane, message, now)) for lane, message in taken))
                self._most = min(2 * self._most, _MOST)
            except BaseException as error:
                # Then one by one, as the broker may have refused one of them.
                self._most = 1
                if isinstance(error, (StompTimeoutError, SendTimeoutError)):
                    # Nothing is known of them, and the broker redelivers only the messages of a session that ended.
                    end_session(taken[0][1], f"parked messages were not moved in time: {error}")
                left = [(lane, message) for lane, message in taken if not message.session_ended]
                if left:
                    self._run.log(
                        logging.WARNING, "%s: %d parked message(s) were not moved: %s", self._run.name, len(left),
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
                now = self._run.now()
                taken: list[tuple[_Lane, Message]] = []
                for lane in self._lanes:
                    found = lane.take(now, self._most - len(taken))
                    taken += [(lane, message) for message in found if not message.session_ended]
                if taken:
                    self._moving = len(taken)
                    return taken
                soonest = self._soonest()
                left = None if soonest == math.inf else max(0.0, soonest - self._run.now())
                self._condition.wait_for(partial(self._changed, soonest), self._run.at_most(left))
            return []

    def _changed(self, soonest: float) -> bool:
        return self._stopped or self._soonest() < soonest

    def _soonest(self) -> float:
        return min((lane.next() for lane in self._lanes), default=math.inf)


def _moved(lane: _Lane, message: Message, now: float) -> Copy:
    """Return the copy of a message that goes back to its queue or, if it is not due, is parked again."""
    headers = {name: value for name, value in copied_headers(message).items() if name not in (DUE, PARKED_UNTIL)}
    target = headers.pop(PARKED_FOR, None) or lane.parking.removesuffix(".parked")
    left = _time(message, DUE) - now
    copy = copy_of(message, target, headers, delay=max(0.0, left))
    return copy if left <= 0 else parked(copy, lane.parking, now)


def _time(message: Message, header: str) -> float:
    value = message.headers.get(header, "")
    return int(value) / 1000 if value.isdecimal() and len(value) < 16 else 0.0
