"""Tests of handlers and tasks: a message that no broker has delivered, and a worker on the embedded broker."""

from __future__ import annotations

from collections.abc import Mapping

from stompy.arguments import check_arguments
from stompy.broker.broker import Broker
from stompy.closable import Closable
from stompy.connection.encoding import Body
from stompy.connection.message import AckMode, Message, detached
from stompy.deadline import Deadline
from stompy.errors import StompTimeoutError
from stompy.worker.failure import retry_queues
from stompy.worker.parking import DUE
from stompy.worker.worker import SendRecorder, SentMessage, Worker
from stompy.world import time

_POLL = 0.005


class RunningWorker(Closable):
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

        `broker.clock.advance(seconds)` lets the retries come at once.

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


def message(
    body: Body = b"",
    *,
    headers: Mapping[str, object] | None = None,
    destination: str = "/queue/test",
    content_type: str | None = None,
    ack: AckMode = "handled",
    sent: list[SentMessage] | None = None,
) -> Message:
    """Return a message that no broker has delivered, to call a handler with in a unit test.

    Its `ack` and `nack` are recorded in its `settled`.

    Args:
        body: as for `Connection.send`.
        headers: such as `reply-to`; `message-id` is generated unless it is one of them.
        destination: it was sent to.
        content_type: as for `Connection.send`.
        ack: the mode of its subscription.
        sent: gets the messages that `Message.reply` and `Message.forward` send.

    Raises:
        LocalProtocolError: the body, a header or the destination could not have been sent.
    """
    check_arguments(message, locals(), skip=("body",))
    recorder = SendRecorder(sent)
    return detached(
        body, destination=destination, headers=headers or {}, content_type=content_type, ack=ack, sender=recorder
    )
