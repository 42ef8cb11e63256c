"""A worker on the embedded broker, for tests; see the fixture `stomp_worker`."""

from __future__ import annotations

from stompy.broker.broker import Broker
from stompy.deadline import Deadline
from stompy.errors import StompTimeoutError
from stompy.worker.failure import DUE, retry_queues
from stompy.worker.worker import Worker
from stompy.world import time

_POLL = 0.005


class RunningWorker:
    """A worker that runs on an embedded broker.

    Attributes:
        worker: the worker.
        broker: its broker.
    """

    def __init__(self, worker: Worker, broker: Broker) -> None:
        self.worker = worker
        self.broker = broker
        worker.override(url=broker.url, clock=broker.clock.now)
        worker.start()

    def wait_idle(self, *, timeout: float = 10.0) -> None:
        """Wait until no message of the worker's queues waits or runs; retries that wait for their time do not count.

        `broker.clock.advance(seconds)` lets those come at once.

        Raises:
            StompTimeoutError: not in time.
        """
        deadline = Deadline(timeout)
        while not self._idle():
            if deadline.expired:
                raise StompTimeoutError(f"the worker is not idle after {timeout:g} s: {self.worker.health()}")
            time.sleep(_POLL)

    def _idle(self) -> bool:
        if self._moves_parked():
            return False  # first, as they are in the queues of the tasks next
        queues = self.broker.stats().queues
        names = {name for task in self.worker.tasks for name in (*task.destinations, *retry_queues(task))}
        if any(depth.total for name, depth in queues.items() if name in names):
            return False
        return not any(task.running or task.queued for task in self.worker.health().tasks.values())

    def _moves_parked(self) -> bool:
        """Return whether a parked message is due, so that it is about to be moved."""
        parked = {name: depth for name, depth in self.broker.stats().queues.items() if "parked" in name}
        health = self.worker.health()
        if health.overdue:
            return True
        alone = all(depth.consumers <= 1 for depth in parked.values())
        if alone and sum(depth.unacked for depth in parked.values()) != health.parked:
            return True  # some are on their way to the worker
        now = 1000 * self.broker.clock.now()
        waiting = (message for name, depth in parked.items() if depth.ready for message in self.broker.browse(name))
        return any(float(message.headers.get(DUE, "inf")) <= now for message in waiting)

    def close(self) -> None:
        """End the worker."""
        self.worker.close()
