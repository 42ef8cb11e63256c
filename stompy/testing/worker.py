"""A worker on the embedded broker, for tests; see the fixture `stomp_worker`."""

from __future__ import annotations

import time

from stompy.broker.broker import Broker
from stompy.deadline import Deadline
from stompy.worker.failure import parking_queue, retry_queues
from stompy.worker.worker import Worker

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
        worker._override(url=broker.url)
        worker.start()

    def wait_idle(self, timeout: float = 10.0) -> None:
        """Wait until no message of the worker's queues waits or runs; retries that wait for their time do not count.

        `broker.clock.advance(seconds)` lets those come at once.

        Raises:
            TimeoutError: not in time.
        """
        deadline = Deadline(timeout)
        while not self._idle():
            if deadline.expired:
                raise TimeoutError(f"the worker is not idle after {timeout:g} s: {self.worker.health()}")
            time.sleep(_POLL)

    def _idle(self) -> bool:
        queues = self.broker.stats().queues
        names = {name for task in self.worker.tasks for name in (*task.destinations, *retry_queues(task))}
        names -= {parking_queue(task) for task in self.worker.tasks}
        if any(depth.total for name, depth in queues.items() if name in names):
            return False
        return not any(task.running or task.queued for task in self.worker.health().tasks.values())

    def stop(self) -> None:
        """Stop the worker."""
        self.worker.stop()
